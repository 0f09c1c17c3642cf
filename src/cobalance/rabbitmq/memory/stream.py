"""A stream: a log that every consumer reads from where it likes.

It consists of segments. Retention drops the oldest ones when a new one begins; each begins with an entry of RabbitMQ's
own, which takes an offset.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from copy import copy
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.rabbitmq.memory.queue import OFFSET, TYPE, MemoryQueue
from cobalance.rabbitmq.memory.refusal import Refusal, not_supported, precondition_failed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pika.spec import BasicProperties

    from cobalance.rabbitmq.memory.message import Message
    from cobalance.rabbitmq.memory.queue import Consumer, Declaration, Surroundings

MAX_AGE, MAX_BYTES, SEGMENT_BYTES = "x-max-age", "x-max-length-bytes", "x-stream-max-segment-size-bytes"
DEFAULT_SEGMENT_BYTES = 500_000_000

UNIT_S = {"Y": 31_536_000, "M": 2_592_000, "D": 86_400, "h": 3_600, "m": 60, "s": 1}

OVERHEAD_BYTES = 100
"""What RabbitMQ writes beside a body, about."""


@attrs.define
class Segment:
    """A part of a stream that is dropped at once."""

    messages: list[Message] = attrs.field(factory=list)
    size: int = 0
    """In bytes."""


class Stream(MemoryQueue):
    """A stream. Each message is a chunk of its own."""

    supported = frozenset({TYPE, MAX_AGE, MAX_BYTES, SEGMENT_BYTES})
    takes_of_consumers = frozenset({OFFSET})
    refused = frozenset(
        {
            *("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-delivery-limit", "x-expires", "x-max-length"),
            *("x-max-priority", "x-message-ttl", "x-single-active-consumer"),
        }
    )

    def __init__(self, declaration: Declaration, surroundings: Surroundings) -> None:
        super().__init__(declaration, surroundings)
        self._clock = surroundings.clock
        self._segments = [Segment()]
        self._end = 0
        self._positions: dict[int, int] = {}  # by the consumer's id: the offset that it gets next

    # -- writing -------------------------------------------------------------------------------------------------------

    def push(self, message: Message) -> None:
        message.properties = _with_plain_headers(message)
        if self._segments[-1].messages and self._segments[-1].size >= self.arguments.get(
            SEGMENT_BYTES, DEFAULT_SEGMENT_BYTES
        ):
            self._begin_segment()
        message.offset, message.written_at_s = self._end, self._clock.time_s
        self._segments[-1].messages.append(message)
        self._segments[-1].size += len(message.body) + OVERHEAD_BYTES
        self._end += 1
        self.serve()

    def _begin_segment(self) -> None:
        self._segments.append(Segment())
        self._end += 1
        while len(self._segments) > 1 and self._is_superfluous(self._segments[0]):
            del self._segments[0]

    def _is_superfluous(self, oldest: Segment) -> bool:
        most_bytes, most_s = self.arguments.get(MAX_BYTES), seconds(self.arguments.get(MAX_AGE))
        too_much = most_bytes is not None and sum(it.size for it in self._segments) > most_bytes
        too_old = most_s is not None and oldest.messages[-1].written_at_s < self._clock.time_s - most_s
        return too_much or too_old

    # -- reading -------------------------------------------------------------------------------------------------------

    def attach(self, consumer: Consumer) -> None:
        if not consumer.prefetch:
            raise precondition_failed(f"consumer prefetch count is not set for 'queue '{self.name}' in vhost '/''")
        if consumer.without_acks:
            raise self._not_supported("automatic acknowledgement")
        self._positions[id(consumer)] = self._start(consumer.arguments.get(OFFSET, "next"))
        super().attach(consumer)

    def _start(self, asked: Any) -> int:
        if asked == "first":
            return 0
        if asked == "last":
            return next((it.offset for it in reversed(self.contents)), self._end)
        if asked == "next":
            return self._end
        if isinstance(asked, int):
            return asked
        since_s = asked.replace(tzinfo=UTC).timestamp() if isinstance(asked, datetime) else self._ago(asked)
        return next((it.offset for it in self._from(0) if it.written_at_s >= since_s), self._end)

    def _ago(self, interval: Any) -> float:
        found = seconds(interval)
        if found is None:
            raise Refusal(541, "INTERNAL_ERROR", whole_connection=True)
        return self._clock.time_s - found

    def detach(self, consumer: Consumer) -> None:
        super().detach(consumer)
        self._positions.pop(id(consumer), None)

    def serve(self) -> None:
        for consumer in self.consumers.copy():
            for message in self._from(self._positions[id(consumer)]):
                if not consumer.has_room:
                    break
                self._positions[id(consumer)] = message.offset + 1
                consumer.deliver(self, message)

    def _from(self, offset: int) -> Iterator[Message]:
        for segment in self._segments:
            first = bisect_left(segment.messages, offset, key=lambda it: it.offset)
            for index in range(first, len(segment.messages)):
                yield segment.messages[index]

    def properties_of(self, message: Message) -> BasicProperties:
        return message.with_headers({OFFSET: message.offset})

    @property
    def contents(self) -> Sequence[Message]:
        return list(self._from(0))

    @property
    def is_empty(self) -> bool:
        return not any(it.messages for it in self._segments)

    # -- what only queues do -------------------------------------------------------------------------------------------

    def acked(self) -> None:
        """It stays."""

    def abandon(self, messages: Sequence[Message]) -> None:
        """They have stayed."""

    def take(self, *, without_acks: bool) -> Message | None:  # noqa: ARG002
        raise self._not_supported("basic.get")

    def purge(self) -> int:
        raise self._not_supported("queue.purge")

    def requeue(self, messages: Sequence[Message]) -> None:  # noqa: ARG002
        raise self._not_supported("basic.nack and basic.reject")

    def reject(self, message: Message) -> None:  # noqa: ARG002
        raise self._not_supported("basic.nack and basic.reject")

    def _not_supported(self, what: str) -> Refusal:
        return not_supported(f"{what} not supported by stream queues queue '{self.name}' in vhost '/'")


def seconds(interval: Any) -> int | None:
    """The length of an interval such as "7D"; None if it is none."""
    found = re.fullmatch(r"(\d+)([YMDhms])", interval) if isinstance(interval, str) else None
    return int(found[1]) * UNIT_S[found[2]] if found else None


def _with_plain_headers(message: Message) -> BasicProperties:
    """A stream keeps no lists and tables. RabbitMQ 3 fails over a Decimal."""
    if any(isinstance(it, Decimal) for it in message.headers.values()):
        raise Refusal(541, "INTERNAL_ERROR", whole_connection=True)
    properties = copy(message.properties)
    if properties.headers:
        properties.headers = {it: value for it, value in message.headers.items() if not isinstance(value, list | dict)}
    return properties
