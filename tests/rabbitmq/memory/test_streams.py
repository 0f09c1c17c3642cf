"""Streams: where a consumer begins, how much it gets, and what may not be asked of a stream."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pika.spec import Basic
from tests.rabbitmq.memory.clients import Client, Got, Place, Refused
from tests.streams import wait_for_next_second


def offsets(found: list[Got]) -> list[int]:
    return [int(it.headers["x-stream-offset"]) for it in found]


def reading(at: Place, stream: str, start: Any, prefetch: int = 100) -> Client:
    """A client that consumes from there."""
    client = at.client()
    client.consume(stream, prefetch, arguments=None if start is None else {"x-stream-offset": start})
    return client


@pytest.mark.parametrize(
    ("start", "first"),
    [("first", 0), ("last", 4), ("next", 5), (None, 5), (2, 2), (5, 5), (7, 7), ("1h", 0), ("1Y", 0)],
)
def test_a_consumer_begins_where_it_likes(at: Place, start: Any, first: int) -> None:
    """And gets everything from there; by default, what is published from now on."""
    stream = at.filled("stream", 5)
    client = reading(at, stream, start)
    client.publish(stream, *range(6, 11))
    found = client.take(10 - first)
    assert offsets(found) == list(range(first, 10))
    assert [it.body for it in found] == [str(it + 1) for it in range(first, 10)]
    assert not any(it.redelivered for it in found)


def test_a_time_is_that_of_a_message(at: Place) -> None:
    """Or of the next one; of none, it is the end."""
    stream = at.filled("stream", 3)
    wait_for_next_second()
    now = datetime.now(UTC).replace(microsecond=0)
    client = at.client()
    client.publish(stream, "4")
    assert offsets(reading(at, stream, now).take(1)) == [3]
    assert offsets(reading(at, stream, now - timedelta(days=1)).take(1)) == [0]
    late = reading(at, stream, now + timedelta(days=1))
    client.publish(stream, "5")
    assert offsets(late.take(1)) == [4]


def test_an_ack_gives_credit(at: Place) -> None:
    """One for each message: nothing is removed, or comes again on the same channel."""
    stream = at.filled("stream", 6)
    client = reading(at, stream, "first", prefetch=2)
    assert offsets(client.take(2)) == [0, 1]
    client.settle(Basic.Ack(2))
    assert offsets(client.take(1)) == [2]
    client.settle(Basic.Ack(3, True))
    assert offsets(client.take(2)) == [3, 4]
    client.close_channel()
    assert len(client.got) == 5
    assert offsets(reading(at, stream, "first").take(6)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("exclusive", [True, False])
def test_everybody_reads_everything(at: Place, exclusive: bool) -> None:
    """Even if a consumer is called exclusive."""
    stream = at.filled("stream", 3)
    for client in [at.client() for _ in range(2)]:
        client.consume(stream, 10, exclusive=exclusive, arguments={"x-stream-offset": "first"})
        assert offsets(client.take(3)) == [0, 1, 2]


def test_a_prefetch_is_needed(at: Place) -> None:
    """Otherwise the channel is closed."""
    stream = at.queue("stream")
    where = f"queue '{stream}' in vhost '/'"
    of = f"stream {where}" if at.version >= (4, 0) else f"'{where}'"
    words = f"consumer prefetch count is not set for {of}"
    assert at.refusal(lambda it: it.basic_consume(stream, print)) == Refused(406, f"PRECONDITION_FAILED - {words}")


def unsupported(stream: str, what: str) -> Refused:
    text = f"NOT_IMPLEMENTED - {what} not supported by stream queues queue '{stream}' in vhost '/'"
    return Refused(540, text, whole_connection=True)


@pytest.mark.parametrize(
    "method", [Basic.Nack(1), Basic.Nack(1, requeue=False), Basic.Reject(1)], ids=["nack", "drop", "reject"]
)
def test_nothing_is_rejected(at: Place, method: Any) -> None:
    """The whole connection is closed. Since RabbitMQ 4, it is as good as an ack."""
    stream = at.filled("stream", 2)
    client = reading(at, stream, "first", prefetch=1)
    client.take(1)
    if at.version >= (4, 0):
        client.settle(method)
        assert client.bodies(1) == ["2"]
    else:
        refused = client.refusal(lambda it: it._impl._send_method(method))  # type: ignore[attr-defined]
        assert refused == unsupported(stream, "basic.nack and basic.reject")


def test_nothing_is_fetched_or_taken_without_acks(at: Place) -> None:
    """Or purged."""
    stream, client = at.filled("stream", 1), at.client()
    assert at.refusal(lambda it: it.basic_get(stream)) == unsupported(stream, "basic.get")
    assert at.refusal(lambda it: it.queue_purge(stream)) == unsupported(stream, "queue.purge")
    client.channel.basic_qos(prefetch_count=1)
    refused = client.refusal(lambda it: it.basic_consume(stream, print, auto_ack=True))
    text = unsupported(stream, "automatic acknowledgement").text
    text = text.replace("stream queues queue", "stream queue") if at.version >= (4, 0) else text
    assert refused == Refused(540, text, whole_connection=True)


def test_a_refusal_ends_everything_on_its_connection(at: Place) -> None:
    """The consumers on other channels, too: what they held is redelivered elsewhere."""
    stream, queue = at.filled("stream", 1), at.filled("quorum", 2, ".beside")
    client = at.client()
    client.consume(queue)
    client.take(2)
    refused = client.refusal(lambda _: client.connection.channel().basic_get(stream))
    assert refused.whole_connection
    other = at.client()
    assert [other.wait_for(queue).body for _ in range(2)] == ["1", "2"]


def test_retention_drops_the_oldest(at: Place) -> None:
    """A reader that begins before them gets the oldest left, and offsets may be missing in between."""
    stream = at.queue("stream", x_max_length_bytes=1_000, x_stream_max_segment_size_bytes=500)
    client = at.client()
    client.publish(stream, *(str(it).ljust(100) for it in range(30)))
    found: list[Got] = []

    def has_dropped() -> bool:
        reader = reading(at, stream, 0)
        reader.until(lambda: reader.got and reader.got[-1].body.strip() == "29")
        found[:] = reader.got
        return offsets(found)[0] > 0

    client.until(has_dropped)
    assert [it.body.strip() for it in found] == [str(it) for it in range(30 - len(found), 30)]
    assert offsets(found) == sorted(set(offsets(found)))
    assert offsets(found)[-1] > 29


def test_a_decimal_closes_the_connection(at: Place) -> None:
    """RabbitMQ 3 fails over it, unless it is inside of what a stream drops anyway."""
    if at.version < (4, 0):
        stream, client = at.queue("stream"), at.client()
        client.publish(stream, "1", headers={"list": [Decimal("1.5")], "table": {"price": Decimal("1.5")}, "kept": 7})
        assert reading(at, stream, "first").take(1)[0].headers.keys() == {"kept", "x-stream-offset"}
        refused = client.refusal(lambda _: client.publish(stream, "2", headers={"price": Decimal("1.5")}))
        assert refused == Refused(541, "INTERNAL_ERROR", whole_connection=True)
