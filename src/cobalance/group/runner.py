"""Runs a program that is just a member: until it is asked to stop, and then leaves gracefully."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio

from cobalance.errors import DrainTimedOut, UsageError, counted
from cobalance.group.blocking import BlockingMembership
from cobalance.group.group import Group
from cobalance.threads.cancellation import is_cancellation
from cobalance.threads.event_loop import running_event_loop
from cobalance.threads.signals import ENDING, signals_handled

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskStatus


BACKENDS = ("asyncio", "trio")


def run(group: Group, *, backend: str = "asyncio") -> None:
    """Runs a member until SIGTERM or Ctrl-C, then drains, hands over and returns. A second signal ends the process at
    once, with exit code 130 or 143 as in shells, even if a handler blocks the event loop.

    Signal handlers are installed here only, never by an embedded ``async with``.

    Args:
        group: not entered yet.
        backend: ``asyncio`` or ``trio``.

    Raises:
        UsageError: the group is not one for event loops; the backend does not exist; this is not the main thread, the
            only one that gets signals; or an event loop is running in it. The message says what to do.
        DrainTimedOut: some work was not finished within ``drain_timeout_ms``, or the group's ``revocation_timeout_ms``
            if that passed first, and was given up.
        CobalanceError: see :class:`Group`.
    """
    _check_group(group)
    if backend not in BACKENDS:
        raise UsageError(f"backend is {backend!r}: give one of {', '.join(map(repr, BACKENDS))}")
    if threading.current_thread() is not threading.main_thread():
        raise UsageError(
            "run() obeys SIGTERM and Ctrl-C, of which Python tells the main thread only: call it there, or use start() and stop() of a "
            "BlockingConsumerGroup (or BlockingGroup) in any thread"
        )
    with suppress(RuntimeError):  # none is running, as it should be
        running_event_loop()
        raise UsageError(
            "an event loop runs here already: `await group.start()` in it, and `await group.stop()` at the end"
        )
    anyio.run(_serve, group, backend=backend)


def _check_group(group: object) -> None:
    if isinstance(group, BlockingMembership):
        raise UsageError(
            "a group for threads needs no run(): `with group: group.wait_left()`, or give run() a ConsumerGroup (or Group), whose "
            "handler may be a plain function, too"
        )
    if not isinstance(group, Group):
        what = f"the class {group.__name__}" if isinstance(group, type) else f"an object of type {type(group).__name__}"
        raise UsageError(f"run() takes a ConsumerGroup or a Group, not {what}: make one, and give it that")


async def _serve(group: Group) -> None:
    failure: BaseException | None = None
    membership = anyio.CancelScope()
    async with anyio.create_task_group() as tasks:
        await tasks.start(obey_signals, group, membership)
        with membership:
            try:
                async with group:
                    await anyio.sleep_forever()
            except BaseException as error:
                if is_cancellation(error):
                    raise
                failure = error  # raised below, without an exception group around it
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if group.given_up:
        raise drain_timed_out(group)


def drain_timed_out(group: Group) -> DrainTimedOut:
    """The error for a process that was stopped and could not finish."""
    own, revoked = group.membership.own, set(group.revoked_unfinished)
    drained = set(group.given_up) - revoked
    ends = [
        (drained, f"{own.drain_timeout_ms} ms after the process was asked to stop", "drain_timeout_ms"),
        (revoked, "when the group's revocation timeout had passed", "revocation_timeout_ms"),
    ]
    return DrainTimedOut(
        " ".join(
            f"group {group.name}: {counted(len(names), 'resource')} still being worked {when}, and given up: "
            f"{', '.join(sorted(names)[:5])}; what was not acknowledged comes again. A longer {setting} lets slower work finish."
            for names, when, setting in ends
            if names
        )
    )


async def obey_signals(
    group: Group,
    membership: anyio.CancelScope,
    say: Callable[[], None] = lambda: None,
    *,
    task_status: TaskStatus[None],
) -> None:
    """The first signal cancels the membership, wherever it is, and calls `say`. If the event loop is blocked, the group
    is left all the same, but the process goes on. The second signal ends it.
    """
    loop, asked = running_event_loop(), False

    def stop() -> None:
        membership.cancel()
        say()

    def obey(number: int, _: object) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = True
        loop.run_soon(stop)
        group.membership.leave_soon()

    with signals_handled(obey, *ENDING):
        task_status.started()
        await anyio.sleep_forever()
