"""Redis loses its data, and some members know queues that were right once: nothing is taken from anybody for them."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import attrs
import pytest
import redis as redis_py
from tests.consumers import SETTINGS, Place, new_topic, note_looks, place, until

from cobalance.rabbitmq import Delivery, Topic, grow_topic
from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.rabbitmq.topics.layouts import LayoutSource
from cobalance.servers import OwnRedis
from cobalance.settings import MemberSettings

pytestmark = pytest.mark.anyio

MOVES = ("removing", "removed", "revoking", "released", "abandoned", "forced", "expired", "granted")


@pytest.fixture
def lost(private_redis: OwnRedis, amqp_url: str) -> Iterator[Place]:
    """A group whose Redis a test may empty."""
    with place(amqp_url, private_redis.url) as here:
        yield here


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...] | None]:
    """What each look for a topic's queues has found."""
    return note_looks(monkeypatch, LayoutSource)


def member(here: Place, source: Any, *, standby: bool = False, **options: Any) -> ConsumerGroup:
    async def handle(_: Delivery) -> None: ...

    own = MemberSettings(drain_timeout_ms=5_000, capacity=0 if standby else 1)
    return here.member(source, handle, refresh_ms=200, member=own, **options)


@asynccontextmanager
async def entered(*members: ConsumerGroup) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for it in members:
            await stack.enter_async_context(it)
        yield


async def grow(here: Place, topic: Topic, partitions: int) -> Topic:
    """Returns once all of it is worked."""
    grown = await anyio.to_thread.run_sync(grow_topic, here.amqp_url, topic.name, partitions)
    await until(lambda: names_worked(here, topic) == set(grown.queue_names))
    return grown


def names_worked(here: Place, topic: Topic) -> set[str]:
    """Of the topic."""
    rows = here.resources().items()
    return {name for name, row in rows if row.status == "held" and not row.removing and name.startswith(topic.name)}


def tokens(*members: ConsumerGroup) -> dict[str, int]:
    return {name: tenure.token for it in members for name, tenure in it.tenures.items()}


async def recovered(here: Place, looks: list[Any]) -> None:
    """Returns once the group has recovered, its list is known, and its queues were looked for twice since."""
    await until(lambda: here.journal("recovered") and all(row.known for row in here.coordinator.subscriptions()))
    looked = len(looks)
    await until(lambda: len(looks) >= looked + 2)
    await until(lambda: all(row.known for row in here.coordinator.subscriptions()))


async def nothing_has_moved(here: Place, looks: list[Any], before: dict[str, int], *members: ConsumerGroup) -> None:
    """Each holder keeps what it held, and nothing else is on the list."""
    await recovered(here, looks)
    assert [(entry.kind, entry.resource) for entry in here.journal(*MOVES)] == []
    assert tokens(*members) == before
    assert {name: row.status for name, row in here.resources().items()} == dict.fromkeys(before, "held")


def empty(server: OwnRedis) -> None:
    with redis_py.Redis.from_url(server.url) as admin:
        admin.flushall()


@pytest.mark.parametrize("mode", ["cooperative", "eager"])
@pytest.mark.thorough
async def test_a_topic_was_grown(lost: Place, private_redis: OwnRedis, looks: list[Any], mode: Any) -> None:
    """A standby that was granted none of its new partitions declared the old ones, before. A stream is worked beside it."""
    lost.coordinator.configure(mode=mode)
    with new_topic(lost.amqp_url, 2) as topic, new_topic(lost.amqp_url, 1, "stream") as stream:
        source = [topic, stream]
        options: Any = {"settings": attrs.evolve(SETTINGS, mode=mode)}
        a, b = member(lost, source, **options), member(lost, source, **options)
        async with entered(a, b, member(lost, source, standby=True, **options)):
            grown = await grow(lost, topic, 4)
            await until(lambda: set(tokens(a, b)) == {*grown.queue_names, *stream.queue_names})
            before = tokens(a, b)
            empty(private_redis)
            if mode == "cooperative":
                await nothing_has_moved(lost, looks, before, a, b)
            else:  # that all join is a change, at which everything is dealt again: once
                await recovered(lost, looks)
                await until(lambda: set(tokens(a, b)) == set(before))
                assert len(lost.journal("barrier")) == 1
                assert lost.journal("added", "removing", "removed") == []


@pytest.mark.thorough
async def test_a_topic_was_grown_twice(lost: Place, private_redis: OwnRedis, looks: list[Any]) -> None:
    """The last to declare its queues has gone; the one before it is still there."""
    with new_topic(lost.amqp_url, 2) as topic:
        former, worker, last = member(lost, topic, standby=True), member(lost, topic), member(lost, topic)
        async with entered(former, worker):
            assert former.membership.engine.session.is_head
            await grow(lost, topic, 3)
            async with entered(last):
                await until(lambda: has_become_head(last, instead_of=(former, worker)))
                grown = await grow(lost, topic, 4)
            await until(lambda: set(tokens(worker)) == set(grown.queue_names))
            before = tokens(worker)
            empty(private_redis)
            await nothing_has_moved(lost, looks, before, worker)


def has_become_head(it: ConsumerGroup, *, instead_of: tuple[ConsumerGroup, ...]) -> bool:
    """Whose heartbeat comes first is elected."""
    for other in instead_of:
        if other.membership.engine.session.is_head:
            other.membership.coordinator.step_down(other.member)
    return it.membership.engine.session.is_head


@pytest.mark.thorough
async def test_redis_is_as_before_the_growth(
    lost: Place, private_redis: OwnRedis, looks: list[Any], tmp_path: Path
) -> None:
    """Its list has the old partitions, and so has a member's. The new ones stay where they are."""
    with new_topic(lost.amqp_url, 2) as topic:
        a, b, standby = member(lost, topic), member(lost, topic), member(lost, topic, standby=True)
        async with entered(a, b, standby):
            await until(lambda: names_worked(lost, topic) == set(topic.queue_names))
            await anyio.to_thread.run_sync(private_redis.save)
            dump = private_redis.process.folder / "dump.rdb"  # type: ignore[union-attr]
            shutil.copy(dump, tmp_path)
            grown = await grow(lost, topic, 4)
            await until(lambda: set(tokens(a, b)) == set(grown.queue_names))
            before = tokens(a, b)
            await anyio.to_thread.run_sync(private_redis.kill)
            shutil.copy(tmp_path / "dump.rdb", dump)
            await anyio.to_thread.run_sync(private_redis.start)
            await recovered(lost, looks)
            await until(lambda: set(lost.resources()) == set(grown.queue_names))
            assert {it: token for it, token in tokens(a, b).items() if it in grown.queue_names} == before
            assert {entry.resource for entry in lost.journal(*MOVES)}.isdisjoint(grown.queue_names)
