"""Consumes one stream during one tenure: the same states as a queue's consumer, but by offset.

A stream keeps its messages: acks only give credit for more, nothing is requeued or dead-lettered, and there may be any
number of readers. So this consumer keeps track of its own ``position``, the offset of the last message processed with
no gap before it.

It asks for the message at its position again and drops it. Receiving that message proves that this is the stream that
was read before, and that nothing behind it was lost; otherwise the consumer of a recreated stream would wait silently
until the stream had grown past the old offset, and skip everything before that. If the message does not come, the
stream's leader is asked how much it has: in a cluster, the node that we are connected to may merely lag.
"""

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from pika.channel import Channel
from pika.spec import Basic, BasicProperties

from cobalance.backoff import Backoff
from cobalance.errors import ChannelLost, CobalanceError, MessageUnreadable, OffsetUnknown, UsageError
from cobalance.rabbitmq.model.queues import Queue
from cobalance.rabbitmq.partition.delivery import Delivery
from cobalance.rabbitmq.partition.partition import BACKOFF_MS, PartitionConsumer, PartitionState
from cobalance.rabbitmq.partition.replies import Reply
from cobalance.rabbitmq.streams.probe import OFFSET_HEADER, first_offset, offset_of, offset_since
from cobalance.rabbitmq.streams.start import BEFORE_FIRST
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.containment import contained
from cobalance.rabbitmq.wire.failures import channel_lost
from cobalance.rabbitmq.wire.lock_queue import LockQueue
from cobalance.rabbitmq.wire.pika_internals import Unreadable

SUSPICIOUS_MS = 1_000.0
"""The message at the position normally comes within milliseconds; after this long, the stream is examined."""

UNREADABLE = -2
"""In place of the offset that was asked for: that message is there, and nobody can read where."""

DOUBT_MS = 5_000.0
"""Pause between such checks while they prove nothing."""

PROOFS = 2
"""RabbitMQ's count of a stream is up to five seconds old, so it must show twice that the stream is too short."""

STALL_MS = Backoff(30_000.0, 600_000.0)
"""Pauses between looks at the stream while nothing arrives."""

Question = Callable[[BrokerConnection, str], Future[int | None]]

log = logging.getLogger("cobalance.rabbitmq")


