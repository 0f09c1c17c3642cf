"""Reads headers whose names are RabbitMQ's or ours: any publisher may have set them, to anything that AMQP holds."""

from collections.abc import Mapping
from typing import Any

from cobalance.rabbitmq.model.encoding import MAX_NAME_BYTES
from cobalance.rabbitmq.model.topic import partition_named

DEATHS = "x-death"
"""RabbitMQ's header: where a message was dead-lettered, the last time first."""

KEY = "x-partition-key"
"""Our header: the key that a message was published with. A replayed dead letter keeps it."""

MOST_KEY_BYTES = 1_024
"""Longer keys are not sent along, since RabbitMQ's frames are small."""


def with_key(headers: Mapping[str, Any] | None, key: bytes | str | None) -> dict[str, Any]:
    """The headers of a message that is published with this key, as text if it is UTF-8; the publisher's own come first."""
    if not key or len(key) > MOST_KEY_BYTES:
        return dict(headers or {})
    return {KEY: as_key(key), **(headers or {})}


def as_key(value: object) -> str | bytes | None:
    """The value if it is text or bytes, as text if it is UTF-8, otherwise None."""
    if not isinstance(value, bytes):
        return as_text(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def as_text(value: object) -> str | None:
    """The value if it is text, otherwise None."""
    return value if isinstance(value, str) else None


def as_name(value: object) -> str | None:
    """The value if it can name a queue, otherwise None."""
    return value if isinstance(value, str) and len(value.encode()) <= MAX_NAME_BYTES else None


def as_short(value: object) -> str | bytes | None:
    """The value if it can be a routing key or the name of an exchange, otherwise None; bytes if it is not UTF-8, as pika
    has those of a message.
    """
    short = as_key(value)
    return short if isinstance(short, bytes) and len(short) <= MAX_NAME_BYTES else as_name(short)


def as_number(value: object) -> int | None:
    """The value if it is a whole number, otherwise None. pika's numbers have a type of their own."""
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def has_odd_deaths(headers: Mapping[str, Any]) -> bool:
    """Whether RabbitMQ fails when it dead-letters the message: it takes ``x-death`` for its own, and adds to a count."""
    deaths = headers.get(DEATHS)
    return isinstance(deaths, list) and not all(
        isinstance(it, dict) and as_number(it.get("count", 0)) is not None for it in deaths
    )


def last_death(headers: Mapping[str, Any], topic: str) -> Mapping[str, Any]:
    """What is said of the last time that the message was dead-lettered; empty if it never was.

    The first entry is RabbitMQ's or ours, and a publisher may have made up those behind it. So one is only passed over,
    if the message merely waited in that queue for its time, for another that names a queue of this very topic.
    """
    deaths = headers.get(DEATHS)
    said = [it for it in deaths if isinstance(it, dict)] if isinstance(deaths, list) else []
    last = next((it for it in said if not _has_waited(it) or _is_of(topic, it)), {})
    return last if _is_of(topic, last) or not said else said[0]


def _has_waited(death: Mapping[str, Any]) -> bool:
    return death.get("reason") in {"expired", "maxlen"}


def _is_of(topic: str, death: Mapping[str, Any]) -> bool:
    """Whether this was in one of the topic's partitions, or in a plain queue of that name."""
    queue = as_name(death.get("queue")) or ""
    return queue == topic or (partition_named(queue) or ("",))[0] == topic
