"""First and last offsets of a stream and offsets at a time, on a real RabbitMQ; and how a start is resolved."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import anyio
import pytest
from pika import URLParameters
from tests.consumers import channel
from tests.faults.proxy import FaultProxy
from tests.streams import TINY, Stream, connected, new_stream, wait_for_next_second

from cobalance import servers
from cobalance.admin.offset_plan import Target, plan
from cobalance.errors import ChannelLost, QueueMissing, UsageError
from cobalance.rabbitmq import StreamSettings
from cobalance.rabbitmq.model.stream_settings import Start
from cobalance.rabbitmq.streams.probe import first_offset, last_chunk, last_offset, offset_at, offset_since
from cobalance.rabbitmq.streams.start import offset_before
from cobalance.rabbitmq.wire.connection import BrokerConnection

WAIT_S = 60

T = TypeVar("T")


@pytest.fixture
def connection(amqp_url: str) -> Iterator[BrokerConnection]:
    with connected(amqp_url) as it:
        yield it


@pytest.fixture
def stream(amqp_url: str) -> Iterator[Stream]:
    """An empty stream."""
    with new_stream(amqp_url) as it:
        yield it


def before(connection: BrokerConnection, stream: Stream, start: Start) -> int:
    """The offset after which reading starts."""
    return anyio.run(offset_before, connection, stream.name, start)


def test_an_empty_stream_has_no_offsets(
    connection: BrokerConnection, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a first nor a last; any start is before the first. As nothing can come late, nothing is waited for."""
    monkeypatch.setattr("cobalance.rabbitmq.streams.probe.SILENCE_MS", 100.0)
    assert first_offset(connection, stream.name).result(WAIT_S) is None
    assert last_offset(connection, stream.name).result(WAIT_S) is None
    starts: list[Start] = ["first", "last", "next", 7, datetime.now(UTC)]
    assert [before(connection, stream, start) for start in starts] == [-1] * 5


@pytest.mark.parametrize("count", [1, 499, 500, 501, 12_345])
def test_the_end_is_exact(connection: BrokerConnection, stream: Stream, count: int) -> None:
    """Chunks hold as many messages as arrived together: the last chunk is read to its end, however long."""
    stream.append(count)
    assert first_offset(connection, stream.name).result(WAIT_S) == 0
    assert last_offset(connection, stream.name).result(WAIT_S) == count - 1
    chunk = last_chunk(connection, stream.name).result(WAIT_S)
    assert chunk is not None
    assert 0 <= chunk < count


