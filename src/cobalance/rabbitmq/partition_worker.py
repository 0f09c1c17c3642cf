"""Works one partition for one tenure: messages from its consumer to the handler, acks back, and the release sequence.

Release: stop dispatch → finish the running handler (and, while the deadline allows, what is prefetched) → ``on_revoked`` →
flush acks → bare Channel.Close → await CloseOk → release. A lost channel does not end the tenure: once RabbitMQ is back,
the same tenure consumes again, after its old handler has returned.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import anyio

from cobalance.engine import monotonic_ms
from cobalance.errors import ChannelLost, CobalanceError
from cobalance.events import Abandoned, Drained, GuardChanged
from cobalance.rabbitmq.partition import Event, PartitionConsumer, State
from cobalance.wakeup import Wakeup, result_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cobalance.actions import AbortReason
    from cobalance.rabbitmq.connection import BrokerConnection
    from cobalance.rabbitmq.delivery import Delivery
    from cobalance.rabbitmq.queues import Queue
    from cobalance.tenure import Tenure

BURST = 256
"""How many messages are taken from the consumer at a time."""


class Partitions(Protocol):
    """What a worker needs of its consumer group."""

    connection: BrokerConnection

    async def wait_connected(self) -> None:
        """Returns once there is a connection to RabbitMQ."""

    def consumer(
        self, queue: Queue, token: int, on_ready: Callable[[], None], on_event: Callable[[Event], None]
    ) -> PartitionConsumer:
        """A consumer for one tenure, on the present connection."""

    async def handle(self, deliveries: Sequence[Delivery], worker: PartitionWorker) -> int:
        """Has them handled in order, as far as the worker goes on; returns how many were begun."""

    def post(self, event: GuardChanged) -> None:
        """To the session."""


class PartitionWorker:
    """A :class:`cobalance.worker.Worker` for one partition queue."""

    def __init__(self, tenure: Tenure, queue: Queue, partitions: Partitions) -> None:
        self.tenure, self.queue = tenure, queue
        self._partitions = partitions
        self._wakeup = Wakeup()
        self._lock = threading.Lock()
        self._consumer: PartitionConsumer | None = None
        self._lost: CobalanceError | None = None
        self._aborted = False
        self.stopping = False
        """Nothing more may be begun; read between messages, by any thread."""
        self.busy_since: int | None = None

    # -- the event loop's side -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Consumes until the partition is asked back and everything that was begun is finished."""
        while self.tenure.active:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch)
                await self._subscribe()
                await self._consume()
                await self._finish_up()
                tasks.cancel_scope.cancel()

    async def finish(self) -> Drained | Abandoned:
        """Flushes the acks, closes the channel and nothing but the channel, and waits for CloseOk."""
        resource, token = self.tenure.resource, self.tenure.token
        if self._consumer is None:
            return Drained(resource, token)
        try:
            progress = await result_of(self._consumer.release())
        except ChannelLost:  # which acks arrived is unknown, and what they did not cover is redelivered
            return Abandoned(resource, token, "channel")
        self._guard(proven=False)
        return Drained(resource, token, progress.delivered, progress.committed)

    async def _subscribe(self) -> None:
        """A fresh consumer for this tenure: at first, after a lost channel, and after a revocation that was cancelled."""
        await self._close_old()
        await self._partitions.wait_connected()
        self._lost = None
        with self._lock:
            if self._aborted:
                return
            self.stopping = False
            self._consumer = self._partitions.consumer(
                self.queue, self.tenure.token, self._wakeup.notify, self._consumer_event
            )
        self._consumer.start()

    async def _close_old(self) -> None:
        if self._consumer is None:
            return
        with suppress(ChannelLost):  # that is why there has to be a new one
            await result_of(self._consumer.release())
        self._consumer = None

    async def _consume(self) -> None:
        consumer = self._consumer
        while consumer is not None and self.tenure.active and not self._cut_short and self._lost is None:
            deliveries = consumer.take(BURST)
            if deliveries:
                await self._handle(consumer, deliveries)
            else:
                await self._wakeup.wait()
        if self._lost is not None and not isinstance(self._lost, ChannelLost):
            raise self._lost

    @property
    def _cut_short(self) -> bool:
        """Half of the time to a deadline passed while a handler ran, and what it had not begun went back to the queue. If the
        partition may be kept even so, it takes a fresh consumer to get that again. (An abort is not waited for here.)
        """
        return self.stopping and not self._aborted

    async def _finish_up(self) -> None:
        """Goes on with what has been prefetched until half of the time to the deadline has passed."""
        consumer = self._consumer
        if consumer is None or self.tenure.active:
            return
        drained = consumer.drain(finish_buffer=True)
        until = None if self.tenure.abort_at is None else (monotonic_ms() + self.tenure.abort_at) // 2
        while not drained.done() and self._lost is None and (until is None or monotonic_ms() < until):
            deliveries = consumer.take(BURST)
            if not deliveries:
                break
            await self._handle(consumer, deliveries)
        consumer.drain()
        await result_of(drained)

    async def _handle(self, consumer: PartitionConsumer, deliveries: list[Delivery]) -> None:
        try:
            begun = await self._partitions.handle(deliveries, self)
        finally:
            self.busy_since = None
        if begun < len(deliveries):
            consumer.give_back(len(deliveries) - begun)

    async def _watch(self) -> None:
        """Wakes the consuming loop when the partition is asked back; later takes away what it could not finish in time, unless
        the partition may be kept by then.
        """
        while True:
            asking = self.tenure.asking
            await asking.wait()
            self._wakeup.notify()
            if self.tenure.abort_at is None:
                return
            await anyio.sleep(max(0, self.tenure.abort_at - monotonic_ms()) / 2000)
            if asking is self.tenure.asking:
                self.stopping = True
                return

    # -- handlers' side (any thread) -------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Before each message: whether it may be begun."""
        if self.stopping:
            return False
        self.busy_since = monotonic_ms()
        return True

    def done(self, delivery: Delivery) -> None:
        """The message was processed. Of no effect when its channel is gone: it is delivered again."""
        consumer = self._consumer
        if consumer is not None and consumer.tenure is delivery.tenure:
            consumer.done(delivery)

    def reject(self, delivery: Delivery) -> None:
        """The message is given up, to be dead-lettered. Of no effect when its channel is gone: it is delivered again."""
        consumer = self._consumer
        if consumer is not None and consumer.tenure is delivery.tenure:
            consumer.reject(delivery)

    # -- the engine's side (its thread), and the connection's -------------------------------------------------------------

    def abort(self, reason: AbortReason, stopped: Callable[[], None]) -> None:
        """Closes the channel: whatever is unfinished goes back to the queue, though a handler may still be at it."""
        del reason
        with self._lock:
            self._aborted = self.stopping = True
            consumer = self._consumer
        if consumer is None:
            stopped()
        else:
            consumer.abort().add_done_callback(lambda _: stopped())

    def _consumer_event(self, event: Event) -> None:
        if event.state is State.CONSUMING:
            self._guard(proven=True)
        elif event.state is State.ENDED:
            self._guard(proven=False)
            self._lost = event.error
            self.stopping = True
            self._wakeup.notify()

    def _guard(self, *, proven: bool) -> None:
        self._partitions.post(GuardChanged(self.tenure.resource, self.tenure.token, proven))
