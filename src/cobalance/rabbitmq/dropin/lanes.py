"""The one thread of a program written for pika, and the lanes on which the partitions' messages reach it.

Each partition has a lane. Its worker, on the group's event loop, offers a batch of messages and waits; the program's
thread takes one message from each lane in turn, so that a revoked partition is done soon, however full the others are.
Stopping does not lose the messages of a batch that were not begun: the worker gives them back, and the close returns
them to the queue.

A message to be handled again ("nack with requeue") waits at the head of its own lane and stops only that lane: if it
were returned to RabbitMQ, it would be redelivered behind younger ones.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import attrs

from cobalance.backoff import Backoff
from cobalance.rabbitmq.consume.dead_letter_target import target_of
from cobalance.rabbitmq.consume.partition_worker import PartitionWorker
from cobalance.rabbitmq.consume.watch import Watch
from cobalance.rabbitmq.model.headers import has_odd_deaths
from cobalance.threads.gate import Promise
from cobalance.threads.wakeup import end_of, insist, result_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from cobalance.group.tenure import Tenure
    from cobalance.rabbitmq.consume.metering import Status
    from cobalance.rabbitmq.consume.partitions import Partitions
    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.partition.delivery import Delivery, QueueTenure

BACKOFF_S = Backoff(0.1, 5.0)


class LaneWorker(PartitionWorker):
    """A partition's worker that can be told to give up, and is busy while the program's thread is."""

    def __init__(self, tenure: Tenure, queue: Queue, partitions: Partitions, lanes: Lanes) -> None:
        self._lanes, self.metering = lanes, partitions.metering
        self._calling = threading.Lock()
        self._calls: list[Promise[None]] = []  # callbacks that have not returned; one may have begun the next
        super().__init__(tenure, queue, partitions)
        self.slot.watch = Watch(
            partitions.own, lambda _: None
        )  # time in callbacks is not told apart from the program's other work

    async def run(self) -> None:
        """Runs like any worker, but awaits a callback still running on cancellation, until the membership is over."""
        try:
            await super().run()
        finally:
            with self._calling:
                calls = list(self._calls)
            with self.partitions.membership.tasks.service_scope() as scope:
                for call in calls:
                    await insist(partial(end_of, call), scope)

    def _work_in_order(self, deliveries: list[Delivery]) -> Awaitable[int]:
        return self._lanes.work(self, deliveries)

    def begin(self) -> bool:
        """Returns whether the next callback may be called; called before each."""
        with self._calling:
            begins = self.slot.begin()
            if begins:
                self._calls.append(Promise())
        return begins

    def returned(self) -> None:
        """The callback called last has returned."""
        with self._calling:
            if self._calls:
                self._calls[-1].set_result(None)
                self._calls.pop()

    @property
    def busy_since(self) -> int | None:
        """There is one thread for all: if a callback hangs, so does every partition that has something to do."""
        return self._lanes.busy_since if self.slot.watch.is_busy else None

    def serves(self, channel_tenure: QueueTenure) -> bool:
        """Whether this is still the worker's channel, and new work may begin."""
        return not self.stopping and self._consumer is not None and self._consumer.tenure is channel_tenure

    def settle(self, delivery: Delivery, status: Status) -> None:
        """Acknowledges or rejects a message, or tells that it is to be handled again. Any thread."""
        counts = self.metering is not None and self.can_acknowledge(delivery)
        if status == "acked":
            self.done(delivery)
        elif status == "rejected":
            if has_odd_deaths(delivery.headers) and target_of(self.queue, "") is not None:
                self.partitions.policy.reject(
                    delivery, self
                )  # where RabbitMQ's own reject would lose it; counted on arrival
                return
            self.reject(delivery)
        if self.metering is not None and counts:
            self.metering.settled(delivery, status)

    def return_begun(self, channel_tenure: QueueTenure, deliveries: Sequence[Delivery]) -> None:
        """Returns messages that were begun to the queue with the close, and takes no more. Any thread."""
        consumer = self._consumer
        if deliveries and consumer is not None and consumer.tenure is channel_tenure:
            for delivery in deliveries:
                consumer.put_back(delivery)
            consumer.give_back(0)


@attrs.define(eq=False)
class OfferedBatch:
    """Messages of one partition, offered to the program's thread."""

    worker: LaneWorker
    deliveries: deque[Delivery]
    begun: Promise[int] = attrs.field(factory=Promise)
    """Done when the thread is through with them: how many were begun."""
    over: bool = False
    """Nothing waits for it any more: the tenure was lost."""


