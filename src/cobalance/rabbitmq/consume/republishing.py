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
"""

from __future__ import annotations

from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cobalance.errors import PublishFailed
from cobalance.rabbitmq.model.encoding import Encoded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pika.spec import BasicProperties

EXPIRATION, USER_ID = "x-cobalance-expiration", "x-cobalance-user-id"
"""Headers that keep the values of two properties. RabbitMQ has checked the user when the message was first published,
but checks no header."""

ACT_AGAIN = frozenset({"CC", "BCC", "x-delivery-count", "x-acquired-count", "x-stream-offset"})


def republished(
    properties: BasicProperties,
    own: Mapping[str, Any] = MappingProxyType({}),
    *,
    without: tuple[str, ...] = (),
    frame_max: int = 0,
) -> BasicProperties:
    """Returns a copy without what would act a second time, and without headers that begin with any of these.

    It gets headers of our own, the most important first, as far as RabbitMQ takes a frame of that size.

    Raises:
        PublishFailed: the frame is too large without those.
    """
    again = copy(properties)
    again.expiration = again.user_id = None
    headers: Mapping[str, Any] = properties.headers or {}
    kept = {name: value for name, value in headers.items() if name not in ACT_AGAIN and not name.startswith(without)}
    moved = {EXPIRATION: properties.expiration, USER_ID: properties.user_id}
    added = {name: value for name, value in [*own.items(), *moved.items()] if value is not None}
    _add_headers(again, kept, added, frame_max)
    return again


def _add_headers(
    properties: BasicProperties, kept: Mapping[str, Any], added: Mapping[str, Any], frame_max: int
) -> None:
    properties.headers = {**kept, **added} or None
    if Encoded(properties).fits(frame_max):
        return
    headers = {name: value for name, value in kept.items() if name not in added}
    for name, value in added.items():
        properties.headers = {**headers, name: value}
        if Encoded(properties).fits(frame_max):
            headers[name] = value
    properties.headers = headers or None
    if not Encoded(properties).fits(frame_max):
        raise PublishFailed("its headers do not fit into a frame")
