"""What programs do with this library, on ``memory://`` as on a real RabbitMQ."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import anyio
import pytest
from tests.consumers import (
    SETTINGS,
    WITHIN_S,
    Place,
    Seen,
    handler_of,
    new_topic,
    place,
    take_in_vain,
    until,
)
from tests.names import unique
from tests.rabbitmq.memory.clients import Client
from tests.reading import Reading, committed, member, settings
from tests.streams import TINY, Stream, connected, new_stream

from cobalance import BlockingConsumerGroup, ConsumerGroup, Delivery, Publisher, Topic, create_topic
from cobalance.admin.group_admin import GroupAdmin
from cobalance.errors import QueueMismatch, TopicMismatch, TopicMissing
from cobalance.rabbitmq import (
    delete_topic,
    learn_queue,
    read_dead_letters,
    read_topic,
    replay_dead_letters,
    verify_topic,
)
from cobalance.rabbitmq.memory.channel import MemoryChannel
from cobalance.rabbitmq.memory.refusal import Refusal
from cobalance.rabbitmq.streams import reading_mark
from cobalance.rabbitmq.streams.extent import Extent, read_extents
from cobalance.rabbitmq.wire.address import single_urls
from cobalance.rabbitmq.wire.lock_queue import lock_name
from cobalance.testing import Churn
from cobalance.testing.broker import Broker


@pytest.fixture
def url(any_url: str) -> str:
    return any_url


@pytest.fixture(autouse=True)
def _all_is_there(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing that the library itself asks for is missing in memory."""
    refuse, missing = MemoryChannel.refuse, list[str]()

    def note(self: MemoryChannel, refusal: Refusal, method: Any) -> None:
        if "memory:// has no" in refusal.text:
            missing.append(refusal.text)
        refuse(self, refusal, method)

    monkeypatch.setattr(MemoryChannel, "refuse", note)
    yield
    assert not missing


@pytest.fixture
def here(any_url: str) -> Iterator[Place]:
    """A group on either."""
    with place(single_urls(any_url)[0]) as it:
        yield it


@pytest.fixture
def name(url: str) -> Iterator[str]:
    """The name of a topic that is deleted afterwards."""
    made = unique("memory")
    yield made
    client = Client(single_urls(url)[0])
    for queue in (f"{made}.dead", *(f"{made}-{number}" for number in range(4))):
        client.channel.queue_delete(queue)
    client.channel.exchange_delete(made)
    client.disconnect()


def test_topics_are_made_checked_and_deleted(url: str, name: str) -> None:
    """As on the command line."""
    with pytest.raises(TopicMissing):
        read_topic(url, name)
    topic = create_topic(url, Topic(name, 2, "quorum"))
    assert read_topic(url, name) == topic == verify_topic(url, topic)
    assert learn_queue(url, f"{name}-1") == topic.queues[1]
    with pytest.raises(TopicMismatch):
        create_topic(url, Topic(name, 3, "quorum"))
    with pytest.raises(QueueMismatch):
        verify_topic(url, Topic(name, 2))
    delete_topic(url, name)
    with pytest.raises(TopicMissing):
        read_topic(url, name)