class Lane:
    """One partition, as long as its channel lives. On the program's thread only."""

    def __init__(self, batch: OfferedBatch) -> None:
        self.worker, self.tenure = batch.worker, batch.deliveries[0].tenure
        self._batch: OfferedBatch | None = None
        self._pending: deque[Delivery] = deque()
        self._begun = 0
        self._unsettled: dict[int, Delivery] = {}
        self._again: deque[tuple[float, Delivery]] = deque()
        self._failures: dict[int, int] = {}

    def offer(self, batch: OfferedBatch) -> None:
        """Offers more messages, once the previous ones are dealt with."""
        self._batch, self._pending, self._begun = batch, batch.deliveries, 0

    @property
    def due_at(self) -> float | None:
        """When (monotonic s) the next message is to be handled again; None if there is none."""
        return self._again[0][0] if self._again else None

    def take(self) -> tuple[Delivery, bool] | None:
        """The next message, and whether it was delivered before; None if there is none now."""
        if not self._again and not self._pending:
            return None
        if not self.worker.serves(self.tenure) or (self._batch is not None and self._batch.over):
            self.stop()
            return None
        if self._again:
            return self._take_again()
        if not self.worker.begin():
            self.stop()
            return None
        delivery = self._pending.popleft()
        self._begun += 1
        self._unsettled[delivery.delivery_tag] = delivery
        return delivery, delivery.redelivered

    def _take_again(self) -> tuple[Delivery, bool] | None:
        if self._again[0][0] > time.monotonic() or not self.worker.begin():
            return None
        return self._again.popleft()[1], True

    def close_batch(self) -> None:
        """Called after each message: reports to the worker when the batch is dealt with."""
        if self._batch is not None and not self._pending and not self._again:
            self._end_batch()

    def done(self, delivery: Delivery) -> None:
        self._settle(delivery)
        self.worker.settle(delivery, "acked")

    def reject(self, delivery: Delivery) -> None:
        self._settle(delivery)
        self.worker.settle(delivery, "rejected")

    def again(self, delivery: Delivery) -> None:
        """The message is to be handled again, before any younger one that has not been begun."""
        failures = self._failures.get(delivery.delivery_tag, 0) + 1
        self._failures[delivery.delivery_tag] = failures
        self._again.append((time.monotonic() + BACKOFF_S.pause(failures), delivery))
        self._again = deque(sorted(self._again, key=lambda it: it[1].delivery_tag))
        self.worker.settle(delivery, "error")

    def stop(self, *, give_up: bool = False) -> None:
        """Begins nothing more.

        Messages to be handled again, and with `give_up` all unfinished ones, return to the queue.
        """
        back = list(self._unsettled.values()) if give_up else [delivery for _, delivery in self._again]
        for delivery in back:
            self._settle(delivery)
        self._pending = deque()
        self._again.clear()
        self._end_batch()
        self.worker.return_begun(self.tenure, back)

    def _settle(self, delivery: Delivery) -> None:
        self._unsettled.pop(delivery.delivery_tag, None)
        self._failures.pop(delivery.delivery_tag, None)

    def _end_batch(self) -> None:
        if self._batch is not None:
            self._batch.begun.set_result(self._begun)
            self._batch = None


@attrs.frozen
class NextMessage:
    """What the program's thread is to do next."""

    lane: Lane
    delivery: Delivery
    redelivered: bool


class Lanes:
    """All lanes of a program. `wake` is called, on any thread, when there may be something to do."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._inbox: deque[OfferedBatch] = deque()
        self._stopped = False
        self._lanes: dict[str, Lane] = {}
        self._turns: deque[Lane] = deque()
        self.busy_since: int | None = None
        """Since when (ms awake) the program's thread has been busy with one message, or with something else."""

    # -- on the event loop ---------------------------------------------------------------------------------------------

    async def work(self, worker: LaneWorker, deliveries: Sequence[Delivery]) -> int:
        """Handles messages in order on the program's thread while the worker goes on; returns how many were begun."""
        batch = OfferedBatch(worker, deque(deliveries))
        with self._lock:
            if self._stopped:
                return 0
            self._inbox.append(batch)
        worker.slot.watch.begin()
        self._wake()
        try:
            return await result_of(batch.begun)
        finally:
            batch.over = True

    # -- the program's thread ------------------------------------------------------------------------------------------

    def take(self) -> NextMessage | None:
        """The next message, taken from the lanes in turn; None if there is none now."""
        self._sort_inbox()
        for _ in range(len(self._turns)):
            lane = self._turns[0]
            self._turns.rotate(-1)
            taken = lane.take()
            if taken is not None:
                return NextMessage(lane, *taken)
        return None

    def seconds_to_next(self, most: float) -> float:
        """How long to wait when `take` has nothing: until a message is to be handled again, but at most `most`."""
        due = [lane.due_at for lane in self._turns if lane.due_at is not None]
        return min(most, max(0.0, min(due) - time.monotonic())) if due else most

    def stop(self) -> None:
        """Begins nothing more, now or later."""
        with self._lock:
            self._stopped = True
            batches, self._inbox = self._inbox, deque()
        for batch in batches:
            batch.begun.set_result(0)
        for lane in self._turns:
            lane.stop()

    def give_up(self) -> None:
        """Returns unfinished messages to their queues; does not wait for a callback, which may be the caller."""
        for lane in self._turns:
            lane.stop(give_up=True)
            lane.worker.returned()

    def _sort_inbox(self) -> None:
        while self._inbox:
            batch = self._inbox.popleft()
            queue = batch.worker.queue.name
            lane = self._lanes.get(queue)
            if lane is None or lane.tenure is not batch.deliveries[0].tenure:
                lane = self._replace(queue, Lane(batch))
            lane.offer(batch)

    def _replace(self, queue: str, lane: Lane) -> Lane:
        """A new channel needs a new lane, on which the old lane's unfinished messages are redelivered."""
        old = self._lanes.get(queue)
        if old is not None:
            self._turns.remove(old)
        self._lanes[queue] = lane
        self._turns.append(lane)
        return lane
