"""Growing a topic: layouts at the broker, and every key's messages in order while publishers and consumers go on."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.to_thread
import attrs
import pika
import pytest
from pika.exceptions import UnroutableError
from tests.consumers import Place, bodies_in, channel, new_topic, note_looks, place, until
from tests.faults.proxy import proxy_to
from tests.faults.rabbitmq_servers import Leader
from tests.names import unique

from cobalance.backoff import Backoff
from cobalance.coordinator.client import ResourceRow
from cobalance.errors import (
    PublishFailed,
    QueueMismatch,
    QueueMissing,
    TopicMismatch,
)
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
from cobalance.rabbitmq.publish import rerouting
from cobalance.rabbitmq.publish.confirms import Confirms
from cobalance.rabbitmq.topics import layouts
from cobalance.rabbitmq.topics.admin import Admin, connected
from cobalance.rabbitmq.topics.broker import check_topic, is_being_grown, topic_again
from cobalance.rabbitmq.topics.growth import close_layout
from cobalance.rabbitmq.topics.layouts import LayoutSource, Look
from cobalance.rabbitmq.topics.management import unacknowledged_counts
from cobalance.rabbitmq.topics.own_queues import own_numbers
from cobalance.servers import OwnRabbitMQ, RabbitMQServer

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


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_a_queue_whose_messages_are_with_a_consumer_that_has_cancelled_is_not_pruned(
    rabbitmq_server: RabbitMQServer, kind: Any
) -> None:
    """It finishes them first. Only the management API knows of those, with statistics that are some seconds old."""
    url, api = rabbitmq_server.url, rabbitmq_server.management_url
    with new_topic(url, 1, kind) as topic:
        (old,) = topic.queue_names
        with channel(url) as it:
            it.basic_publish(topic.name, "0", b"taken", mandatory=True)
            grow_topic(url, topic.name, 2)
            taken: list[bytes] = []
            tag = it.basic_consume(old, lambda *got: taken.append(got[-1]))
            while not taken:
                it.connection.process_data_events(1)
            it.basic_cancel(tag)
            await until(lambda: unacknowledged_counts(url, api).get(old))
            assert prune_topic(url, topic.name, management_url=api) == {old: False}
        await until(lambda: unacknowledged_counts(url, api).get(old) == 0)
        assert finish_first(url, old) == b"taken"
        assert prune_topic(url, topic.name, management_url=api) == {old: True}


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


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...] | None]:
    """The queues found by each look of the coordinator."""
    return note_looks(monkeypatch, LayoutSource)


def test_a_layout_that_does_not_empty_is_looked_at_ever_more_rarely(topic: Topic, amqp_url: str) -> None:
    """A halted partition may stay so for days. When something has changed there, it goes on quickly."""
    first, _ = topic.queue_names
    with channel(amqp_url) as it:
        it.basic_publish("", first, b"1", mandatory=True)
        source = LayoutSource(grow_topic(amqp_url, topic.name, 3), amqp_url)
        pauses = [source.look({}).again_in_ms for _ in range(7)]
        assert pauses == [200, 400, 800, 1_600, 3_200, 5_000, 5_000]
        it.basic_publish("", first, b"2", mandatory=True)
        assert source.look({}).again_in_ms == 200


def test_the_queues_of_a_closed_layout_are_counted_once(
    topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find out that there are no more takes errors in RabbitMQ's log. What was deleted is noticed all the same."""
    counted: list[Topic] = []

    def noted(admin: Admin, layout: Topic) -> list[int]:
        counted.append(layout)
        return own_numbers(admin, layout)

    monkeypatch.setattr(layouts, "own_numbers", noted)
    source = LayoutSource(grow_topic(amqp_url, topic.name, 3), amqp_url)
    for expected in (1, 2):
        for _ in range(3):
            source.look({})
        assert len(counted) == expected
        with connected(amqp_url) as admin:
            admin.delete(topic.queue_names[0])
            source.look({})


def test_that_messages_came_late_is_said_once(topic: Topic, amqp_url: str, caplog: Any) -> None:
    """Their partition may be halted, and they stay there."""
    source = LayoutSource(grown := grow_topic(amqp_url, topic.name, 3), amqp_url)
    listed = {name: ResourceRow(name, "held", "m", 1, 0, 0, "2", False, "-", None) for name in grown.queue_names}
    with channel(amqp_url) as it:
        it.basic_publish("", topic.queue_names[0], b"late", mandatory=True)
    for _ in range(3):
        assert source.look(listed).resources == tuple(sorted((*grown.queue_names, topic.queue_names[0])))
    assert caplog.text.count("whose layout is closed") == 1


