"""A membership that one task begins and another one ends, as fixtures and lifespans do.

A cancel scope has to be entered and left in the same task, so a separate task does both on request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from cobalance.errors import MembershipError, UsageError
from cobalance.threads.event_loop import running_event_loop

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from typing import Any


ONCE = "a group can be entered once: make another one"
ELSEWHERE = (
    "start() was awaited in another event loop than this one, and only there the group can be left: await stop() in that one (on asyncio, "
    "`asyncio.run_coroutine_threadsafe(group.stop(), loop).result()` from another thread), or use a BlockingConsumerGroup (or "
    "BlockingGroup), whose start() and stop() need none"
)


def not_entered(group: str) -> str:
    """What to do first."""
    return f"group {group} is not entered: do this within its `with` or `async with`, or after start()"


def ended_early(group: str) -> MembershipError:
    """Why it was not entered."""
    return MembershipError(f"group {group} was left before it was entered: make another one")


class Stay:
    """Enters a group, and leaves it on request.

    Args:
        name: the group's name.
        group: entered by one task, and left by the same.
    """

    def __init__(self, name: str, group: AbstractAsyncContextManager[Any]) -> None:
        self._name, self._group = name, group
        self._scope = anyio.CancelScope()
        self._entered, self._asked, self._over = anyio.Event(), anyio.Event(), anyio.Event()
        self._begun = anyio.Event()
        """Its caller has heard how it went."""
        self._error: BaseException | None = None
        self._task: object = None
        self._loop = running_event_loop()

    async def begin(self) -> None:
        """Returns once it is entered, and raises what entering raised."""
        self._task = self._loop.start_task(self._live)
        try:
            await self._entered.wait()
        except BaseException:
            self._scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._over.wait()
            raise
        else:
            self._raise_error()
            if self._scope.cancelled_caught:
                raise ended_early(self._name)
        finally:
            self._begun.set()

    async def end(self) -> None:
        """Returns once it is left. The first call raises what leaving raised, or what had ended it before. If it is not
        entered yet, it never will be, and :meth:`begin` says so.
        """
        if not (self._over.is_set() or self._loop.is_current()):
            raise UsageError(ELSEWHERE)
        self._asked.set()
        if not self._entered.is_set():
            self._scope.cancel()
        await self._over.wait()
        await self._begun.wait()
        self._raise_error()

    async def _live(self) -> None:
        try:
            with self._scope:
                async with self._group:
                    self._entered.set()
                    await self._asked.wait()
        except anyio.get_cancelled_exc_class():  # the event loop ends
            raise
        except BaseException as error:  # noqa: BLE001 -- raised by begin() or end()
            self._error = error
        finally:
            self._over.set()
            self._entered.set()

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
