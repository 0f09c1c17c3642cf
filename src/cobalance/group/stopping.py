"""Code that is told to stop, and may not listen.

An event loop cancels what runs in a cancelled scope each time round, until it has ended. Code that catches that and goes on would
be cancelled thousands of times a second, and leave the loop to nobody else: so it is told for a few rounds, and then again each second.
An event loop cannot be left while it runs. So in the end it is not told any more, but closed where it waits, and never resumed.
"""

from __future__ import annotations

import types
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import anyio
import anyio.lowlevel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence

T = TypeVar("T")

ROUNDS = 10
"""As many awaits in a row are cancelled, which is more than a cleanup has."""

AGAIN_S = 1.0

Despair: TypeAlias = "Callable[[Sequence[Stoppable]], None]"
"""Is told which do not listen."""


def _hopes(_: Sequence[Stoppable]) -> None: ...


class Stoppable:
    """A block of the program's code, and the scope that it runs in.

    Args:
        name: for people.
    """

    def __init__(self, scope: anyio.CancelScope | None = None, name: str = "") -> None:
        self.scope, self.name = scope or anyio.CancelScope(), name
        self.forsaken = False
        """Whoever is told once more is told nothing, and closed."""
        self._quiet = anyio.CancelScope()
        self._ended = anyio.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around the block."""
        with self.scope, self._quiet:
            try:
                yield
            finally:
                self.end()

    def end(self) -> None:
        """It is over, or will never begin."""
        self._ended.set()

    @property
    def ended(self) -> bool:
        """Nothing of it runs any more."""
        return self._ended.is_set()

    async def wait_ended(self) -> None:
        """Returns when nothing of it runs any more."""
        await self._ended.wait()

    def leave_alone(self, on: bool) -> None:
        """While that is so, it does not notice that it was cancelled."""
        self._quiet.shield = on

    async def call(self, code: Awaitable[T]) -> T:
        """What the program's code returns, unless it is closed first."""
        return await _closable(_coroutine(code), self)

    async def stop(self, after_ms: float = 0, despair: Despair = _hopes) -> None:
        """Stops it unless it has ended by then; returns when it has."""
        with anyio.move_on_after(after_ms / 1000):
            await self.wait_ended()
        if not self.ended:
            self.scope.cancel()
            await tell_again([self], despair)


async def tell_again(cancelled: Sequence[Stoppable], despair: Despair = _hopes) -> None:
    """Tells those that go on once more each second, with `despair` called before that; returns when all have ended."""
    while cancelled := [it for it in cancelled if not it.ended]:
        try:
            for _ in range(ROUNDS):
                await anyio.lowlevel.checkpoint()
        finally:  # Also when this is stopped: nobody else could have them left alone.
            for it in cancelled:
                it.leave_alone(True)
        with anyio.move_on_after(AGAIN_S):
            for it in cancelled:
                await it.wait_ended()
        if deaf := [it for it in cancelled if not it.ended]:
            despair(deaf)
        for it in cancelled:
            it.leave_alone(False)


async def _coroutine(code: Awaitable[T]) -> T:
    return await code


@types.coroutine
def _closable(code: Coroutine[Any, Any, T], stoppable: Stoppable) -> Generator[Any, Any, T]:
    """Hands on what the event loop and the code say to each other, up to the cancellation that is not to be swallowed."""
    try:
        waits_for = code.send(None)
        while True:
            try:
                answer = yield waits_for
                if stoppable.forsaken and isinstance(getattr(answer, "error", None), BaseException):
                    raise answer.error  # trio's way to throw it
            except GeneratorExit:
                code.close()
                raise
            except BaseException as error:
                if stoppable.forsaken:
                    _close(code)
                    raise
                waits_for = code.throw(error)
            else:
                waits_for = code.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def _close(code: Coroutine[Any, Any, object]) -> None:
    """Once for each ``async with`` that it is in, and as often as it swallows that, within limits."""
    for _ in range(ROUNDS):
        with suppress(BaseException):
            code.close()
            return
