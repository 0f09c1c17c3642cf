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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pika.spec import BasicProperties

EXPIRATION, USER_ID = "x-cobalance-expiration", "x-cobalance-user-id"
"""Headers that keep the values of two properties. RabbitMQ has checked the user when the message was first published,
but checks no header."""

ACT_AGAIN = frozenset({"CC", "BCC", "x-delivery-count", "x-acquired-count", "x-stream-offset"})


def republished(properties: BasicProperties, *, without: tuple[str, ...] = ()) -> BasicProperties:
    """Returns a copy without what would act a second time, and without headers that begin with any of these."""
    again = copy(properties)
    again.expiration = again.user_id = None
    headers: Mapping[str, Any] = properties.headers or {}
    kept = {name: value for name, value in headers.items() if name not in ACT_AGAIN and not name.startswith(without)}
    moved = {EXPIRATION: properties.expiration, USER_ID: properties.user_id}
    again.headers = {**kept, **{name: value for name, value in moved.items() if value is not None}} or None
    return again
