"""A handler that blocks its event loop costs the membership: what is healthy moves once, and is not taken for poison."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import pytest
import sniffio
from tests.consumers import WITHIN_S, Place, bodies_in, new_topic, until

from cobalance.errors import GroupFailed
from cobalance.rabbitmq import Delivery, Topic
from cobalance.settings import GroupSettings, MemberSettings

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

SETTINGS = GroupSettings(
    session_timeout_ms=3_000, heartbeat_interval_ms=250, revocation_timeout_ms=60_000, rejoin_grace_ms=0, gather_ms=0
)
OWN = MemberSettings(max_processing_ms=10_000, drain_timeout_ms=500)
"""Longer than somebody is avoided who has given something up, which is for three sessions."""


async def ignore(_: Delivery) -> None: ...


def members(here: Place) -> int:
    return int(here.coordinator.state()["members"])


@asynccontextmanager
async def blocked_member(here: Place, topic: Topic) -> AsyncIterator[list[GroupFailed]]:
    """A member in an event loop of its own, which its handler blocks to the end of this; then, what it raised."""
    begun, goes_on, raised = threading.Event(), threading.Event(), list[GroupFailed]()

    async def block(_: Delivery) -> None:
        begun.set()
        goes_on.wait(2 * WITHIN_S)

    async def consume() -> None:
        async with here.member(topic, block, settings=SETTINGS, member=OWN) as member:
            share = len(topic.queue_names) // members(here)
            await until(lambda: len(member.tenures) == share)
            here.publish(topic, "x", partition=topic.queue_names.index(min(member.tenures)))
            await member.wait_left()

    backend = sniffio.current_async_library()

    def run() -> None:
        try:
            anyio.run(consume, backend=backend)
        except GroupFailed as error:
            raised.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.to_thread.run_sync, run)
        try:
            assert await anyio.to_thread.run_sync(begun.wait, WITHIN_S)
            yield raised
        finally:
            goes_on.set()


@pytest.mark.thorough
async def test_what_a_blocked_loop_held_moves_to_another_member_once(here: Place) -> None:
    """It stays there: who is given no more of it need not give that up in turn."""
    with new_topic(here.amqp_url, 6) as topic:
        async with here.member(topic, ignore, settings=SETTINGS) as healthy:
            async with blocked_member(here, topic) as raised:
                await until(lambda: members(here) == 1 and len(healthy.tenures) == 6)
            asked_back = [entry for entry in here.journal("revoking") if entry.member == healthy.member]
    assert len(asked_back) == 3  # when the other one joined
    assert "its event loop has been blocked" in str(raised[0])


async def test_a_message_that_was_not_begun_is_not_given_up(here: Place) -> None:
    """The one before it has ended in its thread, while something else blocks the event loop."""
    own = MemberSettings(max_processing_ms=300, drain_timeout_ms=300)
    begun, blocked = threading.Event(), threading.Event()

    def handle(_: Delivery) -> None:
        begun.set()
        blocked.wait(WITHIN_S)

    async def consume(topic: Topic) -> None:
        async with here.member(
            topic, handle, settings=SETTINGS, member=own, on_error="dead_letter", max_in_flight_per_partition=1
        ):
            await anyio.to_thread.run_sync(begun.wait)
            blocked.set()
            while members(here):
                time.sleep(0.02)  # noqa: ASYNC251 -- it blocks the event loop

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2)
        with anyio.fail_after(WITHIN_S), pytest.raises(GroupFailed):
            await anyio.to_thread.run_sync(lambda: anyio.run(consume, topic))
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == []
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == ["2"]


@pytest.mark.thorough
async def test_what_a_blocked_loop_held_alone_is_worked_by_the_next_member_at_once(here: Place) -> None:
    """Nothing is paused: no handler has failed but the one that blocks."""
    with new_topic(here.amqp_url, 4) as topic:
        async with blocked_member(here, topic) as raised:
            await until(lambda: members(here) == 0)
        assert here.journal("halted") == []
        async with here.member(topic, ignore, settings=SETTINGS) as next_one:
            await until(lambda: len(next_one.tenures) == 4)
    assert "its event loop has been blocked" in str(raised[0])
