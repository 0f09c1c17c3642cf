"""A consumer group knows each of its options in every place that lists them, and refuses what cannot be one."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from cobalance import ConsumerGroup, Delivery
from cobalance.errors import UsageError
from cobalance.rabbitmq.consume.consumer_options import ConsumerOptions

OWN = {
    name
    for name, it in inspect.signature(ConsumerGroup.__init__).parameters.items()
    if it.kind is inspect.Parameter.KEYWORD_ONLY
}
OPTIONS = ConsumerOptions.__optional_keys__ | {"batch"}


async def handle(delivery: Delivery) -> None: ...


def test_every_keyword_is_among_the_typed_options() -> None:
    """But for ``batch``, which decides what the handler is given, and stands in the overloads."""
    assert OWN <= OPTIONS


@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_every_option_is_validated(option: str) -> None:
    """Before any server is contacted: nothing takes an object of no meaning."""
    given: dict[str, Any] = {option: object()}
    with pytest.raises(UsageError):
        ConsumerGroup("g", "orders", handle, **given)
