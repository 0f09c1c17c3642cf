"""Stops code that may ignore its cancellation.

An event loop cancels what runs in a cancelled scope on every iteration until it has ended. Code that catches the
cancellation and goes on would be cancelled thousands of times a second, and leave the loop no time for anything else.
So it is cancelled for a few iterations, and then again every second. An event loop cannot be left while the code runs,
so finally it is not cancelled any more, but closed where it waits, and never resumed.
"""

from __future__ import annotations

import asyncio
import logging
import types
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import anyio
import anyio.lowlevel

from cobalance.errors import UsageError
from cobalance.threads.cancellation import (
    asyncio_task,
    is_cancellation,
    is_cancelled,
    is_scope_cancelled,
    loop_ends,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
    from contextvars import Context

T = TypeVar("T")

log = logging.getLogger("cobalance")

ROUNDS = 10
"""How many awaits in a row are cancelled: more than any cleanup has."""

AGAIN_S = 1.0

TASK_CANCELLED = (
    "the group's task that runs the program's code was cancelled by the program: limit the time of that code with asyncio.timeout() or "
    "max_processing_ms, cancel tenure.scope to give a resource up, and call leave() elsewhere to end the membership"
)
AWAITED_CANCELLED = (
    "the program's code awaited something that was cancelled: catch asyncio.CancelledError where it awaits it"
)

OnUnstopped: TypeAlias = "Callable[[Sequence[Stoppable]], None]"
"""Called with what is still running after its cancellation."""


def _ignore(_: Sequence[Stoppable]) -> None: ...


class Stoppable:
    """A block of the program's code, and the scope in which it runs.

    Args:
        name: for display.
    """

    def __init__(self, scope: anyio.CancelScope | None = None, name: str = "") -> None:
        self.scope, self.name = scope or anyio.CancelScope(), name
        self.forsaken = False
        """The next cancellation closes the code instead of being raised in it."""
        self.waits = 0
        """How often code that it called has waited, and other tasks had their turn."""
        self._quiet = anyio.CancelScope()
        self._ended = anyio.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        with self.scope, self._quiet:
            try:
                yield
            finally:
                self.end()

    def end(self) -> None:
        """Marks it as ended, or as never to begin."""
        self._ended.set()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    async def wait_ended(self) -> None:
        """Returns when nothing of it runs any more."""
        await self._ended.wait()

    def leave_alone(self, on: bool) -> None:
        """While on, shields the code from its own cancellation."""
        self._quiet.shield = on

    async def call(self, code: Awaitable[T]) -> T:
        """Awaits the program's code and returns its result, unless it is closed first.

        The context variables that it sets are its own.

        Raises:
            UsageError: the program cancelled its task, or let the cancellation of something it awaited escape, or raised
                GeneratorExit. That is the code's own failure, and not the end of the task that called it.
        """
        task, seen = asyncio_task(), _Seen()
        before = 0 if task is None else task.cancelling()
        try:
            result = await _closable(_coroutine(code), self, seen)
        except GeneratorExit:
            raise
        except BaseException as error:
            if self._is_stopped(seen):
                raise
            was_cancelled = _is_cancelled_since(task, before)
            await _take_back(task, before)
            if is_cancellation(error):
                raise UsageError(TASK_CANCELLED if was_cancelled else AWAITED_CANCELLED) from error
            raise
        if _is_cancelled_since(task, before) and not self._is_stopped(seen) and await _take_back(task, before):
            raise task_cancelled(asyncio.CancelledError())
        return result

    def _is_stopped(self, seen: _Seen) -> bool:
        """Whether its task is cancelled by a scope around the code, or with all others at the end of the event loop."""
        by_scope = self.scope.cancel_called or seen.by_scope or is_scope_cancelled()
        return is_cancelled() and (asyncio_task() is None or by_scope or loop_ends.get()())

    async def stop(self, after_ms: float = 0, on_unstopped: OnUnstopped = _ignore) -> None:
        """Cancels it unless it ends within this time; returns when it has ended."""
        with anyio.move_on_after(after_ms / 1000):
            await self.wait_ended()
        if not self.ended:
            self.scope.cancel()
            await tell_again([self], on_unstopped)


async def tell_again(cancelled: Sequence[Stoppable], on_unstopped: OnUnstopped = _ignore) -> None:
    """Cancels those that go on once more every second, calling `on_unstopped` before that; returns when all have ended."""
    while cancelled := [it for it in cancelled if not it.ended]:
        try:
            for _ in range(ROUNDS):
                await anyio.lowlevel.checkpoint()
        finally:  # Also if this is cancelled: nothing else would shield them again.
            for it in cancelled:
                it.leave_alone(True)
        with anyio.move_on_after(AGAIN_S):
            for it in cancelled:
                await it.wait_ended()
        if deaf := [it for it in cancelled if not it.ended]:
            on_unstopped(deaf)
        for it in cancelled:
            it.leave_alone(False)


class Stopping:
    """Stops what was cancelled in one membership, and closes what goes on though that is over.

    Args:
        start: starts a task.
        is_over: whether the membership is over.
    """

    def __init__(self, group: str, start: Callable[..., None], is_over: Callable[[], bool]) -> None:
        self._group, self._start, self._is_over = group, start, is_over
        self._asked: list[Stoppable] = []
        """What was cancelled a moment ago."""

    def insist_on(self, call: Stoppable) -> None:
        """Sees that what was just cancelled ends."""
        self._asked.append(call)
        if len(self._asked) == 1:  # one task serves everything cancelled at a time
            self._start(self._insist)

    async def _insist(self) -> None:
        asked, self._asked = self._asked, []
        with anyio.CancelScope(shield=True):
            await tell_again(asked, self.forsake)

    def forsake(self, deaf: Sequence[Stoppable]) -> None:
        """Gives up on code that swallows its cancellation: a second after the end of the membership it is closed."""
        asked = [it for it in deaf if not it.forsaken]
        if not asked or not self._is_over():
            return
        for it in asked:
            it.forsaken = True
        log.error(
            "group %s: code that was cancelled goes on (%s), though the membership is over: it is ended where it waits, or, if it shields "
            "that, waited for; let asyncio.CancelledError (trio.Cancelled) out of handlers, work and callbacks",
            *(self._group, ", ".join(sorted(it.name for it in asked)[:5])),
        )


def task_cancelled(error: BaseException) -> UsageError:
    """What to raise in place of the program's cancellation of one of the group's tasks."""
    failure = UsageError(TASK_CANCELLED)
    failure.__cause__ = error
    return failure


def is_escape(error: BaseException) -> bool:
    """Whether a cancellation has escaped from the program's code, which is a failure of that."""
    return isinstance(error, UsageError) and error.__cause__ is not None and is_cancellation(error.__cause__)


class _Seen:
    """What came into the code."""

    by_scope = False
    """Whether its last cancellation was a scope's. The scope may be shielded since."""

    def note(self, error: BaseException) -> None:
        if is_cancellation(error):
            self.by_scope = is_scope_cancelled()


async def _take_back(task: asyncio.Task[Any] | None, before: int) -> bool:
    """Takes back the program's cancellations of this task; returns whether one was still to be raised."""
    pending = False
    if task is not None and _is_cancelled_since(task, before):
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            pending = True
        while _is_cancelled_since(task, before):
            task.uncancel()
    return pending


def _is_cancelled_since(task: asyncio.Task[Any] | None, before: int) -> bool:
    """Whether its cancellations were `before`, and are more now."""
    return task is not None and task.cancelling() > before


async def _coroutine(code: Awaitable[T]) -> T:
    return await code


@types.coroutine
def _closable(code: Coroutine[Any, Any, T], stoppable: Stoppable, seen: _Seen) -> Generator[Any, Any, T]:
    """Passes values between the event loop and the code, until a cancellation that the code must not swallow."""
    run = partial(_run, copy_context())
    try:
        waits_for = run(code.send, None)
        while True:
            stoppable.waits += 1
            try:
                answer = yield waits_for
                if stoppable.forsaken and isinstance(getattr(answer, "error", None), BaseException):
                    raise answer.error  # trio's way to throw it
            except GeneratorExit:
                run(code.close)
                raise
            except BaseException as error:
                seen.note(error)
                if stoppable.forsaken:
                    run(_close, code)
                    yield from _own_cancellation(stoppable)
                    raise
                waits_for = run(code.throw, error)
            else:
                waits_for = run(code.send, answer)
    except StopIteration as end:
        result: T = end.value
        return result


def _run(context: Context, step: Callable[..., Any], *args: object) -> Any:
    try:
        return context.run(step, *args)
    except GeneratorExit as error:
        raise UsageError("the program's code raised GeneratorExit: raise an Exception") from error


def _own_cancellation(stoppable: Stoppable) -> Generator[None, None, None]:
    """What ended may have been a scope in the code, which says nothing outside of it: waits for the cancellation of the whole."""
    stoppable.leave_alone(False)
    for _ in range(ROUNDS):
        if is_cancelled():
            return
        yield


def _close(code: Coroutine[Any, Any, object]) -> None:
    """Closes the code once for each ``async with`` around it, and again if it swallows that, within limits."""
    for _ in range(ROUNDS):
        with suppress(BaseException):
            code.close()
            return
