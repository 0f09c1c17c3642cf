"""``async with`` that one task enters and another one leaves, as async fixtures and exit stacks do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import trio
from tests.consumers import new_topic, until
from tests.names import unique

from cobalance import AsyncPublisher, Group
from cobalance.errors import UsageError
from cobalance.settings import GroupSettings

SETTINGS = GroupSettings(
    session_timeout_ms=60_000, heartbeat_interval_ms=250, revocation_timeout_ms=60_000, gather_ms=0
)


def test_it_leaves_and_names_what_is_for_that() -> None:
    """The next member gets everything at once."""
    url = f"memory://{unique('elsewhere')}"

    async def fixture() -> AsyncIterator[Group]:
        async with Group("g", ["r"], redis_url=url, settings=SETTINGS) as group:
            await group.wait_held("r")
            yield group

    async def is_free() -> None:
        async with asyncio.timeout(30), Group("g", ["r"], redis_url=url, settings=SETTINGS) as group:
            await group.wait_held("r")

    with asyncio.Runner() as runner:
        steps: Any = fixture()
        group = runner.run(steps.__anext__())
        with pytest.raises(UsageError, match=r"start\(\) .*stop\(\)"):
            runner.run(steps.__anext__())
        assert group.failed is None
        runner.run(is_free())
        assert asyncio.all_tasks(runner.get_loop()) == set()


def test_in_trio_it_names_that_too() -> None:
    """Which would have the task wait that entered it, and go on there instead."""
    url, entered = f"memory://{unique('elsewhere')}", trio.Event()
    left: list[str] = []

    async def enter(group: Group) -> None:
        await group.__aenter__()
        await group.wait_held("r")
        entered.set()
        await trio.sleep_forever()

    async def main() -> None:
        group = Group("g", ["r"], redis_url=url, settings=SETTINGS)
        with trio.fail_after(60):
            async with trio.open_nursery() as tasks:
                tasks.start_soon(enter, group)
                await entered.wait()
                with pytest.raises(UsageError, match=r"start\(\) .*stop\(\)"):
                    await group.__aexit__(None, None, None)
                left.append(group.health.state)
                tasks.cancel_scope.cancel()

    async def inherit() -> None:
        with trio.fail_after(1.5):
            async with Group("g", ["r"], redis_url=url, settings=SETTINGS) as heir:
                await heir.wait_held("r")

    trio.run(main)
    assert left == ["left"]
    trio.run(inherit)


def test_what_the_program_raised_goes_first() -> None:
    """From the body, or from work."""

    async def work(_: object) -> None:
        raise KeyError("work")

    async def fixture(stack: AsyncExitStack) -> Group:
        url = f"memory://{unique('elsewhere')}"
        return await stack.enter_async_context(Group("g", ["r"], redis_url=url, settings=SETTINGS, work=work))

    async def leave(stack: AsyncExitStack, group: Group) -> None:
        await until(lambda: group.failed is not None)
        await stack.aclose()

    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        group = runner.run(fixture(stack))
        with pytest.raises(KeyError, match="work"):
            runner.run(leave(stack, group))


def test_a_publisher_may_be_left_anywhere(amqp_url: str) -> None:
    """It has no tasks."""
    with new_topic(amqp_url) as topic, asyncio.Runner() as runner:
        stack = AsyncExitStack()
        publisher = runner.run(stack.enter_async_context(AsyncPublisher(amqp_url, topic)))
        assert runner.run(publisher.publish("k", b"")) == 0
        runner.run(stack.aclose())
