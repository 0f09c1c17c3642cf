"""Builds messages for publishers: routed, stamped, checked and encoded."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import count
from typing import Any, TypedDict

from pika.spec import BasicProperties

from cobalance.errors import UsageError
from cobalance.limits import check_integer, check_kind, check_time
from cobalance.rabbitmq.model.encoding import MAX_NAME_BYTES, Body, encode_body, encode_properties, encode_text
from cobalance.rabbitmq.model.headers import with_key
from cobalance.rabbitmq.model.topic import MAX_PARTITIONS, Topic
from cobalance.rabbitmq.publish.confirms import UnconfirmedMessage
from cobalance.rabbitmq.wire.address import user_name

Headers = Mapping[str, Any]
Key = bytes | str | None

FIRST_YEAR = 1970
MAX_EXPIRATION_MS = 2**32 - 1
"""RabbitMQ closes the publisher's channel over anything larger."""


class Properties(TypedDict, total=False):
    """AMQP's message properties besides headers and the priority; None counts as not given."""

    message_id: str | None
    """Unique by default."""
    content_type: str | None
    content_encoding: str | None
    correlation_id: str | None
    reply_to: str | None
    type: str | None
    app_id: str | None
    user_id: str | None
    """RabbitMQ validates it: only the connection's own user is accepted."""
    expiration_ms: int | None
    """How long the message may stay in its queue."""
    timestamp: datetime | None
    """With a time zone; now by default."""


class Envelopes:
    """Builds the messages of one publisher."""

    def __init__(self, url: str) -> None:
        self._user = user_name(url)
        self._origin, self._numbers = uuid.uuid4().hex[:16], count(1)

    def seal(
        self,
        key: Key,
        body: Body,
        headers: Headers | None,
        *,
        partition: int | None,
        persistent: bool,
        properties: Properties,
    ) -> UnconfirmedMessage:
        """Builds a message; raises UsageError for what AMQP cannot hold."""
        number = next(self._numbers)
        mark = f"{self._origin}-{number}"
        own = self._checked(properties) if properties else {}
        made = BasicProperties(
            **{"delivery_mode": 2 if persistent else 1, "timestamp": int(time.time()), "message_id": mark, **own}
        )
        if "message_id" in own:
            made.cluster_id = mark  # AMQP no longer uses this field; RabbitMQ passes it through.
        route = _route(key, partition, number)
        if headers is None or isinstance(headers, Mapping):  # what it is instead, is refused below
            headers = with_key(headers, key)
        return UnconfirmedMessage(
            route, mark, own.get("message_id", mark), encode_body(body), encode_properties(made, headers)
        )

    def _checked(self, given: Properties) -> dict[str, Any]:
        others = given.keys() - Properties.__annotations__.keys()
        if "priority" in others:
            raise UsageError(
                "priority is not taken: a partition's messages are in order, and RabbitMQ would deliver this one ahead of older ones; give "
                "urgent messages a topic of their own"
            )
        if others:
            raise UsageError(
                f"messages have no {min(others)}: there are {', '.join(sorted(Properties.__annotations__))}"
            )
        if given.get("user_id") not in (None, self._user):
            raise UsageError(
                f"user_id is {given.get('user_id')!r}: RabbitMQ takes only the connection's own, {self._user!r}"
            )
        own = {name: value for name, value in given.items() if value is not None}
        return dict(CHECKED.get(name, _text)(name, value) for name, value in own.items())


def _route(key: Key, partition: int | None, number: int) -> Callable[[Topic], int]:
    """The message's partition, in any layout of its topic."""
    encoded = None if key is None else encode_text("key", key)
    if partition is not None:
        check_integer("partition", partition, most=MAX_PARTITIONS - 1)
        return lambda _: partition
    if encoded is None:
        return lambda topic: number % topic.partitions
    return lambda topic: topic.partition_of(encoded)


def _text(name: str, value: Any) -> tuple[str, Any]:
    check_kind(name, value, str)
    if (length := len(encode_text(name, value))) > MAX_NAME_BYTES:
        raise UsageError(f"{name} takes {length} bytes: AMQP holds {MAX_NAME_BYTES}")
    return name, value


def _expiration(name: str, value: Any) -> tuple[str, Any]:
    check_integer(name, value, most=MAX_EXPIRATION_MS)
    return "expiration", str(value)


def _timestamp(name: str, value: Any) -> tuple[str, Any]:
    check_kind(name, value, datetime)
    check_time(name, value)
    if value.year < FIRST_YEAR:
        raise UsageError(f"{name} is {value}: AMQP counts the seconds since {FIRST_YEAR}")
    return name, max(0, int(value.timestamp()))


CHECKED: dict[str, Callable[[str, Any], tuple[str, Any]]] = {
    "expiration_ms": _expiration,
    "timestamp": _timestamp,
}
"""Property → function to AMQP's name and value; all others are text."""
