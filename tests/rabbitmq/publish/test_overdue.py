"""Messages that time out."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from tests.consumers import bodies_in, new_topic
from tests.faults.rabbitmq_servers import Leader

from cobalance.errors import PublishFailed
from cobalance.rabbitmq import AsyncPublisher, Publisher
from cobalance.rabbitmq.publish import confirm_channel
from cobalance.rabbitmq.publish import publisher as publishers
from cobalance.rabbitmq.publish.confirms import UnconfirmedMessage
from cobalance.rabbitmq.publish.window import Window
from cobalance.servers import OwnRabbitMQ

WITHIN_S = 60


def message(name: str) -> UnconfirmedMessage:
    properties: Any = None
    return UnconfirmedMessage(lambda _: 0, name, name, b"", properties)


def impatient(publisher: Publisher) -> Publisher:
    """Its messages have little time; flushing and closing have what they need on a busy machine."""
    publisher._channel._timeout_ms = 200
    return publisher


@pytest.mark.thorough
def test_what_no_call_waits_for_fails_in_time(private_rabbitmq: OwnRabbitMQ) -> None:
    """Its queue confirms nothing, as without a majority. It is reported once, and a confirm that comes later changes nothing."""
    url, told = private_rabbitmq.url, list[Future[int]]()
    with new_topic(url, queue_type="quorum") as topic, Publisher(url, topic) as publisher:
        with Leader(private_rabbitmq, topic.queue_names[0]).silent():
            seen, *_ = futures = [impatient(publisher).publish("a", b"early", wait=False) for _ in range(3)]
            for future in futures:
                future.add_done_callback(told.append)
            failure = seen.exception(WITHIN_S)
            assert isinstance(failure, PublishFailed)
            assert failure.outcome == "unknown"
            assert "no confirm came in time" in str(failure)
            with pytest.raises(PublishFailed, match=r"2 messages failed .* no confirm came in time"):
                publisher.flush()
            assert publisher.flush()
            assert told == futures
        publisher._channel._timeout_ms = 1_000 * WITHIN_S
        assert publisher.publish("a", b"late").result() == 0  # confirmed behind the others
        assert seen.exception() is failure


def test_each_has_its_whole_time(amqp_url: str) -> None:
    """The timer that ends the first one leaves the next one alone."""
    begun, ended, all_ended = list[float](), list[float](), threading.Event()
    with new_topic(amqp_url) as topic, Publisher(amqp_url, topic, unseen_failures="log") as publisher:
        block(publisher, True)
        impatient(publisher)

        def note(_: object) -> None:
            ended.append(time.monotonic())
            if len(ended) == 2:
                all_ended.set()

        for _ in range(2):
            begun.append(time.monotonic())
            publisher.publish("a", b"x", wait=False).add_done_callback(note)
            threading.Event().wait(0.1)
        assert all_ended.wait(WITHIN_S)
    assert all(at - since >= 0.2 for at, since in zip(ended, begun, strict=True))


def test_what_waits_for_a_blocking_broker_fails_in_time(amqp_url: str) -> None:
    """So does what callbacks publish meanwhile: each has its whole time, and none of it is sent later."""
    told: list[Future[int]] = []
    all_told = threading.Event()

    def publish_on(future: Future[int]) -> None:
        told.append(future)
        if len(told) < 3:
            publisher.publish("a", b"x", wait=False).add_done_callback(publish_on)
        else:
            all_told.set()

    with new_topic(amqp_url) as topic, Publisher(amqp_url, topic, window=1) as publisher:
        block(publisher, True)
        since = time.monotonic()
        impatient(publisher).publish("a", b"x", wait=False).add_done_callback(publish_on)
        assert all_told.wait(WITHIN_S)
        assert time.monotonic() - since >= 3 * 0.2
        failures = [it.exception() for it in told]
        assert all(isinstance(it, PublishFailed) and it.outcome == "not_executed" for it in failures)
        assert all("blocks publishers" in str(it) for it in failures)
        block(publisher, False)
        publisher._channel._timeout_ms = 1_000 * WITHIN_S
        publisher.publish("a", b"y")
        assert bodies_in(amqp_url, topic.queue_names[0]) == ["y"]


def test_timeouts_go_on_after_another_connection_was_made(amqp_url: str) -> None:
    """The first one took its timers along."""
    with new_topic(amqp_url) as topic, Publisher(amqp_url, topic) as publisher:
        publisher.publish("a", b"x", wait=False).result(WITHIN_S)
        publisher._channel.connection.close()
        publisher._channel.open(1_000 * WITHIN_S)
        block(publisher, True)
        late = impatient(publisher).publish("a", b"z", wait=False)
        assert isinstance(late.exception(WITHIN_S), PublishFailed)


def test_a_call_that_waits_for_room_ends_its_message_itself() -> None:
    """It raises what the future would otherwise tell; from there on the message is like others that no call waits for."""
    window = Window(1)
    inside, outside, awaited = message("1"), message("2"), message("3")
    inside.is_timed = outside.is_timed = True
    window.line.extend([inside, outside, awaited])
    assert list(window.let_in()) == [inside]
    assert window.timed() == [outside, inside]
    assert not window.wait_for_room(outside, 0)
    assert window.timed() == [inside]
    window.leave(inside)
    window.settled(inside)
    assert list(window.let_in()) == [outside]
    assert window.timed() == [outside]


@pytest.fixture
def slow_to_open(monkeypatch: pytest.MonkeyPatch) -> Callable[[Publisher | AsyncPublisher], None]:
    """Ends the publisher's connection: the next one takes all but a little of the time, and confirms nothing."""
    ahead_s, clock = [0.0], SimpleNamespace(monotonic=lambda: time.monotonic() + sum(ahead_s))
    monkeypatch.setattr(confirm_channel, "time", clock)
    monkeypatch.setattr(publishers, "time", clock)

    def slow(publisher: Publisher | AsyncPublisher) -> None:
        channel = publisher._channel
        connect = channel._connect

        def connect_slowly(timeout_ms: int) -> bool:
            is_open = connect(timeout_ms)
            ahead_s.append(timeout_ms / 1_000 - 1)
            return is_open

        channel.connection.close()
        monkeypatch.setattr(channel, "_connect", connect_slowly)
        monkeypatch.setattr(channel, "_confirmed", lambda *_: None)

    return slow


