"""The messages in flight that ``describe`` shows: correct, or unknown."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import anyio
import pika
import pytest
from tests.cli_process import cobalance
from tests.consumers import WITHIN_S, Place, new_topic, place, until

from cobalance import Delivery, GroupAdmin, Publisher, Topic
from cobalance.coordinator.in_flight import InFlight
from cobalance.rabbitmq.partition.acks import AckTracker
from cobalance.rabbitmq.partition.arrivals import MOST, STEP_MS, Arrivals
from cobalance.rabbitmq.partition.backlog import Backlog

pytestmark = pytest.mark.anyio

NOWHERE = "http://guest:guest@127.0.0.1:9"


@pytest.fixture
def here(amqp_url: str, redis_url: str) -> Iterator[Place]:
    """A group on real servers."""
    with place(amqp_url, redis_url) as made:
        yield made


@pytest.fixture
def topic(amqp_url: str) -> Iterator[Topic]:
    with new_topic(amqp_url, 2) as made:
        yield made


def described(here: Place, management_url: str = NOWHERE) -> tuple[dict[str, Any], str]:
    """Rows by partition, and standard error."""
    urls = {
        "COBALANCE_REDIS_URL": here.redis_url,
        "COBALANCE_AMQP_URL": here.amqp_url,
        "COBALANCE_MANAGEMENT_URL": management_url,
    }
    outcome = cobalance("group", "describe", here.group, "--json", environment=urls)
    return {row["partition"]: row for row in json.loads(outcome.out)}, outcome.err


async def test_a_stuck_handler_shows(here: Place, topic: Topic) -> None:
    """With everything prefetched, and its age; without the management API. The handler is in a thread that nobody can
    stop.
    """
    begun, go_on = threading.Event(), threading.Event()

    def hang(_: Delivery) -> None:
        begun.set()
        go_on.wait(WITHIN_S)

    async with here.member(topic, hang, prefetch=3) as group:
        await group.wait_held(*topic.queue_names)
        here.publish(topic, 1, 2, 3, 4, 5)
        await anyio.to_thread.run_sync(begun.wait)
        await until(lambda: described(here)[0]["0"]["in_flight"] == 3)
        rows, said = await anyio.to_thread.run_sync(described, here)
        again, _ = await anyio.to_thread.run_sync(described, here)
        go_on.set()
        await until(lambda: described(here)[0]["0"]["lag"] == 0)

    assert (rows["0"]["lag"], rows["0"]["in_flight"]) == (5, 3)
    assert 0 < rows["0"]["oldest_ms"] < again["0"]["oldest_ms"]
    assert (rows["1"]["lag"], rows["1"]["in_flight"], rows["1"]["oldest_ms"]) == (0, 0, None)
    assert said == ""


async def test_what_nobody_tells_is_unknown_and_never_none(
    here: Place, topic: Topic, rabbitmq_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member of an older version, or a frozen one, does not answer; the management API knows the number, but not the
    age.
    """
    monkeypatch.setattr("cobalance.group.engine.Engine._report_in_flight", lambda _: None)
    gate = anyio.Event()

    async def wait(_: Delivery) -> None:
        await gate.wait()

    async with here.member(topic, wait, prefetch=3) as group:
        await group.wait_held(*topic.queue_names)
        here.publish(topic, 1, 2, 3, 4, 5)
        rows, said = await anyio.to_thread.run_sync(described, here)
        assert [rows["0"][name] for name in ("lag", "in_flight", "oldest_ms")] == [None, None, None]
        assert "IN-FLIGHT and LAG of 2 queues are unknown" in said
        await until(lambda: described(here, rabbitmq_server.management_url)[0]["0"]["in_flight"] == 3)
        rows, said = await anyio.to_thread.run_sync(described, here, rabbitmq_server.management_url)
        assert [rows["0"][name] for name in ("lag", "in_flight", "oldest_ms")] == [5, 3, None]
        gate.set()


async def test_what_another_connection_has_is_unknown_and_never_none(
    here: Place, topic: Topic, rabbitmq_server: Any
) -> None:
    """Such as a member that has lost Redis, and goes on. The member that has been granted the queue waits, and does not know."""
    name, stranger = topic.queue_names[0], pika.BlockingConnection(pika.URLParameters(rabbitmq_server.url))
    here.publish(topic, 1, 2, 3)
    channel = stranger.channel()
    channel.basic_qos(prefetch_count=2)
    channel.basic_consume(name, lambda *_: None, exclusive=True)
    async with here.member(topic, lambda _: None) as group:
        await group.wait_held(*topic.queue_names)
        await until(lambda: "another connection consumes" in described(here)[1])
        rows, said = await anyio.to_thread.run_sync(described, here)
        assert (rows["0"]["lag"], rows["0"]["in_flight"]) == (None, None)
        assert name in said
        await until(lambda: described(here, rabbitmq_server.management_url)[0]["0"]["in_flight"] == 2)
        rows, _ = await anyio.to_thread.run_sync(described, here, rabbitmq_server.management_url)
        assert (rows["0"]["lag"], rows["1"]["lag"]) == (3, 0)
        stranger.close()
        await until(lambda: described(here)[0]["0"]["lag"] == 0)


