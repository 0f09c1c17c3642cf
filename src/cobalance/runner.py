"""A program that is nothing but a member: runs until it is asked to stop, and then leaves gracefully."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

    from cobalance.group import Group


def run(group: Group, *, backend: str = "asyncio") -> None:
    """Is a member of the group until SIGTERM or Ctrl-C, then drains, hands over and returns. A second signal aborts.

    Signal handlers are installed here only, never by an embedded ``async with``.

    Args:
        group: not entered yet.
        backend: ``asyncio`` or ``trio``.
    """
    anyio.run(_serve, group, backend=backend)


async def _serve(group: Group) -> None:
    failure: Exception | None = None
    membership = anyio.CancelScope()
    async with anyio.create_task_group() as tasks:
        await tasks.start(_obey_signals, membership)
        with membership:
            try:
                async with group:
                    await anyio.sleep_forever()
            except Exception as error:  # noqa: BLE001 -- raised again below, as itself and not in an ExceptionGroup
                failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _obey_signals(membership: anyio.CancelScope, *, task_status: TaskStatus[None]) -> None:
    """The first signal ends the membership, at whatever point it is; the second one the process."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            if membership.cancel_called:
                os._exit(128 + number)
            membership.cancel()
