"""How often, and how soon, a message whose handler failed is tried again: by this member, since given back it would come out of order."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Literal, get_args

import attrs

from cobalance.errors import InvalidSettings, UsageError
from cobalance.settings import between, number_between

if TYPE_CHECKING:
    from cobalance.rabbitmq.partition.delivery import Delivery

Mode = Literal["in_place", "park"]

MOST_DELAY_MS = 3_600_000


@attrs.frozen
class Retries:
    """Tries beyond the first one, and the pauses before them: each `factor` times the one before, up to a limit.

    A pause ends at once when the partition is asked back, and the message goes to the next holder.

    ``mode="in_place"``: the whole partition waits. ``mode="park"``: the message waits by itself, unacknowledged, and what is behind it goes
    on; with ``key``, what has the same key waits behind it, so that order holds within each key. When the partition is asked back, or the process
    dies, exactly what waits comes again, in its order. Up to ``prefetch`` messages of a partition wait so, and then the partition does. The
    pauses must be shorter than RabbitMQ's ``consumer_timeout``. Not for streams and batches.
    """

    most: int = attrs.field(default=3, validator=between(0, 1_000_000_000))
    """0: a message that fails once is given up."""
    first_ms: int = attrs.field(default=100, validator=between(0, MOST_DELAY_MS), kw_only=True)
    last_ms: int = attrs.field(default=5_000, validator=between(0, MOST_DELAY_MS), kw_only=True)
    """No pause is longer."""
    factor: float = attrs.field(default=2.0, validator=number_between(1, 1_000), kw_only=True)
    mode: Mode = attrs.field(default="in_place", kw_only=True)
    key: Callable[[Delivery], Hashable] | None = attrs.field(default=None, kw_only=True)
    """What order matters within, such as ``lambda delivery: delivery.headers["customer"]``. Without it, parking gives order up."""

    def __attrs_post_init__(self) -> None:
        if self.last_ms < self.first_ms:
            raise InvalidSettings(f"last_ms ({self.last_ms}) is below first_ms ({self.first_ms}): raise the first")
        if self.mode not in get_args(Mode):
            raise InvalidSettings(f"mode is {self.mode!r}: give one of {', '.join(map(repr, get_args(Mode)))}")
        if self.key is not None and (self.mode != "park" or not callable(self.key)):
            raise InvalidSettings("key is for mode='park', and is called with each delivery")

    @property
    def parks(self) -> bool:
        """Whether a message waits by itself."""
        return self.mode == "park"

    def key_of(self, delivery: Delivery) -> Hashable:
        """Messages with the same wait for each other.

        Raises:
            UsageError: the program's function has failed.
        """
        if self.key is None:
            return delivery.delivery_tag
        try:
            key = self.key(delivery)
            hash(key)
        except Exception as error:
            raise UsageError(f"Retries(key=...) has failed: {type(error).__name__}") from error
        return key

    def delay_ms(self, failures: int) -> float:
        """The pause after the so-manieth failure, counted from 1."""
        try:
            return min(self.first_ms * self.factor ** (failures - 1), self.last_ms)
        except OverflowError:
            return self.last_ms