def test_consumers_publishers_and_dead_letters(url: str, name: str) -> None:
    """Everything a program uses, one after the other."""
    topic, billed, dead_letters = create_topic(url, Topic(name, 2)), list[bytes](), list[bytes]()

    def bill(order: Delivery) -> None:
        if order.body == b"bad" and not dead_letters:
            raise ValueError(order.queue)
        billed.append(order.body)

    with BlockingConsumerGroup(
        "billing",
        name,
        bill,
        amqp_url=url,
        redis_url=f"memory://{name}",
        settings=SETTINGS,
        retries=1,
        on_error="dead_letter",
    ) as group:
        with Publisher(url, name) as publisher:
            for body in (b"1", b"bad", b"2"):
                publisher.publish("customer", body, {"n": 1}, message_id=body.decode())
        churn_until(lambda: billed == [b"1", b"2"])
        churn_until(lambda: read_dead_letters(url, name))
        (letter,) = read_dead_letters(url, name)
        assert (letter.message_id, letter.error[:10]) == ("bad", "ValueError")
        dead_letters.append(b"bad")
        replay_dead_letters(url, name, everything=True)
        churn_until(lambda: billed == [b"1", b"2", b"bad"])
        assert len(group.tenures) == topic.partitions


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_a_smaller_prefetch_than_before_keeps_the_order(here: Place, kind: str) -> None:
    """A quorum queue puts what comes back behind what came back before: the rest of that is taken before it is given back."""
    seen = Seen()
    with new_topic(here.amqp_url, 1, kind) as topic:

        async def stop_at_third(delivery: Delivery) -> None:
            if len(seen.bodies) == 2:
                group.pause(delivery.queue)
            seen.note(delivery)

        here.publish(topic, *range(20))
        take_in_vain(here.amqp_url, topic.queue_names[0], ahead=10)
        async with here.member(topic, stop_at_third, prefetch=2) as group:
            await seen.wait(3)
        async with here.member(topic, handler_of(seen)):
            assert await seen.wait(20) == [str(it) for it in range(20)]


def churn_until(condition: Callable[[], object]) -> None:
    Churn(unique("g"), Broker(unique("m"))).until(condition, WITHIN_S)


def test_large_messages_come_whole(url: str, name: str) -> None:
    """They take several frames; empty ones work too."""
    create_topic(url, Topic(name, 1))
    bodies, seen = [os.urandom(400_000), b"", b"x" * 131_064], list[bytes]()
    with Publisher(url, name) as publisher:
        for body in bodies:
            publisher.publish("k", body)
    options: dict[str, Any] = {"amqp_url": url, "redis_url": f"memory://{name}", "settings": SETTINGS}
    with BlockingConsumerGroup("g", name, lambda it: seen.append(it.body), **options):
        churn_until(lambda: len(seen) == 3)
    assert seen == bodies


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def stream(here: Place) -> Iterator[Stream]:
    """Ten messages."""
    with new_stream(here.amqp_url, 10) as it:
        yield it


@pytest.mark.anyio
async def test_a_stream_is_read_by_groups(here: Place, stream: Stream) -> None:
    """Each from its start; the next holder goes on behind what is committed."""
    reading = Reading()
    async with member(here, stream, reading, start="first"):
        assert await reading.wait(10) == [*range(10)]
    assert committed(here, stream) == 9
    stream.append(2)
    again, other = Reading(), Reading()
    async with member(here, stream, again, start="first"):
        assert await again.wait(2) == [10, 11]
    with place(here.amqp_url) as elsewhere:
        async with member(elsewhere, stream, other, start=7):
            assert await other.wait(5) == [7, 8, 9, 10, 11]


@pytest.mark.anyio
async def test_a_position_is_moved(here: Place, stream: Stream) -> None:
    """By a seek, and by an operator for good."""
    reading, again = Reading(), Reading()
    async with member(here, stream, reading, start="first") as group:
        await reading.wait(10)
        await group.seek(stream.name, 8)
        assert await reading.wait(12) == [*range(10), 8, 9]
    with closing(GroupAdmin(here.redis_url, amqp_url=here.amqp_url)) as admin:
        steps = admin.plan_offsets(here.group, 6, [stream.name])
        admin.reset_offsets(here.group, steps)
    async with member(here, stream, again):
        assert await again.wait(4) == [6, 7, 8, 9]
    assert read_extents(here.amqp_url, [stream.name]) == {stream.name: Extent(0, 9)}


@pytest.mark.anyio
async def test_a_group_leaves_its_mark(here: Place, stream: Stream) -> None:
    """It goes with the stream, so that one created again is noticed."""
    async with member(here, stream, Reading(), start="first", commit_every=1):
        await until(lambda: committed(here, stream) == 9)
    with connected(here.amqp_url) as connection:
        assert reading_mark.is_marked(connection, here.coordinator.scope, stream.name).result(60)
        assert not reading_mark.is_marked(connection, "other", stream.name).result(60)
        assert reading_mark.may_mark(connection, "other", stream.name).result(60)
        stream.make_anew()
        assert not reading_mark.is_marked(connection, here.coordinator.scope, stream.name).result(60)
    async with member(here, stream, Reading(), start="first"):
        await until(lambda: here.journal("halted"))


