"""How often and how soon a failed message is tried again.

The same member retries it: if it were returned to the queue, it would come out of order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Literal, get_args

import attrs

from cobalance.errors import InvalidSettings, UsageError
from cobalance.settings import between, number_between
from cobalance.threads.cancellation import is_failure

if TYPE_CHECKING:
    from cobalance.rabbitmq.partition.delivery import Delivery

Mode = Literal["in_place", "park"]

MOST_DELAY_MS = 3_600_000


def key_by(key_of: Callable[[Delivery], Hashable], delivery: Delivery, *, name: str) -> Hashable:
    """What the program's function says that order is kept by.

    Raises:
        UsageError: it failed, or returned what cannot be a key; `name` is the function's in the message.
    """
    try:
        key = key_of(delivery)
        _check_plain_key(key)
        hash(key)
    except BaseException as error:
        if not is_failure(error):
            raise
        raise UsageError(f"{name} has failed: {type(error).__name__}") from error
    return key


def incomparable(error: BaseException) -> UsageError:
    """The failure of a message whose key cannot be compared with those of others."""
    failure = UsageError(
        f"key=... has returned what cannot be compared with other keys ({type(error).__name__}): return text, a number, or a tuple of these"
    )
    failure.__cause__ = error
    return failure


def _check_plain_key(key: object) -> None:
    """Raises UsageError for something to be awaited: each would be a key of its own."""
    if inspect.isawaitable(key):
        if inspect.iscoroutine(key):
            key.close()
        raise UsageError("it returned something to be awaited: give a plain function")


@attrs.frozen
class Retries:
    """Retries after the first try, and the pauses between them: each is `factor` times the previous one, up to a limit.

    A pause ends at once when the partition is revoked; the next holder then gets the message.

    The message is unacknowledged meanwhile: all tries and pauses together should be shorter than RabbitMQ's
    ``consumer_timeout`` (half an hour). Otherwise RabbitMQ closes the channel, and everything that was sent ahead comes
    again; failure counts carry over as long as the partition stays with this member.

    ``mode="in_place"``: the whole partition waits. ``mode="park"``: only the failed message waits, unacknowledged,
    while later ones are processed; with ``key``, messages with the same key wait behind it, so that order holds within
    each key. If the partition is revoked or the process dies, exactly the waiting messages are redelivered, in order.
    Up to ``prefetch`` messages of a partition can wait; beyond that, the partition does. Not available for streams and
    batches.
    """

    most: int = attrs.field(default=3, validator=between(0, 1_000_000_000))
    """With 0, a message is given up the first time it fails."""
    first_ms: int = attrs.field(default=100, validator=between(0, MOST_DELAY_MS), kw_only=True)
    last_ms: int = attrs.field(default=5_000, validator=between(0, MOST_DELAY_MS), kw_only=True)
    """The longest pause."""
    factor: float = attrs.field(default=2.0, validator=number_between(1, 1_000), kw_only=True)
    mode: Mode = attrs.field(default="in_place", kw_only=True)
    key: Callable[[Delivery], Hashable] | None = attrs.field(default=None, kw_only=True)
    """Order holds among messages with the same key, e.g. ``lambda delivery: delivery.headers["customer"]``. Without a
    key, parking gives up order.
    """

    def __attrs_post_init__(self) -> None:
        if self.last_ms < self.first_ms:
            raise InvalidSettings(f"last_ms ({self.last_ms}) is below first_ms ({self.first_ms}): raise the first")
        if self.mode not in get_args(Mode):
            raise InvalidSettings(f"mode is {self.mode!r}: give one of {', '.join(map(repr, get_args(Mode)))}")
        if self.key is not None and (self.mode != "park" or not callable(self.key)):
            raise InvalidSettings("key is for mode='park', and is called with each delivery")

    @property
    def parks(self) -> bool:
        """Whether a failed message waits on its own."""
        return self.mode == "park"

    def key_of(self, delivery: Delivery) -> Hashable:
        """Returns the key; messages with the same key wait for each other.

        Raises:
            UsageError: the user's key function failed.
        """
        return delivery.delivery_tag if self.key is None else key_by(self.key, delivery, name="Retries(key=...)")

    def delay_ms(self, failures: int) -> float:
        """Returns the pause after the given failure, counted from 1."""
        try:
            return min(self.first_ms * self.factor ** (failures - 1), self.last_ms)
        except OverflowError:
            return self.last_ms if self.first_ms else 0
