"""Code that ignores its cancellation."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from cobalance.group.stopping import Stoppable, tell_again
from cobalance.group.worker import outcome

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
            await outcome(call.call(wait_in_own_scope()))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        call.scope.cancel()
        call.leave_alone(True)
        call.forsaken = True
        own.cancel()
    assert call.ended
    assert call.scope.cancelled_caught
