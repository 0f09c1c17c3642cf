"""From the I/O thread to a task of the user's event loop, asyncio's or trio's: one crossing for a burst of messages."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

from anyio import CancelScope

from cobalance.threads.event_loop import Event, running_event_loop

T = TypeVar("T")


class Wakeup:
    """An event that any thread may set and one task waits for. Create it inside the event loop."""

    def __init__(self) -> None:
        self.loop = running_event_loop()
        self._event = self.loop.new_event()

    def notify(self) -> None:
        """Wakes the task, or lets its next `wait` return at once. Any thread; harmless once the loop has gone."""
        with suppress(RuntimeError):  # The loop was closed; trio's RunFinishedError is a RuntimeError too.
            self.loop.run_soon(self._set)

    async def wait(self) -> None:
        """Returns after a `notify` that came since the last `wait` returned."""
        await self._event.wait()
        self._event = self.loop.new_event()

    def _set(self) -> None:
        self._event.set()


class Crossing:
    """For many futures that one event loop waits for: one crossing for all that end in a burst. Create it inside the event loop."""

    def __init__(self) -> None:
        self.loop = running_event_loop()
        self._ended: deque[Event] = deque()
        self._is_due = False

    async def result_of(self, future: Future[T]) -> T:
        """What it returns, or raises, once it has ended."""
        if not future.done():
            event = self.loop.new_event()
            future.add_done_callback(lambda _: self._end(event))
            await event.wait()
        return future.result()

    def _end(self, event: Event) -> None:  # any thread
        self._ended.append(event)
        if not self._is_due:
            self._is_due = True
            with suppress(RuntimeError):  # See above.
                self.loop.run_soon(self._set_all)

    def _set_all(self) -> None:
        self._is_due = False  # First: what ends from here on either is found now or asks for another crossing.
        while self._ended:
            self._ended.popleft().set()


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
