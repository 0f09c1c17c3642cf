"""A membership that one task begins and another one ends, as fixtures and lifespans do.

A cancel scope has to be entered and left in the same task, so a separate task does both on request.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import anyio

from cobalance.errors import MembershipError, UsageError
from cobalance.threads.event_loop import running_event_loop

if TYPE_CHECKING:
    from cobalance.group.tasks import Tasks


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
    """Enters a group, and leaves it on request."""

    def __init__(self, membership: StartStop) -> None:
        self._membership = membership
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
                raise ended_early(self._membership.name)
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
                async with self._membership:
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


class StartStop(AbstractAsyncContextManager[Any]):
    """Adds ``start`` and ``stop`` to a group with ``async with``."""

    name: str
    _tasks: Tasks
    _entered: bool
    _stay: Stay | None = None

    async def start(self) -> None:
        """Enters the group, for programs that leave it in another task or function with :meth:`stop`, such as fixtures
        and lifespans. What ends the membership before that is logged, stored in ``failed``, and raised by :meth:`stop`;
        it cancels no task of the program.

        Raises:
            UsageError: it was entered before.
            MembershipError: :meth:`stop` or :meth:`leave` was called meanwhile.
            CobalanceError: a server cannot be used; the message says what to do.
        """
        if self._entered or self._stay is not None:
            raise UsageError(ONCE)
        self._stay = Stay(self)
        await self._stay.begin()

    async def stop(self) -> None:
        """Drains everything, hands it over, and ends what :meth:`start` began, or is beginning. May be called in any
        task but the group's own. Does nothing if there is nothing to end.

        Raises:
            UsageError: the group was entered by ``async with``; :meth:`start` was awaited in another event loop; or
                work or a callback calls this, for which it would wait.
            Exception: the membership was ended by this exception of the program's own code, or by a
                :class:`GroupFailed`.
        """
        if self._stay is not None:
            self._tasks.own_code.refuse_leaving()
            await self._stay.end()
        elif self._entered:
            raise UsageError("stop() ends what start() has begun: leave the `async with`, or call leave()")
