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
from functools import partial
from typing import Any

from pika.channel import Channel
from pika.spec import Basic, BasicProperties

from cobalance.errors import CobalanceError, OffsetUnknown, UsageError
from cobalance.rabbitmq.model.queues import Queue
from cobalance.rabbitmq.partition.delivery import Delivery
from cobalance.rabbitmq.partition.partition import PartitionConsumer, State
from cobalance.rabbitmq.partition.replies import Reply
from cobalance.rabbitmq.streams.probe import OFFSET_HEADER, first_offset, offset_of
from cobalance.rabbitmq.streams.start import BEFORE_FIRST
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.containment import contained
from cobalance.rabbitmq.wire.lock_queue import LockQueue
from cobalance.rabbitmq.wire.pika_internals import Unreadable

SUSPICIOUS_MS = 1_000.0
"""The message at the position normally comes within milliseconds; after this long, the stream is examined."""

DOUBT_MS = 5_000.0
"""Pause between such checks while they prove nothing."""

PROOFS = 2
"""RabbitMQ's count of a stream is up to five seconds old, so it must show twice that the stream is too short."""

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
        if self.state not in {State.IDLE, State.WAITING}:
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

    @contained
    def _message(self, channel: Channel, method: Basic.Deliver, properties: BasicProperties, body: bytes) -> None:
        if self._draining or self._halting is not None:
            return
        if isinstance(properties, Unreadable):
            self._meet_unreadable(channel, method, properties, body)
            return
        offset = offset_of(self.queue.name, method, properties)
        last, self._heard = self._heard, offset
        if self._is_gap(last, offset) and not self._on_gap(offset):
            with self._lock:
                self._halting = _gone(self.queue.name, self._after if last is None else last, offset)
            self._stop_when_idle()
            return
        with self._lock:
            self._arrived.append(offset)
        if offset <= self._after:
            self._pass_over()
        else:
            super()._message(channel, method, properties, body)

    def _is_gap(self, last: int | None, offset: int) -> bool:
        """Whether messages between the last offset and this one are gone.

        Retention drops whole segments, and RabbitMQ continues with the oldest message left. A segment begins with an
        offset that no message has.
        """
        if last is not None:
            return offset > last + 2
        return self._after != BEFORE_FIRST and offset > self._after + 1

    def _meet_unreadable(self, channel: Channel, method: Basic.Deliver, properties: Unreadable, body: bytes) -> None:
        """The offset is unreadable, too. A consumer that continued behind the message meets it at the position."""
        if method.delivery_tag == 1 and self._after != BEFORE_FIRST:
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
        if self.state is State.CONSUMING and self._heard is None:
            first_offset(self._connection, self.queue.name).add_done_callback(
                lambda found: self._connection.submit(
                    lambda: self._judge(None if found.exception() else found.result())
                )
            )

    @contained
    def _judge(self, first: int | None) -> None:
        if self.state is not State.CONSUMING or self._heard is not None:
            return
        if first is None or self._channel is None:  # empty, or RabbitMQ is slow
            self._connection.call_later(DOUBT_MS, self._doubt)
        else:
            self._channel.queue_declare(self.queue.name, passive=True, callback=partial(self._compare, first))

    @contained
    def _compare(self, first: int, found: Any) -> None:
        """Compares with the leader's message count, from any node; 0 if the leader cannot be asked or is new."""
        if self.state is not State.CONSUMING or self._heard is not None:
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
        f"{first}. Stop the group and say where to go on, e.g. cobalance group reset-offsets GROUP --resource {stream} --to-earliest "
        f"--execute; or use on_unknown_offset='first', which goes on at the oldest."
    )


def _shorter(stream: str, after: int) -> OffsetUnknown:
    return OffsetUnknown(
        f"Stream {stream!r} ends before offset {after}, which was the last one processed: it was deleted and made anew, or RabbitMQ lost "
        f"its end. Committed offsets never fall by themselves: stop the group and say where to go on, e.g. "
        f"cobalance group reset-offsets GROUP --resource {stream} --to-earliest --execute"
    )
