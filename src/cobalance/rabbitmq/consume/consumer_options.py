"""The keyword arguments of consumer groups."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Literal

import attrs

from cobalance.errors import UsageError
from cobalance.group.group import GroupOptions, PlainOptions
from cobalance.rabbitmq.consume.failure_policy import OnError
from cobalance.rabbitmq.consume.failure_reports import OnFailure
from cobalance.rabbitmq.consume.key_settings import KeyOf, Order
from cobalance.rabbitmq.consume.metering import Meter
from cobalance.rabbitmq.model.queues import Queue
from cobalance.rabbitmq.model.retries import Retries
from cobalance.rabbitmq.model.stream_settings import StreamSettings
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.topics.sources import BoundQueues, MatchingQueues
from cobalance.settings import GroupSettings, MemberSettings

Part = Topic | Queue | str | BoundQueues | MatchingQueues
ConsumerSource = Part | Iterable[Part]
Ack = Literal["auto", "manual"]


class PlainConsumerOptions(PlainOptions, total=False):
    """A consumer group's keyword arguments, without callbacks and ``batch``, which decides the handler's argument."""

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
    order: Order
    concurrency: int | None
    key: KeyOf | None
    max_in_flight: int | None
    max_in_flight_per_partition: int | None
    require_guard: bool
    unconnected_ms: int | None
    crash_detection: bool
    streams: StreamSettings | None
    metrics: Meter | None
    telemetry: Meter | None


class ConsumerOptions(PlainConsumerOptions, GroupOptions, total=False):
    """The same with callbacks; see :class:`ConsumerGroup`."""


def check_known(options: Iterable[str]) -> None:
    """Raises UsageError for an option that plain groups do not have."""
    for name in options:
        if name not in GroupOptions.__optional_keys__:
            raise UsageError(f"a consumer group has no option {name!r}{_instead_of(name)}")


def _instead_of(name: str) -> str:
    for option, kind in (("settings", GroupSettings), ("member", MemberSettings)):
        if name in attrs.fields_dict(kind):
            return f": give {option}={kind.__name__}({name}=...)"
    close = get_close_matches(name, [*ConsumerOptions.__optional_keys__, "batch"], 1)
    return f": did you mean {close[0]}?" if close else "; see help(ConsumerGroup)"
