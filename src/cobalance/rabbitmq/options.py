"""Valid options of consumers, publishers and the drop-in. The bounds are RabbitMQ's, or beyond any sensible value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from cobalance.coordinator.open import check_redis_url, check_transport
from cobalance.errors import UsageError
from cobalance.limits import check_callable, check_flag, check_integer, check_kind, check_names, check_number
from cobalance.names import validate_name
from cobalance.rabbitmq.model.batches import MOST_MESSAGES, Batch
from cobalance.rabbitmq.model.queues import Queue
from cobalance.rabbitmq.model.retries import Retries
from cobalance.rabbitmq.model.stream_settings import StreamSettings
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.topics.sources import BoundQueues, MatchingQueues
from cobalance.rabbitmq.wire.address import check_amqp_url, check_management_url
from cobalance.settings import GroupSettings, MemberSettings

Check = Callable[[str, object], None]

DAY_MS = 86_400_000
SHORT = 65_535
"""The maximum of AMQP's two-byte fields."""


def check_options(options: Mapping[str, object]) -> None:
    """Raises UsageError for the first invalid option; unknown names are ignored."""
    for name, value in options.items():
        if name in CHECKS:
            CHECKS[name](name, value)


def checked_source(source: Any) -> Any:
    """Normalizes what a consumer group consumes to a topic's name or a list; raises UsageError for anything else."""
    if isinstance(source, str):
        return source
    if isinstance(source, Topic | BoundQueues | MatchingQueues):
        return [source]
    if isinstance(source, bytes) or not isinstance(source, Iterable):
        kind = type(source).__name__
        raise UsageError(
            f"the source is an object of type {kind}: give a topic, its name, or a list of topics and queues"
        )
    parts = list(source)
    check_names(
        "queue",
        [
            it.name if isinstance(it, Queue | Topic) else it
            for it in parts
            if not isinstance(it, BoundQueues | MatchingQueues)
        ],
    )
    return parts


def _count(least: int, most: int) -> Check:
    return partial(check_integer, least=least, most=most)


def _optional(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def _retries(name: str, value: object) -> None:
    if not isinstance(value, Retries):
        check_integer(name, value, most=1_000_000_000)


def _meter(name: str, value: object, *, needs: Iterable[str], give: str) -> None:
    if value is not None and not all(callable(getattr(value, it, None)) for it in needs):
        kind = type(value).__name__
        raise UsageError(f"{name} is an object of type {kind}: give a {give}, or what has its methods")


def _prefix(name: str, value: object) -> None:
    check_kind(name, value, str)
    validate_name("key prefix", str(value))


METER = ("attach", "begun", "ended", "settled", "moved")

CHECKS: dict[str, Check] = {
    "prefetch": _count(1, MOST_MESSAGES),  # 0 would mean unlimited
    "ack_every": _count(1, 1_000_000_000),
    "ack_interval_ms": partial(check_number, least=0.1, most=DAY_MS),
    "refresh_ms": _count(1, DAY_MS),
    "unconnected_ms": _optional(_count(1, DAY_MS)),
    "max_in_flight": _optional(_count(1, 1_000_000_000)),
    "max_in_flight_per_partition": _optional(_count(1, 1_000_000_000)),
    "retries": _retries,
    "require_guard": check_flag,
    "crash_detection": check_flag,
    "batch": partial(check_kind, kind=Batch, optional=True),
    "streams": partial(check_kind, kind=StreamSettings, optional=True),
    "settings": partial(check_kind, kind=GroupSettings, optional=True),
    "member": partial(check_kind, kind=MemberSettings, optional=True),
    "on_assigned": check_callable,
    "on_revoked": check_callable,
    "on_lost": check_callable,
    "on_failure": check_callable,
    "metrics": partial(_meter, needs=METER, give="ProcessMetrics"),
    "telemetry": partial(_meter, needs=(*METER, "publishing"), give="Telemetry"),
    "log_exceptions": check_flag,
    "redis_url": check_redis_url,
    "transport": check_transport,
    "key_prefix": _prefix,
    "amqp_url": check_amqp_url,
    "management_url": check_management_url,
    "url": check_amqp_url,
    "name": partial(check_kind, kind=str),
    "window": _count(1, 1_000_000_000),
    "timeout_ms": _count(1, DAY_MS),
    "heartbeat_s": _count(0, SHORT),
}
