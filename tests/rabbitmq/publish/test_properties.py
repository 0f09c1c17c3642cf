"""Keys, bodies, headers and properties of what is published: what AMQP holds, and what it cannot."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import anyio
import pytest
from tests.consumers import new_topic
from tests.rabbitmq.publish.publishing import WAIT_S, broker, get, stored

from cobalance.errors import UsageError
from cobalance.rabbitmq import AsyncPublisher, Publisher, Topic

UNFIT: dict[str, tuple[Any, Any]] = {
    "a header that is an object": (b"x", {"bad": object()}),
    "a header whose name is a number": (b"x", {5: 1}),
    "a header with a long name": (b"x", {"k" * 300: 1}),
    "no body": (None, None),
    "a number": (5, None),
}


@pytest.mark.parametrize(("body", "headers"), UNFIT.values(), ids=UNFIT)
def test_what_amqp_cannot_hold(body: Any, headers: Any, amqp_url: str, topic: Topic) -> None:
    """It is refused at once, takes no place in the window, and does not affect other messages."""
    with Publisher(amqp_url, topic, window=2) as publisher:
        first = publisher.publish("a", b"first", wait=False)
        for _ in range(3):
            with pytest.raises(UsageError, match=r"headers|body"):
                publisher.publish("a", body, headers, wait=False)
        publisher.publish("a", b"last")
        assert first.result(WAIT_S) == topic.partition_of("a")
    assert stored(amqp_url, topic)[topic.partition_of("a")] == [b"first", b"last"]


def test_what_amqp_cannot_hold_and_tasks(amqp_url: str, topic: Topic) -> None:
    """The same for tasks."""

    async def main() -> None:
        async with AsyncPublisher(amqp_url, topic) as publisher:
            with pytest.raises(UsageError, match="headers have a name of type int"):
                await publisher.publish("a", b"x", {5: 1})  # type: ignore[dict-item]
            await publisher.publish("a", b"y")

    anyio.run(main)
    assert stored(amqp_url, topic)[topic.partition_of("a")] == [b"y"]


def test_headers_larger_than_a_frame(amqp_url: str, topic: Topic) -> None:
    """RabbitMQ would close the connection, with all messages in flight. A body may be of any size."""
    with Publisher(amqp_url, topic) as publisher:
        neighbour = publisher.publish("a", b"x", wait=False)
        with pytest.raises(UsageError, match=r"headers take 200,0.. bytes, more than the 131,0.. that RabbitMQ"):
            publisher.publish(None, b"x", {"large": b"x" * 200_000})
        publisher.publish(None, b"y" * 200_000, {"just": b"x" * 131_000})
        neighbour.result(WAIT_S)


def test_all_properties_of_a_message(amqp_url: str, topic: Topic) -> None:
    """Each arrives under pika's name for it."""
    moment = datetime(2026, 11, 22, 12, tzinfo=UTC)
    with Publisher(amqp_url, topic) as publisher:
        partition = publisher.publish(
            "a",
            b"{}",
            {"h": 1},
            persistent=False,
            message_id="order-7",
            content_type="application/json",
            content_encoding="identity",
            correlation_id="c",
            reply_to="answers",
            type="created",
            app_id="shop",
            user_id="guest",
            expiration_ms=60_000,
            timestamp=moment,
        ).result()
        publisher.publish("a", b"", message_id=None, content_type=None)
    with broker(amqp_url) as channel:
        got, plain = (get(channel, topic.queue_names[partition])[1] for _ in range(2))
    assert (got.message_id, got.content_type, got.content_encoding) == ("order-7", "application/json", "identity")
    assert (got.correlation_id, got.reply_to, got.type, got.app_id, got.user_id) == (
        "c",
        "answers",
        "created",
        "shop",
        "guest",
    )
    assert (got.priority, got.expiration, got.timestamp) == (None, "60000", int(moment.timestamp()))
    assert (got.delivery_mode, got.headers) == (1, {"x-partition-key": "a", "h": 1})
    assert plain.message_id
    assert plain.content_type is None


END_OF_TIME = datetime.fromisoformat("9999-12-31T23:59:59-01:00")


