"""A message larger than RabbitMQ accepts: only it fails, and the error says why."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import attrs
import pytest
from tests.consumers import bodies_in, new_topic
from tests.streams import bodies_in_stream

from cobalance import servers
from cobalance.errors import PublishFailed
from cobalance.rabbitmq import Publisher, Topic, create_topic, delete_topic
from cobalance.rabbitmq.publish.confirm_channel import AFFECTED
from cobalance.rabbitmq.topics.admin import connected
from cobalance.rabbitmq.topics.broker import open_layout
from cobalance.rabbitmq.topics.growth import close_layout

MOST = 100_000
WAIT_S = 60


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of a RabbitMQ with a limit, which RabbitMQ 4 reads only when it starts."""
    with servers.private_rabbitmq(settings={"max_message_size": str(MOST)}) as server:
        yield server.url


def test_one_that_is_too_large_fails_no_other(url: str) -> None:
    """RabbitMQ closes the channel over it; messages behind it are sent again, in order."""
    with new_topic(url) as topic:
        with Publisher(url, topic) as publisher:
            publisher.publish("a", "before")
            large = publisher.publish("a", "x" * (MOST + 1), wait=False)
            behind = [publisher.publish("a", f"{number}", wait=False) for number in range(50)]
            with pytest.raises(PublishFailed, match=r"100,001 bytes.*100,000") as caught:
                large.result(60)
            assert [future.result(60) for future in behind] == [0] * 50
            with pytest.raises(PublishFailed, match="100,001 bytes"):  # every time
                publisher.publish("a", "x" * (MOST + 1))
            publisher.publish("a", "later")
        assert caught.value.outcome == "not_executed"
        assert bodies_in(url, topic.queue_names[0]) == ["before", *map(str, range(50)), "later"]


@pytest.mark.parametrize("by_name", [False, True])
def test_one_that_is_too_large_fails_no_other_in_streams(url: str, by_name: bool) -> None:
    """Each stream may have a channel of its own: what is under way on the others stays there, in order."""
    with new_topic(url, 3, "stream") as topic:
        with Publisher(url, topic.name if by_name else topic) as publisher:
            is_affected = publisher._channel._connection.server_version.startswith(AFFECTED)
            assert len(publisher._channel._lanes) == (3 if is_affected else 1)
            sent = [publisher.publish(None, f"{n}", partition=n % 3, wait=False) for n in range(30)]
            assert publisher.flush()
            large = [publisher.publish(None, "x" * (MOST + 1), partition=n, wait=False) for n in range(2)]
            sent += [publisher.publish(None, f"{n}", partition=n % 3, wait=False) for n in range(30, 60)]
            for future in large:
                with pytest.raises(PublishFailed, match=r"100,001 bytes.*100,000"):
                    future.result(60)
            assert [future.result(60) for future in sent] == [0, 1, 2] * 20
        for partition, stream in enumerate(topic.queue_names):
            assert bodies_in_stream(url, stream) == [str(n) for n in range(partition, 60, 3)]


def keys_of(topic: Topic) -> list[str]:
    """A key of each partition."""
    return [
        next(key for key in map(str, range(100)) if topic.partition_of(key) == it) for it in range(topic.partitions)
    ]


def test_one_that_is_too_large_while_its_topic_is_grown(url: str) -> None:
    """It closes the channel of its own partition; what the other one gets back later still follows what came back before."""
    with new_topic(url, 2) as topic, connected(url) as admin:
        key, other = keys_of(topic)
        grown = attrs.evolve(topic, partitions=4, layout=2)
        with Publisher(url, topic.name) as publisher:
            for queue in grown.queues:
                admin.declare(queue)
            close_layout(admin, topic)
            go_on = threading.Event()
            publisher._channel._connection.submit(lambda: go_on.wait(WAIT_S))
            sent = [publisher.publish(key, f"{number}", wait=False) for number in range(300)]
            large = publisher.publish(other, "x" * (MOST + 1), wait=False)
            sent += [publisher.publish(key, f"{number}", wait=False) for number in range(300, 900)]
            go_on.set()
            with pytest.raises(PublishFailed, match="100,001 bytes"):
                large.result(WAIT_S)
            admin.delete_exchange(topic.newest_marker)
            open_layout(admin, grown)
            assert {future.result(WAIT_S) for future in sent} == {grown.partition_of(key)}
        assert bodies_in(url, grown.queue_names[grown.partition_of(key)]) == [str(number) for number in range(900)]


@pytest.mark.parametrize("given", ["name", "topic"])
def test_each_stream_has_a_channel(given: str, url: str) -> None:
    """Also if the topic's type is not given, or if it was created again, with more streams: RabbitMQ 3 may lose messages otherwise."""
    with (
        new_topic(url, 2, "stream") as topic,
        Publisher(url, topic.name if given == "name" else Topic(topic.name, 2)) as publisher,
    ):
        is_affected = publisher._channel._connection.server_version.startswith(AFFECTED)
        assert len(publisher._channel._lanes) == (2 if is_affected else 1)
        if given == "name":
            delete_topic(url, topic.name, force=True)
            more = create_topic(url, Topic(topic.name, 5, "stream"))
            sent = [publisher.publish(str(number), f"{number}", wait=False) for number in range(50)]
            assert [future.result(WAIT_S) for future in sent] == [
                more.partition_of(str(number)) for number in range(50)
            ]
            assert len(publisher._channel._lanes) == (5 if is_affected else 1)


@pytest.mark.thorough
def test_one_that_is_too_large_where_all_channels_are_taken(url: str) -> None:
    """Its channel makes way for the next one."""
    with new_topic(url, 3) as topic, Publisher(f"{url}?channel_max=3", topic.name) as publisher:
        keys = keys_of(topic)
        large = publisher.publish(keys[0], "x" * (MOST + 1), wait=False)
        sent = [publisher.publish(keys[number % 3], f"{number}", wait=False) for number in range(30)]
        with pytest.raises(PublishFailed, match="100,001 bytes"):
            large.result(WAIT_S)
        assert [future.result(WAIT_S) for future in sent] == [0, 1, 2] * 10
