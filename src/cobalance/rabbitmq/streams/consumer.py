"""Consumes one stream during one tenure: a partition whose messages pass a gate, and are counted by offset.

A stream keeps its messages: acks only give credit for more, nothing is requeued or dead-lettered, and there may be any
number of readers. So this consumer keeps track of its own ``position``, the offset of the last message processed with
no gap before it. Whether the stream goes on where it did is judged by `continuity.py`; this file asks RabbitMQ what
that wants to know.
"""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, ClassVar

from cobalance.errors import CobalanceError
from cobalance.group.clock import monotonic_ms
from cobalance.rabbitmq.model.queues import Queue
from cobalance.rabbitmq.partition.backlog import Outcome
from cobalance.rabbitmq.partition.delivery import Delivery
from cobalance.rabbitmq.partition.partition import PartitionConsumer
from cobalance.rabbitmq.partition.replies import Reply
from cobalance.rabbitmq.streams.continuity import Answer, Ask, Continuity, GapJudged, LeftBehind, MeetGap, Question
from cobalance.rabbitmq.streams.probe import OFFSET_HEADER, first_offset, offset_since
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.containment import contained
from cobalance.rabbitmq.wire.failures import channel_lost


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
        on_gap: Callable[[int], bool] = lambda _: True,
        **options: Any,
    ) -> None:
        self._continuity = Continuity(queue.name, after, _offset_of)
        super().__init__(connection, queue, require_guard=False, gate=self._continuity, **options)
        self.consume_arguments = {OFFSET_HEADER: max(after, 0)}
        self._on_gap = on_gap
        self._answered: set[int] = set()  # before their handlers have returned

    @property
    def position(self) -> int:
        """The offset of the last message processed with no gap before it; ``after`` at first."""
        with self._lock:
            return self._continuity.position.at(self._core.acks.settled)

    def take_replies(self, offset: int) -> list[tuple[Delivery, Reply]]:
        """The replies to messages up to this offset, which are settled by `gone` or `keep`, as after `done`."""
        with self._lock:
            found = self._drafts.take_up_to(self._continuity.position.last_tag(offset))
            self._answered = {tag for tag in self._answered if tag > self._core.acks.settled}
            for request, _ in found:
                self._core.settle(request.delivery_tag, Outcome.REPLYING)
                self._answered.add(request.delivery_tag)
        return found

    def is_kept(self, offset: int) -> bool:
        """Whether a message up to this offset could not be answered, and comes again."""
        with self._lock:
            return self._core.acks.is_kept(self._continuity.position.last_tag(offset))

    def is_answered(self, delivery: Delivery) -> bool:
        """Whether its reply was taken by `take_replies`."""
        with self._lock:
            return delivery.delivery_tag in self._answered

    def done_up_to(self, offset: int) -> int:
        """Marks everything handed out up to this offset as processed; returns how many messages that settles.

        A message with a reply that has yet to be taken is left to `done`.
        """
        with self._lock:
            last = self._continuity.position.last_tag(offset)
            count, actions = self._core.done_up_to(last, self._drafts.tags)
        self._perform(actions)
        return count

    # Everything below runs on the I/O thread.

    def _ask(self, ask: Ask) -> None:
        if ask.question is Question.COUNT:
            if self._channel is not None:
                self._channel.queue_declare(self.queue.name, passive=True, callback=self._counted)
            return
        if ask.question is Question.SINCE:
            found = offset_since(self._connection, self.queue.name, ask.offset)
        else:
            found = first_offset(self._connection, self.queue.name)
        found.add_done_callback(lambda it: self._connection.submit(partial(self._found, ask.question, it)))

    @contained
    def _found(self, question: Question, found: Future[int | None]) -> None:
        error = found.exception()
        if isinstance(error, CobalanceError):
            self._answer(Answer(question, None, error))
        else:
            self._answer(Answer(question, found.result()))

    @contained
    def _counted(self, leader: Any) -> None:
        self._answer(Answer(Question.COUNT, leader.method.message_count))

    def _answer(self, answer: Answer | GapJudged) -> None:
        self._handle(self._core.answered, answer, monotonic_ms())

    def _meet_gap(self, gap: MeetGap) -> None:
        self._answer(GapJudged(self._on_gap(gap.first)))

    def _leave_behind(self, it: LeftBehind) -> None:
        words = f"RabbitMQ sends nothing behind offset {it.last}, though {it.first} is the oldest left"
        self._handle(self._core.give_up, channel_lost(self.queue.name, words))

    _DO: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        **PartitionConsumer._DO,  # noqa: SLF001
        Ask: _ask,
        MeetGap: _meet_gap,
        LeftBehind: _leave_behind,
    }


def _offset_of(delivery: Delivery) -> int:
    return int(delivery.headers[OFFSET_HEADER])
