"""A member cut off from Redis and RabbitMQ, or frozen, begins nothing once RabbitMQ may have admitted its successor."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest
from tests.consumers import channel
from tests.faults.consuming import SETTINGS, Received, a_topic, consuming, create_group, publish
from tests.faults.eventually import eventually
from tests.faults.proxy import FaultProxy

from cobalance import Delivery, Topic
from cobalance.lab.diary import HandlerRun
from cobalance.lab.member import MemberJob
from cobalance.lab.message import NumberedMessage
from cobalance.lab.process import MemberProcess
from cobalance.member.session import Phase
from cobalance.servers.choose import AMQP_URL, REDIS_URL

pytestmark = pytest.mark.anyio


@pytest.fixture
def amqp(amqp_url: str) -> Iterator[FaultProxy]:
    """A proxy in front of the shared RabbitMQ."""
    with FaultProxy(urlsplit(amqp_url).port or 0) as proxy:
        yield proxy


@pytest.fixture
def redis(redis_url: str) -> Iterator[FaultProxy]:
    """A proxy in front of the shared Redis."""
    with FaultProxy(urlsplit(redis_url).port or 0) as proxy:
        yield proxy


class Endless(Received):
    """A handler that works until it is cancelled, and the times of that."""

    began = ended = 0.0

    async def handle(self, delivery: Delivery) -> None:
        self.began = anyio.current_time()
        await super().handle(delivery)
        try:
            await anyio.sleep_forever()
        finally:
            self.ended = anyio.current_time()


async def test_a_member_that_both_lost_stops_before_its_successor_begins(
    amqp_url: str, redis_url: str, amqp: FaultProxy, redis: FaultProxy
) -> None:
    """RabbitMQ, which would serve the next consumer at once, no longer hears the member and drops it, but can still be
    heard itself; the drop does not get through.
    """
    here, there = Endless(), Endless()
    with a_topic(amqp_url, partitions=1, queue_type="quorum") as topic:
        name = create_group(redis_url)
        async with consuming(name, topic, amqp.through(amqp_url), redis.through(redis_url), here) as group:
            publish(amqp_url, topic, "message")
            await here.wait("message")
            redis.black_hole()
            await eventually(lambda: group.membership.engine.session.phase is Phase.CUT)
            assert not here.ended, "RabbitMQ guards it"
            async with consuming(name, topic, amqp_url, redis_url, there):
                amqp.lose_farewells()
                amqp.black_hole("to_server")
                await there.wait("message")
                assert 0.0 < here.ended < there.began
                there_token, here_token = there.tokens[topic.queue_names[0]], here.tokens[topic.queue_names[0]]
                assert max(here_token) < min(there_token)
                redis.heal()
                amqp.heal()
                await eventually(
                    lambda: (
                        group.partitions.connection.is_open and group.membership.engine.session.phase is Phase.ACTIVE
                    )
                )


async def test_who_is_not_sure_begins_nothing_and_loses_nothing(
    amqp_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delayed for longer than its session may last, it waits for news; if it has lost nothing, it continues where it
    was.
    """
    received, messages = Received(), tuple(f"message-{number}" for number in range(20))
    with a_topic(amqp_url, partitions=1) as topic:
        async with consuming(create_group(redis_url), topic, amqp_url, redis_url, received) as group:
            (worker,) = group.partitions.workers.values()
            monkeypatch.setattr(group.partitions, "is_sure", lambda **_: False)
            publish(amqp_url, topic, *messages)
            await eventually(lambda: worker._put_off)
            assert not received.bodies
            monkeypatch.undo()
            await received.wait(*messages)
            assert tuple(received.bodies) == messages


@pytest.mark.thorough
async def test_who_wakes_up_begins_nothing(amqp_url: str, redis_url: str, tmp_path: Path) -> None:
    """A process that was frozen until another member had its partition has its next messages at hand, and leaves them
    alone.
    """
    name, there = create_group(redis_url), Received()
    with a_topic(amqp_url, partitions=1) as topic:
        async with (
            frozen_in_the_middle(amqp_url, redis_url, name, topic, tmp_path) as it,
            consuming(name, topic, amqp_url, redis_url, there),
        ):
            await eventually(lambda: there.bodies)
            woken_ns = time.monotonic_ns()
            it.thaw()
            await eventually(lambda: _begun(it) and any(entry.kind == "lost" for entry in it.diary.entries))
            assert max(run.begun_ns for run in _begun(it)) < woken_ns


@asynccontextmanager
async def frozen_in_the_middle(
    amqp_url: str, redis_url: str, name: str, topic: Topic, folder: Path
) -> AsyncIterator[MemberProcess]:
    """It has begun a few of many messages."""
    with channel(amqp_url) as publishing:
        for number in range(500):
            publishing.basic_publish("", topic.queue_names[0], NumberedMessage("key", number, 5).body())
    job = MemberJob(group=name, topic=topic.name, settings=SETTINGS, prefetch=10)
    it = MemberProcess("frozen", job, folder, {REDIS_URL: redis_url, AMQP_URL: amqp_url})
    try:
        it.join()
        await eventually(lambda: len(_begun(it)) > 5)
        it.freeze()
        yield it
    finally:
        it.close()


def _begun(process: MemberProcess) -> list[HandlerRun]:
    process.diary.look()
    return process.diary.runs
