"""From the I/O thread to a task of the user's event loop, asyncio's or trio's: one crossing for a burst of messages."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Protocol, TypeVar

from anyio import CancelScope

T = TypeVar("T")


class _Event(Protocol):
    def set(self) -> None: ...
    async def wait(self) -> object: ...


class Wakeup:
    """An event that any thread may set and one task waits for. Create it inside the event loop."""

    def __init__(self) -> None:
        self._run_in_loop, self._new_event = _event_loop()
        self._event = self._new_event()

    def notify(self) -> None:
        """Wakes the task, or lets its next `wait` return at once. Any thread; harmless once the loop has gone."""
        with suppress(RuntimeError):  # The loop was closed; trio's RunFinishedError is a RuntimeError too.
            self._run_in_loop(self._set)

    async def wait(self) -> None:
        """Returns after a `notify` that came since the last `wait` returned."""
        await self._event.wait()
        self._event = self._new_event()

    def _set(self) -> None:
        self._event.set()


async def end_of(future: Future[T]) -> None:
    """Waits for a thread's future on either event loop. Being cancelled leaves the future's work running."""
    if not future.done():
        wakeup = Wakeup()
        future.add_done_callback(lambda _: wakeup.notify())
        await wakeup.wait()


async def insist(wait: Callable[[], Awaitable[object]], scope: CancelScope) -> None:
    """Waits until the shielded scope that this is in is cancelled, if need be. Asyncio's own cancellations pass any shield, as when the loop ends;
    to be called where it is known what comes of them.
    """
    while True:
        try:
            await wait()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if scope.cancel_called or task is None:
                raise
            task.uncancel()
        else:
            return


async def result_of(future: Future[T]) -> T:
    """What it returns, or raises, once it has ended; see :func:`end_of`."""
    await end_of(future)
    return future.result()


def _event_loop() -> tuple[Callable[[Callable[[], None]], object], Callable[[], _Event]]:
    """The running event loop's own way in from another thread, and its own kind of event: anyio's costs a lookup each time."""
    if "trio" in sys.modules:
        import trio

        if trio.lowlevel.in_trio_run():
            return trio.lowlevel.current_trio_token().run_sync_soon, trio.Event
    return asyncio.get_running_loop().call_soon_threadsafe, asyncio.Event
