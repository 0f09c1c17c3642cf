"""Wakes tasks of the user's event loop (asyncio or trio) from other threads, once per burst of messages."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from anyio import CancelScope

from cobalance.threads.event_loop import LoopEvent, running_event_loop
from cobalance.threads.gate import Promise

T = TypeVar("T")


class Wakeup:
    """An event that any thread may set and one task waits for. Create it in the event loop."""

    def __init__(self) -> None:
        self.loop = running_event_loop()
        self._event = self.loop.new_event()

    def notify(self) -> None:
        """Wakes the task, or makes its next `wait` return at once. Any thread; harmless if the loop is closed."""
        with suppress(RuntimeError):  # closed; trio's RunFinishedError is a RuntimeError too
            self.loop.run_soon(self._set)

    async def wait(self) -> None:
        """Returns after any `notify` since the last `wait` returned."""
        await self._event.wait()
        self._event = self.loop.new_event()

    def _set(self) -> None:
        self._event.set()


class Crossing:
    """Lets one event loop wait for many futures, with one wake-up per burst. Create it in the event loop."""

    def __init__(self) -> None:
        self.loop = running_event_loop()
        self._ended: deque[LoopEvent] = deque()
        self._is_due = False

    async def result_of(self, future: Future[T]) -> T:
        """Waits for the future and returns its result, or raises its exception."""
        if not future.done():
            event = self.loop.new_event()
            future.add_done_callback(lambda _: self._end(event))
            await event.wait()
        return future.result()

    def _end(self, event: LoopEvent) -> None:  # any thread
        self._ended.append(event)
        if not self._is_due:
            self._is_due = True
            with suppress(RuntimeError):  # as in Wakeup.notify
                self.loop.run_soon(self._set_all)

    def _set_all(self) -> None:
        self._is_due = False  # First: whatever ends from here on is either found below or schedules another wake-up.
        while self._ended:
            self._ended.popleft().set()


async def end_of(future: Future[T] | Promise[T]) -> None:
    """Waits for a thread's future on either event loop. Cancelling the wait leaves the future's work running."""
    if not future.done():
        wakeup = Wakeup()
        future.add_done_callback(lambda _: wakeup.notify())
        await wakeup.wait()


async def insist(wait: Callable[[], Awaitable[object]], scope: CancelScope) -> None:
    """Waits to the end, or until the enclosing shielded scope is cancelled.

    Asyncio's own cancellations, such as those at the end of the loop, ignore shields; they are swallowed here. Use it
    only where the caller deals with the consequences.
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


async def result_of(future: Future[T] | Promise[T]) -> T:
    """Waits for the future and returns its result, or raises its exception; see :func:`end_of`."""
    await end_of(future)
    return future.result()
