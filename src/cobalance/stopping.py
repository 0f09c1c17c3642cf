"""Code that is told to stop, and may not listen.

An event loop cancels what runs in a cancelled scope each time round, until it has ended. Code that catches that and goes on would
be cancelled thousands of times a second, and leave the loop to nobody else: so it is told for a few rounds, and then again each second.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROUNDS = 10
"""As many awaits in a row are cancelled, which is more than a cleanup has."""

AGAIN_S = 1.0


class Stoppable:
    """A block of the program's code, and the scope that it runs in."""

    def __init__(self, scope: anyio.CancelScope | None = None) -> None:
        self.scope = scope or anyio.CancelScope()
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

    async def stop(self, after_ms: float = 0) -> None:
        """Stops it unless it has ended by then; returns when it has."""
        with anyio.move_on_after(after_ms / 1000):
            await self.wait_ended()
        if not self.ended:
            self.scope.cancel()
            await tell_again([self])


async def tell_again(cancelled: Sequence[Stoppable]) -> None:
    """Tells those that go on once more each second; returns when all have ended."""
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
        for it in cancelled:
            it.leave_alone(False)