def test_a_queue_of_a_closed_layout_that_is_made_again_is_found(
    topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator restores what was deleted by mistake, or the whole topic is created again: its messages are not left."""
    now = [0.0]
    monkeypatch.setattr(layouts, "time", SimpleNamespace(monotonic=lambda: now[0]))
    first, second = topic.queue_names
    source = LayoutSource(grow_topic(amqp_url, topic.name, 3), amqp_url)
    source.look({})
    with connected(amqp_url) as admin, channel(amqp_url) as it:
        for lost in ([second], [first, second]):
            for name in lost:
                admin.delete(name)
            for _ in range(3):
                source.look({})
            for queue in topic.queues:
                admin.declare(queue)
            it.basic_publish("", second, b"1", mandatory=True)
            now[0] += 60
            assert second in (source.look({}).resources or ())


@pytest.mark.thorough
async def test_a_group_at_rest_costs_rabbitmq_no_connection_and_no_error(
    private_rabbitmq: OwnRabbitMQ, looks: list[tuple[str, ...] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it looks whether its topic has grown, before as after that. Growth is noticed all the same."""
    url = private_rabbitmq.url
    monkeypatch.setattr(layouts, "REST_S", Backoff(600.0, 600.0))
    seen: list[Delivery] = []

    def written() -> str:
        """The log until now, which is when a connection is made for the purpose."""
        parameters, now = pika.URLParameters(url), unique("now")
        parameters.client_properties = {"connection_name": now}
        pika.BlockingConnection(parameters).close()
        while now not in (log := private_rabbitmq.log()):  # the timeout of the test is the limit
            time.sleep(0.01)
        return log

    async def noise_of_looks() -> list[str]:
        before, done = await anyio.to_thread.run_sync(written), len(looks)
        await until(lambda: len(looks) >= done + 10)
        since = (await anyio.to_thread.run_sync(written)).removeprefix(before).splitlines()
        return [it for it in since if "cobalance set-up" in it or "caused a channel exception" in it]

    with new_topic(url, 2) as topic, place(url) as here:
        async with here.member(topic, seen.append, refresh_ms=50, crash_detection=False):
            await until(lambda: topic.queue_names in looks)
            assert await noise_of_looks() == []
            grown = await anyio.to_thread.run_sync(grow_topic, url, topic.name, 3)
            for partition in range(3):
                here.publish(grown, partition, partition=partition)
            await until(lambda: len(seen) == 3)  # to begin with a queue takes connections of its own
            await until(lambda: looks[-2:] == 2 * [grown.queue_names])
            assert await noise_of_looks() == []


@pytest.mark.thorough
async def test_the_new_layout_waits_for_what_is_still_being_processed(
    here: Place, topic: Topic, looks: list[tuple[str, ...] | None]
) -> None:
    """The queue looks empty, but its last message is in a handler: the new layout waits for that, and so does one that
    is closed already, as the topic was grown again.
    """
    log: list[str] = []
    begun, finish = anyio.Event(), anyio.Event()

    async def handle(delivery: Delivery) -> None:
        body = delivery.body.decode()
        if body == "old":
            begun.set()
            await finish.wait()
        log.append(body)

    here.publish(topic, "old")
    async with here.member(topic, handle, refresh_ms=100):
        with anyio.fail_after(60):
            await begun.wait()
        grown = await anyio.to_thread.run_sync(grow_topic, here.amqp_url, topic.name, 3)
        here.publish(grown, "newer")
        again = await anyio.to_thread.run_sync(grow_topic, here.amqp_url, topic.name, 4)
        here.publish(again, "newest")
        await until(lambda: sum(it is not None for it in looks) > 5)  # for longer than it takes to settle
        assert {name for it in looks for name in it or ()} <= set(topic.queue_names)
        assert log == []
        finish.set()
        await until(lambda: len(log) == 3)
    assert log == ["old", "newer", "newest"]


@pytest.mark.thorough
async def test_another_member_looks_if_the_head_is_cut_off_from_rabbitmq(here: Place, topic: Topic) -> None:
    """What is published to the new layout does not wait until that process ends or is connected again."""
    processed: list[str] = []

    async def handle(delivery: Delivery) -> None:
        processed.append(delivery.body.decode())

    with proxy_to(here.amqp_url) as proxy:
        url = proxy.through(here.amqp_url)
        async with here.member(topic, handle, amqp_url=url, refresh_ms=100, unconnected_ms=500) as head:
            await until(lambda: set(here.resources()) == set(topic.queue_names))
            assert head.membership.engine.session.is_head
            async with here.member(topic, handle, refresh_ms=100):
                proxy.refuse()
                proxy.reset()
                grown = await anyio.to_thread.run_sync(grow_topic, here.amqp_url, topic.name, 3)
                here.publish(grown, "new")
                await until(lambda: processed == ["new"])
                proxy.heal()


@pytest.mark.thorough
async def test_a_message_that_comes_late_is_not_lost(here: Place, topic: Topic, caplog: Any) -> None:
    """If RabbitMQ or another program puts one into a closed layout after the switch, it is processed and reported."""
    processed: list[str] = []

    async def handle(delivery: Delivery) -> None:
        processed.append(delivery.body.decode())

    async with here.member(topic, handle, refresh_ms=100):
        grown = await anyio.to_thread.run_sync(grow_topic, here.amqp_url, topic.name, 3)
        await until(lambda: set(here.resources()) == set(grown.queue_names))
        here.publish(topic, "late")
        await until(lambda: processed == ["late"])
        await until(lambda: set(here.resources()) == set(grown.queue_names))
    assert "late" in caplog.text


async def test_a_new_group_begins_with_what_old_layouts_hold(here: Place, topic: Topic) -> None:
    """It has never consumed them, and does so first, one after the other."""
    processed: list[str] = []

    async def handle(delivery: Delivery) -> None:
        processed.append(delivery.body.decode())

    here.publish(topic, "old")
    grown = await anyio.to_thread.run_sync(grow_topic, here.amqp_url, topic.name, 3)
    here.publish(grown, "newer")
    again = await anyio.to_thread.run_sync(grow_topic, here.amqp_url, topic.name, 4)
    here.publish(again, "newest")
    async with here.member(topic, handle, refresh_ms=100):
        await until(lambda: len(processed) == 3)
    assert processed == ["old", "newer", "newest"]
