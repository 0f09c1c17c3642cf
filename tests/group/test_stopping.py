"""Code that ignores its cancellation."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import anyio
import anyio.lowlevel
import pytest

from cobalance.group.stopping import Stoppable, tell_again

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

ENOUGH = 1_000
"""A busy loop exceeds this in no time."""


async def test_it_is_not_told_in_a_loop_when_whoever_tells_it_is_stopped() -> None:
    """For instance if the partition is taken away just then: nothing else knows that this block was cancelled
    separately.
    """
    call, told, let_go = Stoppable(), list[None](), anyio.Event()
    cancelled = anyio.get_cancelled_exc_class()

    async def deaf() -> None:
        with call.running():
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except cancelled:
                    told.append(None)
                    if len(told) > ENOUGH:
                        return

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(deaf)
        await anyio.wait_all_tasks_blocked()
        call.scope.cancel()
        async with anyio.create_task_group() as telling:
            telling.start_soon(tell_again, [call])
            await anyio.lowlevel.checkpoint()
            telling.cancel_scope.cancel()
        for _ in range(ENOUGH):
            await anyio.lowlevel.checkpoint()
        let_go.set()
    assert len(told) < ENOUGH / 10


async def test_what_is_closed_where_a_scope_of_its_own_was_cancelled_has_not_failed() -> None:
    """As a wait for a thread that never returns: what ends that wait may arrive first. The cancellation of the whole counts."""
    call, own = Stoppable(), anyio.CancelScope(shield=True)

    async def wait_in_own_scope() -> None:
        with own:
            await anyio.sleep_forever()

    async def run() -> None:
        with call.running():
            await call.call(wait_in_own_scope())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        call.scope.cancel()
        call.leave_alone(True)
        call.forsaken = True
        own.cancel()
    assert call.ended
    assert call.scope.cancelled_caught


@pytest.mark.parametrize("end", ["returns", "raises"])
def test_a_cancellation_by_the_program_is_forgotten_once_the_code_has_ended(end: str) -> None:
    """Otherwise the task would count as cancelled in what it does next."""

    async def swallow() -> str:
        asyncio.current_task().cancel()  # type: ignore[union-attr]
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            if end == "raises":
                raise TimeoutError from None
        return "done"

    async def call_it() -> None:
        with pytest.raises(TimeoutError) if end == "raises" else nullcontext():
            assert await Stoppable().call(swallow()) == "done"
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    asyncio.run(call_it())


async def test_a_cleanup_longer_than_the_cancellation_is_stopped_code_all_the_same() -> None:
    """Its scope is shielded by then, but the cancellation that comes out was that scope's."""
    outer, inner, cleaned = Stoppable(), Stoppable(), anyio.Event()

    async def clean_up() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            inner.leave_alone(True)
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            cleaned.set()

    async def run() -> None:
        with outer.running(), inner.running():
            await outer.call(clean_up())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        inner.scope.cancel()
    assert cleaned.is_set()
    assert inner.scope.cancelled_caught
