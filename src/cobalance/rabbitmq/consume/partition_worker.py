"""Works one partition during one tenure: messages to the handler, acks back, and the release sequence.

Release: stop dispatch → finish the running handler (and, while the deadline allows, what is prefetched) →
``on_revoked`` → flush acks → bare Channel.Close → await CloseOk → release. A lost channel does not end the tenure: once
RabbitMQ is back, the same tenure consumes again, after its old handler has returned.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
from pika.exceptions import AMQPError

from cobalance.coordinator.in_flight import InFlight
from cobalance.errors import CobalanceError, QueueMismatch, QueueMissing, ServerError, UsageError, sentence
from cobalance.member.events import Abandoned, Drained, GuardChanged
from cobalance.rabbitmq.consume.channel_loss import (
    STILL_UNCONNECTED,
    UNCONNECTED,
    ChannelLosses,
    Unconnected,
    granted_patience_ms,
    halted,
    log_unconnected,
)
from cobalance.rabbitmq.consume.earlier_failures import EarlierFailures
from cobalance.rabbitmq.consume.finish import Finish
from cobalance.rabbitmq.consume.last_tries import warn_of_last_tries
from cobalance.rabbitmq.consume.last_words import LastWords
from cobalance.rabbitmq.consume.refused_replies import follow_refusal
from cobalance.rabbitmq.consume.revocation import Revocation
from cobalance.rabbitmq.consume.slot import Slot
from cobalance.rabbitmq.consume.watch import Watch, watch_over
from cobalance.rabbitmq.partition.backlog import BURST
from cobalance.rabbitmq.partition.states import UNSUBSCRIBED, PartitionState
from cobalance.rabbitmq.wire.failures import channel_lost
from cobalance.threads.wakeup import Wakeup, result_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Future

    from cobalance.group.tenure import Tenure
    from cobalance.member.actions import AbortReason
    from cobalance.rabbitmq.consume.by_key import StartSoon
    from cobalance.rabbitmq.consume.parcels import Parcel
    from cobalance.rabbitmq.consume.partitions import Partitions
    from cobalance.rabbitmq.model.batches import Batch
    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.partition.acks import Progress
    from cobalance.rabbitmq.partition.delivery import Delivery
    from cobalance.rabbitmq.partition.in_flight import Turn
    from cobalance.rabbitmq.partition.partition import PartitionConsumer, PartitionEvent
    from cobalance.rabbitmq.partition.replies import Reply

log = logging.getLogger("cobalance.rabbitmq")

_CANCELLED = frozenset({"lost", "fenced", "deadline"})
"""Reasons for which they are cancelled only now."""

_ENDED = PartitionState.ENDED  # Python 3.11 takes its time to find a member of an enumeration

LOOK_AGAIN_MS = 20.0  # while it is uncertain whether the partition is still held


class PartitionWorker:
    """A :class:`cobalance.group.worker.Worker` for one partition queue."""

    _marks_redelivered = True
    """Whether RabbitMQ marks what it delivers again."""
    may_be_settled: bool
    """Whether the program may have settled messages that no handler is done with."""
    _acknowledged, _acked_at = 0, 0  # by former consumers of this tenure; in monotonic ms, 0 if by none

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
        self.slot = Slot(self, Watch(partitions.own, tenure.worked))
        """Where messages are worked in order."""
        self.slots = [self.slot]
        self.by_key = partitions.by_key(self)
        """Works messages side by side; None if they are worked in order."""
        self._in_line: set[Wakeup] = set()
        self.share, self.may_be_settled = partitions.share(), partitions.manual
        self._losses = ChannelLosses(partitions.name, queue.name, key_prefix=partitions.key_prefix)
        self._unconnected = Unconnected(partitions.link)
        self._subscribed = self._guarded = False  # the first: ever in this tenure
        self._put_off: list[Delivery] = []
        """Taken, but not begun: the partition was paused, or it was uncertain whether it is still held."""
        self._doubted, self.revocation = False, Revocation(tenure)
        self._given_up: str | None = None
        self._last_words = LastWords()
        self.earlier = EarlierFailures(partitions.prefetch_of(queue), marked=self._marks_redelivered)
        """Of messages that returned to the queue with a lost channel."""
        self.refused: set[Delivery] = set()
        """Requests whose replies RabbitMQ has refused, until it is decided what follows."""
        tenure.on_pause = self.notify

    @property
    def in_flight(self) -> InFlight | None:
        """Messages that RabbitMQ has sent to this tenure. None while it does not consume: others may, whether it waits for
        them or not. Any thread.
        """
        consumer = self._consumer
        return None if consumer is None or consumer.state in UNSUBSCRIBED else consumer.in_flight

    @property
    def acknowledged(self) -> int:
        """How many messages this tenure has acknowledged, dead-lettered ones included. Any thread."""
        with self._lock:
            return self._acknowledged + (0 if self._consumer is None else self._consumer.acknowledged)

    @property
    def acked_at(self) -> int:
        """When the last of these was, in monotonic ms; 0 if there is none. Any thread."""
        with self._lock:
            return max(self._acked_at, 0 if self._consumer is None else self._consumer.acked_at)

    @property
    def busy_ms(self) -> int:
        """For how long handlers have run in this tenure; of those side by side, each. Any thread."""
        return self.tenure.effort.busy_ms + sum(watch.running_ms for watch in self._watches())

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
        finally:
            if self.by_key is not None:
                self.by_key.close()  # it may wait for a place, which is everybody's
            self.share.leave()  # what is unsettled now comes again elsewhere
        if self._given_up is not None:
            self.tenure.ask_back()

    async def _work(self) -> None:
        while self.tenure.active and self._given_up is None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_for_end)
                tasks.start_soon(watch_over, self._watches)
                await self._subscribe()
                await self._consume(tasks.start_soon)
                while await self._finish_up(tasks.start_soon):
                    await self._consume(tasks.start_soon)
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
        await self.close_old()
        await self.wait_while(lambda: self.tenure.paused and self.tenure.active)
        if not (self.tenure.active and await self._wait_connected()):
            return
        self._lost = None
        with self._lock:
            if self._aborted:
                return
            self.stopping = False
            try:
                self._consumer = self._make_consumer()
            except UsageError as error:  # known only from here on, where RabbitMQ's version is
                self._given_up = halted(self.partitions.name, self.queue.name, error, self.partitions.key_prefix)
                return
            if self.by_key is not None:
                self.by_key.reopen()
        self._consumer.start()

    def _make_consumer(self) -> PartitionConsumer:
        return self.partitions.consumer(self.queue, self.tenure.token, self._wakeup.notify, self._consumer_event)

    async def _wait_connected(self) -> bool:
        """Waits for a connection. False if the partition is revoked first, or if this takes too long.

        A partition revoked without a connection is released at once: there is nothing to finish.
        """
        patience_ms, why = self.partitions.unconnected_ms, UNCONNECTED
        if patience_ms is not None and not self._subscribed:
            patience_ms, why = granted_patience_ms(patience_ms), STILL_UNCONNECTED
        past_ms = self._unconnected.look(self.acknowledged)
        while patience_ms is None or past_ms < patience_ms:
            with anyio.move_on_after(None if patience_ms is None else (patience_ms - past_ms) / 1000) as self._waiting:
                await self.partitions.link.wait_connected()
                self._unconnected.look(self.acknowledged)
                return self.tenure.active
            if not self.tenure.active:
                return False
            past_ms = self._unconnected.look(self.acknowledged)  # 0 if it is waiting for Redis
        self._given_up = why
        log_unconnected(self.partitions.name, self.queue.name, patience_ms)
        return False

    async def close_old(self) -> None:
        """Closes the channel, to be followed by another one of the same tenure, which what is open comes again on."""
        if self._consumer is None:
            return
        with suppress(CobalanceError):  # that is why a new one is needed
            await result_of(self._consumer.abort())
        with self._lock:
            self._acknowledged += self._consumer.acknowledged
            self._acked_at = max(self._acked_at, self._consumer.acked_at)
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

    async def _consume(self, start_soon: StartSoon) -> None:
        consumer = self._consumer
        while consumer is not None and self._may_go_on and self._lost is None:
            if consumer.is_spent and not self._aborted:
                return
            deliveries = await self.next_deliveries(consumer)
            if deliveries and self.by_key is None:
                await self.handle(consumer, deliveries)
            elif self.by_key is None:
                await self._wakeup.wait()
            else:
                self.by_key.add(deliveries)
                self.by_key.open_slots(start_soon)
                if deliveries:  # only who finds nothing is woken by what comes
                    await anyio.lowlevel.checkpoint()
                else:
                    await self.wait(self.by_key.next_in if self.goes_on else None)
        if consumer is not None and self._lost is not None:
            await self.end_slots()
            await self._judge_loss(consumer, self._lost)

    @property
    def _may_go_on(self) -> bool:
        """Whether to go on with new messages.

        Not once half of the time to a deadline passed while a handler ran, and what it had not begun went back to the
        queue: if the partition may be kept after all, only a new consumer gets that again. An abort is not waited for
        here.
        """
        is_cut_short = self.stopping and not self._aborted
        has_failed = self.by_key is not None and self.by_key.has_failed
        return self.tenure.active and self._given_up is None and not is_cut_short and not has_failed

    async def next_deliveries(self, consumer: PartitionConsumer) -> list[Delivery]:
        """What to hand over now: a burst, or a batch once it is complete or has waited long enough."""
        await self._wait_sure()
        if self.tenure.paused:
            return []
        if self._put_off:
            put_off, self._put_off = self._put_off, []
            return put_off
        batch = self.partitions.batch
        deliveries = consumer.take(BURST if batch is None else batch.most)
        if batch is not None and deliveries and self.tenure.active and self.by_key is None:
            await self._gather(consumer, deliveries, batch)
        rabbitmq = self.partitions.connection.server_version
        warn_of_last_tries(self.partitions.name, self.queue, deliveries, rabbitmq=rabbitmq)
        return deliveries

    async def _wait_sure(self) -> None:
        """After the process was held up for long, waits until it is known whether it has lost the partition."""
        while self._doubted and not self._is_sure and self._may_go_on and self._lost is None:
            await self.wait_while(lambda: self._may_go_on and self._lost is None, LOOK_AGAIN_MS)
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
            await self.wait_while(lambda: self.tenure.active, verdict.pause_ms)

    async def _finish_up(self, start_soon: StartSoon) -> bool:
        """Finishes what is begun, once nothing new is. Returns whether the same channel goes on after all."""
        if self._consumer is None:
            await self.end_slots()
            return False
        return await Finish(self, self._consumer).work(start_soon)

    async def end_slots(self) -> None:
        """Begins nothing more by key, and waits for the handlers that run. What was not begun returns to the queue."""
        if self.by_key is not None:
            self.by_key.close()
            await self.wait_while(lambda: self.by_key is not None and not self.by_key.is_idle)
            self.by_key.raise_failure()

    async def handle(self, consumer: PartitionConsumer, deliveries: list[Delivery]) -> bool:
        """Returns whether all of them are done with."""
        try:
            finished = await self._work_in_order(deliveries)
        finally:
            self.slot.watch.idle()
        if finished == len(deliveries):
            return True
        if self._may_begin_later:
            self._put_off = deliveries[finished:]
        else:
            consumer.give_back(len(deliveries) - finished)
        return False

    def _work_in_order(self, deliveries: list[Delivery]) -> Awaitable[int]:
        """Returns how many are done with."""
        return self.partitions.handle(deliveries, self)

    @property
    def _may_begin_later(self) -> bool:
        """Whether what was taken, and is not begun, is worked once the partition is resumed, sure, or kept after all."""
        if self._given_up is not None or self._lost is not None or self._aborted:
            return False
        is_paused = (self.tenure.paused or self._doubted) and self._may_go_on and not self.stopping
        return is_paused or not self.tenure.active

    async def _watch_for_end(self) -> None:
        try:
            await self._watch()
        except anyio.get_cancelled_exc_class():  # a handler's thread is waited for, and begins no more messages
            self.stopping = True
            raise

    async def _watch(self) -> None:
        """Wakes the consuming loop on a revocation; stops it halfway to the deadline unless it is kept."""
        await self.revocation.watch(asked=self._asked, half_over=self._stop_beginning, told=self.notify)

    def _asked(self) -> None:
        self._waiting.cancel()
        self.notify()

    def _stop_beginning(self) -> None:
        self.stopping = True
        self.notify()

    # -- for the end of its work on a channel (event loop) -------------------------------------------------------------

    def is_kept(self) -> bool:
        """Whether it is neither asked back nor given up, or not any more."""
        return self.tenure.active and self._given_up is None

    @property
    def is_given_up(self) -> bool:
        """Whether its worker gives it up, though nobody may have asked for it."""
        return self._given_up is not None

    @property
    def is_finishing(self) -> bool:
        """Whether what has been sent ahead is still begun, once it is asked back."""
        return not (self.is_kept() or self.is_given_up or self._lost is not None or self.revocation.is_half_over)

    @property
    def is_doubted(self) -> bool:
        """Whether it is uncertain that the partition is still held."""
        return self._doubted

    def take_put_off(self) -> list[Delivery]:
        """What was taken, and is not begun."""
        put_off, self._put_off = self._put_off, []
        return put_off

    def go_on(self, consumer: PartitionConsumer) -> bool:
        """Continues on a channel whose partition is kept after all; False if that takes another one."""
        if self._lost is not None or not consumer.go_on():
            return False
        with self._lock:
            self.stopping = False
            if self._aborted or consumer.is_spent:  # meanwhile
                self.stopping = True
        if self.by_key is not None:
            self.by_key.reopen()
        return True

    # -- for the handling of messages (event loop) ---------------------------------------------------------------------

    @property
    def goes_on(self) -> bool:
        """Whether another message may be begun; any thread."""
        return not (self.stopping or self.tenure.paused or self._given_up or self._doubted)

    async def wait_in_line(self, turn: Turn) -> None:
        """Waits for a turn, or until nothing may be begun any more."""
        wakeup = Wakeup()
        self._in_line.add(wakeup)
        turn.queue(wakeup.notify)
        try:
            while not turn.has_come and self.goes_on and (self.tenure.active or self.by_key is not None):
                await wakeup.wait()
        finally:
            self._in_line.discard(wakeup)

    def wake(self) -> None:
        """Something has changed that the worker itself may wait for. Any thread."""
        self._wakeup.notify()

    def notify(self) -> None:
        """Something has changed that the worker, or a slot in line, may wait for. Any thread."""
        self.wake()
        for wakeup in list(self._in_line):
            wakeup.notify()

    async def rest(self, ms: float) -> bool:
        """Pauses before a retry; False as soon as the partition is revoked or its channel is lost."""
        await self.wait_while(lambda: self.tenure.active and not self.stopping, ms)
        return self.tenure.active and not self.stopping

    async def rest_beside(self, ms: float) -> bool:
        """The same beside the worker's own task, so also False as soon as the partition is given up."""
        wakeup = Wakeup()
        self._in_line.add(wakeup)
        try:
            with anyio.move_on_after(ms / 1000):
                while self._keeps_on:
                    await wakeup.wait()
        finally:
            self._in_line.discard(wakeup)
        return self._keeps_on

    @property
    def _keeps_on(self) -> bool:
        return self.tenure.active and not self.stopping and self._given_up is None

    def give_up(self, why: str) -> None:
        """Gives the partition up. With ``halted:`` and a word, no member works it before an operator resumes it."""
        self._given_up = self._given_up or why
        self.notify()

    async def wait(self, ms: float | None) -> None:
        with anyio.move_on_after(None if ms is None else ms / 1000):
            await self._wakeup.wait()

    async def wait_while(self, holds: Callable[[], bool], ms: float | None = None) -> None:
        with anyio.move_on_after(None if ms is None else ms / 1000):
            while holds():
                await self._wakeup.wait()

    # -- for handlers (any thread) -------------------------------------------------------------------------------------

    def may_begin(self) -> bool:
        """Returns whether the next message may be begun; called before each."""
        self._doubted = not self._is_sure
        return self.goes_on

    @property
    def busy_since(self) -> int | None:
        """See :class:`cobalance.group.worker.Worker`."""
        return min((it for watch in self._watches() if (it := watch.busy_since) is not None), default=None)

    def _watches(self) -> list[Watch]:
        return [slot.watch for slot in list(self.slots)]

    @property
    def surely_idle(self) -> bool:
        """The program may be working a message at any place until it has acknowledged it."""
        consumer = self._consumer
        is_owed = self.partitions.manual and consumer is not None and not consumer.is_idle
        return not (is_owed or any(watch.is_busy for watch in self._watches()))

    def _current(self, delivery: Delivery) -> PartitionConsumer | None:
        """The consumer that brought the message, as far as its tenure goes; None if there is none any more."""
        consumer = self._consumer
        return consumer if consumer is not None and consumer.tenure is delivery.tenure else None

    def can_acknowledge(self, delivery: Delivery) -> bool:
        """Not once its channel, or its tenure, is over: the message is redelivered. Any thread."""
        consumer = self._current(delivery)
        return consumer is not None and consumer.state is not _ENDED

    def done(self, delivery: Delivery) -> None:
        """Marks the message as processed. Does nothing if its channel is gone: it is redelivered."""
        consumer = self._current(delivery)
        if consumer is None:
            return
        reply = consumer.done(delivery)
        if reply is None:
            self.share.leave(1)
        else:
            self._reply(consumer, delivery, reply)

    def _reply(self, consumer: PartitionConsumer, delivery: Delivery, reply: Reply) -> Future[bool]:
        """Sends a reply; its request is settled once that is confirmed."""
        reply.wanted = lambda: not consumer.closed.done()
        sent = self.partitions.link.replies.send(reply)
        sent.add_done_callback(lambda it: self._replied(consumer, delivery, reply, it))
        return sent

    def _replied(self, consumer: PartitionConsumer, request: Delivery, reply: Reply, sent: Future[bool]) -> None:
        error = sent.exception()
        if error is None:
            self.answered(request, routed=sent.result())
        elif consumer.closed.done():  # the request is redelivered
            return
        elif reply.is_refused and isinstance(error, CobalanceError):
            self.refused.add(request)
            self.partitions.membership.start_soon(partial(follow_refusal, request, reply, error, self))
        else:
            self.unanswered(request, error)

    def answered(self, request: Delivery, *, routed: bool) -> None:
        """RabbitMQ has confirmed the reply to a request, and whether there was a queue for it."""
        if not routed:
            log.warning(
                "group %s: the queue %r is gone, to which a request of %s was to be answered",
                *(self.partitions.name, request.properties.reply_to, request.queue),
            )
        self.left(request)

    def unanswered(self, request: Delivery, error: BaseException) -> None:
        """Nobody knows whether RabbitMQ has the reply: the request is answered again."""
        if self.partitions.connection.is_open:
            log.error(
                "group %s: %s The request is answered again: its partition is given up for a while, with that message first in it",
                *(self.partitions.name, sentence(error)),
            )
        self.left(request, kept=f"failed:{type(error).__name__}")

    def reject(self, delivery: Delivery) -> None:
        """RabbitMQ's own reject, which is not confirmed."""
        consumer = self._current(delivery)
        if consumer is not None:
            consumer.reject(delivery)
            self.share.leave(1)

    def leave(self, delivery: Delivery) -> bool:
        """The message is about to be sent to the dead letters; False if its channel is gone: it is redelivered."""
        consumer = self._current(delivery)
        if consumer is None:
            return False
        consumer.leave(delivery)
        return True

    def stay(self, delivery: Delivery) -> None:
        """The message could not be sent to the dead letters, and is open again."""
        consumer = self._current(delivery)
        if consumer is not None:
            consumer.stay(delivery)

    def put_back(self, delivery: Delivery) -> None:
        """Has the message redelivered after the close, for the next holder, unless it was settled."""
        consumer = self._current(delivery)
        if consumer is not None:
            consumer.put_back(delivery)

    def is_settled(self, delivery: Delivery) -> bool:
        """Whether the message was settled, or is on its way to the dead letters. Not if its channel is gone."""
        consumer = self._current(delivery)
        return consumer is not None and not consumer.is_open(delivery)

    def has_settled(self, parcel: Parcel) -> bool:
        """Whether the program has settled all of a parcel; what it has settled is dropped from it. Any thread."""
        return self.may_be_settled and not parcel.drop(self.is_settled)

    def left(self, delivery: Delivery, *, kept: str | None = None) -> None:
        """The dead letters have the message, or not: then it is kept, and the partition given up for that reason.

        If only the connection was lost, the partition is not given up.
        """
        self.refused.discard(delivery)
        consumer = self._current(delivery)
        if consumer is None:
            return
        if kept is None:
            consumer.gone(delivery)
        else:
            if self.partitions.connection.is_open:
                self.give_up(kept)
            consumer.keep(delivery)
        self.share.leave(1)

    def keep(self, delivery: Delivery) -> None:
        """Has a message that was left redelivered after the close, for the next holder, if its channel is still there."""
        self.refused.discard(delivery)
        consumer = self._current(delivery)
        if consumer is not None:
            consumer.keep(delivery)
            self.share.leave(1)

    # -- for the engine (its thread) and the connection ----------------------------------------------------------------

    def abort(self, reason: AbortReason, stopped: Callable[[], None]) -> None:
        """Closes the channel: unfinished messages return to the queue.

        Somebody else may wait for them there, so a handler that runs has a moment to end before: on the event loop it is
        cancelled now. One that hung, or whose loop is blocked, is not waited for.
        """
        hung = [slot for slot in list(self.slots) if slot.watch.is_overdue] if reason == "hung" else []
        with self._lock:
            self._aborted = self.stopping = True
            consumer = self._consumer
        self._last_words.of_hung(hung)
        if reason in _CANCELLED:
            self._last_words.of_cancelled(self._watches(), self.partitions.connection)
        if consumer is None:
            stopped()
        else:
            self._abort(consumer).add_done_callback(lambda _: stopped())

    def _abort(self, consumer: PartitionConsumer) -> Future[Progress]:
        """Aborts once cancelled handlers have ended, and it is known whether the dead letters have the current messages. That
        may be long after the partition was given up, for as long as RabbitMQ takes more of a large one: until then RabbitMQ
        lets nobody else in, who would hang over the same message.
        """
        self._last_words.then(partial(consumer.abort, forced=self._aborted))
        return consumer.closed

    def _consumer_event(self, event: PartitionEvent) -> None:
        if event.state is PartitionState.CONSUMING:
            if not self._subscribed:
                self.partitions.moved(self.tenure.resource, self.tenure.token, "consuming")
            self._subscribed = True
            self._guard(proven=True)
            self.notify()  # a stream can be recognized now
        elif event.state is PartitionState.WAITING:
            self._losses.wait_for_others()
        elif event.state is PartitionState.ENDED:
            self._guard(proven=False)
            self._lost = event.error
            if event.error is not None:
                self._losses.tell(event.error, connected=self.partitions.connection.is_open)
            self.stopping = True
            self.notify()

    def prove(self, *, proven: bool) -> None:
        """Reports whether the connection, and with it the guard, is certain to exist."""
        if self._guarded:
            self._post_guard(proven=proven)

    def _guard(self, *, proven: bool) -> None:
        self._guarded = proven
        self._post_guard(proven=proven and self.partitions.connection.is_proven)

    def _post_guard(self, *, proven: bool) -> None:
        self.partitions.membership.engine.post(GuardChanged(self.tenure.resource, self.tenure.token, proven))
