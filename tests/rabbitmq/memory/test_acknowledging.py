"""What an ack, a nack or a reject settles, and where messages go that are not acknowledged."""

from __future__ import annotations

from typing import Any

import pytest
from pika.spec import Basic
from tests.rabbitmq.memory.clients import Client, Place, Refused

QUEUES = ["classic", "quorum"]

ORDERED: dict[str, tuple[str, dict[str, Any]]] = {
    "classic": ("classic", {}),
    "quorum": ("quorum", {}),
    "limited": ("quorum", {"x_delivery_limit": 20}),
}
"""Queues that return messages in different orders."""


def holding(at: Place, queue: str, count: int) -> Client:
    """A client that has been given this many messages, and no more."""
    client = at.client()
    client.consume(queue, prefetch=count)
    assert client.bodies(count) == [str(it) for it in range(1, count + 1)]
    return client


def left(at: Place, queue: str, count: int) -> list[str]:
    """What the next consumer gets."""
    client = at.client()
    client.consume(queue, prefetch=100)
    return client.bodies(count)


@pytest.mark.parametrize("kind", [*QUEUES, "stream"])
@pytest.mark.parametrize(
    "method",
    [Basic.Ack(9), Basic.Ack(9, True), Basic.Ack(0), Basic.Nack(9), Basic.Reject(9)],
    ids=["ack", "multiple", "zero", "nack", "reject"],
)
def test_an_unknown_tag_closes_the_channel(at: Place, kind: str, method: Any) -> None:
    """Whatever is to be done with it."""
    client = at.client()
    client.consume(at.queue(kind), prefetch=1)
    refused = client.refusal(lambda it: it._impl._send_method(method))  # type: ignore[attr-defined]
    assert refused == Refused(406, f"PRECONDITION_FAILED - unknown delivery tag {method.delivery_tag}")


@pytest.mark.parametrize("kind", QUEUES)
@pytest.mark.parametrize("again", [Basic.Ack(2), Basic.Ack(2, True), Basic.Nack(2)], ids=["ack", "multiple", "nack"])
def test_nothing_is_settled_twice(at: Place, kind: str, again: Any) -> None:
    """The channel is closed, and what was not settled returns: multiple settles nothing then."""
    queue = at.filled(kind, 3)
    client = holding(at, queue, 3)
    client.settle(Basic.Ack(2))
    assert client.refusal(lambda it: it._impl._send_method(again)).text.endswith("unknown delivery tag 2")  # type: ignore[attr-defined]
    assert left(at, queue, 2) == ["1", "3"]


@pytest.mark.parametrize("kind", QUEUES)
@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (Basic.Ack(3), ["1", "2", "4", "5"]),
        (Basic.Ack(3, True), ["4", "5"]),
        (Basic.Ack(0, True), ["5"]),
        (Basic.Nack(3, requeue=False), ["1", "2", "4", "5"]),
        (Basic.Nack(3, True, False), ["4", "5"]),
        (Basic.Nack(0, True, False), ["5"]),
        (Basic.Reject(3, requeue=False), ["1", "2", "4", "5"]),
    ],
    ids=["ack", "ack-multiple", "ack-all", "nack", "nack-multiple", "nack-all", "reject"],
)
def test_what_is_settled_is_gone(at: Place, kind: str, method: Any, expected: list[str]) -> None:
    """One message, all up to one, or all."""
    queue, client = at.filled(kind, 4), at.client()
    client.consume(queue, prefetch=4)
    client.take(4)
    client.settle(method)
    client.close_channel()
    client.connection.channel().basic_publish("", queue, b"5")
    assert left(at, queue, len(expected)) == expected


def test_all_may_be_none(at: Place) -> None:
    """Tag 0 with multiple is never unknown."""
    client = at.client()
    client.settle(Basic.Ack(0, True))
    client.settle(Basic.Nack(0, True))
    assert client.channel.is_open


