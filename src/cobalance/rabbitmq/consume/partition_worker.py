"""Works one partition during one tenure: messages to the handler, acks back, and the release sequence.

Release: stop dispatch → finish the running handler (and, while the deadline allows, what is prefetched) →
``on_revoked`` → flush acks → bare Channel.Close → await CloseOk → release. A lost channel does not end the tenure: once
RabbitMQ is back, the same tenure consumes again, after its old handler has returned.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
from pika.exceptions import AMQPError

from cobalance.coordinator.in_flight import InFlight
from cobalance.errors import CobalanceError, QueueMismatch, QueueMissing, ServerError, sentence
from cobalance.group.engine import monotonic_ms
from cobalance.member.events import Abandoned, Drained, GuardChanged
from cobalance.rabbitmq.consume.channel_loss import GRANTED_UNCONNECTED, ChannelLosses, log_unconnected
from cobalance.rabbitmq.consume.last_tries import warn_of_last_tries
from cobalance.rabbitmq.consume.parked import Parked
from cobalance.rabbitmq.consume.watch import Watch
from cobalance.rabbitmq.partition.partition import PartitionState
from cobalance.rabbitmq.wire.failures import channel_lost
from cobalance.threads.wakeup import Wakeup, result_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from cobalance.group.tenure import Tenure
    from cobalance.member.actions import AbortReason
    from cobalance.rabbitmq.consume.partitions import Partitions
    from cobalance.rabbitmq.model.batches import Batch
    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.partition.acks import Progress
    from cobalance.rabbitmq.partition.delivery import Delivery
    from cobalance.rabbitmq.partition.in_flight import Turn
    from cobalance.rabbitmq.partition.partition import PartitionConsumer, PartitionEvent
    from cobalance.rabbitmq.partition.replies import Reply

log = logging.getLogger("cobalance.rabbitmq")

LOOK_AGAIN_MS = 20.0  # while it is uncertain whether the partition is still held

BURST = 256
"""How many messages to take from the consumer at a time."""


class PartitionWorker:
    """A :class:`cobalance.group.worker.Worker` for one partition queue."""

    def __init__(self, tenure: Tenure, queue: Queue, partitions: Partitions) -> None:
        self.tenure, self.queue = tenure, queue
        self.partitions = partitions
        self._wakeup = Wakeup()
        self._waiting = anyio.CancelScope()
        self._lock = threading.Lock()
        self._consumer: PartitionConsumer | None = None
        self._lost: CobalanceError | None = None
        self._aborted = False
        self.stopping = False
        """Nothing more may be begun; read between messages, by any thread."""
        self.watch = Watch(partitions.own, tenure.worked)
        self.share = partitions.share()
        self._losses = ChannelLosses(partitions.name, queue.name)
        self._subscribed = self._guarded = False
        self._put_off: list[Delivery] = []
        """Taken, but not begun: the partition was paused, or it was uncertain whether it is still held."""
        self.parked = Parked()
        self._doubted = False
        self._given_up: str | None = None
        self._last_word: Future[None] | None = None
        """Done when the message of a handler that never ends has arrived where it goes."""
        tenure.on_pause = self._wakeup.notify

    @property
    def in_flight(self) -> InFlight:
        """Messages that RabbitMQ has sent to this tenure; none without a channel. Any thread."""
        consumer = self._consumer
        return InFlight(0, 0) if consumer is None or consumer.state is PartitionState.ENDED else consumer.in_flight

    # -- on the event loop ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Consumes until the partition is revoked and everything that was begun is finished."""
        try:
            await self._work()
        except BaseExceptionGroup as group:  # of our own making: what a handler raised propagates as it is
            await self._close_at_once()
            raise group.exceptions[0] from None
        except BaseException:  # cancelled, by an abort or by the user
            self._let_go()
            raise
        if self._given_up is not None:
            self.tenure.ask_back()

    async def _work(self) -> None:
        while self.tenure.active and self._given_up is None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_for_end)
                tasks.start_soon(self.watch.run)
                await self._subscribe()
                await self._consume()
                await self._finish_up()
                tasks.cancel_scope.cancel()

    async def finish(self) -> Drained | Abandoned:
        """Flushes the acks, closes the channel and nothing but the channel, and waits for CloseOk."""
        resource, token = self.tenure.resource, self.tenure.token
        if self._consumer is None:
            return Drained(resource, token) if self._given_up is None else Abandoned(resource, token, self._given_up)
        try:
            progress = await result_of(self._consumer.release())
        except CobalanceError:  # which acks arrived is unknown, and what they did not cover is redelivered
            return Abandoned(resource, token, self._given_up or "channel")
        self._guard(proven=False)
        if self._given_up is not None:
            return Abandoned(resource, token, self._given_up)
        return Drained(resource, token, progress.delivered, progress.committed)

    async def _subscribe(self) -> None:
        """Makes a new consumer for this tenure: at first, after a lost channel, or after a cancelled revocation."""
        await self._close_old()
        await self._wait_while(lambda: self.tenure.paused and self.tenure.active)
        if not (self.tenure.active and await self._wait_connected()):
            return
        self._lost = None
        with self._lock:
            if self._aborted:
                return
            self.stopping = self._subscribed = False
            self._consumer = self._make_consumer()
        self._consumer.start()

    def _make_consumer(self) -> PartitionConsumer:
        return self.partitions.consumer(self.queue, self.tenure.token, self._wakeup.notify, self._consumer_event)

    async def _wait_connected(self) -> bool:
        """Waits for a connection. False if the partition is revoked first, or if this takes too long.

        A partition revoked without a connection is released at once: there is nothing to finish.
        """
        patience_ms = self.partitions.unconnected_ms
        if patience_ms is not None and not self._subscribed:
            patience_ms //= GRANTED_UNCONNECTED
        while True:
            with anyio.move_on_after(None if patience_ms is None else patience_ms / 1000) as self._waiting:
                await self.partitions.wait_connected()
                return self.tenure.active
            if not self.tenure.active:
                return False
            if not self.partitions.connection.is_open:  # otherwise it is waiting for Redis
                self._given_up = "unconnected"
                log_unconnected(self.partitions.name, self.queue.name, patience_ms or 0)
                return False

    async def _close_old(self) -> None:
        if self._consumer is None:
            return
        self._return_parked(self._consumer)
        with suppress(CobalanceError):  # that is why a new one is needed
            await result_of(self._consumer.release())
        self._consumer = None
        self._put_off = []
        self.share.leave()

    async def _close_at_once(self) -> None:
        """Handles a final failure: what is finished is acknowledged, and the rest is back in the queue."""
        self._let_go()
        if self._consumer is not None:
            with anyio.CancelScope(shield=True), suppress(CobalanceError):
                await result_of(self._consumer.closed)

    def _let_go(self) -> None:
        """Returns what is unfinished to the queue, and its room to others; a running thread begins no more of it."""
        self.stopping = True
        self.share.leave()
        if self._consumer is not None:
            self._abort(self._consumer)

    async def _consume(self) -> None:
        consumer = self._consumer
        while consumer is not None and self._may_go_on and self._lost is None:
            if consumer.is_spent and not self._aborted:
                return
            deliveries = await self._next(consumer)
            if deliveries or (self.goes_on and self.parked.due(monotonic_ms()) is not None):
                await self._handle(consumer, deliveries)
            else:
                await self._wait(self.parked.next_in(monotonic_ms()) if self.goes_on else None)
        if consumer is not None and self._lost is not None:
            await self._judge_loss(consumer, self._lost)

    @property
    def _may_go_on(self) -> bool:
        """Whether to go on with new messages.

        Not once half of the time to a deadline passed while a handler ran, and what it had not begun went back to the
        queue: if the partition may be kept after all, only a new consumer gets that again. An abort is not waited for
        here.
        """
        is_cut_short = self.stopping and not self._aborted
        return self.tenure.active and self._given_up is None and not is_cut_short

    async def _next(self, consumer: PartitionConsumer) -> list[Delivery]:
        """What to hand over now: a burst, or a batch once it is complete or has waited long enough."""
        await self._wait_sure()
        if self.tenure.paused:
            return []
        if self._put_off:
            put_off, self._put_off = self._put_off, []
            return put_off
        batch = self.partitions.batch
        deliveries = consumer.take(BURST if batch is None else batch.most)
        if batch is not None and deliveries and self.tenure.active:
            await self._gather(consumer, deliveries, batch)
        return deliveries

    async def _wait_sure(self) -> None:
        """After the process was held up for long, waits until it is known whether it has lost the partition."""
        while self._doubted and not self._is_sure and self._may_go_on and self._lost is None:
            await self._wait_while(lambda: self._may_go_on and self._lost is None, LOOK_AGAIN_MS)
        self._doubted = False

    @property
    def _is_sure(self) -> bool:
        return self.partitions.is_sure(guarded=self._guarded)

    async def _gather(self, consumer: PartitionConsumer, deliveries: list[Delivery], batch: Batch) -> None:
        with anyio.move_on_after(batch.within_ms / 1000):
            while len(deliveries) < batch.most and self.goes_on and self.tenure.active:
                more = consumer.take(batch.most - len(deliveries))
                deliveries += more
                if not more:
                    await self._wakeup.wait()

    async def _judge_loss(self, consumer: PartitionConsumer, error: CobalanceError) -> None:
        if isinstance(error, QueueMismatch):
            try:
                queue = await self.partitions.read_again(self.queue)
            except QueueMissing as missing:
                error = missing
            except ServerError as unread:
                error = channel_lost(self.queue.name, str(unread))
            except (CobalanceError, AMQPError) as unread:  # halted as it is
                log.warning(
                    "group %s: queue %s cannot be read again: %s", self.partitions.name, self.queue.name, unread
                )
            else:
                if queue is not None:
                    self.queue = queue
                    return
        verdict = self._losses.judge(
            error,
            consumed=self._subscribed,
            delivered=consumer.brought,
            connected=self.partitions.connection.is_open,
        )
        self._given_up = self._given_up or verdict.give_up
        if verdict.pause_ms:
            await self._wait_while(lambda: self.tenure.active, verdict.pause_ms)

    async def _finish_up(self) -> None:
        """Continues with what has been prefetched until half of the time to the deadline has passed."""
        consumer = self._consumer
        if consumer is None or (self.tenure.active and self._given_up is None):
            return
        paused, self._put_off = self._put_off, []
        if paused:
            consumer.give_back(len(paused))
        drained = consumer.drain(finish_buffer=True)
        until = None if self.tenure.abort_at is None else (monotonic_ms() + self.tenure.abort_at) // 2
        while not drained.done() and self._lost is None and (until is None or monotonic_ms() < until):
            deliveries = await self._next(consumer)
            if not deliveries:
                break
            await self._handle(consumer, deliveries)
        self._return_parked(consumer)
        consumer.drain()
        await result_of(drained)

    def _return_parked(self, consumer: PartitionConsumer) -> None:
        for parcel in self.parked.clear():
            for delivery in parcel.deliveries:
                consumer.put_back(delivery)

    async def _handle(self, consumer: PartitionConsumer, deliveries: list[Delivery]) -> None:
        rabbitmq = self.partitions.connection.server_version
        warn_of_last_tries(self.partitions.name, self.queue, deliveries, rabbitmq=rabbitmq)
        try:
            finished = await self.partitions.handle(deliveries, self)
        finally:
            self.watch.idle()
        if finished == len(deliveries):
            return
        if (self.tenure.paused or self._doubted) and self._may_go_on and not self.stopping:
            self._put_off = deliveries[finished:]
        else:
            consumer.give_back(len(deliveries) - finished)

    async def _watch_for_end(self) -> None:
        try:
            await self._watch()
        except anyio.get_cancelled_exc_class():  # a handler's thread is waited for, and begins no more messages
            self.stopping = True
            raise

    async def _watch(self) -> None:
        """Wakes the consuming loop on a revocation; stops it halfway to the deadline unless it is kept."""
        while True:
            asking = self.tenure.asking
            await asking.wait()
            self._waiting.cancel()
            self._wakeup.notify()
            if self.tenure.abort_at is None:
                return
            with anyio.move_on_after(max(0, self.tenure.abort_at - monotonic_ms()) / 2000):
                while asking is self.tenure.asking:
                    await self.tenure.wait_kept()
            if asking is self.tenure.asking:
                self.stopping = True
                return

    # -- for the handling of messages (event loop) ---------------------------------------------------------------------

    @property
    def goes_on(self) -> bool:
        """Whether another message may be begun; any thread."""
        return not (self.stopping or self.tenure.paused or self._given_up or self._doubted)

    async def enter(self, count: int) -> bool:
        """Waits until there is room for this many messages; False if nothing may be begun any more."""
        if not self.share.limited or not self.goes_on:
            return self.goes_on
        self.watch.idle()  # a handler that waits in line is not hung
        turns = self.share.turns(count)
        try:
            for turn in turns:
                turn.queue(self._wakeup.notify)
                await self._wait_in_line(turn)
                if not turn.has_come:
                    return False
            self.share.entered(count)
            turns = []
            return True
        finally:
            for turn in turns:
                turn.give_up()

    async def _wait_in_line(self, turn: Turn) -> None:
        await self._wait_while(lambda: not turn.has_come and self.goes_on and self.tenure.active)

    def put_down(self, count: int) -> None:
        """Marks messages as not being worked at the moment, and frees their room."""
        self.watch.idle()
        self.share.leave(count)

    async def rest(self, ms: float) -> bool:
        """Pauses before a retry; False as soon as the partition is revoked or its channel is lost."""
        await self._wait_while(lambda: self.tenure.active and not self.stopping, ms)
        return self.tenure.active and not self.stopping

    def give_up(self, why: str) -> None:
        """Gives the partition up. With ``halted:`` and a word, no member works it before an operator resumes it."""
        self._given_up = self._given_up or why
        self._wakeup.notify()

    async def _wait(self, ms: float | None) -> None:
        with anyio.move_on_after(None if ms is None else ms / 1000):
            await self._wakeup.wait()

    async def _wait_while(self, holds: Callable[[], bool], ms: float | None = None) -> None:
        with anyio.move_on_after(None if ms is None else ms / 1000):
            while holds():
                await self._wakeup.wait()

    # -- for handlers (any thread) -------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """Returns whether the next message may be begun; called before each."""
        self._doubted = not self._is_sure
        if not self.goes_on:
            return False
        self.watch.begin()
        return True

    @property
    def busy_since(self) -> int | None:
        """See :class:`cobalance.group.worker.Worker`."""
        return self.watch.busy_since

    @property
    def surely_idle(self) -> bool:
        """The program may be working a message at any place until it has acknowledged it."""
        consumer = self._consumer
        is_owed = self.partitions.manual and consumer is not None and not consumer.is_idle
        return not (self.watch.is_busy or is_owed)

    def done(self, delivery: Delivery) -> None:
        """Marks the message as processed. Does nothing if its channel is gone: it is redelivered."""
        consumer = self._consumer
        if consumer is None or consumer.tenure is not delivery.tenure:
            return
        reply = consumer.done(delivery)
        if reply is None:
            self.share.leave(1)
        else:
            self._reply(consumer, delivery, reply)

    def _reply(self, consumer: PartitionConsumer, delivery: Delivery, reply: Reply) -> Future[bool]:
        """Sends a reply; its request is settled once that is confirmed."""
        reply.wanted = lambda: not consumer.closed.done()
        sent = self.partitions.reply(reply)
        sent.add_done_callback(lambda it: self._replied(consumer, delivery, it))
        return sent

    def _replied(self, consumer: PartitionConsumer, delivery: Delivery, sent: Future[bool]) -> None:
        error = sent.exception()
        if error is not None and consumer.closed.done():  # the request is redelivered
            return
        if error is not None and self.partitions.connection.is_open:
            log.error(
                "group %s: %s The request is answered again: its partition is given up for a while, with that message first in it",
                *(self.partitions.name, sentence(error)),
            )
        elif error is None and not sent.result():
            log.warning(
                "group %s: the queue %r is gone, to which a request of %s was to be answered",
                *(self.partitions.name, delivery.properties.reply_to, delivery.queue),
            )
        self.left(delivery, kept=None if error is None else f"failed:{type(error).__name__}")

    def reject(self, delivery: Delivery) -> None:
        """RabbitMQ's own reject, which is not confirmed."""
        consumer = self._consumer
        if consumer is not None and consumer.tenure is delivery.tenure:
            consumer.reject(delivery)
            self.share.leave(1)

    def leave(self, delivery: Delivery) -> bool:
        """The message is about to be sent to the dead letters; False if its channel is gone: it is redelivered."""
        consumer = self._consumer
        if consumer is None or consumer.tenure is not delivery.tenure:
            return False
        consumer.leave(delivery)
        return True

    def stay(self, delivery: Delivery) -> None:
        """The message could not be sent to the dead letters, and is open again."""
        consumer = self._consumer
        if consumer is not None and consumer.tenure is delivery.tenure:
            consumer.stay(delivery)

    def is_settled(self, delivery: Delivery) -> bool:
        """Whether the message was settled, or is on its way to the dead letters. Not if its channel is gone."""
        consumer = self._consumer
        return consumer is not None and consumer.tenure is delivery.tenure and not consumer.is_open(delivery)

    def left(self, delivery: Delivery, *, kept: str | None = None) -> None:
        """The dead letters have the message, or not: then it is kept, and the partition given up for that reason.

        If only the connection was lost, the partition is not given up.
        """
        consumer = self._consumer
        if consumer is None or consumer.tenure is not delivery.tenure:
            return
        if kept is None:
            consumer.gone(delivery)
        else:
            if self.partitions.connection.is_open:
                self.give_up(kept)
            consumer.keep(delivery)
        self.share.leave(1)

    # -- for the engine (its thread) and the connection ----------------------------------------------------------------

    def abort(self, reason: AbortReason, stopped: Callable[[], None]) -> None:
        """Closes the channel: unfinished messages return to the queue, even if a handler is still processing one."""
        give_up = self.watch.give_up
        with self._lock:
            self._aborted = self.stopping = True
            consumer = self._consumer
        if reason == "hung" and give_up is not None:
            self._last_word = give_up()
        if consumer is None:
            stopped()
        else:
            self._abort(consumer).add_done_callback(lambda _: stopped())

    def _abort(self, consumer: PartitionConsumer) -> Future[Progress]:
        """Aborts once it is known whether the dead letters have the current message, at most RabbitMQ's timeout."""
        if self._last_word is None:
            return consumer.abort()
        self._last_word.add_done_callback(lambda _: consumer.abort())
        return consumer.closed

    def _consumer_event(self, event: PartitionEvent) -> None:
        if event.state is PartitionState.CONSUMING:
            self._subscribed = True
            self._guard(proven=True)
        elif event.state is PartitionState.WAITING:
            self._losses.wait_for_others()
        elif event.state is PartitionState.ENDED:
            self._guard(proven=False)
            self._lost = event.error
            if event.error is not None:
                self._losses.tell(event.error, connected=self.partitions.connection.is_open)
            self.stopping = True
            self._wakeup.notify()

    def prove(self, *, proven: bool) -> None:
        """Reports whether the connection, and with it the guard, is certain to exist."""
        if self._guarded:
            self._post_guard(proven=proven)

    def _guard(self, *, proven: bool) -> None:
        self._guarded = proven
        self._post_guard(proven=proven and self.partitions.connection.is_proven)

    def _post_guard(self, *, proven: bool) -> None:
        self.partitions.post(GuardChanged(self.tenure.resource, self.tenure.token, proven))
