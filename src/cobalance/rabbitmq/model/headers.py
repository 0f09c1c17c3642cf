"""Reads headers whose names are RabbitMQ's or ours: any publisher may have set them, to anything that AMQP holds."""

from collections.abc import Mapping
from typing import Any

from cobalance.rabbitmq.model.encoding import MAX_NAME_BYTES
from cobalance.rabbitmq.model.topic import partition_named

DEATHS = "x-death"
"""RabbitMQ's header: where a message was dead-lettered, the last time first."""


def as_text(value: object) -> str | None:
    """The value if it is text, otherwise None."""
    return value if isinstance(value, str) else None


def as_name(value: object) -> str | None:
    """The value if it can name a queue or an exchange, or be a routing key, otherwise None."""
    return value if isinstance(value, str) and len(value.encode()) <= MAX_NAME_BYTES else None


def as_number(value: object) -> int | None:
    """The value if it is a whole number, otherwise None. pika's numbers have a type of their own."""
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def last_death(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is said of the last time that the message was dead-lettered; empty if it never was. A queue in which it only
    waited for its time, and which is no partition, is passed over.
    """
    deaths = headers.get(DEATHS)
    said = [it for it in deaths if isinstance(it, dict)] if isinstance(deaths, list) else []
    return next((it for it in said if not _has_waited(it)), said[0] if said else {})


def _has_waited(death: Mapping[str, Any]) -> bool:
    return death.get("reason") in {"expired", "maxlen"} and partition_named(as_name(death.get("queue")) or "") is None
