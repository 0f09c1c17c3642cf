"""How messages are ordered: by partition, or by key."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Literal, Self, get_args

import attrs

from cobalance.errors import UsageError
from cobalance.group.worker import is_async
from cobalance.limits import check_integer, check_parameters
from cobalance.rabbitmq.model.retries import key_by
from cobalance.rabbitmq.partition.delivery import Delivery

if TYPE_CHECKING:
    from cobalance.rabbitmq.consume.failure_policy import OnError
    from cobalance.rabbitmq.model.retries import Retries

Order = Literal["partition", "key"]
KeyOf = Callable[[Delivery], Hashable]

CONCURRENCY = 64
MOST_CONCURRENCY = 10_000


@attrs.frozen
class KeySettings:
    """What a group's options say about order."""

    key_of: KeyOf | None = None
    """What order is kept by; None if by partition."""
    shared: bool = False
    """Whether handlers run side by side; otherwise only a failed message lets others go first."""
    concurrency: int = CONCURRENCY

    @classmethod
    def of(
        cls,
        order: Order,
        concurrency: int | None,
        key: KeyOf | None,
        retries: Retries,
        on_error: OnError,
        *,
        batched: bool,
    ) -> Self:
        """Raises UsageError for options that do not go together."""
        if order not in get_args(Order):
            raise UsageError(f"order is {order!r}: give 'partition' or 'key'")
        if order == "partition":
            _refuse_without_keys(concurrency, key, on_error)
            if retries.parks and batched:
                raise UsageError("batches are tried again in place: leave out batch, or mode='park'")
            return cls(retries.key_of if retries.parks else None)
        if retries.parks:
            raise UsageError("with order='key' only a failed message's key waits anyway: leave out mode='park'")
        if concurrency is not None:
            check_integer("concurrency", concurrency, least=1, most=MOST_CONCURRENCY)
        if key is not None:
            check_parameters("key", key, "a delivery")
            if is_async(key):
                raise UsageError("key is an async function: give a plain one, which is called for each message")
        key_of = published_key if key is None else lambda delivery: key_by(key, delivery, name="key(delivery)")
        return cls(key_of, shared=True, concurrency=concurrency or CONCURRENCY)


def published_key(delivery: Delivery) -> Hashable:
    """The key that the message was published with; without one, its routing key."""
    key = delivery.key
    return delivery.routing_key if key is None else key


def _refuse_without_keys(concurrency: int | None, key: KeyOf | None, on_error: OnError) -> None:
    if concurrency is not None or key is not None:
        raise UsageError("concurrency and key are for order='key'")
    if on_error == "park":
        raise UsageError("on_error='park' is for order='key', where only the failed message's key waits: give 'pause'")
