"""How often messages had failed when they returned to their queue with a lost channel.

The same tenure gets them again, and goes on counting: otherwise what fails until RabbitMQ closes the channel, as it does
after its ``consumer_timeout``, would begin its retries again and again, and hold up its partition for ever.

A message is known by all that it says. Some never come again, as they expire. When and in which order the others do is
not relied on, since it depends on the kind of queue and on priorities.
"""

from __future__ import annotations

import threading
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cobalance.rabbitmq.consume.parcels import Parcel
    from cobalance.rabbitmq.partition.delivery import Delivery, QueueTenure

RABBITMQS_OWN = frozenset({"x-delivery-count", "x-acquired-count"})
"""Headers of RabbitMQ's that differ when a message comes again."""


class EarlierFailures:
    """Of one tenure. Any thread.

    Args:
        most: how many messages can be unfinished at a time, the prefetch. No more are remembered, the last ones noted.
        marked: whether RabbitMQ marks what comes again as redelivered, which it does not in a stream.
    """

    def __init__(self, most: int, *, marked: bool = True) -> None:
        self._most, self._marked = most, marked
        self._lock = threading.Lock()
        self._counts: dict[bytes, int] = {}
        self._of: QueueTenure | None = None  # what was noted last

    def note(self, parcels: Iterable[Parcel]) -> None:
        """These are unfinished, and may come again, or were put off."""
        for parcel in parcels:
            if parcel.failures:
                for delivery in parcel.deliveries:
                    self._note(delivery, parcel.failures)

    def _note(self, delivery: Delivery, failures: int) -> None:
        digest = _digest(delivery)
        with self._lock:
            self._of = delivery.tenure
            self._counts.pop(digest, None)
            self._counts[digest] = failures
            if len(self._counts) > self._most:
                del self._counts[next(iter(self._counts))]

    def take(self, delivery: Delivery) -> int:
        """How often this has failed before it came again, which is forgotten."""
        if not self._counts or (self._marked and not delivery.redelivered and delivery.tenure is not self._of):
            return 0
        digest = _digest(delivery)
        with self._lock:
            return self._counts.pop(digest, 0)


def _digest(delivery: Delivery) -> bytes:
    """The order of headers may differ when a message comes again."""
    headers = sorted(repr(it) for it in delivery.headers.items() if it[0] not in RABBITMQS_OWN)
    method, properties = delivery.method, {**vars(delivery.properties), "headers": headers}
    digest = blake2b(repr((method.exchange, method.routing_key, properties)).encode(), digest_size=16)
    digest.update(delivery.body)
    return digest.digest()
