"""Servers that accept connections and never answer: callers get an error at their timeout."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import wait
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.consumers import new_topic
from tests.faults.proxy import FaultProxy

from cobalance.errors import CobalanceError, Unreachable
from cobalance.rabbitmq import Delivery, Publisher, Topic
from cobalance.rabbitmq.consume.dead_letter_sender import DeadLetterSender, Reason
from cobalance.rabbitmq.topics.admin import Admin, connected
from cobalance.rabbitmq.wire.connection import BrokerConnection

WAIT_S = 60
TIMEOUT_MS, SOON_S = 1_000, 15.0
"""Without a timeout of ours, two heartbeats of 60 s or 30 s pass."""


@pytest.fixture
def wire(amqp_url: str) -> Iterator[FaultProxy]:
    """A proxy in front of RabbitMQ."""
    with FaultProxy(urlsplit(amqp_url).port or 0) as proxy:
        yield proxy


@pytest.fixture
def topic(amqp_url: str) -> Iterator[Topic]:
    """A topic for one test."""
    with new_topic(amqp_url, 2) as it:
        yield it


def test_silence_while_rabbitmq_is_asked(amqp_url: str, wire: FaultProxy) -> None:
    """The next answer is awaited up to the timeout; that to a close less long."""
    started = time.monotonic()
    with pytest.raises(Unreachable, match="no answer in time"):
        ask_and_ask_in_vain(wire.through(amqp_url), wire)
    assert time.monotonic() - started < SOON_S


def ask_and_ask_in_vain(url: str, wire: FaultProxy) -> None:
    """Asks twice, the second time without an answer."""
    with connected(url, TIMEOUT_MS) as admin:
        assert not admin.exists("silence")
        wire.black_hole()
        admin.exists("silence")


def test_silence_at_the_farewell(amqp_url: str, wire: FaultProxy) -> None:
    """Everything was done before: an unanswered close is no error."""
    started = time.monotonic()
    with connected(wire.through(amqp_url), WAIT_S * 1_000) as admin:
        assert not admin.exists("silence")
        wire.black_hole()
    assert time.monotonic() - started < SOON_S


def test_a_large_message_on_a_slow_link_is_no_silence(amqp_url: str, wire: FaultProxy) -> None:
    """It takes longer than any answer may, in each direction. A dead letter that timed out would never get through."""
    wire.pace(1_000_000)
    body = b"x" * (TIMEOUT_MS * 2_000)
    with connected(wire.through(amqp_url), TIMEOUT_MS) as admin, admin.channel("slow") as channel:
        channel.queue_declare("slow", exclusive=True)
        channel.confirm_delivery()
        channel.basic_publish("", "slow", body, mandatory=True)
        assert next(channel.consume("slow"))[2] == body


@pytest.fixture(params=[(Admin, "require_exchange"), (BrokerConnection, "open_channel")], ids=["topic", "channel"])
def falling_silent(request: pytest.FixtureRequest, wire: FaultProxy, monkeypatch: pytest.MonkeyPatch) -> FaultProxy:
    """Silent from the first call of a method on: when a publisher looks at its topic, or opens its own channel."""
    where, method = request.param
    original = getattr(where, method)

    def call(*arguments: Any, **options: Any) -> Any:
        wire.black_hole()
        return original(*arguments, **options)

    monkeypatch.setattr(where, method, call)
    return wire


def test_silence_while_a_publisher_opens(amqp_url: str, falling_silent: FaultProxy, topic: Topic) -> None:
    """Its timeout holds, and nothing was sent."""
    started = time.monotonic()
    with pytest.raises(Unreachable, match="no answer in time") as raised:
        Publisher(falling_silent.through(amqp_url), topic, timeout_ms=TIMEOUT_MS).publish("a", b"x")
    assert time.monotonic() - started < SOON_S
    assert raised.value.outcome == "not_executed"


def test_silence_while_several_threads_publish(amqp_url: str, wire: FaultProxy, topic: Topic) -> None:
    """They do not wait for each other's attempts in turn."""
    errors: list[CobalanceError] = []

    def publish() -> None:
        with pytest.raises(CobalanceError) as raised:
            publisher.publish("a", b"x")
        errors.append(raised.value)

    with Publisher(wire.through(amqp_url), topic, timeout_ms=TIMEOUT_MS) as publisher:
        wire.reset()
        wire.black_hole()
        started = time.monotonic()
        threads = [threading.Thread(target=publish, daemon=True) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        assert time.monotonic() - started < SOON_S
    assert len(errors) == len(threads)


def test_silence_while_dead_letters_are_sent(topic: Topic, wire: FaultProxy, amqp_url: str) -> None:
    """Those in line are not tried one after the other, each up to the timeout."""
    wire.black_hole()
    sender = DeadLetterSender(wire.through(amqp_url))
    sent = [sender.send(topic.queues[0], Delivery.fake(topic=topic), Reason("g", "no")) for _ in range(5)]
    assert isinstance(sent[0].exception(WAIT_S), Unreachable)
    assert not wait(sent, SOON_S).not_done