WRONG_PROPERTIES: dict[str, Any] = {
    "misspelt": ({"messageid": "x"}, "messages have no messageid: there are app_id, content_encoding"),
    "a number for text": ({"message_id": 7}, "message_id is an object of type int: give a str"),
    "long": ({"reply_to": "ä" * 128}, "reply_to takes 256 bytes: AMQP holds 255"),
    "a priority": ({"priority": 3}, "priority is not taken: a partition's messages are in order.*topic of their own"),
    "negative": ({"expiration_ms": -1}, "expiration_ms is -1"),
    "seconds": ({"timestamp": 1_700_000_000}, "timestamp is an object of type int: give a datetime"),
    "no time zone": ({"timestamp": datetime(2026, 1, 1)}, "no time zone: give one, e.g. datetime.now"),  # noqa: DTZ001
    "the day before": ({"timestamp": datetime(1969, 12, 31, tzinfo=UTC)}, "AMQP counts the seconds since 1970"),
    "the year 10000": (
        {"timestamp": END_OF_TIME},
        "timestamp is 9999-12-31 23:59:59-01:00: give one whose year in UTC is",
    ),
    "somebody else": ({"user_id": "root"}, "RabbitMQ takes only the connection's own, 'guest'"),
}


@pytest.mark.parametrize(("properties", "refusal"), WRONG_PROPERTIES.values(), ids=WRONG_PROPERTIES)
def test_properties_that_cannot_be(properties: Any, refusal: str, amqp_url: str, topic: Topic) -> None:
    """RabbitMQ would close the channel for some, and other messages would fail with it."""
    with Publisher(amqp_url, topic) as publisher, pytest.raises(UsageError, match=refusal):
        publisher.publish("a", b"x", **properties)


def test_no_key(amqp_url: str, topic: Topic) -> None:
    """Partitions are used in turn."""
    with Publisher(amqp_url, topic) as publisher:
        partitions = [publisher.publish(None, b"x").result() for _ in range(2 * topic.partitions)]
    assert sorted(partitions) == sorted(2 * list(range(topic.partitions)))
    assert {partition: len(bodies) for partition, bodies in stored(amqp_url, topic).items()} == dict.fromkeys(
        range(4), 2
    )


def test_a_message_id_twice(amqp_url: str, topic: Topic) -> None:
    """Each has its own outcome: one is stored, one cannot be routed."""
    with Publisher(amqp_url, topic) as publisher:
        with broker(amqp_url) as channel:
            channel.queue_delete(topic.queue_names[1])
        for lost_first in (True, False):
            partitions = (1, 0) if lost_first else (0, 1)
            futures = {
                it: publisher.publish(None, b"x", partition=it, message_id="same", wait=False) for it in partitions
            }
            assert futures[0].result(WAIT_S) == 0
            assert "no queue takes" in str(futures[1].exception(WAIT_S))


@pytest.mark.parametrize("key", [5, ["a"], "\ud800"])
def test_a_key_that_is_none(key: Any, amqp_url: str, topic: Topic) -> None:
    """A key must be bytes or text."""
    with Publisher(amqp_url, topic) as publisher, pytest.raises(UsageError, match="the key is an object of type"):
        publisher.publish(key, b"x")


@pytest.mark.parametrize("queue_type", ["classic", "stream", "quorum"])
@pytest.mark.parametrize("by_name", [True, False])
def test_a_decimal_that_a_stream_would_not_take(queue_type: Any, by_name: bool, amqp_url: str) -> None:
    """It is refused where the topic may be of streams, and costs no other message."""
    with (
        new_topic(amqp_url, 1, queue_type) as topic,
        Publisher(amqp_url, topic.name if by_name else topic) as publisher,
    ):
        first = publisher.publish("a", b"1", wait=False)
        for headers in ({"price": Decimal("1.5")}, {"list": [{"price": Decimal("1.5")}]}):
            if queue_type == "quorum" and not by_name:
                publisher.publish("a", b"2", headers)
            else:
                with pytest.raises(UsageError, match="a Decimal, over which RabbitMQ 3 closes the connection"):
                    publisher.publish("a", b"2", headers)
        publisher.publish("a", b"3", {"price": "1.5"})
        assert first.result() == 0
