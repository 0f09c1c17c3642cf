"""Waits that would never end are refused, with advice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import anyio
import pytest
from tests.names import unique

from cobalance import BlockingGroup, Group, GroupSettings
from cobalance.errors import UsageError

pytestmark = pytest.mark.both_loops

SETTINGS = GroupSettings(
    session_timeout_ms=10_000, heartbeat_interval_ms=250, revocation_timeout_ms=10_000, gather_ms=0
)
WITHIN_S = 60.0


def make(*names: str, version: int | None = None) -> Group:
    """A member of its own group. Without names, others declare the list."""
    url = f"memory://{unique('waits')}"
    return Group("g", names or None, redis_url=url, settings=SETTINGS, resources_version=version)


@pytest.fixture
def other_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_stop_is_refused_in_another_event_loop(other_loop: asyncio.AbstractEventLoop) -> None:
    """The error says where to await it, and that works."""
    group = make("a")
    asyncio.run_coroutine_threadsafe(group.start(), other_loop).result(WITHIN_S)

    async def stop() -> None:
        with anyio.fail_after(WITHIN_S):
            await group.stop()

    with pytest.raises(UsageError, match="run_coroutine_threadsafe"):
        asyncio.run(stop())
    asyncio.run_coroutine_threadsafe(group.stop(), other_loop).result(WITHIN_S)
    asyncio.run(stop())  # awaiting it again does no harm


def test_stop_is_refused_once_the_event_loop_of_start_does_not_run() -> None:
    """As in a program that calls `run_until_complete` on different loops."""
    group, loop = make("a"), asyncio.new_event_loop()
    loop.run_until_complete(group.start())

    async def stop() -> None:
        with anyio.fail_after(WITHIN_S):
            await group.stop()

    with pytest.raises(UsageError, match="another event loop"):
        asyncio.run(stop())
    loop.run_until_complete(group.stop())
    loop.close()


@pytest.mark.anyio
async def test_what_a_member_was_not_given_is_not_waited_for() -> None:
    """Such as a misspelt role, which it will never hold."""
    async with make("leader", "spare") as group:
        with anyio.fail_after(WITHIN_S):
            with pytest.raises(UsageError, match=r"not given 'laeder'.* was given 'leader', 'spare'"):
                async with group.leadership("laeder"):
                    pass
            with pytest.raises(UsageError, match="not given 'b'"):
                await group.wait_held("leader", "b")
            await group.wait_held("leader", "spare")


@pytest.mark.anyio
async def test_what_may_be_named_later_is_waited_for() -> None:
    """A list with a version may be replaced by another one."""
    async with make("a", version=1) as group:
        group.declare(["a", "b"], 2)
        with anyio.fail_after(WITHIN_S):
            await group.wait_held("b")


def test_a_program_with_threads_hears_of_it_too() -> None:
    """Without waiting for its timeout."""
    with (
        BlockingGroup("g", ["a"], redis_url=f"memory://{unique('waits')}", settings=SETTINGS) as group,
        pytest.raises(UsageError, match="not given 'z'"),
    ):
        group.wait_held("z", timeout=WITHIN_S)