async def test_a_group_at_rest_has_nothing_in_flight(here: Place, topic: Topic) -> None:
    """Nobody consumes, so this is certain."""
    async with here.member(topic, lambda _: None) as group:
        await group.wait_held(*topic.queue_names)
    here.publish(topic, 1)
    rows, said = await anyio.to_thread.run_sync(described, here)
    assert (rows["0"]["lag"], rows["0"]["in_flight"]) == (1, 0)
    assert "unknown" not in said


async def test_members_answer_within_a_moment(here: Place, topic: Topic) -> None:
    """The request does not wait for a heartbeat."""
    async with here.member(topic, lambda _: None) as one, here.member(topic, lambda _: None) as two:
        await one.wait_held()
        await two.wait_held()
        ask = partial(here.coordinator.ask_in_flight, patience_ms=20_000)  # it returns when all have answered
        told = await anyio.to_thread.run_sync(ask)
        while not all(it.of(topic.queue_names[0]) for it in told.values()):  # the holder is about to consume
            told = await anyio.to_thread.run_sync(ask)
    assert set(told) == {one.member, two.member}
    assert {it.of(topic.queue_names[0]) for it in told.values()} == {InFlight(0, 0)}


def test_arrivals_know_the_oldest_without_keeping_each() -> None:
    """One entry for a burst of ten thousand; none for what is acknowledged."""
    arrivals = Arrivals()
    for number in range(1, 10_001):
        arrivals.note(number, 0, now=5)
    assert arrivals.since(0) == 5
    assert len(arrivals._marks) == 1
    arrivals.note(10_001, 10_000, now=5 + STEP_MS)
    assert arrivals.since(10_000) == 5 + STEP_MS


@pytest.mark.parametrize("replies", [False, True])
def test_one_that_waits_is_the_oldest_though_others_pass_it(*, replies: bool) -> None:
    """Those are acknowledged one by one, and do not cost memory for as long as it waits."""
    acks = AckTracker(ahead=not replies)
    backlog = Backlog(acks)
    for number in range(1, 10_001):
        backlog.admit(number, now=number * STEP_MS)
        backlog.take(1)
        if number > 1:
            acks.done(number)
        elif replies:
            acks.reply(1)
        acks.flush()
    assert backlog.in_flight(20_000 * STEP_MS) == InFlight(1, 19_999 * STEP_MS)
    assert len(backlog._arrivals._marks) <= MOST
    acks.gone(1)
    acks.flush()
    backlog.admit(10_001, now=15_000 * STEP_MS)
    assert backlog.in_flight(20_000 * STEP_MS) == InFlight(1, 5_000 * STEP_MS)


async def test_what_has_moved_since_it_was_looked_at_is_asked_of_its_present_holder(here: Place, topic: Topic) -> None:
    """Its former holder is there, and rightly says that it has nothing of it in flight."""
    begun, go_on = threading.Event(), threading.Event()

    def hang(_: Delivery) -> None:
        begun.set()
        go_on.wait(WITHIN_S)

    with GroupAdmin(here.redis_url, amqp_url=here.amqp_url, management_url=NOWHERE) as admin:
        async with here.member(topic, hang) as first:
            await first.wait_held(*topic.queue_names)
            before = await anyio.to_thread.run_sync(admin.describe, here.group)
            async with here.member(topic, hang) as second:
                (moved,) = await second.wait_held()
                number = topic.queue_names.index(moved.resource)
                with Publisher(here.amqp_url, topic) as publisher:
                    publisher.publish(None, b"x", partition=number)
                await anyio.to_thread.run_sync(begun.wait)
                found = await anyio.to_thread.run_sync(admin.backlogs, before)
                with anyio.fail_after(WITHIN_S):
                    while found[moved.resource].in_flight is None:  # on a busy machine it may not answer in time
                        found = await anyio.to_thread.run_sync(admin.backlogs, before)
                go_on.set()
    assert (found[moved.resource].lag, found[moved.resource].in_flight) == (1, 1)