@pytest.mark.anyio
async def test_what_the_retention_took_is_missed(here: Place) -> None:
    """The reader is halted, since it has not read everything."""
    with new_stream(here.amqp_url, retention=TINY) as stream:
        async with member(here, stream, Reading(), start="first", commit_every=1):
            stream.append(1)
            await until(lambda: committed(here, stream) == 0)
        stream.append_until_gone(10)
        async with member(here, stream, Reading(), start="first", on_unknown_offset="stop"):
            (halted,) = await until(lambda: here.journal("halted"))
    assert halted.resource == stream.name


@pytest.mark.anyio
async def test_a_stream_is_locked(here: Place, stream: Stream) -> None:
    """By a queue that its reader's connection alone may use."""
    reading = Reading()
    async with member(here, stream, reading, start="first", lock=True):
        await reading.wait(10)
        other = Client(here.amqp_url)
        refused = other.refusal(
            lambda it: it.queue_declare(lock_name(here.coordinator.scope, stream.name), exclusive=True)
        )
        assert refused.code == 405
        other.disconnect()


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["deleted", "published to"])
async def test_a_lock_that_is_lost_is_no_guard_until_it_is_had_again(here: Place, stream: Stream, how: str) -> None:
    """As when an operator deletes the queue. The handler that runs goes on; the tenure takes the lock again after it."""
    begun, goes_on, offsets, lock = (
        anyio.Event(),
        anyio.Event(),
        list[tuple[int, int | None]](),
        lock_name(here.coordinator.scope, stream.name),
    )

    async def handle(delivery: Delivery) -> None:
        begun.set()
        await goes_on.wait()
        offsets.append((delivery.token, delivery.offset))

    async with here.member([stream.name], handle, streams=settings(start="first", lock=True)) as group:
        await begun.wait()
        await until(lambda: is_guarded(group, stream))
        connection = group.partitions.connection
        lose: Callable[[Any], None] = {
            "deleted": lambda it: it.queue_delete(lock),
            "published to": lambda it: it.basic_publish("", lock, b"x"),
        }[how]
        connection.submit(lambda: connection.open_channel(lose))
        await until(lambda: not is_guarded(group, stream))
        goes_on.set()
        await until(lambda: is_guarded(group, stream))
        await until(lambda: len(offsets) >= 10)
        other = Client(here.amqp_url)
        assert other.refusal(lambda it: it.queue_declare(lock, exclusive=True)).code == 405
        other.disconnect()
    assert [offset for _, offset in offsets] == [*range(10)]
    assert len({token for token, _ in offsets}) == 1


def is_guarded(group: ConsumerGroup, stream: Stream) -> bool:
    held = group.membership.engine.session.holdings._by_name.get(stream.name)
    return held is not None and held.guarded


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
async def test_requests_are_answered(here: Place, kind: str) -> None:
    """In the queue that the request names, or directly."""
    seen, client = Seen(), Client(here.amqp_url)

    async def double(delivery: Delivery) -> None:
        delivery.reply(seen.note(delivery) * 2)

    with new_topic(here.amqp_url, 1, kind) as topic:
        replies = str(client.channel.queue_declare("", exclusive=True).method.queue)
        client.consume(replies)
        client.consume("amq.rabbitmq.reply-to", auto_ack=True)
        async with here.member(topic, double):
            client.publish(topic.queue_names[0], "1", reply_to=replies)
            client.publish(topic.queue_names[0], "2", reply_to="amq.rabbitmq.reply-to")
            await seen.wait(2)
            assert sorted(client.bodies(2)) == ["11", "22"]
    client.disconnect()