class StreamConsumer(PartitionConsumer):
    """One stream for one tenure. ``after`` is the offset of the last message processed.

    ``on_gap(first)`` is called on the I/O thread when unread messages are gone and `first` is the oldest left; it
    returns whether to continue there.
    """

    def __init__(
        self,
        connection: BrokerConnection,
        queue: Queue,
        *,
        after: int,
        lock: bool = False,
        on_gap: Callable[[int], bool] = lambda _: True,
        **options: Any,
    ) -> None:
        super().__init__(connection, queue, require_guard=False, **options)
        self.consume_arguments = {OFFSET_HEADER: max(after, 0)}
        self._after, self._on_gap = after, on_gap
        self._position = after
        self._arrived: deque[int] = deque()  # offsets of the messages behind the position, in order of their tags
        self._counted = 0  # messages at or before the position
        self._heard: int | None = None  # the last offset that arrived
        self._guessed = False  # that offset: the message was unreadable
        self._warned_of_wait = False
        self._held: list[tuple[Channel, Basic.Deliver, BasicProperties, bytes]] = []  # until a jump is judged
        self._found_short = 0
        self._warned_of_lag = False
        self._passed_over = 0
        self._answered: set[int] = set()  # before their handlers have returned
        self._lock_queue = LockQueue(connection, queue.name) if lock else None
        self._locking = False
        self._ending: tuple[CobalanceError | None] | None = None  # set while the end waits for the lock

    @property
    def position(self) -> int:
        """The offset of the last message processed with no gap before it; ``after`` at first."""
        with self._lock:
            while self._counted < self._acks.settled:
                self._position = max(self._position, self._arrived.popleft())
                self._counted += 1
            return self._position

    @property
    def brought(self) -> int:
        """Number of messages handed out, without those passed over, which every channel brings again."""
        return self.progress.delivered - self._passed_over

    def take_replies(self, offset: int) -> list[tuple[Delivery, Reply]]:
        """The replies to messages up to this offset, which are settled by `gone` or `keep`, as after `done`."""
        with self._lock:
            found = self._drafts.take_up_to(self._last_tag(offset))
            self._answered = {tag for tag in self._answered if tag > self._acks.settled}
            for request, _ in found:
                self._acks.leave(request.delivery_tag)
                self._answered.add(request.delivery_tag)
        return found

    def is_kept(self, offset: int) -> bool:
        """Whether a message up to this offset could not be answered, and comes again."""
        with self._lock:
            return self._acks.is_kept(self._last_tag(offset))

    def is_answered(self, delivery: Delivery) -> bool:
        """Whether its reply was taken by `take_replies`."""
        with self._lock:
            return delivery.delivery_tag in self._answered

    def _last_tag(self, offset: int) -> int:
        return self._counted + sum(1 for arrived in self._arrived if arrived <= offset)

    def done_up_to(self, offset: int) -> int:
        """Marks everything handed out up to this offset as processed; returns how many messages that settles.

        A message with a reply that has yet to be taken is left to `done`.
        """
        with self._lock:
            count = self._acks.done_up_to(self._last_tag(offset), besides=self._drafts.tags)
        self.flush()
        if self._draining:
            self._report_drained()
        return count

    def reject(self, delivery: Delivery) -> None:
        """Raises UsageError: a stream keeps its messages, and RabbitMQ would close the whole connection."""
        raise UsageError(
            f"{delivery.queue!r} is a stream, which cannot dead-letter messages: store it elsewhere, then acknowledge it"
        )

    # Everything below runs on the I/O thread.

    @contained
    def _open(self) -> None:
        if self.state not in {PartitionState.IDLE, PartitionState.WAITING}:
            return
        if self._lock_queue is None or self._lock_queue.held:
            super()._open()
        elif not self._locking:
            self._locking = True
            self._lock_queue.acquire(self._locked, self._locked_out, self._not_locked)

    @contained
    def _locked(self) -> None:
        self._locking = False
        if self._ending is None:
            self._open()
        else:
            self._end(self._ending[0])

    @contained
    def _locked_out(self, error: CobalanceError) -> None:
        self._locking = False
        if self._ending is None:
            self._wait_and_retry(error)
        else:
            self._unlocked()

    @contained
    def _not_locked(self, error: CobalanceError) -> None:
        self._locking = False
        if self._ending is None:
            self._end(error)
        else:
            self._unlocked()

    @contained
    def _subscribed(self, frame: object) -> None:
        super()._subscribed(frame)
        if self._after != BEFORE_FIRST:
            self._connection.call_later(SUSPICIOUS_MS, self._doubt)
        self._connection.call_later(STALL_MS.first, partial(self._look, None, 1))

    @contained
    def _message(self, channel: Channel, method: Basic.Deliver, properties: BasicProperties, body: bytes) -> None:
        if self._draining or self._halting is not None:
            return
        if self._held:
            self._held.append((channel, method, properties, body))
            return
        if isinstance(properties, Unreadable):
            self._meet_unreadable(channel, method, properties, body)
            return
        offset = offset_of(self.queue.name, method, properties)
        proven = self._heard is not None and not self._guessed
        seen, most = (self._heard, 2) if self._heard is not None and proven else (self._after, 1)
        self._heard, self._guessed = offset, False
        if offset > seen + most:
            self._held.append((channel, method, properties, body))
            self._examine(seen, offset, proven=proven)
        else:
            self._accept(offset, channel, method, properties, body)

    def _accept(self, offset: int, *message: Any) -> None:
        with self._lock:
            self._arrived.append(offset)
        if offset <= self._after:
            self._pass_over()
        else:
            super()._message(*message)

    def _examine(self, seen: int, offset: int, *, proven: bool) -> None:
        """The messages between the two are gone, or there were none.

        Each segment begins with an entry of RabbitMQ's own, and each offset that a client of the stream protocol stores
        in the stream is another; both take an offset. Retention drops whole segments, and RabbitMQ continues with the
        oldest message left. So nothing is gone while the message before the jump is there.
        """
        judge = partial(self._judge_jump, seen, offset, proven)
        self._ask(partial(offset_since, offset=max(seen, 0)), seen, judge)

    def _ask(self, question: Question, seen: int, judge: Callable[[int | None], None], failures: int = 0) -> None:
        def answered(found: Future[int | None]) -> None:
            self._connection.submit(lambda: self._judge_answer(question, seen, judge, failures, found))

        if self.state is PartitionState.CONSUMING:
            question(self._connection, self.queue.name).add_done_callback(answered)

    @contained
    def _judge_answer(
        self,
        question: Question,
        seen: int,
        judge: Callable[[int | None], None],
        failures: int,
        found: Future[int | None],
    ) -> None:
        """A query that failed says nothing of the stream."""
        if self.state is not PartitionState.CONSUMING or self._draining:
            return
        error = found.exception()
        if isinstance(error, ChannelLost):
            pause_ms = BACKOFF_MS.pause(failures + 1)
            self._connection.call_later(pause_ms, lambda: self._ask(question, seen, judge, failures + 1))
        elif isinstance(error, MessageUnreadable):
            judge(UNREADABLE)
        elif isinstance(error, CobalanceError):
            self._halt(error)
        else:
            judge(found.result())

    def _judge_jump(self, seen: int, offset: int, proven: bool, since: int | None) -> None:
        if since == seen:
            self._go_on(offset)
        elif proven and since is not None and since != UNREADABLE:
            self._meet_gap(seen, offset)
        else:
            self._ask(first_offset, seen, partial(self._judge_start, seen, offset, proven, since))

    def _judge_start(self, seen: int, offset: int, proven: bool, since: int | None, first: int | None) -> None:
        if first is None:  # RabbitMQ is slow: a message is held
            self._say_it_waits(seen)
            self._connection.call_later(DOUBT_MS, lambda: self._examine(seen, offset, proven=proven))
        elif first > seen or first == since == UNREADABLE:  # otherwise an unreadable first one is before `seen`
            self._meet_gap(seen, offset)
        elif proven or since == UNREADABLE:
            self._go_on(offset)
        elif since is None:  # RabbitMQ was slow
            self._examine(seen, offset, proven=proven)
        else:
            self._halt(_replaced(self.queue.name, seen))

    def _say_it_waits(self, seen: int) -> None:
        if not self._warned_of_wait:
            words = "stream %s: RabbitMQ does not say where it begins, so what comes behind offset %d waits"
            log.warning(words, self.queue.name, seen)
        self._warned_of_wait = True

    def _meet_gap(self, seen: int, offset: int) -> None:
        if self._on_gap(offset):
            self._go_on(offset)
        else:
            self._halt(_gone(self.queue.name, seen, offset))

    def _go_on(self, offset: int) -> None:
        held, self._held = self._held, []
        self._accept(offset, *held[0])
        for message in held[1:]:
            self._message(*message)

    def _halt(self, error: CobalanceError) -> None:
        with self._lock:
            self._halting = error
        self._stop_when_idle()

    def _meet_unreadable(self, channel: Channel, method: Basic.Deliver, properties: Unreadable, body: bytes) -> None:
        """The offset is unreadable, too. A consumer that continued behind the message meets it at the position."""
        if method.delivery_tag == 1 and self._after != BEFORE_FIRST:
            self._heard, self._guessed = self._after, True
            with self._lock:
                self._arrived.append(self._after)
            self._pass_over()
        else:
            super()._message(channel, method, properties, body)

    def _pass_over(self) -> None:
        """The message was processed before. These come before all others, so nothing has been handed out yet."""
        with self._lock:
            self._acks.deliver(1)
            self._acks.done(self._acks.delivered)
            self._passed_over += 1
        self._flush()  # otherwise it would use up a prefetch of one

    @contained
    def _doubt(self) -> None:
        """Nothing came at the position or behind it: the stream may end before."""
        if self.state is PartitionState.CONSUMING and self._heard is None:
            first_offset(self._connection, self.queue.name).add_done_callback(
                lambda found: self._connection.submit(
                    lambda: self._judge(None if found.exception() else found.result())
                )
            )

    @contained
    def _judge(self, first: int | None) -> None:
        if self.state is not PartitionState.CONSUMING or self._heard is not None:
            return
        if first is None or self._channel is None:  # empty, or RabbitMQ is slow
            self._connection.call_later(DOUBT_MS, self._doubt)
        else:
            self._channel.queue_declare(self.queue.name, passive=True, callback=partial(self._compare, first))

    @contained
    def _compare(self, first: int, found: Any) -> None:
        """Compares with the leader's message count, from any node; 0 if the leader cannot be asked or is new."""
        if self.state is not PartitionState.CONSUMING or self._heard is not None:
            return
        count = found.method.message_count
        lags = first + count > self._after
        if lags and not self._warned_of_lag:
            log.warning(
                "stream %s: this RabbitMQ node has not got offset %d yet; waiting", self.queue.name, self._after
            )
        self._warned_of_lag = self._warned_of_lag or lags
        self._found_short += bool(count) and not lags
        if self._found_short == PROOFS:
            self._give_up(_shorter(self.queue.name, self._after))
        else:
            self._connection.call_later(DOUBT_MS, self._doubt)

    @contained
    def _look(self, heard: int | None, looks: int) -> None:
        """RabbitMQ may leave a reader at the end of a segment for ever if it has just dropped the next one."""
        if self.state is not PartitionState.CONSUMING:
            return
        if heard != self._heard or self._acks.outstanding or self._buffer or self._held:
            self._connection.call_later(STALL_MS.first, partial(self._look, self._heard, 1))
        else:
            first_offset(self._connection, self.queue.name).add_done_callback(
                lambda found: self._connection.submit(lambda: self._judge_stall(heard, looks, found))
            )

    @contained
    def _judge_stall(self, heard: int | None, looks: int, found: Future[int | None]) -> None:
        if self.state is not PartitionState.CONSUMING:
            return
        first = None if found.exception() else found.result()
        last = self._after if heard is None else heard
        if first is not None and first > last and heard == self._heard and not self._draining:
            words = f"RabbitMQ sends nothing behind offset {last}, though {first} is the oldest left"
            self._give_up(channel_lost(self.queue.name, words))
        else:
            self._connection.call_later(STALL_MS.pause(looks + 1), partial(self._look, heard, looks + 1))

    def _end(self, error: CobalanceError | None) -> None:
        """Ends once the lock is free, since the tenure's next holder may come as soon as this one has ended."""
        lock = self._lock_queue
        if lock is None or not self._connection.is_open or not (lock.held or self._locking or self._ending):
            super()._end(error)
        elif self._ending is None or lock.held:
            self._ending = self._ending or (error,)
            if lock.held:
                lock.release(self._unlocked)

    @contained
    def _unlocked(self) -> None:
        if self._ending is not None:
            super()._end(self._ending[0])


def _gone(stream: str, after: int, first: int) -> OffsetUnknown:
    return OffsetUnknown(
        f"Messages of stream {stream!r} are gone before they were read: {after} was the last one processed, and the oldest left has offset "
        f"{first}. Say where to go on, e.g. cobalance group reset-offsets GROUP --resource {stream} --to-earliest --execute, "
        f"which resumes it; or use on_unknown_offset='first', which goes on at the oldest."
    )


def _shorter(stream: str, after: int) -> OffsetUnknown:
    return _other(f"ends before offset {after}", stream, "it was deleted and made anew, or RabbitMQ lost its end")


def _replaced(stream: str, after: int) -> OffsetUnknown:
    return _other(f"has older messages, but none at offset {after}", stream, "it was deleted and made anew")


def _other(what: str, stream: str, why: str) -> OffsetUnknown:
    return OffsetUnknown(
        f"Stream {stream!r} {what}, which was the last one processed: {why}. Committed offsets never fall by themselves: say where to go "
        f"on, e.g. cobalance group reset-offsets GROUP --resource {stream} --to-earliest --execute, which resumes it"
    )
