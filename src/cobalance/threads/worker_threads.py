"""Threads for the user's plain functions, and for our own calls that block. None of them keeps the process from ending, so they are
daemons: anyio's are not on asyncio, and Python would wait for them.

A thread cannot be stopped, so whoever called a user's function waits until it has returned.
"""

from __future__ import annotations

import sys
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

import anyio.lowlevel

from cobalance.threads.wakeup import end_of, insist, result_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from anyio import CancelScope

T = TypeVar("T")

IDLE_S = 10.0
"""As long as anyio's, in which programs may keep connections."""


class WorkerThreads:
    """Those of one group."""

    def __init__(self) -> None:
        self._daemons = Daemons()

    async def run(self, function: Callable[[], T]) -> T:
        """Calls it in a thread, with the caller's context variables. When this is cancelled, the function is left alone with what
        it does.
        """
        await anyio.lowlevel.checkpoint()
        context = copy_context()
        context.run(_leave_event_loop)
        return await result_of(self._daemons.start(partial(context.run, function)))

    async def run_to_end(
        self, function: Callable[[], T], patience: Callable[[], AbstractContextManager[CancelScope]]
    ) -> T:
        """The same, but a cancellation that finds it running waits until it has returned, for as long as `patience` shields that."""
        call: Future[T] = Future()

        def attempt() -> None:
            _carry_out(call, function)()

        try:
            await self.run(attempt)
        finally:
            if not call.cancel() and not call.done():  # else it never began, or has returned
                with patience() as scope:
                    await insist(lambda: end_of(call), scope)
        return call.result()


async def in_thread(make: Callable[[], T], undo: Callable[[T], object] = lambda _: None) -> T:
    """What `make` returns, called in a thread of its own. If nobody waits for it any more by then, it is undone."""
    made: Future[T] = Future()

    def run() -> None:
        tell = _carry_out(made, make)
        tell()

    Thread(target=run, name="cobalance-call", daemon=True).start()
    try:
        return await result_of(made)
    except BaseException:
        made.add_done_callback(lambda it: it.exception() is None and undo(it.result()))
        raise


class Daemons:
    """Threads that serve one call after another, the last one that became idle first, and end after a while without."""

    def __init__(self) -> None:
        self._idle: dict[SimpleQueue[Callable[[], Callable[[], None]]], None] = {}

    def start(self, function: Callable[[], T]) -> Future[T]:
        """Calls it now."""
        call: Future[T] = Future()
        try:
            jobs, _ = self._idle.popitem()
        except KeyError:
            jobs = SimpleQueue()
            Thread(target=self._serve, args=(jobs,), name="cobalance-worker", daemon=True).start()
        jobs.put(lambda: _carry_out(call, function))
        return call

    def _serve(self, jobs: SimpleQueue[Callable[[], Callable[[], None]]]) -> None:
        while True:
            try:
                tell = jobs.get(timeout=IDLE_S)()
            except Empty:
                if self._idle.pop(jobs, jobs) is None:
                    return  # else it is just being given one
            else:
                self._idle[jobs] = None  # first, so that the next call finds it
                tell()


def _carry_out(call: Future[T], function: Callable[[], T]) -> Callable[[], None]:
    """Calls it unless that was cancelled; returns what tells the result to whoever waits."""
    if not call.set_running_or_notify_cancel():
        return lambda: None
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001 -- raised where it is waited for
        return partial(call.set_exception, error)
    return partial(call.set_result, result)


def _leave_event_loop() -> None:
    """The thread has none, so that it may run one of its own."""
    if "sniffio" in sys.modules:
        import sniffio

        sniffio.current_async_library_cvar.set(None)
