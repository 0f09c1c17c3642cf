"""Threads for the user's plain functions. A thread cannot be stopped, so whoever called a function waits until it has returned."""

from __future__ import annotations

import math
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from cobalance.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

T = TypeVar("T")


class WorkerThreads:
    """Those of one group. Create it inside the event loop."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(math.inf)  # anyio's own would let forty functions run at a time

    async def run(self, function: Callable[[], T]) -> T:
        """Calls it in a thread. When this is cancelled, the function is left alone with what it does."""
        return await anyio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=self._limiter)

    async def run_to_end(self, function: Callable[[], T], patience: Callable[[], AbstractContextManager[object]]) -> T:
        """The same, but a cancellation that finds it running waits until it has returned, for as long as `patience` shields that."""
        call: Future[T] = Future()
        try:
            await self.run(lambda: _carry_out(call, function))
        finally:
            if not call.cancel() and not call.done():  # else it never began, or has returned
                with patience():
                    await _end_of(call)
        return call.result()


def _carry_out(call: Future[T], function: Callable[[], T]) -> None:
    if not call.set_running_or_notify_cancel():
        return
    try:
        call.set_result(function())
    except BaseException as error:  # noqa: BLE001 -- raised where it is waited for
        call.set_exception(error)


async def _end_of(call: Future[T]) -> None:
    wakeup = Wakeup()
    call.add_done_callback(lambda _: wakeup.notify())
    await wakeup.wait()
