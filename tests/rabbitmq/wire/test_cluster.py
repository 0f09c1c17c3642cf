"""What only a RabbitMQ of several nodes can do to a member."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import product

import anyio.to_thread
import pytest
from tests.faults import consuming as messages
from tests.faults.eventually import eventually
from tests.faults.rabbitmq_servers import RabbitMQCluster, rabbitmq_cluster
from tests.streams import bodies_in_stream

from cobalance import ConsumerGroup, Publisher, StreamSettings, Topic
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.errors import ServerError
from cobalance.journal import Journal
from cobalance.rabbitmq import create_topic
from cobalance.rabbitmq.streams.reading_mark import remember

pytestmark = [pytest.mark.anyio, pytest.mark.campaign, pytest.mark.long_campaign, pytest.mark.timeout(900)]

FEEDERS = """[P || P <- processes(), {osiris_replica_reader, _, _} <- [proc_lib:translate_initial_call(P)],
    lists:any(fun(It) -> is_pid(It) andalso node(It) =:= '%s' end, tuple_to_list(sys:get_state(P)))]"""
"""The process on a stream's leader that sends it to the replica on a node."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RabbitMQCluster]:
    """Three nodes."""
    with rabbitmq_cluster() as started:
        yield started


async def test_a_node_that_lags_behind_is_waited_for(
    cluster: RabbitMQCluster, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What was committed was read elsewhere and is not on this node yet: reading continues as soon as it is."""
    topic = Topic(f"lag-{uuid.uuid4().hex[:8]}", 1, "stream")
    create_topic(cluster.url, topic)
    (stream,) = topic.queue_names
    leader = cluster.leader_of(stream)
    node = next(it for it in cluster.nodes if it is not leader)
    await anyio.to_thread.run_sync(publish, cluster.url, topic, 100)
    feeders = leader.evaluate(f"[begin sys:suspend(P), pid_to_list(P) end || P <- {FEEDERS % node.name}].")
    assert feeders != "[]"
    await anyio.to_thread.run_sync(publish, cluster.url, topic, 100)
    name, received = messages.create_group(redis_url), messages.Received()
    transport = open_transport(redis_url)
    Coordinator(transport, name).reset_offsets({stream: 150})
    await anyio.to_thread.run_sync(remember, cluster.url, name, [stream])
    async with ConsumerGroup(
        name,
        topic,
        received.handle,
        amqp_url=f"amqp://guest:guest@127.0.0.1:{node.port}/%2F",
        redis_url=redis_url,
        settings=messages.SETTINGS,
        streams=StreamSettings(start="first"),
    ):
        await eventually(lambda: "has not got offset 150 yet" in caplog.text)
        leader.evaluate(f"[sys:resume(list_to_pid(P)) || P <- {feeders}].")
        await eventually(lambda: received.deliveries)
        assert received.deliveries[0].offset == 151
    assert not [it for it in Journal(transport, name).entries() if it.kind == "halted"]
    transport.close()


async def test_streams_have_what_was_confirmed_when_a_leader_died(cluster: RabbitMQCluster) -> None:
    """The next leader gets what the last one left unconfirmed; RabbitMQ 3 may then take new messages for those."""
    topic = Topic(f"heirs-{uuid.uuid4().hex[:8]}", 8, "stream")
    create_topic(cluster.url, topic)
    first, sent = cluster.nodes[0], dict[tuple[int, int], Future[int]]()
    leaders = [cluster.leader_of(it) for it in topic.queue_names]
    leader = next(it for it in leaders if it is not first)
    led = [partition for partition, it in enumerate(leaders) if it is leader]
    with Publisher(
        first.url, topic.name, unseen_failures="log"
    ) as publisher:  # by name, which does not tell their type

        def publish(numbers: range) -> None:
            for partition, number in product(range(topic.partitions), numbers):
                outcome = publisher.publish(None, str(number).encode(), partition=partition, wait=False)
                sent[partition, number] = outcome

        publish(range(10))
        assert publisher.flush()
        leader.pause()
        publish(range(10, 20))
        await eventually(lambda: all(sent[it, 19].done() for it in range(topic.partitions) if it not in led))
        assert not any(sent[it, 10].done() for it in led)
        leader.kill()
        try:
            await eventually(lambda: leader not in map(cluster.leader_of, topic.queue_names))
            publish(range(20, 30))
            publisher.flush()
            confirmed = {it for it, outcome in sent.items() if outcome.done() and outcome.exception() is None}
        finally:
            leader.start()
    streams = enumerate(topic.queue_names)
    read = {(it, int(body)) for it, stream in streams for body in bodies_in_stream(first.url, stream)}
    assert confirmed - read == set()
    assert confirmed == set(sent)


def test_what_only_another_groups_queue_has_taken_is_not_confirmed(cluster: RabbitMQCluster) -> None:
    """The topic's own queue is on a node that is down, the other group's is not: RabbitMQ returns nothing then."""
    first, down = cluster.nodes[:2]
    topic = create_topic(down.url, Topic(f"down-{uuid.uuid4().hex[:8]}", 1))
    create_topic(first.url, topic, group="audit")
    with Publisher(first.url, topic, unseen_failures="log", timeout_ms=3_000) as publisher:
        publisher.publish(None, b"before")
        down.kill()
        try:
            outcomes = list[str]()
            while "not_executed" not in outcomes and len(outcomes) < 10:
                with pytest.raises(ServerError) as failure:
                    publisher.publish(None, b"down")
                outcomes.append(failure.value.outcome)
            assert outcomes[-1] == "not_executed"
        finally:
            down.start()


def publish(url: str, topic: Topic, count: int) -> None:
    """Publishes confirmed messages."""
    with Publisher(url, topic) as publisher:
        for number in range(count):
            publisher.publish("key", str(number).encode())
