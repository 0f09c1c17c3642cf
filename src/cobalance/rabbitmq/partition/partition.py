"""Consumes one queue during one tenure: from the grant to the CloseOk that lets the next holder in.

    IDLE ──start──▶ OPENING ──consume-ok──▶ CONSUMING ──close──▶ CLOSING ──close-ok──▶ ENDED
                     │   ▲                                           ▲
                 in use  retry                                       │
                     ▼   │                                           │
                    WAITING ─────────────── close ───────────────────┘

A channel closed by the broker, a cancelled consumer or a lost connection leads to ENDED from every state, but for
a queue in use, which is waited for. A consumer serves one tenure and is never reused.
"""

import enum
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

import attrs
from pika.channel import Channel
from pika.spec import Basic, BasicProperties

from cobalance.backoff import Backoff
from cobalance.coordinator.in_flight import InFlight
from cobalance.errors import CobalanceError
from cobalance.group.engine import monotonic_ms
from cobalance.rabbitmq.model.queues import Guard, Queue
from cobalance.rabbitmq.partition.acks import AckTracker, Progress
from cobalance.rabbitmq.partition.arrivals import Arrivals
from cobalance.rabbitmq.partition.delivery import Delivery, QueueTenure
from cobalance.rabbitmq.partition.replies import Drafts, Reply
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.containment import contained, failure_of, unreadable
from cobalance.rabbitmq.wire.failures import channel_failure, channel_lost, in_exclusive_use, unguarded
from cobalance.rabbitmq.wire.pika_internals import Unreadable, bare_close

BACKOFF_MS = Backoff(10.0, 1_000.0)

UNSETTLED_MS = 5_000.0
"""After this long it is said that a partition cannot stop before the program settles what it has."""

log = logging.getLogger("cobalance.rabbitmq")


class PartitionState(enum.Enum):
    """The state of a tenure at the broker."""

    IDLE = "idle"
    """Not started."""
    OPENING = "opening"
    """The channel, the proof of the guard and the subscription are in progress."""
    WAITING = "waiting for the broker"
    """Another consumer holds the queue exclusively; retried at growing intervals until it is free or we close."""
    CONSUMING = "consuming"
    """Subscribed. With a single active consumer, messages need not flow: an older one may be active."""
    CLOSING = "closing"
    """Channel.Close has been sent; no more acks are sent."""
    ENDED = "ended"
    """The channel is gone, and every unacknowledged message is back in the queue."""


