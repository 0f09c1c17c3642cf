"""What a delivery shows, and the errors of using it wrongly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from pika.spec import Basic, BasicProperties
from tests.consumers import WITHIN_S, new_topic, place

from cobalance.errors import UsageError
from cobalance.rabbitmq import Delivery
from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.rabbitmq.partition.delivery import QueueTenure

SECRET = b"card 4111"


def test_nothing_of_the_payload_is_shown() -> None:
    """A delivery's repr easily ends up in a log or an error message."""
    headers = BasicProperties(headers={"secret": "card 4111"})
    delivery = Delivery(QueueTenure("orders-3", 7), Basic.Deliver(delivery_tag=1), headers, SECRET)
    assert repr(delivery) == "Delivery(tenure=QueueTenure(queue='orders-3', token=7), body=<9 bytes>)"


@pytest.mark.parametrize("made_up", [True, ["1"], "n" * 300], ids=["bool", "list", "long text"])
def test_headers_that_a_publisher_has_made_up_are_not_taken_for_rabbitmq_s(made_up: Any) -> None:
    """They count only if they are what RabbitMQ or we would have set."""
    names = ("x-delivery-count", "x-stream-offset", "x-cobalance-exchange", "x-cobalance-routing-key")
    delivery = Delivery.fake(headers=dict.fromkeys(names, made_up))
    assert (delivery.earlier_tries, delivery.offset) == (None, None)
    assert (delivery.exchange, delivery.routing_key) == ("fake", "0/1")


@pytest.mark.parametrize(
    ("sent", "key"), [("größe", "größe"), ("größe".encode(), "größe"), (b"\xff", b"\xff"), (b"", ""), (5, None)]
)
def test_a_key_is_text_if_it_is_utf_8(sent: Any, key: Any) -> None:
    """Some clients send text as bytes: the same key must be equal, or two handlers would work it at a time."""
    assert Delivery.fake(headers={"x-partition-key": sent}).key == key


def test_no_handler_is_told_at_once() -> None:
    """It is refused before anything is connected."""
    with pytest.raises(UsageError, match=r"the handler is None: give a function"):
        ConsumerGroup("g", "t", None)  # type: ignore[call-overload]


@pytest.mark.anyio
@pytest.mark.parametrize("settle", [ConsumerGroup.ack, ConsumerGroup.reject])
async def test_a_message_is_settled_once(amqp_url: str, settle: Callable[..., None]) -> None:
    """By its handler's return or manually; the error shows no payload."""
    refusals: list[str] = []
    done = anyio.Event()

    async def handle(delivery: Delivery) -> None:
        for _ in range(2):
            try:
                settle(group, delivery)
            except UsageError as error:
                refusals.append(str(error))
        done.set()

    with place(amqp_url) as it, new_topic(amqp_url) as topic:
        for ack, words in {"auto": ["give ack='manual'"] * 2, "manual": ["once"]}.items():
            choices: dict[str, Any] = {"ack": ack}
            async with it.member(topic, handle, **choices) as group:
                it.publish(topic, SECRET.decode())
                with anyio.fail_after(WITHIN_S):
                    await done.wait()
            assert len(refusals) == len(words)
            assert all(word in refusal for word, refusal in zip(words, refusals, strict=True))
            assert "4111" not in str(refusals)
            done, refusals = anyio.Event(), []
