"""Growing a topic: layouts at the broker, and every key's messages in order while publishers and consumers go on."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import anyio.to_thread
import pytest
from pika.exceptions import UnroutableError
from tests.consumers import bodies_in, channel, new_topic, place, until
from tests.faults.management_api import gateway

from cobalance.errors import PublishFailed, QueueMismatch, QueueMissing, TopicMismatch, Unreachable
from cobalance.rabbitmq import (
    Delivery,
    Publisher,
    Topic,
    create_topic,
    delete_topic,
    describe_topic,
    grow_topic,
    list_topics,
    prune_topic,
    read_topic,
    verify_topic,
)
from cobalance.rabbitmq.topics.admin import connected
from cobalance.rabbitmq.topics.broker import check_topic
from cobalance.rabbitmq.topics.growth import close_layout
from cobalance.rabbitmq.topics.layouts import LayoutSource, Look
from cobalance.servers import RabbitMQServer

pytestmark = pytest.mark.anyio


# -- at the broker -----------------------------------------------------------------------------------------------------


def test_a_grown_topic_reads_back_as_it_is(topic: Topic, amqp_url: str) -> None:
    """By its name, by its original number of partitions, or by its current one."""
    grown = grow_topic(amqp_url, topic.name, 5)
    assert (grown.partitions, grown.layout) == (5, 2)
    assert grown.queue_names[0] == f"{topic.name}.v2-0"
    assert read_topic(amqp_url, topic.name) == grown
    for said in (topic, Topic(topic.name, 5), grown):
        assert verify_topic(amqp_url, said) == grown
        assert check_topic(amqp_url, said) == grown
        assert create_topic(amqp_url, said) == grown
    with pytest.raises(TopicMismatch, match=r"was grown to 5.*restart.*topic grow"):
        check_topic(amqp_url, Topic(topic.name, 6))


def test_a_queue_that_is_called_like_a_partition_is_in_nobodys_way(topic: Topic, amqp_url: str) -> None:
    """Beyond a gap it is somebody else's: the topic grows, and is described and pruned without it."""
    foreign = f"{topic.name}-7"
    with channel(amqp_url) as it:
        it.queue_declare(foreign, durable=True)
        try:
            assert read_topic(amqp_url, topic.name) == topic
            assert grow_topic(amqp_url, topic.name, 3).partitions == 3
            assert foreign not in {row.queue for row in describe_topic(amqp_url, topic.name)[1]}
            assert prune_topic(amqp_url, topic.name) == dict.fromkeys(reversed(topic.queue_names), True)
            it.queue_declare(foreign, passive=True)
        finally:
            it.queue_delete(foreign)


def test_growing_again_goes_on_from_there(topic: Topic, amqp_url: str) -> None:
    """A third layout follows; asking for the current number changes nothing, and a lower one is refused."""
    grow_topic(amqp_url, topic.name, 3)
    again = grow_topic(amqp_url, topic.name, 4)
    assert (again.partitions, again.layout) == (4, 3)
    assert grow_topic(amqp_url, topic.name, 4) == again
    with pytest.raises(TopicMismatch, match="not fewer"):
        grow_topic(amqp_url, topic.name, 2)


def test_nothing_enters_a_closed_layout(topic: Topic, amqp_url: str) -> None:
    """Not even when a process started long ago creates the topic again."""
    grown = grow_topic(amqp_url, topic.name, 3)
    create_topic(amqp_url, topic)
    for key in topic.routing_keys(0):
        with channel(amqp_url) as it, pytest.raises(UnroutableError):
            it.basic_publish(topic.name, key, b"", mandatory=True)
    with Publisher(amqp_url, topic) as publisher:
        partition = publisher.publish("key", b"x").result()
        assert publisher.topic == grown
    assert bodies_in(amqp_url, grown.queue_names[partition]) == ["x"]


