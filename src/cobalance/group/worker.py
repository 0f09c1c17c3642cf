"""Works a tenure: a user's function here, a partition's consumer in :mod:`cobalance.rabbitmq`."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from cobalance.errors import UsageError
from cobalance.member.events import Abandoned, Drained

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cobalance.group.tenure import Tenure
    from cobalance.member.actions import AbortReason


class Worker(Protocol):
    """Works one tenure. All but ``abort`` and the properties run on the user's event loop."""

    async def run(self) -> None:
        """Works until the tenure is asked back, and finishes running work. Repeated after a cancelled revocation."""

    async def finish(self) -> Drained | Abandoned:
        """Called after ``on_revoked``: settles all outstanding work, and returns how far it came."""

    def abort(self, reason: AbortReason, stopped: Callable[[], None]) -> None:
        """On the engine's thread: stops what does not need the event loop, then calls ``stopped``."""

    @property
    def busy_since(self) -> int | None:
        """Since when (ms awake) the current handler has been running; any thread."""

    @property
    def surely_idle(self) -> bool:
        """Whether it runs nothing of the program, and waits for nothing that the program may be working; any thread."""


class FunctionWorker:
    """Runs ``work(tenure)``, which returns soon after ``tenure.active`` becomes false."""

    def __init__(self, tenure: Tenure, work: Callable[[Tenure], Awaitable[None]] | None) -> None:
        self._tenure, self._work = tenure, work
        self._finished = False
        """Whether the function has returned though nobody asked it to."""
        self._running = False

    async def run(self) -> None:
        """Runs the function, unless it has finished, and waits until the tenure is asked back. If that happened while
        it ran, the tenure may have been kept after all: the caller then runs the function again.
        """
        asking = self._tenure.asking
        if self._work is not None and not self._finished:
            self._running = True
            try:
                await self._tenure.work.call(self._work(self._tenure))
            finally:
                self._running = False
            self._finished = not asking.is_set()
        await asking.wait()

    async def finish(self) -> Drained:
        """A function commits its own results, so there is nothing to settle."""
        return Drained(self._tenure.resource, self._tenure.token)

    def abort(self, reason: AbortReason, stopped: Callable[[], None]) -> None:
        """There is nothing to stop but the function, which is cancelled on the event loop."""
        del reason
        stopped()

    @property
    def busy_since(self) -> int | None:
        """See :meth:`Tenure.processing`."""
        return self._tenure.busy_since

    @property
    def surely_idle(self) -> bool:
        """What a program without a function does with it, nobody knows."""
        return self._work is not None and not self._running and self.busy_since is None


class AsyncWork:
    """The program's ``work``, which has to be async. A plain function is refused before it is called, or after one call
    at the latest.
    """

    def __init__(self, work: Callable[[Tenure], Awaitable[None]]) -> None:
        self._work, self._is_plain = work, is_surely_plain(work)
        self._check()

    async def __call__(self, tenure: Tenure) -> None:
        self._check()
        call = self._work(tenure)
        self._is_plain = not inspect.isawaitable(call)
        self._check()
        await call

    def _check(self) -> None:
        if self._is_plain:
            raise UsageError(
                "work is a plain function: make it async, or use BlockingGroup, which calls it in a thread of its own"
            )


def is_async(function: object) -> bool:
    """Whether it is a coroutine function, or an object with one as ``__call__``, also under functools.partial. What
    turns out to be awaitable only when called is awaited too.
    """
    function = innermost(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def is_surely_plain(function: object) -> bool:
    """Whether calling it surely returns nothing awaitable: a generator function, or one annotated to return None. A
    wrapper has the annotations of what it wraps, so it does not count.
    """
    function = innermost(function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return True
    if is_async(function) or not inspect.isroutine(function) or hasattr(function, "__wrapped__"):
        return False
    return getattr(function, "__annotations__", {}).get("return", function) in (None, "None")


def innermost(function: Any) -> Any:
    """Unwraps functools.partial."""
    while isinstance(function, partial):
        function = function.func
    return function
