"""What works one tenure: a user's function here, a partition's consumer in :mod:`cobalance.rabbitmq`."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cobalance.errors import UsageError
from cobalance.member.events import Abandoned, Drained

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cobalance.group.tenure import Tenure
    from cobalance.member.actions import AbortReason

T = TypeVar("T")


class Worker(Protocol):
    """Works one tenure. All but ``abort`` and ``busy_since`` run on the user's event loop."""

    async def run(self) -> None:
        """Works until the tenure is asked back, and then finishes what has begun. Called again after a revocation that was
        cancelled.
        """

    async def finish(self) -> Drained | Abandoned:
        """After ``on_revoked``: settles everything with whoever has to know, and says how far the work came."""

    def abort(self, reason: AbortReason, stopped: Callable[[], None]) -> None:
        """Stops what the event loop need not be asked for, from the engine's thread; then calls ``stopped``."""

    @property
    def busy_since(self) -> int | None:
        """Since when (monotonic ms) the running handler has been running; any thread."""


class FunctionWorker:
    """Runs ``work(tenure)``, which returns soon after ``tenure.active`` has become false."""

    def __init__(self, tenure: Tenure, work: Callable[[Tenure], Awaitable[None]] | None) -> None:
        self._tenure, self._work = tenure, work

    async def run(self) -> None:
        """Runs the function, if there is one, and waits until the tenure is asked back. If that has happened while it ran, it
        may be kept after all by now: whoever called us sees to it that the function runs again.
        """
        asking = self._tenure.asking
        if self._work is not None:
            await self._tenure.work.call(self._work(self._tenure))
        await asking.wait()
        await self._tenure.wait_unused()

    async def finish(self) -> Drained:
        """What a function delivers is its own affair: what it commits, it commits itself."""
        return Drained(self._tenure.resource, self._tenure.token)

    def abort(self, reason: AbortReason, stopped: Callable[[], None]) -> None:
        """There is nothing but the function to stop, and that is cancelled on the event loop."""
        del reason
        stopped()

    @property
    def busy_since(self) -> int | None:
        """As marked by :meth:`Tenure.processing`."""
        return self._tenure.busy_since


class AsyncWork:
    """The program's ``work``, which has to be async: what would be called only to fail afterwards is not called, or once at most."""

    def __init__(self, work: Callable[[Tenure], Awaitable[None]]) -> None:
        self._work, self._is_plain = work, is_surely_plain(work)
        self._check()

    async def __call__(self, tenure: Tenure) -> None:
        """Calls it."""
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


async def outcome(call: Awaitable[T]) -> T:
    """What a call of the program's code returns.

    Raises:
        UsageError: it let out the cancellation of something it awaited, which is a failure of its own, and not the end of the task
            that called it.
    """
    try:
        return await call
    except asyncio.CancelledError as error:
        if is_cancelled():
            raise
        raise UsageError(
            "the program's code awaited something that was cancelled: catch asyncio.CancelledError where it awaits it"
        ) from error


def is_cancelled() -> bool:
    """Whether it is this task that asyncio cancels. On trio nobody else's cancellation comes out of code."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # trio's
        return True
    return task is None or bool(task.cancelling())


def is_async(function: object) -> bool:
    """A coroutine function, or an object that is called like one, also with arguments bound to it. What only turns out to be one when
    it is called is awaited, too.
    """
    function = innermost(function)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def is_surely_plain(function: object) -> bool:
    """Whether nothing that can be awaited will come of calling it: a generator, or one whose own annotation says that it returns nothing.
    A wrapper has the annotations of what it wraps.
    """
    function = innermost(function)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return True
    if is_async(function) or not inspect.isroutine(function) or hasattr(function, "__wrapped__"):
        return False
    return getattr(function, "__annotations__", {}).get("return", function) in (None, "None")


def innermost(function: Any) -> Any:
    """The function to which arguments were bound."""
    while isinstance(function, partial):
        function = function.func
    return function