@attrs.frozen
class PartitionEvent:
    """A change of a tenure at the broker, reported on the I/O thread."""

    state: PartitionState
    """WAITING, CONSUMING, or an ENDED that we did not ask for."""
    error: CobalanceError | None = None
    """The reason, unless it is CONSUMING."""


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
        ack_every: int = 50,
        ack_interval_ms: float = 50.0,
        require_guard: bool = True,
        acks_ahead: bool = False,
        acks_ahead_at_close: bool = False,
    ) -> None:
        if require_guard and queue.guard is Guard.NONE:
            raise unguarded(queue)
        self.queue, self.tenure = queue, QueueTenure(queue.name, token)
        self.state = PartitionState.IDLE
        self.consume_arguments: dict[str, str | int] = {}
        self.drained: Future[None] = Future()
        """Done when, after `drain`, everything handed out is finished."""
        self.closed: Future[Progress] = Future()
        """Done when the tenure has ended: with its progress if CloseOk came, else with the error that ended it."""
        for promise in (self.drained, self.closed):
            promise.set_running_or_notify_cancel()  # A waiter that gives up must not cancel it for others.
        self._connection, self._on_ready, self._on_event = connection, on_ready, on_event
        # An ack that waits for more messages than the broker will send would always wait for its timer.
        self._prefetch, self._ack_interval_ms = prefetch, ack_interval_ms
        self._acks = AckTracker(min(ack_every, prefetch), ahead=acks_ahead)
        self._acks_ahead_at_close = acks_ahead_at_close
        self._lock = threading.Lock()  # guards the tracker and the flags below; never held while calling out
        self._drafts = Drafts(self._lock, self._may_answer, self._check_reply)
        self._buffer: deque[Delivery] = deque()
        self._arrivals = Arrivals()
        self._armed = False
        self._halting: CobalanceError | None = None  # takes no more, and ends with this once all before it is finished
        self._waits = False  # for that, and will say so
        self._paused = False
        self._draining = False
        self._reported_drained = False
        self._flush_due = False
        self._ticking = False
        self._refusals = 0
        self._channel: Channel | None = None

    @property
    def progress(self) -> Progress:
        """Messages handed out and acknowledged."""
        with self._lock:
            return self._acks.progress

    @property
    def in_flight(self) -> InFlight:
        """Messages that RabbitMQ has sent and that are not acknowledged, and the age of the oldest."""
        with self._lock:
            acknowledged = self._acks.progress.committed
            messages = self._acks.delivered + len(self._buffer) - acknowledged
            since = self._arrivals.since(acknowledged)
        return InFlight(messages, monotonic_ms() - since if messages and since is not None else 0)

    @property
    def brought(self) -> int:
        """How many messages were handed out."""
        return self.progress.delivered

    @property
    def is_spent(self) -> bool:
        """Whether nothing more will be handed out: it was drained, aborted, or given something back."""
        return self._draining

    @property
    def is_idle(self) -> bool:
        """Whether everything handed out is finished."""
        with self._lock:
            return self._acks.idle

    def start(self) -> None:
        """Opens the channel, proves the guard and subscribes."""
        if not self._connection.submit(self._begin):
            self._end(channel_lost(self.queue.name, "the connection to RabbitMQ is gone"))

    def take(self, most: int = 1_000_000) -> list[Delivery]:
        """Returns the next messages, oldest first; none if there are none, or while paused, drained or ended.

        After an empty result, `on_ready` is called when there is something.
        """
        with self._lock:
            self._armed = True  # Before looking: what arrives from here on is either seen now or calls `on_ready`.
            count = 0 if self._paused else min(most, len(self._buffer))
            if count:
                self._armed = False
                self._acks.deliver(count)
            taken = [self._buffer.popleft() for _ in range(count)]
        if self._halting is not None:
            self._connection.submit(self._stop_when_idle)
        return taken

    def give_back(self, count: int) -> None:
        """The last `count` messages taken will not be worked: the close returns those that are open to the queue."""
        with self._lock:
            self._draining = True
            self._buffer.clear()
            self._acks.give_back(count)
        self._report_drained()

    def done(self, delivery: Delivery) -> Reply | None:
        """Marks the message as processed, or returns the reply that has to be sent first.

        It is acknowledged together with older ones.
        """
        replies: list[Reply] = []

        def settle(tag: int) -> bool:
            reply = self._drafts.take(tag)
            if reply is None:
                return self._acks.done(tag)
            replies.append(reply)
            self._acks.leave(tag)
            return False

        self._settle(delivery, settle)
        return replies[0] if replies else None

    def reject(self, delivery: Delivery) -> None:
        """Uses RabbitMQ's unconfirmed reject: the message is dead-lettered, or dropped if there is no target."""
        self._settle(delivery, self._acks.reject)

    def leave(self, delivery: Delivery) -> None:
        """The message is being sent to the dead letters, and is settled by `gone` or `keep`."""
        self._settle(delivery, self._acks.leave)

    def gone(self, delivery: Delivery) -> None:
        """The dead letters have the message: acknowledge it."""
        self._settle(delivery, self._acks.gone)

    def keep(self, delivery: Delivery) -> None:
        """The dead letters do not have it: it is redelivered after the close, with everything behind it."""
        self._settle(delivery, self._acks.keep)

    def stay(self, delivery: Delivery) -> None:
        """The dead letters do not have it: it is open again."""
        self._settle(delivery, self._acks.stay)

    def put_back(self, delivery: Delivery) -> None:
        """Has the message redelivered after the close, for the next holder to retry, unless it was settled."""
        self._settle(delivery, self._acks.put_back)

    def is_open(self, delivery: Delivery) -> bool:
        """Whether the message was neither settled nor given up."""
        return self._acks.is_open(delivery.delivery_tag)

    def flush(self) -> None:
        """Sends the acks that are due, without waiting for more."""
        self._connection.submit(self._flush)

    def pause(self) -> None:
        """Makes `take` return nothing until `resume`. The subscription stays; at most `prefetch` messages wait here."""
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._on_ready()

    def drain(self, *, finish_buffer: bool = False) -> Future[None]:
        """Stops dispatch: only what was taken, and with `finish_buffer` what has arrived, is still to be finished.

        Acks are held back from here until the close: each would bring more messages, which would only be returned with
        a higher delivery count.
        """
        with self._lock:
            first, self._draining = not self._draining, True
            if not finish_buffer or self._paused:
                self._buffer.clear()
        if first:
            self.flush()
        self._report_drained()
        return self.drained

    def release(self) -> Future[Progress]:
        """Drains, if not begun already, then flushes the acks and closes the channel and nothing but the channel.

        The result is done on CloseOk: whatever was acked is settled at the broker, everything else is back in its place
        in the queue, and the next holder may come. Fails with ChannelLost if the channel ended otherwise: which acks
        arrived is then unknown.
        """
        if not self._draining:
            self.drain()
        self.drained.add_done_callback(lambda _: self.abort())
        return self.closed

    def abort(self) -> Future[Progress]:
        """Releases without waiting: unfinished messages return to the queue, even while a handler processes one."""
        with self._lock:
            self._draining = True
            self._buffer.clear()
        if not self._connection.submit(self._close) and self.state is PartitionState.IDLE:
            self._end(None)
        return self.closed

    def _settle(self, delivery: Delivery, settle: Callable[[int], bool | None]) -> None:
        if delivery.tenure is not self.tenure:
            raise ValueError(f"{delivery!r} belongs to another tenure than {self.tenure!r}")
        with self._lock:
            due = bool(settle(delivery.delivery_tag)) and not self._draining and not self._flush_due
            self._flush_due = self._flush_due or due
            self._drafts.take(delivery.delivery_tag)
        if due:
            self._connection.submit(self._flush)
        if self._draining:
            self._report_drained()
        elif self._halting is not None:
            self._connection.submit(self._stop_when_idle)

    def _may_answer(self, tag: int) -> bool:
        """Not after a release. After a lost channel a handler may still run, but its message is redelivered anyway."""
        let_go = self.closed.done() and self.closed.exception() is None
        return self._acks.is_open(tag) and not let_go

    def _check_reply(self, reply: Reply) -> None:
        """Replies have a connection of their own, which may not be open yet, to the same RabbitMQ."""
        reply.properties.check_fits(self._connection.frame_max, self._connection.place)

    def _report_drained(self) -> None:
        with self._lock:
            now = self._draining and self._acks.idle and not self._buffer and not self._reported_drained
            self._reported_drained = self._reported_drained or now
        if now:
            self.drained.set_result(None)

    # Everything below runs on the I/O thread.

    @contained
    def _begin(self) -> None:
        self._connection.add_end_listener(self._connection_ended)
        self._open()

    @contained
    def _open(self) -> None:
        if self.state not in {PartitionState.IDLE, PartitionState.WAITING}:
            return
        self.state = PartitionState.OPENING
        self._channel = self._connection.open_channel(self._prove_and_subscribe, lasting=True)
        self._channel.add_on_close_callback(self._channel_closed)

    @contained
    def _prove_and_subscribe(self, channel: Channel) -> None:
        """Declares the queue twice without awaiting an answer; a failure closes the channel, so ConsumeOk is the proof.

        The passive declaration fails if the queue is missing (the other would create it); the full one fails if any
        argument differs from what is expected, the single active consumer included. This costs no round trip.
        """
        queue = self.queue
        channel.add_on_cancel_callback(self._cancelled)
        channel.queue_declare(queue.name, passive=True)
        channel.queue_declare(
            queue.name, durable=queue.durable, auto_delete=queue.auto_delete, arguments=queue.declaration
        )
        channel.basic_qos(prefetch_count=self._prefetch)
        channel.basic_consume(
            queue.name,
            self._message,
            exclusive=queue.guard is Guard.EXCLUSIVE,
            arguments=self.consume_arguments,
            consumer_tag=f"cobalance.{self.tenure.token}",
            callback=self._subscribed,
        )

    @contained
    def _subscribed(self, _: object) -> None:
        if self.state is PartitionState.OPENING:
            self.state = PartitionState.CONSUMING
            self._on_event(PartitionEvent(PartitionState.CONSUMING))

    @contained
    def _message(self, _: Channel, method: Basic.Deliver, properties: BasicProperties, body: bytes) -> None:
        delivery = Delivery(self.tenure, method, properties, body, self._drafts)
        with self._lock:  # A drain that began just now has emptied the buffer, and waits until it is empty.
            if self._draining or self._halting is not None:
                return
            if isinstance(properties, Unreadable):
                self._halting = unreadable(self.queue.name, method, properties)
            else:
                self._buffer.append(delivery)
                self._arrivals.note(
                    self._acks.delivered + len(self._buffer), self._acks.progress.committed, monotonic_ms()
                )
        if self._armed:  # not at once: what pika has read already comes first, so that a burst crosses over as one
            self._armed = False
            self._connection.call_later(0, self._ready)
        if not self._ticking:
            self._ticking = True
            self._connection.call_later(self._ack_interval_ms, self._tick)

    @contained
    def _ready(self) -> None:
        self._on_ready()

    @contained
    def _stop_when_idle(self) -> None:
        """Stops once everything before it is finished."""
        with self._lock:
            now = self._acks.idle and not self._buffer and not self._draining
            later = self._halting is not None and not (now or self._waits)
            self._waits = self._waits or later
        if later:
            self._connection.call_later(UNSETTLED_MS, self._say_what_it_waits_for)
        if now and self._halting is not None:
            self._flush()
            self._give_up(self._halting)

    @contained
    def _say_what_it_waits_for(self) -> None:
        """Where the program acknowledges messages itself, that may be for ever."""
        if self.state is PartitionState.CONSUMING and not self._draining:
            words = "queue %s stops as soon as %d older messages are acknowledged: %s"
            log.warning(words, self.queue.name, self._acks.delivered - self._acks.settled, self._halting)

    @contained
    def _tick(self) -> None:
        with self._lock:
            self._ticking = not self._draining and (self._acks.outstanding or bool(self._buffer))
        if self._ticking:
            self._flush()
            self._connection.call_later(self._ack_interval_ms, self._tick)

    @contained
    def _flush(self) -> None:
        if self._channel is None or not self._channel.is_open:
            return
        with self._lock:
            self._flush_due = False
            flush = self._acks.flush()
        for tag in flush.rejects:
            self._channel.basic_reject(tag, requeue=False)
        for tag in flush.singles:
            self._channel.basic_ack(tag)
        if flush.ack is not None:
            self._channel.basic_ack(flush.ack, multiple=True)

    @contained
    def _close(self) -> None:
        if self.state in {PartitionState.IDLE, PartitionState.WAITING}:
            self._end(None)
        elif self.state in {PartitionState.OPENING, PartitionState.CONSUMING}:
            self._acks.ahead = self._acks.ahead or self._acks_ahead_at_close
            self._flush()
            self.state = PartitionState.CLOSING
            self._close_channel()

    @contained
    def _channel_closed(self, _: Channel, reason: Exception) -> None:
        error = channel_failure(reason, self.queue.name)
        if self.state is PartitionState.OPENING and in_exclusive_use(reason):
            self._wait_and_retry(error)
        else:
            self._end(error)

    def _wait_and_retry(self, error: CobalanceError | None) -> None:
        self.state = PartitionState.WAITING
        self._refusals += 1
        if self._refusals == 1:
            self._on_event(PartitionEvent(PartitionState.WAITING, error))
        self._connection.call_later(BACKOFF_MS.pause(self._refusals), self._open)

    @contained
    def _cancelled(self, _: object) -> None:
        self._give_up(channel_lost(self.queue.name, "RabbitMQ cancelled the consumer; was the queue deleted?"))

    def broken(self, error: Exception) -> None:
        """One of its methods, or a function called by it, has raised this error on the I/O thread."""
        self._give_up(failure_of(error, self.queue.name))

    def _give_up(self, error: CobalanceError) -> None:
        self._close_channel()
        self._end(error)

    def _close_channel(self) -> None:
        if self._channel is not None and not (self._channel.is_closing or self._channel.is_closed):
            bare_close(self._channel)

    @contained
    def _connection_ended(self, reason: str) -> None:
        self._end(channel_lost(self.queue.name, reason))

    def _end(self, error: CobalanceError | None) -> None:
        """Runs once; without a connection, on whichever thread notices first."""
        with self._lock:
            if self.state is PartitionState.ENDED:
                return
            asked, self.state = self.state is PartitionState.CLOSING or error is None, PartitionState.ENDED
            self._draining = True
            self._buffer.clear()
            progress = self._acks.progress
        self._connection.remove_end_listener(self._connection_ended)
        self._report_drained()
        if error is None:
            self.closed.set_result(progress)
        else:
            self.closed.set_exception(error)
        if not asked:
            self._on_event(PartitionEvent(PartitionState.ENDED, error))
