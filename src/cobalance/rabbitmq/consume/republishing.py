"""A received message, ready to be published again.

Some of what a message carries acts on RabbitMQ each time it is published, and must act once:

- ``expiration`` would delete a dead letter before anyone has looked at it. RabbitMQ removes it, too, when it
  dead-letters a message by itself.
- ``user_id`` is refused unless it is the user of the connection, which belongs to a consumer here.
- ``CC`` and ``BCC`` would send another copy to each of those queues.
- ``x-delivery-count`` and ``x-acquired-count`` are the counts of a queue that the message is leaving, and
  ``x-stream-offset`` is its place in a stream.

All else is the message's own and is kept: ``priority`` and ``delivery_mode`` hold wherever the message goes, and
``x-delay`` acts only where a queue's owner has chosen a delayed exchange for dead letters.

Values are not decoded, so that they arrive as they were sent, also those that pika cannot read or write.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pika.spec import BasicProperties

from cobalance.errors import PublishFailed
from cobalance.rabbitmq.model.encoding import Encoded, can_hold
from cobalance.rabbitmq.wire.header_table import HEADERS, entries, put_together, table_of, taken_apart
from cobalance.rabbitmq.wire.pika_internals import Received

if TYPE_CHECKING:
    from collections.abc import Mapping

EXPIRATION, USER_ID = "x-cobalance-expiration", "x-cobalance-user-id"
"""Headers that keep the values of two properties. RabbitMQ has checked the user when the message was first published,
but checks no header."""

MOVED = {BasicProperties.FLAG_EXPIRATION: EXPIRATION, BasicProperties.FLAG_USER_ID: USER_ID}

ACT_AGAIN = frozenset({b"CC", b"BCC", b"x-delivery-count", b"x-acquired-count", b"x-stream-offset"})


def encoding_of(properties: BasicProperties) -> bytes:
    """The properties' encoding, as it arrived if they were received."""
    return properties.encoded if isinstance(properties, Received) else b"".join(properties.encode())


def republished(
    properties: BasicProperties,
    own: Mapping[str, Any] = MappingProxyType({}),
    *,
    without: tuple[str, ...] = (),
    frame_max: int = 0,
) -> Encoded:
    """Returns a copy without what would act a second time, and without headers that begin with any of these.

    It gets headers of our own, the most important first, as far as AMQP can hold them and RabbitMQ takes a frame of that
    size. Properties whose encoding is broken are copied as they are.

    Raises:
        PublishFailed: the frame is too large without those.
    """
    prefixes = tuple(it.encode() for it in without)
    try:
        parts = taken_apart(encoding_of(properties))
        headers = entries(parts.pop(HEADERS, b""))
    except ValueError:
        return Encoded(encoding_of(properties))
    kept = {name: it for name, it in headers.items() if name not in ACT_AGAIN and not name.startswith(prefixes)}
    moved = {name: parts.pop(flag)[1:].decode(errors="replace") for flag, name in MOVED.items() if flag in parts}
    added = {name: value for name, value in {**own, **moved}.items() if value is not None and can_hold(value)}
    return _with_headers(parts, kept, _encoded(added), frame_max)


def _encoded(headers: Mapping[str, Any]) -> dict[bytes, bytes]:
    return entries(taken_apart(encoding_of(BasicProperties(headers=dict(headers)))).get(HEADERS, b""))


def _with_headers(
    parts: Mapping[int, bytes], kept: Mapping[bytes, bytes], added: Mapping[bytes, bytes], frame_max: int
) -> Encoded:
    whole = _join(parts, {**kept, **added})
    if whole.fits(frame_max):
        return whole
    headers = {name: value for name, value in kept.items() if name not in added}
    for name, value in added.items():
        if _join(parts, {**headers, name: value}).fits(frame_max):
            headers[name] = value
    again = _join(parts, headers)
    if not again.fits(frame_max):
        raise PublishFailed("its headers do not fit into a frame")
    return again


def _join(parts: Mapping[int, bytes], headers: Mapping[bytes, bytes]) -> Encoded:
    return Encoded(put_together({**parts, HEADERS: table_of(headers)} if headers else parts))
