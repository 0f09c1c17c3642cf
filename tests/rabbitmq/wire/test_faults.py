"""RabbitMQ restarts, drops connections, runs out of memory: members and publishers recover, and lose nothing."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import pytest
from tests.consumers import channel
from tests.faults.consuming import SETTINGS, Received, a_topic, consumers, consuming, create_group, publish
from tests.faults.eventually import eventually
from tests.faults.proxy import FaultProxy, proxy_to

from cobalance import AsyncPublisher, Publisher, servers
from cobalance.backoff import Backoff
from cobalance.errors import PublishFailed, Unreachable
from cobalance.journal import Journal
from cobalance.rabbitmq import read_topic
from cobalance.rabbitmq.wire.connection import BrokerConnection

pytestmark = pytest.mark.anyio

WITHIN_S = 60.0
BEFORE = tuple(f"before-{number}" for number in range(20))
AFTER = tuple(f"after-{number}" for number in range(20))


@pytest.fixture
def amqp(amqp_url: str) -> Iterator[FaultProxy]:
    """A proxy in front of the shared RabbitMQ."""
    with proxy_to(amqp_url) as proxy:
        yield proxy


@pytest.fixture
def redis(redis_url: str) -> Iterator[FaultProxy]:
    """A proxy in front of the shared Redis."""
    with proxy_to(redis_url) as proxy:
        yield proxy


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"], indirect=True)
@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
async def test_a_dropped_connection(amqp_url: str, redis_url: str, amqp: FaultProxy, queue_type: str) -> None:
    """The member comes back to the same partitions under the same tokens, and nothing is lost."""
    received = Received()
    with a_topic(amqp_url, queue_type=queue_type) as topic:
        async with consuming(create_group(redis_url), topic, amqp.through(amqp_url), redis_url, received) as group:
            publish(amqp_url, topic, *BEFORE)
            await received.wait(*BEFORE)
            amqp.reset()
            publish(amqp_url, topic, *AFTER)
            await received.wait(*AFTER)
            assert all(len(tokens) == 1 for tokens in received.tokens.values())
            assert len(group.tenures) == topic.partitions


async def test_a_connection_cut_in_the_middle_of_a_frame(amqp_url: str, redis_url: str, amqp: FaultProxy) -> None:
    """Half an ack, or half a delivery, is no ack and no delivery."""
    received = Received()
    with a_topic(amqp_url) as topic:
        async with consuming(create_group(redis_url), topic, amqp.through(amqp_url), redis_url, received):
            for direction in ("to_server", "to_client"):
                amqp.cut_after(50, direction)
                bodies = [f"{direction}-{number}" for number in range(20)]
                publish(amqp_url, topic, *bodies)
                await until_cut(amqp)
                amqp.heal()
                await received.wait(*bodies)


async def until_cut(proxy: FaultProxy) -> None:
    """Waits until the proxy has dropped its connections."""
    await eventually(lambda: not proxy.connections)


async def test_a_connection_that_goes_silent_is_noticed_by_its_heartbeats(
    amqp_url: str, redis_url: str, amqp: FaultProxy
) -> None:
    """One direction drops everything: no end is reported, and yet the member goes on once the network is back."""
    received = Received()
    with a_topic(amqp_url) as topic:
        async with consuming(create_group(redis_url), topic, amqp.through(amqp_url), redis_url, received) as group:
            amqp.black_hole("to_client")
            await until_closed(group.partitions.connection)
            amqp.heal()
            publish(amqp_url, topic, *AFTER)
            await received.wait(*AFTER)


async def until_closed(connection: BrokerConnection) -> None:
    """Waits until the loss is noticed."""
    await eventually(lambda: not connection.is_open)


async def test_redis_confirms_before_anything_is_consumed_again(
    amqp_url: str, redis_url: str, amqp: FaultProxy, redis: FaultProxy
) -> None:
    """While Redis is unreachable, the connection is restored and waits; RabbitMQ has released the queues meanwhile."""
    received = Received()
    with a_topic(amqp_url, partitions=1) as topic:
        name = create_group(redis_url)
        async with consuming(name, topic, amqp.through(amqp_url), redis.through(redis_url), received) as group:
            publish(amqp_url, topic, *BEFORE)
            await received.wait(*BEFORE)
            redis.black_hole()
            amqp.reset()
            await eventually(lambda: group.membership.engine._unconfirmed)
            assert group.partitions.connection.is_open
            for _ in range(10):  # each a round trip to the broker, and a subscription takes one
                assert await anyio.to_thread.run_sync(consumers, amqp_url, topic.queue_names[0]) == 0
            redis.heal()
            publish(amqp_url, topic, *AFTER)
            await received.wait(*AFTER)


async def test_a_partition_taken_during_the_outage_is_not_consumed_again(
    amqp_url: str, redis_url: str, amqp: FaultProxy
) -> None:
    """A partition revoked while there is no connection is handed over at once: there is nothing to finish."""
    here, there = Received(), Received()
    with a_topic(amqp_url, partitions=2) as topic:
        name = create_group(redis_url)
        async with consuming(name, topic, amqp.through(amqp_url), redis_url, here) as first:
            amqp.refuse()
            amqp.reset()
            await until_closed(first.partitions.connection)
            async with consuming(name, topic, amqp_url, redis_url, there, holds=1) as second:
                (moved,) = second.tenures
                await eventually(lambda: len(first.tenures) == 1)
                amqp.heal()
                publish(amqp_url, topic, *AFTER)
                await eventually(lambda: set(AFTER) <= set(here.bodies + there.bodies))
                assert set(there.tokens) == {moved}
                assert moved not in here.tokens


async def test_who_has_no_rabbitmq_for_too_long_gives_its_partitions_to_who_has(
    amqp_url: str, redis_url: str, amqp: FaultProxy
) -> None:
    """No other member would work them as long as this one is a member; the journal says why."""
    here, there = Received(), Received()
    with a_topic(amqp_url, partitions=2) as topic:
        name = create_group(redis_url)
        async with (
            consuming(name, topic, amqp.through(amqp_url), redis_url, here, unconnected_ms=500) as first,
            consuming(name, topic, amqp_url, redis_url, there, holds=1) as second,
        ):
            await eventually(lambda: len(first.tenures) == 1)
            amqp.refuse()
            amqp.reset()
            await eventually(lambda: len(second.tenures) == topic.partitions)
            publish(amqp_url, topic, *AFTER)
            await there.wait(*AFTER)
            assert not here.bodies
            entries = list(Journal(second.membership.coordinator.transport, name).entries())
            given_up, *again = (it.reason for it in entries if it.kind == "abandoned")
            assert (given_up, set(again) <= {"still_unconnected"}) == ("unconnected", True)
            assert "halted" not in {it.kind for it in entries}
            amqp.heal()
            await eventually(lambda: first.partitions.connection.is_open)


async def test_the_least_patience_without_rabbitmq_does_not_end_while_it_is_there(
    amqp_url: str, redis_url: str
) -> None:
    """A member that is granted a partition waits a tenth of it, which is not nothing."""
    here = Received()
    with a_topic(amqp_url, partitions=1) as topic:
        publish(amqp_url, topic, *BEFORE)
        async with consuming(create_group(redis_url), topic, amqp_url, redis_url, here, unconnected_ms=1):
            await here.wait(*BEFORE)


@pytest.mark.thorough
async def test_while_nobody_has_rabbitmq_partitions_rest(
    amqp_url: str, redis_url: str, amqp: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are tried ever more rarely, so that the journal does not fill with moves among members of which none can work
    them. The first who has it again works all of them at once.
    """
    monkeypatch.setattr("cobalance.rabbitmq.wire.reconnection.BACKOFF_MS", Backoff(50, 200))
    here, there, long_ms = Received(), Received(), 4 * SETTINGS.session_timeout_ms
    with a_topic(amqp_url, partitions=2) as topic, proxy_to(amqp_url) as another:
        name, most = create_group(redis_url), {"unconnected_ms": 1_000}
        async with (
            consuming(name, topic, amqp.through(amqp_url), redis_url, here, **most) as first,
            consuming(name, topic, another.through(amqp_url), redis_url, there, holds=1, **most),
        ):
            await eventually(lambda: len(first.tenures) == 1)
            for proxy in (amqp, another):
                proxy.refuse()
                proxy.reset()
            journal = Journal(first.membership.coordinator.transport, name)

            def rests_for_long() -> bool:
                return all(
                    row.paused_until_ms - row.since_ms >= long_ms for row in first.membership.coordinator.resources()
                )

            await eventually(rests_for_long)
            moves = Counter(it.resource for it in journal.entries() if it.kind == "granted")
            assert max(moves.values()) <= 8  # one for each pause, and those of before
            until_ms = min(row.paused_until_ms for row in first.membership.coordinator.resources())
            amqp.heal()
            publish(amqp_url, topic, *AFTER)
            await here.wait(*AFTER)
            assert int(first.membership.coordinator.state()["heard"]) < until_ms
            another.heal()


