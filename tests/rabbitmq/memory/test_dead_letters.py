"""Where messages go that are rejected, returned too often, or expired."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pika.spec import Basic
from tests.rabbitmq.memory.clients import Got, Place

QUEUES = ["classic", "quorum"]

FROM_3_13 = {"x-last-death-exchange", "x-last-death-queue", "x-last-death-reason"}


def mortal(at: Place, kind: str, **arguments: Any) -> tuple[str, str]:
    """A queue whose dead letters go to a second one."""
    dead = at.queue("classic", ".dead")
    return at.queue(kind, x_dead_letter_exchange="", x_dead_letter_routing_key=dead, **arguments), dead


def deaths(got: Got) -> list[Mapping[str, Any]]:
    return list(got.headers["x-death"])


@pytest.mark.parametrize("kind", QUEUES)
@pytest.mark.parametrize(
    "method", [Basic.Nack(1, requeue=False), Basic.Reject(1, requeue=False)], ids=["nack", "reject"]
)
def test_a_rejected_message_is_dead_lettered(at: Place, kind: str, method: Any) -> None:
    """With its origin, the reason and the time, and without an expiration."""
    (queue, dead), client = mortal(at, kind), at.client()
    client.publish(queue, "bad", headers={"a": 1}, message_id="m", expiration="60000")
    client.consume(queue)
    client.take(1)
    client.settle(method)
    got = client.wait_for(dead)
    assert (got.body, got.redelivered, got.properties.message_id, got.properties.expiration) == (
        "bad",
        False,
        "m",
        None,
    )
    (death,) = deaths(got)
    assert death["time"] is not None
    assert {it: value for it, value in death.items() if it != "time"} == {
        "count": 1,
        "reason": "rejected",
        "queue": queue,
        "exchange": "",
        "routing-keys": [queue],
        "original-expiration": "60000",
    }
    others = {it: value for it, value in got.headers.items() if it not in {"x-death", *FROM_3_13}}
    assert others == {
        "a": 1,
        "x-first-death-exchange": "",
        "x-first-death-queue": queue,
        "x-first-death-reason": "rejected",
    }
    assert set(got.headers) >= FROM_3_13 if at.version >= (3, 13) else not FROM_3_13 & set(got.headers)


def test_deaths_of_the_same_kind_are_counted(at: Place) -> None:
    """The latest comes first. The first is remembered by itself."""
    first, second = f"{at.name}.1", f"{at.name}.2"
    at.queue("classic", ".1", x_dead_letter_exchange="", x_dead_letter_routing_key=second)
    at.queue("classic", ".2", x_dead_letter_exchange="", x_dead_letter_routing_key=first)
    client = at.client()
    client.publish(first, "bad")
    for queue in (first, second, first):
        client.settle(Basic.Reject(client.wait_for(queue).tag, requeue=False))
    got = client.wait_for(second)
    assert [(it["queue"], it["count"]) for it in deaths(got)] == [(first, 2), (second, 1)]
    assert got.headers["x-first-death-queue"] == first


@pytest.mark.parametrize("kind", QUEUES)
def test_dead_letters_are_routed(at: Place, kind: str) -> None:
    """By their own key, unless the queue has one for them; and dropped if there is nowhere to go."""
    exchange, dead, client = at.exchange(), at.queue("classic", ".dead"), at.client()
    client.channel.queue_bind(dead, exchange, "k")
    queue = at.queue(kind, x_dead_letter_exchange=exchange)
    source = at.exchange("fanout", ".source")
    client.channel.queue_bind(queue, source, "")
    for key in ("other", "k"):
        client.publish(key, key, exchange=source)
    client.consume(queue)
    client.take(2)
    client.settle(Basic.Nack(0, True, False))
    got = client.wait_for(dead)
    assert (got.body, deaths(got)[0]["routing-keys"], deaths(got)[0]["exchange"]) == ("k", ["k"], source)
    assert client.get(dead) is None
    client.channel.exchange_delete(exchange)
    client.publish("k", "lost", exchange=source)
    client.take(1)
    client.settle(Basic.Nack(0, True, False))
    assert client.ready(queue) == 0


@pytest.mark.parametrize("way", ["nack", "close"])
def test_a_message_returned_too_often_is_dead_lettered(at: Place, way: str) -> None:
    """By a quorum queue, with the reason. It counts every return."""
    queue, dead = mortal(at, "quorum", x_delivery_limit=2)
    at.client().publish(queue, "bad", "good")
    counts = []
    for _ in range(3):
        client = at.client()
        client.consume(queue, prefetch=1)
        (got,) = client.take(1)
        assert got.body == "bad"
        counts.append(got.headers.get("x-delivery-count"))
        if way == "nack":
            client.cancel()
            client.settle(Basic.Nack(got.tag))
        client.close_channel()
    assert counts == [None, 1, 2]
    got = at.client().wait_for(dead)
    assert (got.body, deaths(got)[0]["reason"], deaths(got)[0]["queue"]) == ("bad", "delivery_limit", queue)
    assert at.client().wait_for(queue).body == "good"


@pytest.mark.parametrize("kind", QUEUES)
def test_without_a_target_it_is_gone(at: Place, kind: str) -> None:
    """What is rejected, at least."""
    queue, client = at.filled(kind, 2), at.client()
    client.consume(queue)
    client.take(2)
    client.settle(Basic.Nack(0, True, False))
    client.close_channel()
    assert at.client().get(queue) is None
