"""Mistakes that a type checker has to find, never executed: strict mypy reports an ignored error that does not occur."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from cobalance import Batch, BlockingConsumerGroup, ConsumerGroup, Delivery, Group, Publisher
from cobalance.rabbitmq.dropin.connection import GroupConnection
from cobalance.testing import Churn


async def handle(delivery: Delivery) -> None:
    del delivery


def handle_list(deliveries: list[Delivery]) -> None:
    del deliveries


def generates(delivery: Delivery) -> Iterator[Delivery]:
    """Its body never runs."""
    yield delivery


async def generates_async(delivery: Delivery) -> AsyncIterator[Delivery]:
    """Its body does not run either."""
    yield delivery


async def answers(delivery: Delivery) -> bytes:
    """Its return value is ignored."""
    return delivery.body


def mistakes(churn: Churn) -> None:
    """Each is rejected by mypy."""
    ConsumerGroup("billing", "orders", handle, batch=Batch(10))  # type: ignore[arg-type]
    ConsumerGroup("billing", "orders", handle_list)  # type: ignore[arg-type]
    BlockingConsumerGroup("billing", "orders", handle)  # type: ignore[arg-type]
    BlockingConsumerGroup("billing", "orders", handle_list)  # type: ignore[arg-type]
    ConsumerGroup("billing", "orders", generates)  # type: ignore[arg-type]
    ConsumerGroup("billing", "orders", generates_async)  # type: ignore[arg-type]
    ConsumerGroup("billing", "orders", answers)  # type: ignore[arg-type]
    ConsumerGroup("billing", "orders", None)  # type: ignore[call-overload]
    ConsumerGroup("billing", "orders", handle, prefech=10)  # type: ignore[call-overload]
    ConsumerGroup("billing", "orders", handle, redis_url=3)  # type: ignore[call-overload]
    ConsumerGroup("billing", "orders", handle, on_error="ignore")  # type: ignore[call-overload]
    Publisher("amqp://localhost", "orders").publish("key", b"body", messageid="m")  # type: ignore[call-arg]
    Publisher("amqp://localhost", "orders").publish("key", {"a": 1})  # type: ignore[arg-type]
    Delivery.fake(b"body", mesage_id="m")  # type: ignore[call-arg]
    Group("copies", ["a"], work=handle)  # type: ignore[arg-type]
    Group("copies", ["a"], redis="redis://localhost")  # type: ignore[call-arg]
    GroupConnection("amqp://localhost", group="billing", prefech=10)  # type: ignore[call-arg]
    churn.join("orders", handle_list)  # type: ignore[arg-type]
    churn.join("orders", handle, prefech=10)  # type: ignore[call-overload]
    churn.join_resources(["a"], work=handle)  # type: ignore[arg-type]
    churn.join_resources(["a"], prefetch=10)  # type: ignore[call-arg]