def test_the_end_of_a_long_chunk(connection: BrokerConnection, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk longer than the prefetch is read to its end."""
    monkeypatch.setattr("cobalance.rabbitmq.streams.probe.WINDOW", 2)
    for count in range(1, 100):
        stream.append(500)
        chunk = last_chunk(connection, stream.name).result(WAIT_S)
        if chunk is not None and 500 * count - chunk > 20:
            break
    else:
        raise AssertionError("RabbitMQ made no chunk of more than 20 messages")
    assert last_offset(connection, stream.name).result(WAIT_S) == 500 * count - 1


def test_the_end_of_a_stream_that_never_rests(amqp_url: str, stream: Stream) -> None:
    """Far from RabbitMQ, something is published in every round trip: what was there when it was asked is enough."""
    stream.append(10)
    stop = threading.Event()
    with FaultProxy(URLParameters(amqp_url).port) as proxy, connected(proxy.through(amqp_url)) as connection:
        proxy.delay(50)
        publisher = threading.Thread(target=publish_until, args=(stream, stop))
        publisher.start()
        try:
            end = last_offset(connection, stream.name).result(WAIT_S)
            assert end is not None
            assert end >= 9
        finally:
            stop.set()
            publisher.join()


def publish_until(stream: Stream, stop: threading.Event) -> None:
    """Publishes a message every two milliseconds."""
    with channel(stream.amqp_url) as it:
        while not stop.wait(0.002):
            it.basic_publish("", stream.name, b"more")


def test_what_rabbitmq_is_slow_to_deliver_is_there(
    connection: BrokerConnection, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However soon it is asked whether there is anything: a group would skip what comes late, or read it again."""
    stream.append(10)
    wait_for_count(stream, 10)
    monkeypatch.setattr("cobalance.rabbitmq.streams.probe.SILENCE_MS", 0)
    now, hour = datetime.now(UTC), timedelta(hours=1)
    starts: dict[Start, int] = {"next": 9, 7: 6, 70: 9, now - hour: -1, now + hour: 9}
    for _ in range(10):
        assert {start: sure(lambda: before(connection, stream, start)) for start in starts} == starts  # noqa: B023
        assert sure(lambda: first_offset(connection, stream.name).result(WAIT_S)) == 0
        assert sure(lambda: last_chunk(connection, stream.name).result(WAIT_S)) is not None
        assert sure(lambda: offset_since(connection, stream.name, 10).result(WAIT_S)) is None


def test_a_plan_for_a_stream_that_rabbitmq_is_slow_to_deliver(
    amqp_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reset brings what is out of range to the ends that the stream has, and a time to the message written then."""
    stream.append(10)
    wait_for_count(stream, 10)
    monkeypatch.setattr("cobalance.rabbitmq.streams.probe.SILENCE_MS", 0)
    ago = datetime.now(UTC) - timedelta(hours=1)
    targets: dict[Target, int] = {"earliest": 0, "latest": 10, 7: 7, 70: 10, ago: 0}
    for target, following in targets.items():
        (step,) = sure(lambda: plan(target, [stream.name], {}, amqp_url, "scope"))  # noqa: B023
        assert step.next == following


def wait_for_count(stream: Stream, count: int) -> None:
    """Waits until RabbitMQ has counted the messages of the stream, which takes it up to five seconds."""
    with channel(stream.amqp_url) as it:
        for _ in range(WAIT_S * 100):
            if it.queue_declare(stream.name, passive=True).method.message_count == count:
                return
            threading.Event().wait(0.01)
    raise AssertionError("RabbitMQ has not counted the messages")


def sure(question: Callable[[], T]) -> T:
    """The answer; asked again while RabbitMQ gives none, as callers do."""
    for _ in range(1_000):
        with suppress(ChannelLost):
            return question()
    raise AssertionError("there was no answer")


def test_the_beginning_moves_with_the_retention(connection: BrokerConnection, amqp_url: str) -> None:
    """It is the oldest message that exists, not the oldest that ever did."""
    with new_stream(amqp_url, 5, TINY) as stream:
        first = stream.append_until_gone(4)
        assert first > 4
        end = last_offset(connection, stream.name).result(WAIT_S)
        assert end is not None
        assert end >= first


def test_reading_may_start_at_a_word_or_an_offset(connection: BrokerConnection, stream: Stream) -> None:
    """Words and numbers; a number past the end is the end."""
    stream.append(10)
    assert before(connection, stream, "first") == -1
    assert before(connection, stream, "next") == 9
    assert before(connection, stream, 0) == -1
    assert before(connection, stream, 4) == 3
    assert before(connection, stream, 10) == 9
    assert before(connection, stream, 1_000) == 9
    assert -1 <= before(connection, stream, "last") < 9


def test_a_number_before_the_oldest_message_is_the_oldest(connection: BrokerConnection, amqp_url: str) -> None:
    """Nothing is missing: the group starts at the nearest message."""
    with new_stream(amqp_url, 5, TINY) as stream:
        first = stream.append_until_gone(4)
        assert 4 < first <= before(connection, stream, 2) + 1 <= before(connection, stream, 0) + 1 <= stream.first()


def test_reading_may_start_at_a_time(connection: BrokerConnection, stream: Stream) -> None:
    """Before the first message, between two, and after the last."""
    stream.append(10)
    wait_for_next_second()
    between = datetime.now(UTC)
    stream.append(10)
    hour = timedelta(hours=1)
    assert offset_at(connection, stream.name, between).result(WAIT_S) == 10
    assert before(connection, stream, between) == 9
    assert before(connection, stream, between - hour) == -1
    assert before(connection, stream, between + hour) == 19


def test_a_time_in_another_time_zone_is_the_same_time(connection: BrokerConnection, stream: Stream) -> None:
    """Aware times are compared by the moment they mean."""
    from datetime import timezone

    stream.append(10)
    wait_for_next_second()
    between = datetime.now(timezone(timedelta(hours=5)))
    stream.append(10)
    assert before(connection, stream, between) == 9


def test_a_stream_that_is_not_there(connection: BrokerConnection) -> None:
    """The error names it."""
    with pytest.raises(QueueMissing, match="no-such-stream"):
        last_offset(connection, "no-such-stream").result(WAIT_S)


def test_without_a_connection(amqp_url: str, stream: Stream) -> None:
    """The request does not hang."""
    connection = BrokerConnection(amqp_url, "test")
    with pytest.raises(ChannelLost):
        first_offset(connection, stream.name).result(WAIT_S)


def test_a_connection_lost_on_the_way(amqp_url: str, stream: Stream) -> None:
    """It does not hang, either; an empty stream would have been waited for."""
    with connected(amqp_url) as connection:
        asked = first_offset(connection, stream.name)
        connection.close()
        with pytest.raises(ChannelLost):
            asked.result(WAIT_S)


def test_a_broker_that_froze_on_the_way(private_rabbitmq: servers.OwnRabbitMQ) -> None:
    """It does not answer our close, either, so pika never reports the end."""
    with new_stream(private_rabbitmq.url) as stream:
        connection = BrokerConnection(private_rabbitmq.url, "test")
        connection.connect()
        private_rabbitmq.pause()
        try:
            asked = first_offset(connection, stream.name)
            connection.close(timeout_ms=200)
            with pytest.raises(ChannelLost):
                asked.result(WAIT_S)
        finally:
            private_rabbitmq.resume()


@pytest.mark.parametrize("start", ["latest", "", -1, 1.5, True, None, datetime(2026, 1, 1)])  # noqa: DTZ001
def test_what_is_no_start(start: object) -> None:
    """It is refused at once, with the alternatives; a time without a zone means something else on every machine."""
    with pytest.raises(UsageError, match=r"time zone"):
        StreamSettings(start=start)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "option", [{"commit_every": 0}, {"commit_interval_ms": 0}, {"on_unknown_offset": "next"}], ids=str
)
def test_settings_are_checked(option: dict[str, object]) -> None:
    """Never "next" for an unknown offset: it would skip messages silently."""
    with pytest.raises(UsageError, match=next(iter(option))):
        StreamSettings(**option)  # type: ignore[arg-type]


def test_the_policy_follows_from_the_start_unless_it_is_given() -> None:
    """A group that starts at the first message at worst repeats some; any other must choose."""
    assert not StreamSettings().stops_on_unknown_offset
    assert StreamSettings(start="next").stops_on_unknown_offset
    assert StreamSettings(on_unknown_offset="stop").stops_on_unknown_offset
    assert not StreamSettings(start="next", on_unknown_offset="first").stops_on_unknown_offset
