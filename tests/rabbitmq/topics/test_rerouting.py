"""What is published while its topic grows: it waits, comes back, and is sent again in order to where it belongs by then."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import attrs
import pytest
from tests.consumers import bodies_in, channel, new_topic
from tests.faults.rabbitmq_servers import Leader

from cobalance.errors import PublishFailed
from cobalance.rabbitmq import Publisher, Topic, grow_topic
from cobalance.rabbitmq.publish import rerouting
from cobalance.rabbitmq.publish.confirms import Confirms
from cobalance.rabbitmq.topics.admin import connected
from cobalance.rabbitmq.topics.broker import is_being_grown, topic_again
from cobalance.rabbitmq.topics.growth import close_layout
from cobalance.servers import OwnRabbitMQ


def test_what_waits_for_a_growth_is_published_in_order_when_it_is_done(topic: Topic, amqp_url: str) -> None:
    """By a publisher that existed before: returned messages are sent again ahead of later ones."""
    with Publisher(amqp_url, topic, timeout_ms=20_000) as publisher:
        publisher.publish("key", b"0")
        with connected(amqp_url) as admin:
            admin.declare(Topic(topic.name, 3, layout=2).queues[0])
            close_layout(admin, topic)
        outcomes = [publisher.publish("key", str(n).encode(), wait=False) for n in range(1, 50)]
        grown = grow_topic(amqp_url, topic.name, 3)
        outcomes += [publisher.publish("key", str(n).encode(), wait=False) for n in range(50, 60)]
        assert {outcome.result(60) for outcome in outcomes} == {grown.partition_of("key")}
    queue = grown.queue_names[grown.partition_of("key")]
    assert bodies_in(amqp_url, topic.queue_names[topic.partition_of("key")]) == ["0"]
    assert bodies_in(amqp_url, queue) == [str(n) for n in range(1, 60)]


def test_a_partition_that_is_closed_first_holds_up_no_other(
    topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other is still open, so what it takes is processed ahead of the new layout. What comes back keeps its order."""
    looking = threading.Event()

    def look(*asked: Any) -> Topic:
        looking.set()
        return topic_again(*asked)

    monkeypatch.setattr(rerouting, "topic_again", look)
    with Publisher(amqp_url, topic, timeout_ms=20_000) as publisher:
        closed = publisher.publish("key", b"0").result()
        queue, other = topic.queue_names[closed], 1 - closed
        with connected(amqp_url) as admin:
            admin.declare(Topic(topic.name, 3, layout=2).queues[0])
            admin.unbind(queue, topic.name, topic.routing_keys(closed))
        outcomes = [publisher.publish("key", b"1", wait=False)]
        assert looking.wait(60)
        with connected(amqp_url) as admin:  # called off, and begun again before that is noticed
            admin.bind(queue, topic.name, topic.routing_keys(closed))
        outcomes += [publisher.publish("key", str(n).encode(), wait=False) for n in range(2, 50)]
        publisher.publish(None, b"other", partition=other)
        assert not any(it.done() for it in outcomes)
        grown = grow_topic(amqp_url, topic.name, 3)
        outcomes += [publisher.publish("key", str(n).encode(), wait=False) for n in range(50, 60)]
        assert {outcome.result(60) for outcome in outcomes} == {grown.partition_of("key")}
    assert [bodies_in(amqp_url, it) for it in (queue, topic.queue_names[other])] == [["0"], ["other"]]
    assert bodies_in(amqp_url, grown.queue_names[grown.partition_of("key")]) == [str(n) for n in range(1, 60)]


