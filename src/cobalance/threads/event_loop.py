"""The user's event loop, asyncio's or trio's, as other threads see it: how to get in, and whether it runs."""

from __future__ import annotations

import asyncio
import sys
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    import trio

    Call = Callable[[], Coroutine[Any, Any, None]]

State = Literal["running", "stopped", "closed"]


class Event(Protocol):
    """Of one loop."""

    def set(self) -> None:
        """In the loop."""

    async def wait(self) -> object:
        """Until it is set."""


class EventLoop(Protocol):
    """What is needed of one."""

    def run_soon(self, do: Callable[[], None]) -> None:
        """Calls it in the loop; any thread. Raises RuntimeError when the loop is closed."""

    def new_event(self) -> Event:
        """The loop's own kind: anyio's costs a lookup each time."""

    def start_task(self, call: Call) -> object:
        """Runs it in a task that belongs to nobody; to be kept until that has ended. In the loop."""

    def is_current(self) -> bool:
        """Whether this is called in it; on an event loop."""

    def current_task(self) -> object:
        """The task in which this is called."""

    def state(self) -> State:
        """Whether it runs; any thread. A loop that its tasks block is running."""


class Asyncio:
    """One of asyncio's."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def run_soon(self, do: Callable[[], None]) -> None:
        """Calls it in the loop."""
        self._loop.call_soon_threadsafe(do)

    def new_event(self) -> Event:
        """For its tasks."""
        return asyncio.Event()

    def start_task(self, call: Call) -> object:
        """Cancelled when the loop ends."""
        return self._loop.create_task(call())

    def is_current(self) -> bool:
        """Whether this is called in it."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:  # trio's
            return False

    def current_task(self) -> object:
        """None in a callback."""
        return asyncio.current_task()

    def state(self) -> State:
        """Programs may stop it and let it go on."""
        if self._loop.is_closed():
            return "closed"
        return "running" if self._loop.is_running() else "stopped"


class Trio:
    """One run of trio's."""

    def __init__(
        self, token: trio.lowlevel.TrioToken, new_event: Callable[[], Event], spawn: Callable[..., object]
    ) -> None:
        self._token, self.new_event, self._spawn = token, new_event, spawn

    def run_soon(self, do: Callable[[], None]) -> None:
        """Calls it in the run."""
        self._token.run_sync_soon(do)

    def start_task(self, call: Call) -> object:
        """Cancelled when the run ends. What it raises would end the run."""
        return self._spawn(call, context=copy_context())

    def is_current(self) -> bool:
        """Whether this is called in it."""
        import trio

        return trio.lowlevel.in_trio_run() and trio.lowlevel.current_trio_token() is self._token

    def current_task(self) -> object:
        """There always is one."""
        import trio

        return trio.lowlevel.current_task()

    def state(self) -> State:
        """Trio tells only who calls something in it."""
        try:
            self._token.run_sync_soon(_nothing, idempotent=True)
        except RuntimeError:  # RunFinishedError
            return "closed"
        return "running"


def running_event_loop() -> EventLoop:
    """The one in which this is called."""
    if "trio" in sys.modules:
        import trio

        if trio.lowlevel.in_trio_run():
            return Trio(trio.lowlevel.current_trio_token(), trio.Event, trio.lowlevel.spawn_system_task)
    return Asyncio()


class Attendance:
    """Whether there is a loop to work what is held, or has been lately."""

    def __init__(self, loop: EventLoop, patience_ms: int) -> None:
        self._loop, self._patience_ms = loop, patience_ms
        self._stopped_at: int | None = None

    def missing(self, now: int) -> str | None:
        """What has become of the loop, if it does not work."""
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

    @property
    def over(self) -> bool:
        """Nothing will ever run in it again."""
        return self._loop.state() == "closed"


def _nothing() -> None: ...
