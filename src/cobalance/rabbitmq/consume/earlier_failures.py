"""How often messages had failed when they returned to their queue with a lost channel.

The same tenure gets them again, and goes on counting: otherwise what fails until RabbitMQ closes the channel, as it does
after its ``consumer_timeout``, would begin its retries again and again, and hold up its partition for ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from cobalance.rabbitmq.consume.parcels import Parcel
    from cobalance.rabbitmq.partition.delivery import Delivery


class EarlierFailures:
    """Of one tenure; thread-safe, as each call is one operation on a dictionary for each message."""

    def __init__(self) -> None:
        self._counts: dict[Hashable, int] = {}

    def note(self, parcels: Iterable[Parcel]) -> None:
        """These are unfinished, and may come again."""
        for parcel in parcels:
            if parcel.failures:
                for delivery in parcel.deliveries:
                    self._counts[_identity(delivery)] = parcel.failures

    def take(self, deliveries: Sequence[Delivery]) -> int:
        """How often these have failed together, or one by one, before they came again; they are forgotten."""
        if not self._counts:  # as nearly always
            return 0
        return min([self._counts.pop(_identity(it), 0) for it in deliveries])


def _identity(delivery: Delivery) -> Hashable:
    """What tells a message from others, also when it comes again: its place in a stream, or else all that it says."""
    if delivery.offset is not None:
        return delivery.offset
    return delivery.properties.message_id, delivery.exchange, delivery.routing_key, delivery.body