def test_an_interrupted_growth_goes_on(topic: Topic, amqp_url: str) -> None:
    """Here the old layout was closed and the new one not opened. Meanwhile publishers wait, and say so."""
    with connected(amqp_url) as admin:
        admin.declare(Topic(topic.name, 3, layout=2).queues[0])
        close_layout(admin, topic)
    with Publisher(amqp_url, topic, timeout_ms=700) as publisher:
        with pytest.raises(PublishFailed, match="grown") as failure:
            publisher.publish("key", b"x")
        assert failure.value.outcome == "not_executed"
    assert read_topic(amqp_url, topic.name) == topic
    assert grow_topic(amqp_url, topic.name, 3).layout == 2
    with Publisher(amqp_url, topic) as publisher:
        publisher.publish("key", b"x")


@pytest.mark.parametrize("missing", [[2], [0], [0, 1, 2]])
def test_missing_queues_do_not_spread_keys_over_the_others(
    topic: Topic, amqp_url: str, missing: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """A smaller layout is not assumed: publishing, consuming and growing are refused until the topic is created again."""
    grown = grow_topic(amqp_url, topic.name, 3)
    with channel(amqp_url) as it:
        for number in missing:
            it.queue_delete(grown.queue_names[number])
    attempts: list[Callable[[], object]] = [
        lambda: check_topic(amqp_url, topic),
        lambda: verify_topic(amqp_url, topic),
        lambda: read_topic(amqp_url, topic.name),
        lambda: grow_topic(amqp_url, topic.name, 4),
    ]
    for refused in attempts:
        with pytest.raises(QueueMissing, match=f"held is lost.*topic create {topic.name} --partitions 3"):
            refused()
    if len(missing) < 3:
        with pytest.raises(QueueMismatch, match="other arguments"):
            create_topic(amqp_url, Topic(topic.name, 3, "quorum", dead_letter=False))
    for said in (topic, grown):
        assert create_topic(amqp_url, said) == check_topic(amqp_url, topic) == grown
    (warning,) = [it.getMessage() for it in caplog.records if "had lost queues" in it.getMessage()]
    assert all(grown.queue_names[number] in warning for number in missing)
    with Publisher(amqp_url, topic.name) as publisher:
        assert [publisher.publish(None, b"x", partition=it).result() for it in range(3)] == [0, 1, 2]
    with channel(amqp_url) as it, pytest.raises(UnroutableError):
        it.basic_publish(topic.name, topic.routing_key(0), b"", mandatory=True)


def test_a_topic_that_is_made_again_is_made_as_it_is_now(topic: Topic, amqp_url: str) -> None:
    """Its exchange was deleted with all bindings: those of the closed layout do not come back."""
    grown = grow_topic(amqp_url, topic.name, 3)
    with channel(amqp_url) as it:
        it.exchange_delete(topic.name)
        assert create_topic(amqp_url, topic) == grown
        for key in (*topic.routing_keys(0), *topic.routing_keys(1)):
            with pytest.raises(UnroutableError):
                it.basic_publish(topic.name, key, b"", mandatory=True)
    with Publisher(amqp_url, topic) as publisher:
        publisher.publish("key", b"x")


def test_a_topic_that_is_made_anew_is_not_taken_for_the_one_that_was_grown(topic: Topic, amqp_url: str) -> None:
    """By a publisher and a member that were there before: they go on with the layout that there is."""
    grow_topic(amqp_url, topic.name, 3)
    source = LayoutSource(topic, amqp_url)
    source.look({})
    with Publisher(amqp_url, topic) as publisher:
        publisher.publish("key", b"of the former")
        delete_topic(amqp_url, topic.name, force=True)
        assert create_topic(amqp_url, topic) == topic
        partition = publisher.publish("key", b"x").result()
        assert publisher.topic == topic
    assert bodies_in(amqp_url, topic.queue_names[partition]) == ["x"]
    assert source.look({}) == Look(topic.queue_names)
    assert check_topic(amqp_url, Topic(topic.name, 3, layout=2)) == topic


def finish_first(url: str, queue: str) -> bytes:
    """Consumes and acknowledges the first message of a queue."""
    with channel(url) as it:
        got: Any = next(it.consume(queue))
        it.basic_ack(got[0].delivery_tag)
        return bytes(got[2])


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_old_queues_are_pruned_once_they_are_empty(amqp_url: str, kind: Any) -> None:
    """Never one with a message, nor one before it, which would hide it; describing the topic shows all layouts."""
    with new_topic(amqp_url, 3, kind) as topic:
        with channel(amqp_url) as it:
            it.basic_publish(topic.name, "1", b"left", mandatory=True)
        grown = grow_topic(amqp_url, topic.name, 4)
        first, second, third = topic.queue_names
        assert prune_topic(amqp_url, topic.name) == {third: True, second: False, first: False}
        described, rows, dead = describe_topic(amqp_url, topic.name)
        assert (described, dead) == (grown, 0)
        assert [(row.layout, row.queue, row.state.ready) for row in rows] == [
            (1, first, 0),
            (1, second, 1),
            *((2, name, 0) for name in grown.queue_names),
        ]
        assert finish_first(amqp_url, second) == b"left"
        assert prune_topic(amqp_url, topic.name) == {second: True, first: True}
        assert read_topic(amqp_url, topic.name) == grown


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_whose_messages_are_all_with_a_consumer_is_not_pruned(amqp_url: str, kind: Any) -> None:
    """They come back if it fails."""
    with new_topic(amqp_url, 1, kind) as topic:
        (old,) = topic.queue_names
        with channel(amqp_url) as it:
            it.basic_publish(topic.name, "0", b"taken", mandatory=True)
            grow_topic(amqp_url, topic.name, 2)
            next(it.consume(old))
            assert prune_topic(amqp_url, topic.name) == {old: False}
        assert finish_first(amqp_url, old) == b"taken"
        assert prune_topic(amqp_url, topic.name) == {old: True}


def take_and_cancel(it: Any, queue: str) -> None:
    """Holds a message that its consumer was given before it was cancelled."""
    taken: list[bytes] = []
    tag = it.basic_consume(queue, lambda *got: taken.append(got[-1]))
    while not taken:
        it.connection.process_data_events(1)
    it.basic_cancel(tag)


def get(it: Any, queue: str) -> None:
    """Holds a message without ever having had a consumer."""
    while it.basic_get(queue)[0] is None:
        pass


@pytest.mark.parametrize(
    ("kind", "is_asked", "take"),
    [
        ("classic", True, take_and_cancel),
        ("classic", True, get),
        ("quorum", True, take_and_cancel),  # RabbitMQ refuses the other way: one consumer at a time is active
        ("quorum", False, take_and_cancel),
    ],
)
def test_a_queue_whose_messages_are_with_a_program_without_a_consumer_is_not_pruned(
    rabbitmq_server: RabbitMQServer, kind: Any, is_asked: bool, take: Callable[[Any, str], None]
) -> None:
    """From the moment on when it takes them; it finishes them first. Of a classic queue the management API has to be asked."""
    url, api = rabbitmq_server.url, rabbitmq_server.management_url if is_asked else None
    with new_topic(url, 2, kind) as topic:
        first, second = topic.queue_names
        with channel(url) as it:
            it.basic_publish(topic.name, topic.routing_key(1), b"taken", mandatory=True)
            grow_topic(url, topic.name, 3)
            take(it, second)
            assert prune_topic(url, topic.name, management_url=api) == {second: False, first: False}
        assert finish_first(url, second) == b"taken"
        assert prune_topic(url, topic.name, management_url=api) == {second: True, first: True}


def test_a_queue_is_not_pruned_by_statistics(rabbitmq_server: RabbitMQServer) -> None:
    """Nor if the management API leaves it out: what it holds is not known."""
    url, api = rabbitmq_server.url, str(rabbitmq_server.management_url).replace("guest:guest@", "")
    with new_topic(url, 1, "classic") as topic:
        (old,) = topic.queue_names
        grow_topic(url, topic.name, 2)
        for drop in ("enable_queue_totals=true", "disable_stats=true", "-[0-9]+"):
            with gateway(api, drop=drop) as (_, front), pytest.raises(Unreachable, match="It was not deleted"):
                prune_topic(url, topic.name, management_url=front)
        assert prune_topic(url, topic.name, management_url=rabbitmq_server.management_url) == {old: True}


def test_a_grown_topic_is_listed_once(topic: Topic, amqp_url: str, rabbitmq_server: RabbitMQServer) -> None:
    """It is listed with its current number of partitions."""
    grow_topic(amqp_url, topic.name, 7)
    listed = list_topics(amqp_url, rabbitmq_server.management_url)
    assert [(it.name, it.partitions) for it in listed if it.name.startswith(topic.name)] == [(topic.name, 7)]


# -- with publishers and consumers -------------------------------------------------------------------------------------

KEYS = [f"key-{number}" for number in range(24)]


class Publishers:
    """Threads that publish numbered messages, each for keys of its own, until stopped."""

    def __init__(self, url: str, topic: Topic, count: int) -> None:
        self.url, self.topic, self.count = url, topic, count
        self.sent: dict[str, int] = defaultdict(int)
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(count)
        self._runs = [self._pool.submit(self._run, KEYS[number::count]) for number in range(count)]

    def _run(self, keys: list[str]) -> None:
        with Publisher(self.url, self.topic, window=200) as publisher:
            while not self._stop.is_set():
                for key in keys:
                    self.sent[key] += 1
                    publisher.publish(key, f"{key} {self.sent[key]}".encode(), wait=False)
                self._stop.wait(0.03)
            assert publisher.flush()

    def stop(self) -> None:
        """Stops once everything published is confirmed."""
        self._stop.set()
        for run in self._runs:
            run.result(60)
        self._pool.shutdown()


class Ledger:
    """What consumers have processed, per key, in order; a redelivered message with a known number is left out."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = defaultdict(list)
        self.queues: set[str] = set()
        self.reordered: list[str] = []
        self.count = 0

    def note(self, delivery: Delivery) -> None:
        key, _, number = delivery.body.decode().partition(" ")
        seen, now = self.numbers[key], int(number)
        self.queues.add(delivery.queue)
        if seen and now <= seen[-1] and not delivery.redelivered:
            self.reordered.append(f"{key}: {now} after {seen[-1]} in {delivery.queue}")
        elif not seen or now > seen[-1]:
            if now != (seen[-1] if seen else 0) + 1:
                self.reordered.append(f"{key}: {now} after {seen[-1] if seen else 0} in {delivery.queue}")
            seen.append(now)
        self.count += 1


def complete(ledger: Ledger, sent: dict[str, int]) -> bool:
    """Whether everything sent was processed."""
    return all(ledger.numbers[key] and ledger.numbers[key][-1] == sent[key] for key in sent)


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
async def test_every_key_stays_in_order_while_a_topic_grows_twice(
    amqp_url: str, redis_url: str, queue_type: str
) -> None:
    """Three publishers, three consumers, one joins and one leaves; nothing is lost, nothing overtakes."""
    ledger = Ledger()

    async def handle(delivery: Delivery) -> None:
        await anyio.sleep(0.0005)
        ledger.note(delivery)

    with place(amqp_url, redis_url) as here, new_topic(amqp_url, 2, queue_type) as topic:
        publishers = Publishers(amqp_url, topic, 3)
        leaver = here.member(topic, handle, refresh_ms=200, prefetch=20)
        async with here.member(topic, handle, refresh_ms=200, prefetch=20):
            async with leaver:
                await until(lambda: ledger.count > 500)
                grown = await anyio.to_thread.run_sync(grow_topic, amqp_url, topic.name, 5)
                async with here.member(topic.name, handle, refresh_ms=200, prefetch=20):
                    await until(lambda: ledger.queues >= set(grown.queue_names), within_s=60)
                    again = await anyio.to_thread.run_sync(grow_topic, amqp_url, topic.name, 7)
                    await until(lambda: set(here.resources()) == set(again.queue_names), within_s=60)
            await anyio.to_thread.run_sync(publishers.stop)
            await until(lambda: complete(ledger, publishers.sent), within_s=60)
        assert set(publishers.sent) == set(KEYS)
        assert ledger.reordered == []
        _, rows, dead = describe_topic(amqp_url, topic.name)
        assert sum(row.state.ready for row in rows) == 0
        assert dead in (0, None)
        assert here.journal("forced") == []
