"""What consumer groups take by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from cobalance.group import GroupOptions, PlainOptions
from cobalance.rabbitmq.failure_policy import OnError, OnFailure
from cobalance.rabbitmq.queues import Queue
from cobalance.rabbitmq.retries import Retries
from cobalance.rabbitmq.sources import BoundQueues, MatchingQueues
from cobalance.rabbitmq.stream_settings import StreamSettings
from cobalance.rabbitmq.topic import Topic

Part = Topic | Queue | str | BoundQueues | MatchingQueues
ConsumerSource = Part | Iterable[Part]
Ack = Literal["auto", "manual"]


class PlainConsumerOptions(PlainOptions, total=False):
    """What a consumer group takes by name, but for callbacks, and for ``batch``, which decides what its handler is given."""

    amqp_url: str
    management_url: str | None
    refresh_ms: int
    prefetch: int
    ack: Ack
    ack_every: int
    ack_interval_ms: float
    retries: int | Retries
    on_error: OnError
    on_failure: OnFailure | None
    max_in_flight: int | None
    max_in_flight_per_partition: int | None
    require_guard: bool
    unconnected_ms: int | None
    streams: StreamSettings | None


class ConsumerOptions(PlainConsumerOptions, GroupOptions, total=False):
    """The same with callbacks; see :class:`ConsumerGroup`."""
