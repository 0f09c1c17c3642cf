"""A uniform view of the user's event loop, asyncio's or trio's, for other threads."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import trio

    Call = Callable[[], Coroutine[Any, Any, None]]

State = Literal["running", "stopped", "closed"]


class LoopEvent(Protocol):
    """An event that belongs to one loop."""

    def set(self) -> None:
        """Call it in the loop."""

    async def wait(self) -> object: ...


class EventLoop(Protocol):
    """What this library needs of an event loop."""

    def run_soon(self, do: Callable[[], None]) -> None:
        """Calls a function in the loop, from any thread. Raises RuntimeError if the loop is closed."""

    def new_event(self) -> LoopEvent:
        """Creates an event of the loop's own kind; anyio's costs a lookup each time."""

    def start_task(self, call: Call) -> object:
        """Runs a call in a background task; call it in the loop. Keep the result until the task has ended."""

    def is_current(self) -> bool:
        """Whether the caller runs in this loop; call it on an event loop."""

    def current_task(self) -> object:
        """The task that calls this."""

    def state(self) -> State:
        """The loop's state; any thread. A loop blocked by a task counts as running."""


class Asyncio:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def run_soon(self, do: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(do)

    def new_event(self) -> LoopEvent:
        return asyncio.Event()

    def start_task(self, call: Call) -> object:
        """The task is cancelled when the loop ends."""
        return self._loop.create_task(call())

    def is_current(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:  # in trio
            return False

    def current_task(self) -> object:
        return asyncio.current_task()

    def state(self) -> State:
        """Programs may stop a loop and resume it later."""
        if self._loop.is_closed():
            return "closed"
        return "running" if self._loop.is_running() else "stopped"


class Trio:
    def __init__(
        self, token: trio.lowlevel.TrioToken, new_event: Callable[[], LoopEvent], spawn: Callable[..., object]
    ) -> None:
        self._token, self.new_event, self._spawn = token, new_event, spawn

    def run_soon(self, do: Callable[[], None]) -> None:
        self._token.run_sync_soon(do)

    def start_task(self, call: Call) -> object:
        """The task is cancelled when the run ends. An exception in it would end the run."""
        return self._spawn(call, context=copy_context())

    def is_current(self) -> bool:
        import trio

        return trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is self._token

    def current_task(self) -> object:
        import trio

        return trio.lowlevel.current_task()

    def state(self) -> State:
        """Trio reveals its state only when asked to run something."""
        try:
            self._token.run_sync_soon(_nothing, idempotent=True)
        except RuntimeError:  # RunFinishedError
            return "closed"
        return "running"


def running_event_loop() -> EventLoop:
    """The event loop of the caller."""
    if "trio" in sys.modules:
        import trio

        if trio.lowlevel.in_trio_run():
            return Trio(trio.lowlevel.current_trio_token(), trio.Event, trio.lowlevel.spawn_system_task)
    return Asyncio()


class Attendance:
    """Watches whether the event loop works."""

    def __init__(self, loop: EventLoop, patience_ms: int) -> None:
        self._loop, self._patience_ms = loop, patience_ms
        self._stopped_at: int | None = None
        self._asked = self._asked_at = self._looked_at = 0
        self._answered = 0
        """Written by the loop alone, as all else is by the engine."""

    def missing(self, now: int) -> str | None:
        """Describes what is wrong with the loop, or None if it works or stopped only a moment ago."""
        state = self._loop.state()
        if state == "running":
            self._stopped_at = None
        elif state == "closed":
            return "its event loop was closed"
        elif self._stopped_at is None:
            self._stopped_at = now
        elif now - self._stopped_at >= self._patience_ms:
            return f"its event loop has not run for {now - self._stopped_at} ms"
        return None

    def blocked_since(self, now: int) -> int | None:
        """Since when the loop has run nothing at all, if that was too long ago already when this was last called. It has
        to be called much more often than that is: a longer pause means that the process was stopped, and hardly counts.
        """
        looked_at, self._looked_at = self._looked_at, now
        if self._answered == self._asked:
            self._asked += 1
            self._asked_at = now
            with suppress(RuntimeError):  # closed
                self._loop.run_soon(self._answer)
            return None
        stopped_ms = max(0, now - looked_at - self._patience_ms // 2)
        self._asked_at += stopped_ms
        return self._asked_at if looked_at + stopped_ms - self._asked_at >= self._patience_ms else None

    def _answer(self) -> None:
        self._answered += 1

    @property
    def over(self) -> bool:
        return self._loop.state() == "closed"


def _nothing() -> None: ...