def test_a_partition_without_a_queue_holds_up_no_other(
    topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others take messages while it is looked into, twice. Then what is sent to it fails without another look, until it
    has taken one.
    """
    looking, may_end, looks = threading.Event(), threading.Event(), list[str]()

    def look(*asked: Any) -> Topic:
        looks.append(threading.current_thread().name)
        looking.set()
        assert may_end.wait(60)
        return topic_again(*asked)

    def fails(outcome: Future[int]) -> bool:
        failure = outcome.exception(20)
        return isinstance(failure, PublishFailed) and failure.outcome == "not_executed" and "no queue" in str(failure)

    monkeypatch.setattr(rerouting, "topic_again", look)
    monkeypatch.setattr(rerouting, "LOST_S", 3_600)
    first, _ = topic.queues
    with Publisher(amqp_url, topic, timeout_ms=20_000) as publisher, channel(amqp_url) as it:
        for looked in (1, 2):
            it.queue_delete(first.name)
            lost = [publisher.publish(None, b"", partition=0, wait=False)]
            assert looking.wait(60)
            lost.append(publisher.publish(None, b"", partition=0, wait=False))
            publisher.publish(None, b"", partition=1)
            assert len(looks) == 2 * looked - 1
            may_end.set()
            assert all(map(fails, lost))
            assert all(fails(publisher.publish(None, b"", partition=0, wait=False)) for _ in range(10))
            assert len(looks) == 2 * looked, "another one after it was sent again"
            looking.clear()
            may_end.clear()
            it.queue_declare(first.name, durable=True, arguments=first.declaration)
            it.queue_bind(first.name, topic.name, topic.routing_key(0))
            publisher.publish(None, b"", partition=0)


def test_what_came_back_waits_for_what_is_under_way(
    topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old layout may still take a message: the new one is not used before its confirm."""
    with Publisher(amqp_url, topic) as publisher:
        publisher.publish("key", b"0")
        grow_topic(amqp_url, topic.name, 3)
        channel = publisher._channel
        with monkeypatch.context() as patch:
            patch.setattr(Confirms, "outstanding", True)
            outcome = publisher.publish("key", b"1", wait=False)
            found, change = threading.Event(), channel._change_layout

            def find() -> None:
                change()
                if channel._newer is not None:
                    found.set()

            patch.setattr(channel, "_change_layout", find)
            assert found.wait(60)
            assert publisher.topic == topic
            assert not outcome.done()
        channel._connection.submit(channel._change_layout)
        assert outcome.result(60) == Topic(topic.name, 3).partition_of("key")


def test_what_came_back_is_sent_again_when_the_growth_is_called_off(
    topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition takes it again by the time that is looked into. It keeps its place."""
    may_look = threading.Event()
    monkeypatch.setattr(rerouting, "topic_again", lambda *asked: may_look.wait(60) and topic_again(*asked))
    with Publisher(amqp_url, topic) as publisher, connected(amqp_url) as admin:
        partition = publisher.publish("key", b"0").result()
        queue, keys = topic.queue_names[partition], topic.routing_keys(partition)
        admin.unbind(queue, topic.name, keys)
        outcomes = [publisher.publish("key", str(n).encode(), wait=False) for n in range(1, 50)]
        publisher.publish(None, b"", partition=1 - partition)  # behind which the others have come back
        admin.bind(queue, topic.name, keys)
        may_look.set()
        assert {outcome.result(60) for outcome in outcomes} == {partition}
    assert bodies_in(amqp_url, queue) == [str(n) for n in range(50)]


def test_what_is_sent_again_into_another_growth_waits_for_that(
    topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first was called off by the time that it is looked into. Nobody has to create the topic again."""
    looks = list[bool]()

    def look(*asked: Any) -> bool:
        looks.append(is_being_grown(*asked))
        if len(looks) == 1:
            grow_topic(amqp_url, topic.name, 3)
        return looks[-1]

    monkeypatch.setattr(rerouting, "is_being_grown", look)
    monkeypatch.setattr(rerouting, "LOST_S", 3_600)
    with Publisher(amqp_url, topic) as publisher, connected(amqp_url) as admin:
        partition = publisher.publish("key", b"0").result()
        admin.unbind(topic.queue_names[partition], topic.name, topic.routing_keys(partition))
        outcomes = [publisher.publish("key", str(n).encode(), wait=False) for n in range(1, 50)]
        grown = attrs.evolve(topic, partitions=3, layout=2)
        assert {outcome.result(20) for outcome in outcomes} == {grown.partition_of("key")}
    assert bodies_in(amqp_url, grown.queue_names[grown.partition_of("key")]) == [str(n) for n in range(1, 50)]
    assert looks == [False]


def noting(call: Callable[..., object], is_called: threading.Event) -> Callable[..., None]:
    """The same call, which then sets the event."""

    def noted(*args: object) -> None:
        call(*args)
        is_called.set()

    return noted


@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.thorough
def test_a_message_that_is_never_confirmed_holds_up_a_growth_until_its_time_is_up(
    private_rabbitmq: OwnRabbitMQ, monkeypatch: pytest.MonkeyPatch, *, wait: bool
) -> None:
    """Its caller knows by then that its outcome is unknown. If the old layout takes it later, it is consumed first."""
    url = private_rabbitmq.url
    with (
        new_topic(url, 2, "quorum") as topic,
        Publisher(url, topic, timeout_ms=3_000, unseen_failures="log") as publisher,
        ThreadPoolExecutor() as pool,
    ):

        def publish(partition: int) -> int:
            return publisher.publish(None, b"", partition=partition, wait=wait).result(60)

        assert [publish(partition) for partition in range(2)] == [0, 1]  # the first one to a queue waits for its leader
        with Leader(private_rabbitmq, topic.queue_names[0]).silent():
            is_sent = threading.Event()
            monkeypatch.setattr(Confirms, "sent", noting(Confirms.sent, is_sent))
            stuck = pool.submit(publish, 0)
            assert is_sent.wait(60)
            publisher._timeout_ms = publisher._channel._timeout_ms = 20_000
            grown = grow_topic(url, topic.name, 3)
            came_back = pool.submit(publish, 1)
            with pytest.raises(PublishFailed, match="no confirm came in time") as failure:
                stuck.result(60)
            assert failure.value.outcome == "unknown"
            assert came_back.result(60) == 1
            assert publisher.topic == grown
            assert [publish(partition) for partition in range(3)] == [0, 1, 2]
