"""Consumes one queue during one tenure: `core.py` decides, pika does it.

The rules are the core's, and so is the order of what is done. This is what they need around them: a lock, since
programs call from any thread; the connection's thread, which carries out what concerns the broker; pika's channel and
its callbacks; and futures for whoever waits. A consumer serves one tenure and is never reused.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, ClassVar

from pika.channel import Channel
from pika.spec import Basic, BasicProperties

from cobalance.coordinator.in_flight import InFlight
from cobalance.errors import CobalanceError, counted
from cobalance.group.clock import monotonic_ms
from cobalance.rabbitmq.model.queues import Guard, Queue
from cobalance.rabbitmq.partition import actions as act
from cobalance.rabbitmq.partition.acks import Flush, Progress
from cobalance.rabbitmq.partition.actions import Timer
from cobalance.rabbitmq.partition.backlog import Outcome
from cobalance.rabbitmq.partition.channel import prove_and_subscribe, send_acks
from cobalance.rabbitmq.partition.core import PartitionCore
from cobalance.rabbitmq.partition.delivery import Delivery, QueueTenure
from cobalance.rabbitmq.partition.replies import Drafts, Reply
from cobalance.rabbitmq.partition.returned import Returned
from cobalance.rabbitmq.partition.standstill import Standstill
from cobalance.rabbitmq.partition.states import PartitionEvent, PartitionState
from cobalance.rabbitmq.partition.unapplied import Unapplied
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.containment import contained, failure_of, unreadable
from cobalance.rabbitmq.wire.failures import channel_failure, channel_lost, in_exclusive_use, unguarded
from cobalance.rabbitmq.wire.lock_queue import CONSUMER_TAG, LockQueue
from cobalance.rabbitmq.wire.pika_internals import Unreadable, bare_close

__all__ = ["PartitionConsumer", "PartitionEvent", "PartitionState"]

log = logging.getLogger("cobalance.rabbitmq")


class PartitionConsumer:
    """One queue for one tenure, on its own channel. Public methods may be called from any thread.

    `on_ready()` is called when messages or the right to take them arrive, once after each empty `take`; it runs on the
    I/O thread (or in `resume`) and must not block. `on_event` reports WAITING, CONSUMING and an unrequested end. Acks
    are sent when `ack_every` messages are finished, or after `ack_interval_ms`, and always before the channel is
    closed.
    """

    def __init__(
        self,
        connection: BrokerConnection,
        queue: Queue,
        *,
        token: int,
        on_ready: Callable[[], None],
        on_event: Callable[[PartitionEvent], None] = lambda _: None,
        prefetch: int = 100,
        require_guard: bool = True,
        lock: str | None = None,
        holds_lock: bool = True,
        **rules: Any,
    ) -> None:
        """`lock` is an exclusive queue to hold meanwhile, or to wait for if others hold it; `rules` are for
        :class:`PartitionCore`.
        """
        if require_guard and queue.guard is Guard.NONE:
            raise unguarded(queue)
        self.queue, self.tenure = queue, QueueTenure(queue.name, token)
        self.consume_arguments: dict[str, str | int] = {}
        self.drained: Future[None] = Future()
        """Done when, after `drain`, everything handed out is finished."""
        self.closed: Future[Progress] = Future()
        """Done when the tenure has ended: with its progress if CloseOk came, else with the error that ended it."""
        for promise in (self.drained, self.closed):
            promise.set_running_or_notify_cancel()  # A waiter that gives up must not cancel it for others.
        self._connection, self._on_ready, self._on_event = connection, on_ready, on_event
        self._prefetch = prefetch
        self._core = PartitionCore(queue.name, prefetch=prefetch, locks=lock is not None, **rules)
        self._lock = threading.Lock()  # guards the core and the drafts; never held while calling out
        self._drafts = Drafts(self._lock, self._core.may_answer, self._check_reply)
        self._channel: Channel | None = None
        self._returned: Returned | None = None
        self._unapplied: Unapplied | None = None
        self._lock_queue = LockQueue(connection, lock, holds=holds_lock) if lock is not None else None
        self._listens = False  # to the end of the connection
        self._forced = False
        self._acked_at = 0

    @property
    def state(self) -> PartitionState:
        """The state at the broker."""
        return self._core.state

    @property
    def progress(self) -> Progress:
        """Messages handed out and acknowledged."""
        with self._lock:
            return self._core.acks.progress

    @property
    def in_flight(self) -> InFlight:
        """Messages that RabbitMQ has sent and that are not acknowledged, and the age of the oldest."""
        with self._lock:
            return self._core.backlog.in_flight(monotonic_ms())

    @property
    def brought(self) -> int:
        """How many messages were handed out, without those passed over, which every channel brings again."""
        return self.progress.delivered - self._core.passed_over

    @property
    def acknowledged(self) -> int:
        """How many messages were acknowledged, without those passed over."""
        return max(0, self.progress.committed - self._core.passed_over)

    @property
    def acked_at(self) -> int:
        """When the last of these was, in monotonic ms; 0 if there is none."""
        return self._acked_at if self.acknowledged else 0

    @property
    def is_spent(self) -> bool:
        """Whether nothing more will be accepted: it was drained, aborted, or given something back."""
        return self._core.is_spent

    @property
    def is_idle(self) -> bool:
        """Whether everything handed out is finished."""
        with self._lock:
            return self._core.acks.idle

    @property
    def unfinished(self) -> int:
        """How many messages were handed out and are neither settled nor given up."""
        with self._lock:
            return self._core.acks.unfinished

    def start(self) -> None:
        """Opens the channel, proves the guard and subscribes."""
        if not self._connection.submit(self._begin):
            self._connection_ended("the connection to RabbitMQ is gone")

    def take(self, most: int = 1_000_000) -> list[Delivery]:
        """Returns the next messages, oldest first; none if there are none, or while paused, drained or ended.

        After an empty result, `on_ready` is called when there is something.
        """
        with self._lock:
            return self._core.take(most)

    def put_down(self, deliveries: Sequence[Delivery]) -> None:
        """The last messages taken were not begun: they wait for it to go on. If it cannot, they are given back."""
        self._handle(self._core.put_down, deliveries)

    def give_back(self, count: int) -> None:
        """The last `count` messages taken will not be worked: the close returns those that are open to the queue."""
        self._handle(self._core.give_back, count)

    def done(self, delivery: Delivery) -> Reply | None:
        """Marks the message as processed, or returns the reply that has to be sent first.

        It is acknowledged together with older ones.
        """
        tag = self._tag(delivery)
        with self._lock:
            reply = self._drafts.take(tag)
            actions = self._core.done(tag) if reply is None else self._core.settle(tag, Outcome.REPLYING)
        if actions:
            self._perform(actions)
        return reply

    def reject(self, delivery: Delivery) -> None:
        """Uses RabbitMQ's unconfirmed reject: the message is dead-lettered, or dropped if there is no target.

        Raises:
            UsageError: it is a message of a stream.
        """
        self._settle(delivery, Outcome.REJECTED)

    def leave(self, delivery: Delivery) -> None:
        """The message is being sent to the dead letters, and is settled by `gone` or `keep`."""
        self._settle(delivery, Outcome.LEFT)

    def gone(self, delivery: Delivery) -> None:
        """The dead letters have the message: acknowledge it."""
        self._settle(delivery, Outcome.GONE)

    def keep(self, delivery: Delivery) -> None:
        """The dead letters do not have it: it is redelivered after the close, with everything behind it."""
        self._settle(delivery, Outcome.KEPT)

    def stay(self, delivery: Delivery) -> None:
        """The dead letters do not have it: it is open again."""
        self._settle(delivery, Outcome.OPEN)

    def put_back(self, delivery: Delivery) -> None:
        """Has the message redelivered after the close, for the next holder to retry, unless it was settled."""
        self._settle(delivery, Outcome.PUT_BACK)

    def is_open(self, delivery: Delivery) -> bool:
        """Whether the message was neither settled nor given up."""
        return self._core.acks.is_open(delivery.delivery_tag)

    def flush(self) -> None:
        """Sends the acks that are due, without waiting for more."""
        self._handle(self._core.flush_soon)

    def pause(self) -> None:
        """Makes `take` return nothing until `resume`. The subscription stays; at most `prefetch` messages wait here."""
        with self._lock:
            self._core.pause()

    def resume(self) -> None:
        with self._lock:
            self._core.resume()
        self._on_ready()

    def drain(self, *, finish_buffer: bool = False) -> Future[None]:
        """Stops dispatch: only what was taken, and with `finish_buffer` what has arrived, is still to be finished.

        Acks are held back from here until the close, or until it goes on.
        """
        self._handle(partial(self._core.drain, finish_buffer=finish_buffer))
        return self.drained

    def go_on(self) -> bool:
        """Continues as before the drain, with what has arrived meanwhile. False if that takes another consumer, as it was
        drained, is about to close, or has given something back.
        """
        with self._lock:
            goes_on = self._core.may_go_on
            actions = self._core.go_on() if goes_on else act.NOTHING
        self._perform(actions)
        return goes_on

    def release(self) -> Future[Progress]:
        """Drains, if not begun already, then flushes the acks and closes the channel and nothing but the channel.

        The result is done on CloseOk: whatever was acked is settled at the broker, everything else is back in its place
        in the queue, and the next holder may come. Fails with ChannelLost if the channel ended otherwise: which acks
        arrived is then unknown.
        """
        self._handle(self._core.release)
        return self.closed

    def abort(self, *, forced: bool = False) -> Future[Progress]:
        """Releases without waiting: unfinished messages return to the queue, even while a handler processes one.

        `forced` if the next holder may be waiting for the queue already. It would be sent whatever is not taken from
        here on, so nothing more is taken to keep the order of what had come back.
        """
        self._forced = self._forced or forced
        self._handle(self._core.abort)
        return self.closed

    def _tag(self, delivery: Delivery) -> int:
        if delivery.tenure is not self.tenure:
            raise ValueError(f"{delivery!r} belongs to another tenure than {self.tenure!r}")
        return delivery.delivery_tag

    def _settle(self, delivery: Delivery, outcome: Outcome) -> None:
        tag = self._tag(delivery)
        with self._lock:
            actions = self._core.settle(tag, outcome)
            self._drafts.take(tag)
        self._perform(actions)

    def _check_reply(self, reply: Reply) -> None:
        """Replies have a connection of their own, which may not be open yet, to the same RabbitMQ."""
        reply.properties.check_fits(self._connection.frame_max, self._connection.place)

    def _handle(self, event: Callable[..., Sequence[Any]], *arguments: Any) -> None:
        """Passes an event to the core, and does what it says."""
        with self._lock:
            actions = event(*arguments)
        self._perform(actions)

    def _perform(self, actions: Sequence[Any]) -> None:
        for action in actions:
            self._DO[type(action)](self, action)

    def _take_turn(self, _: act.Turn) -> None:
        if not self._connection.submit(self._turn) and not self._listens:
            self._connection_ended("the connection to RabbitMQ is gone")

    @contained
    def _connection_ended(self, reason: str) -> None:
        """Without a connection, on whichever thread notices first."""
        self._handle(self._core.connection_ended, channel_lost(self.queue.name, reason))

    def _report_drained(self, _: act.Drained) -> None:
        self.drained.set_result(None)

    def _end(self, end: act.End) -> None:
        self._connection.remove_end_listener(self._connection_ended)
        if end.error is None:
            self.closed.set_result(end.progress)
        else:
            self.closed.set_exception(end.error)
        if not end.asked:
            self._on_event(PartitionEvent(PartitionState.ENDED, end.error))

    # Everything below runs on the I/O thread: first what the broker does, then what the core asks for.

    @contained
    def _begin(self) -> None:
        self._listens = True
        self._connection.add_end_listener(self._connection_ended)
        self._handle(self._core.start)

    @contained
    def _turn(self) -> None:
        if not (self._core.closes_channel and self._has_to_wait()):
            self._handle(self._core.turn)

    def _has_to_wait(self) -> bool:
        """Whether the channel is not to be closed yet. Then another turn follows."""
        if self._returned is None or self._unapplied is None or self._forced:
            return False
        if self._returned.may_lack_some:
            self._returned.take_rest(self._core.acks.committed, self._turn)
            return True
        self._handle(self._core.last_acks)
        return self._unapplied.wait(self._turn)

    @contained
    def _fired(self, timer: Timer) -> None:
        self._handle(self._core.fired, timer, monotonic_ms())

    @contained
    def _opened(self, _: Channel) -> None:
        self._handle(self._core.opened)

    @contained
    def _subscribed(self, _: object) -> None:
        self._handle(self._core.subscribed)

    @contained
    def _message(self, _: Channel, method: Basic.Deliver, properties: BasicProperties, body: bytes) -> None:
        now = monotonic_ms()
        if self._returned is not None:
            self._returned.note(redelivered=method.redelivered)
        if isinstance(properties, Unreadable):
            self._handle(self._core.unreadable, unreadable(self.queue.name, method, properties), now)
            return
        delivery = Delivery(self.tenure, method, properties, body, self._drafts)
        with self._lock:
            actions = self._core.message(delivery, now)
        if actions:
            self._perform(actions)

    @contained
    def _channel_closed(self, _: Channel, reason: Exception) -> None:
        lock, name = self._lock_queue, self.queue.name
        error = channel_failure(reason, name) if lock is None else lock.failure(reason, name)
        if error is not None and in_exclusive_use(reason):
            self._handle(self._core.refused, error)
        else:
            self._handle(self._core.channel_ended, error)

    @contained
    def _cancelled(self, cancel: Any) -> None:
        if cancel.method.consumer_tag == CONSUMER_TAG:
            self._lock_lost()
        else:
            words = "RabbitMQ cancelled the consumer; was the queue deleted?"
            self._handle(self._core.give_up, channel_lost(self.queue.name, words))

    @contained
    def _lock_lost(self, *_: object) -> None:
        if self._lock_queue is not None:
            self._handle(self._core.give_up, self._lock_queue.loss(self.queue.name))

    def _arrived(self) -> int | None:
        with self._lock:
            is_idle = self._core.state is PartitionState.CONSUMING and self._core.backlog.is_quiet
            return self._core.acks.delivered if is_idle else None

    @contained
    def _stands_still(self, ready: int) -> None:
        messages = counted(ready, "message is", "messages are")
        words = f"RabbitMQ sends nothing, though {messages} ready; was the queue deleted and created again at once?"
        self._handle(self._core.give_up, channel_lost(self.queue.name, words))

    def broken(self, error: Exception) -> None:
        """One of its methods, or a function called by it, has raised this error on the I/O thread."""
        self._handle(self._core.give_up, failure_of(error, self.queue.name))

    @contained
    def _locked(self) -> None:
        self._handle(self._core.locked)

    @contained
    def _locked_out(self, error: CobalanceError) -> None:
        self._handle(self._core.lock_refused, error)

    @contained
    def _not_locked(self, error: CobalanceError) -> None:
        self._handle(self._core.lock_failed, error)

    @contained
    def _unlocked(self) -> None:
        self._handle(self._core.unlocked)

    @contained
    def _ready(self) -> None:
        self._on_ready()

    def _tell_ready(self, _: act.Ready) -> None:
        """Not at once: what pika has read already comes first, so that a burst crosses over as one."""
        self._connection.call_later(0, self._ready)

    def _ask_lock(self, _: act.AskLock) -> None:
        if self._lock_queue is not None:
            self._lock_queue.acquire(self._locked, self._locked_out, self._not_locked)

    def _release_lock(self, _: act.ReleaseLock) -> None:
        if self._lock_queue is not None and self._connection.is_open:
            self._lock_queue.release(self._unlocked)
        else:  # it is gone with the connection
            self._unlocked()

    def _open_channel(self, _: act.OpenChannel) -> None:
        self._channel = self._connection.open_channel(self._opened, lasting=True)
        self._channel.add_on_close_callback(self._channel_closed)

    def _subscribe(self, _: act.Subscribe) -> None:
        if self._channel is not None:
            self._channel.add_on_cancel_callback(self._cancelled)
            if self._lock_queue is not None:
                self._lock_queue.keep(self._channel, self._lock_lost)
            tag = f"cobalance.{self.tenure.token}"
            if self.queue.kind == "quorum":
                call_later = self._connection.call_later
                given = self._prefetch, tag, self._message, call_later
                self._returned = Returned(self._channel, self.queue.name, *given)
                self._unapplied = Unapplied(self._channel, self.queue.name, tag, self.consume_arguments, call_later)
                calls = call_later, self._arrived, self._stands_still
                Standstill(self._channel, self.queue.name, *calls).look_later()
            prove_and_subscribe(
                *(self._channel, self.queue, self._message, self._subscribed),
                prefetch=self._prefetch,
                arguments=self.consume_arguments,
                tag=tag,
            )

    def _send_acks(self, flush: Flush) -> None:
        if self._channel is not None and self._channel.is_open:  # else its end is about to be reported
            send_acks(self._channel, flush)
            self._acked_at = monotonic_ms()
            if self._unapplied is not None:
                self._unapplied.note(flush)

    def _close_channel(self, _: act.CloseChannel) -> None:
        if self._channel is not None and not (self._channel.is_closing or self._channel.is_closed):
            bare_close(self._channel)

    def _set_timer(self, action: act.SetTimer) -> None:
        self._connection.call_later(action.ms, partial(self._fired, action.timer))

    def _report_subscribed(self, _: act.Subscribed) -> None:
        self._on_event(PartitionEvent(PartitionState.CONSUMING))

    def _report_waiting(self, action: act.Waits) -> None:
        self._on_event(PartitionEvent(PartitionState.WAITING, action.error))

    def _warn(self, action: act.Warn) -> None:
        log.warning("%s", action.words)

    _DO: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        act.Turn: _take_turn,
        act.Ready: _tell_ready,
        act.AskLock: _ask_lock,
        act.OpenChannel: _open_channel,
        act.Subscribe: _subscribe,
        Flush: _send_acks,
        act.CloseChannel: _close_channel,
        act.ReleaseLock: _release_lock,
        act.SetTimer: _set_timer,
        act.Subscribed: _report_subscribed,
        act.Waits: _report_waiting,
        act.Drained: _report_drained,
        act.Warn: _warn,
        act.End: _end,
    }