@pytest.mark.parametrize("waits", [True, False])
def test_a_call_has_one_deadline_for_connecting_and_the_rest(
    amqp_url: str, slow_to_open: Callable[[Publisher], None], *, waits: bool
) -> None:
    with new_topic(amqp_url) as topic, Publisher(amqp_url, topic, timeout_ms=1_000 * WITHIN_S) as publisher:
        slow_to_open(publisher)
        since = time.monotonic()
        with pytest.raises(PublishFailed, match="no confirm came in time"):
            publisher.publish("a", b"x", wait=waits).result()
        assert time.monotonic() - since < WITHIN_S / 2


def test_a_call_that_waited_for_a_connection_does_not_wait_for_others_that_are_due_later(
    amqp_url: str, slow_to_open: Callable[[Publisher], None]
) -> None:
    """They were sent first, on the same connection."""
    with (
        new_topic(amqp_url) as topic,
        Publisher(amqp_url, topic, timeout_ms=1_000 * WITHIN_S, unseen_failures="log") as publisher,
    ):
        slow_to_open(publisher)
        open_it = publisher._channel.open

        def open_for_others(timeout_ms: int) -> None:
            open_it(timeout_ms)
            others.append(publisher.publish("a", b"x", wait=False))

        others = list[Future[int]]()
        publisher._channel.open = open_for_others  # type: ignore[method-assign]
        since = time.monotonic()
        assert isinstance(publisher.publish("a", b"y", wait=False).exception(WITHIN_S), PublishFailed)
        assert time.monotonic() - since < WITHIN_S / 2
        assert not others[0].done()
        publisher._timeout_ms = 100


@pytest.mark.anyio
async def test_an_async_call_has_one_deadline_too(
    amqp_url: str, slow_to_open: Callable[[AsyncPublisher], None]
) -> None:
    with new_topic(amqp_url) as topic:
        async with AsyncPublisher(amqp_url, topic, timeout_ms=1_000 * WITHIN_S) as publisher:
            slow_to_open(publisher)
            since = time.monotonic()
            with pytest.raises(PublishFailed, match="no confirm came in time"):
                await publisher.publish("a", b"x")
            assert time.monotonic() - since < WITHIN_S / 2


def block(publisher: Publisher, blocked: bool) -> None:
    """As if RabbitMQ were short of memory, or no longer."""
    connection = publisher._channel.connection
    connection.submit(lambda: connection._set_blocked(blocked))