@pytest.mark.parametrize("order", ORDERED)
@pytest.mark.parametrize("end", ["close", "disconnect", "cut", "refusal"])
def test_unacknowledged_messages_return_to_the_head(at: Place, order: str, end: str) -> None:
    """In order, whatever was acknowledged between them, and marked as redelivered."""
    kind, arguments = ORDERED[order]
    queue = at.filled(kind, 7, **arguments)
    client = holding(at, queue, 5)
    client.settle(Basic.Ack(2))
    assert client.bodies(1) == ["6"]
    if end == "close":
        client.close_channel()
    elif end == "disconnect":
        client.disconnect()
    elif end == "cut":
        client.cut()
    else:
        client.refusal(lambda it: it._impl._send_method(Basic.Ack(99)))  # type: ignore[attr-defined]
    other = at.client()
    other.consume(queue, prefetch=100)
    expected = [("1", True), ("3", True), ("4", True), ("5", True), ("6", True), ("7", False)]
    assert [(it.body, it.redelivered) for it in other.take(6)] == expected


@pytest.mark.parametrize(
    "method",
    [Basic.Nack(1), Basic.Reject(1)],
    ids=["nack", "reject"],
)
@pytest.mark.parametrize("order", ORDERED)
def test_a_returned_message_comes_again(at: Place, order: str, method: Any) -> None:
    """Ahead of all others, but behind them on a quorum queue without a limit. Quorum queues count it."""
    kind, arguments = ORDERED[order]
    queue = at.filled(kind, 3, **arguments)
    client = holding(at, queue, 1)
    client.settle(method)
    behind = order == "quorum" and at.version < (4, 0)
    if behind:
        for tag in (2, 3):
            client.take(1)
            client.settle(Basic.Ack(tag))
    (again,) = client.take(1)
    assert (again.body, again.redelivered) == ("1", True)
    assert again.headers.get("x-delivery-count") == (None if kind == "classic" else 1)


@pytest.mark.parametrize("order", ORDERED)
def test_messages_returned_one_by_one(at: Place, order: str) -> None:
    """Classic queues put each in its place; quorum queues keep the order of the returns."""
    kind, arguments = ORDERED[order]
    queue = at.filled(kind, 5, **arguments)
    client = holding(at, queue, 4)
    client.cancel()
    for tag in (3, 1, 2):
        client.settle(Basic.Nack(tag))
    expected = {
        "classic": ["1", "2", "3", "5"],
        "limited": ["3", "1", "2", "5"],
        "quorum": ["5", "3", "1", "2"] if at.version < (4, 0) else ["3", "1", "2", "5"],
    }
    assert left(at, queue, 4) == expected[order]


@pytest.mark.parametrize("order", ORDERED)
def test_messages_returned_at_once(at: Place, order: str) -> None:
    """They keep their order."""
    kind, arguments = ORDERED[order]
    queue = at.filled(kind, 5, **arguments)
    client = holding(at, queue, 4)
    client.cancel()
    client.settle(Basic.Nack(3, True))
    behind = order == "quorum" and at.version < (4, 0)
    assert left(at, queue, 4) == (["5", "1", "2", "3"] if behind else ["1", "2", "3", "5"])


def test_a_quorum_queue_returns_in_the_order_of_delivery(at: Place) -> None:
    """When a channel ends: what had come a second time comes last."""
    queue = at.filled("quorum", 4, x_delivery_limit=20)
    client = holding(at, queue, 3)
    client.settle(Basic.Nack(1))
    assert client.bodies(1) == ["1"]
    client.close_channel()
    other = at.client()
    other.consume(queue, prefetch=100)
    got = other.take(4)
    assert [it.body for it in got] == ["2", "3", "1", "4"]
    assert [it.headers.get("x-delivery-count") for it in got] == [1, 1, 2, None]


@pytest.mark.parametrize("kind", QUEUES)
def test_a_successor_that_waits_gets_everything_in_order(at: Place, kind: str) -> None:
    """A bare Channel.Close, and the next consumer the instant it is confirmed."""
    arguments: dict[str, Any] = {"x_single_active_consumer": True} if kind == "quorum" else {}
    queue = at.filled(kind, 20, **arguments)
    client = at.client()
    client.consume(queue, prefetch=8, exclusive=kind == "classic")
    assert client.bodies(8) == [str(it) for it in range(1, 9)]
    client.settle(Basic.Ack(3, True))
    client.close_channel()
    successor = at.client()
    successor.consume(queue, prefetch=100, exclusive=kind == "classic")
    assert successor.bodies(17) == [str(it) for it in range(4, 21)]