async def test_who_loses_rabbitmq_again_and_again_keeps_what_it_consumed_for_as_long_as_it_may(
    amqp_url: str, redis_url: str, amqp: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """The tenth of that is for what it is granted meanwhile. A RabbitMQ that stops may accept a connection once more, on
    which nothing is consumed.
    """
    received = Received()
    with a_topic(amqp_url, partitions=1) as topic:
        name, (queue,) = create_group(redis_url), topic.queue_names
        async with consuming(name, topic, amqp.through(amqp_url), redis_url, received, unconnected_ms=4_000) as group:
            publish(amqp_url, topic, *BEFORE)
            await received.wait(*BEFORE)
            lost_ms = int(group.membership.coordinator.state()["heard"])
            amqp.refuse()
            amqp.reset()
            await until_closed(group.partitions.connection)
            with channel(amqp_url) as other:
                other.basic_consume(queue, lambda *_: None, exclusive=True)
                amqp.heal()
                await eventually(lambda: f"another connection still has queue {queue}" in caplog.text)
                amqp.refuse()
                amqp.reset()
            journal = Journal(group.membership.coordinator.transport, name)
            await eventually(lambda: [it for it in journal.entries() if it.kind == "abandoned"])
            given_up = next(it for it in journal.entries() if it.kind == "abandoned")
            assert given_up.reason == "unconnected"
            assert given_up.at_ms - lost_ms >= 4_000
            amqp.heal()
            await eventually(lambda: group.partitions.connection.is_open)


async def test_who_has_rabbitmq_only_for_moments_gives_its_partitions_to_who_has_it_for_longer(
    amqp_url: str, redis_url: str, amqp: FaultProxy
) -> None:
    """Each connection lasts until a message is on its way."""
    here, there, large = Received(), Received(), "x" * 100_000
    with a_topic(amqp_url, partitions=2) as topic:
        name = create_group(redis_url)
        async with (
            consuming(name, topic, amqp.through(amqp_url), redis_url, here, unconnected_ms=2_000) as first,
            consuming(name, topic, amqp_url, redis_url, there, holds=1) as second,
        ):
            await eventually(lambda: len(first.tenures) == 1)
            (flaps,) = first.tenures
            amqp.cut_after(len(large) // 2, "to_client")
            publish(amqp_url, topic, *(large + str(number) for number in range(8)))
            await eventually(lambda: flaps in second.tenures)
            await eventually(lambda: len(set(there.bodies)) == 8)
            assert not here.bodies
            journal = Journal(second.membership.coordinator.transport, name)
            given_up = next(it for it in journal.entries() if it.kind == "abandoned")
            assert given_up.reason == "unconnected"
            amqp.heal()


async def test_several_hosts_in_the_url(amqp_url: str, redis_url: str, amqp: FaultProxy) -> None:
    """Hosts that are down are skipped, at first and when the one in use goes down; publishers do the same."""
    received = Received()
    parts = urlsplit(amqp_url)
    with ExitStack() as stack, a_topic(amqp_url) as topic:
        other, gone = stack.enter_context(proxy_to(amqp_url)), stack.enter_context(proxy_to(amqp_url))
        gone.close()
        hosts = ",".join(f"{parts.hostname}:{port}" for port in (gone.port, amqp.port, other.port))
        url = f"amqp://{parts.netloc.rpartition('@')[0]}@{hosts}{parts.path}"
        async with consuming(create_group(redis_url), topic, url, redis_url, received) as group:
            for down, up in ((amqp, other), (other, amqp)):
                up.heal()
                down.refuse()
                down.reset()
                bodies = [f"without-{down.port}-{number}" for number in range(20)]
                await anyio.to_thread.run_sync(publish, url, topic, *bodies)
                await received.wait(*bodies)
                assert str(up.port) in group.partitions.connection.place
        down.heal()
        up.refuse()
        down.refuse()
        with pytest.raises(Unreachable, match="None of the 3 hosts"):
            await anyio.to_thread.run_sync(publish, url, topic, "nowhere")


async def test_a_restart_of_rabbitmq(private_rabbitmq: servers.OwnRabbitMQ, redis_url: str) -> None:
    """Consumers and publishers recover by themselves; every message whose publish was confirmed is delivered."""
    server, received = private_rabbitmq, Received()
    url = server.url
    with a_topic(url) as topic:
        async with consuming(create_group(redis_url), topic, url, redis_url, received) as group:
            tokens = {name: it.token for name, it in group.tenures.items()}
            async with AsyncPublisher(url, topic) as publisher:
                for body in BEFORE:
                    await publisher.publish(body, body.encode())
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(restart, server)
                    await until_closed(group.partitions.connection)
                    await publish_somehow(publisher, *AFTER)
                await received.wait(*BEFORE, *AFTER)
            assert {name: it.token for name, it in group.tenures.items()} == tokens


async def restart(server: servers.OwnRabbitMQ) -> None:
    """Restarts the server, which takes seconds."""
    await anyio.to_thread.run_sync(server.restart)


async def publish_somehow(publisher: AsyncPublisher, *bodies: str) -> None:
    """Retries a publish whose outcome is unknown, as a program would; without a connection, it waits for one."""
    for body in bodies:
        while True:
            try:
                await publisher.publish(body, body.encode())
            except PublishFailed:
                continue
            break


@pytest.mark.thorough
async def test_a_memory_alarm_blocks_publishers_and_no_consumer(
    private_rabbitmq: servers.OwnRabbitMQ, redis_url: str
) -> None:
    """A publish waits for the alarm to end; meanwhile queued messages are consumed, which ends most alarms."""
    server, received = private_rabbitmq, Received()
    url = server.url
    with a_topic(url) as topic, Publisher(url, topic) as publisher:
        for body in BEFORE:
            publisher.publish(body, body.encode())
        server.control("set_vm_memory_high_watermark", "0.00000001")
        try:
            outcomes = [publisher.publish(body, body.encode(), wait=False) for body in AFTER]
            async with consuming(create_group(redis_url), topic, url, redis_url, received) as group:
                await received.wait(*BEFORE)
                assert publisher._channel._connection.blocked
                assert not any(outcome.done() for outcome in outcomes)
                assert group.partitions.connection.is_open
                server.control("set_vm_memory_high_watermark", "0.4")
                assert [await anyio.to_thread.run_sync(outcome.result, WITHIN_S) for outcome in outcomes]
                await received.wait(*AFTER)
        finally:
            server.control("set_vm_memory_high_watermark", "0.4")


@pytest.mark.parametrize("paused", [False, True])
async def test_leaving_does_not_wait_for_a_rabbitmq_that_is_gone(
    amqp_url: str, redis_url: str, amqp: FaultProxy, paused: bool
) -> None:
    """A program can end while it is reconnecting; partitions that wait to be resumed do not wait for it then."""
    before = set(threading.enumerate())
    with a_topic(amqp_url) as topic:
        with anyio.fail_after(60):
            name = create_group(redis_url)
            async with consuming(name, topic, amqp.through(amqp_url), redis_url, Received()) as group:
                if paused:
                    group.pause(*topic.queue_names)
                amqp.refuse()
                amqp.reset()
                await until_closed(group.partitions.connection)
                await eventually(lambda: all(it._consumer is None for it in group.partitions.workers.values()))
        assert not group.given_up
        await eventually(
            lambda: not [it for it in set(threading.enumerate()) - before if it.name != "cobalance-worker"]
        )


class Stumbling(BrokerConnection):
    """Fails as pika does once in hundreds of times, when a server resets a connection just after it was made."""

    def _start(self, *_: object) -> None:
        raise ValueError("Expected connected socket, but getpeername() failed")


def test_whatever_pika_stumbles_over_is_a_server_that_cannot_be_reached() -> None:
    """Otherwise a member that reconnects would end with an unknown error of pika's."""
    with pytest.raises(Unreachable, match="getpeername"):
        Stumbling("amqp://guest:guest@127.0.0.1:1/", "group/member").connect()


def test_the_same_when_topics_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every member does that every few seconds, and the next look may succeed."""

    def stumble(*_: object) -> None:
        raise ValueError("Expected connected socket, but getpeername() failed")

    monkeypatch.setattr("cobalance.rabbitmq.topics.admin.PatientConnection", stumble)
    with pytest.raises(Unreachable, match="getpeername"):
        read_topic("amqp://guest:guest@127.0.0.1:1/", "orders")


def test_a_job_that_fails_takes_no_other_with_it(amqp_url: str) -> None:
    """Several partitions may be about to subscribe: each must be notified, or it would wait forever."""
    heard = queue.SimpleQueue[str]()
    connection = BrokerConnection(amqp_url, "group/member", on_lost=lambda _: heard.put("lost"))
    connection.connect()

    def together() -> None:
        connection.submit(lambda: 1 // 0)
        connection.submit(lambda: heard.put("the other"))

    connection.submit(together)
    assert [heard.get(timeout=WITHIN_S) for _ in range(2)] == ["the other", "lost"]


@pytest.mark.thorough
def test_a_conversation_that_is_cut_anywhere(amqp_url: str, amqp: FaultProxy) -> None:
    """Looking at a topic succeeds or reports a lost RabbitMQ, never a refusal or another kind of server."""
    url, failed = amqp.through(amqp_url), 0
    with a_topic(amqp_url, partitions=2) as topic:
        for count in range(100, 10_000, 30):  # the close is longer than a step, so that it is cut, too
            amqp.cut_after(count)
            try:
                read_topic(url, topic.name)
                break
            except Unreachable:  # and nothing worse: a publisher that comes back retries
                failed += 1
            amqp.heal()
        assert failed > 3
        assert read_topic(url, topic.name).partitions == 2
