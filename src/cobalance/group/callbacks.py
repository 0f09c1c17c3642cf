"""The program's ``on_assigned``, ``on_revoked`` and ``on_lost``: how they are called, and how long they may take."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING

import anyio

from cobalance.group.clock import awake_ms
from cobalance.group.stopping import Stoppable
from cobalance.group.worker import is_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cobalance.group.assignment import Assignment
    from cobalance.group.stopping import Stopping
    from cobalance.group.tasks import Tasks
    from cobalance.group.tenure import Tenure
    from cobalance.settings import MemberSettings

    Listener = Callable[[list[Tenure]], Awaitable[None]] | Callable[[list[Tenure]], None]

log = logging.getLogger("cobalance")

LOST_MS = 1_000
"""The least time for ``on_lost``, where there is nothing to drain."""


class Callbacks:
    """The callbacks of one membership, any of which may be missing. On its event loop."""

    def __init__(
        self,
        group: str,
        own: MemberSettings,
        tasks: Tasks,
        stopping: Stopping,
        *,
        on_assigned: Listener | None,
        on_revoked: Listener | None,
        on_lost: Listener | None,
    ) -> None:
        self._group, self._own, self._tasks, self._stopping = group, own, tasks, stopping
        self._on_assigned, self._on_revoked, self._on_lost = on_assigned, on_revoked, on_lost
        self._telling: dict[Stoppable, list[Assignment]] = {}
        """Calls of ``on_assigned`` that have not returned."""

    async def assigned(self, batch: list[Assignment]) -> None:
        """Counts as work on each of the resources, and is cancelled when all of them are lost."""
        if self._on_assigned is None:
            return
        call = Stoppable(name="on_assigned")
        with call.running():
            self._telling[call] = batch
            for it in batch:
                it.waiting_since = awake_ms()
            try:
                await self._call(self._on_assigned, [it.tenure for it in batch if it.tenure is not None], call)
            finally:
                del self._telling[call]
                for it in batch:
                    it.waiting_since = None

    def stop_assigned(self) -> None:
        """Cancels calls of ``on_assigned`` whose resources are all lost."""
        for call, batch in self._telling.items():
            if not any(it.current for it in batch):
                call.scope.cancel()
                self._stopping.insist_on(call)

    async def revoked(self, tenure: Tenure) -> None:
        """Is part of its work."""
        if self._on_revoked is not None:
            await self._call(self._on_revoked, [tenure], tenure.work)

    async def lost(self, tenure: Tenure) -> None:
        """Has the drain timeout."""
        if self._on_lost is None:
            return
        call = Stoppable(name="on_lost")
        self._tasks.start(self._stop_in_time, call)
        try:
            with call.running():
                await self._call(self._on_lost, [tenure], call, limited=True)
        except BaseException as error:
            self._tasks.note_error(error)
            raise
        if call.scope.cancelled_caught:
            log.warning(
                "group %s: on_lost did not return within drain_timeout_ms, and was cancelled, or, in a thread, left to itself",
                self._group,
            )

    async def _stop_in_time(self, call: Stoppable) -> None:
        with anyio.CancelScope(shield=True):  # the tasks may be cancelled, but this has to be stopped all the same
            await call.stop(max(self._own.drain_timeout_ms, LOST_MS), self._stopping.forsake)

    async def _call(
        self, listener: Listener, tenures: list[Tenure], block: Stoppable, *, limited: bool = False
    ) -> None:
        """Calls an async function on the event loop and a plain one in a thread, and awaits the result if it is
        awaitable.
        """
        if is_async(listener):
            call = listener(tenures)
        else:
            with self._tasks.contain():
                call = await self._tasks.in_thread(lambda: listener(tenures), limited=limited)
        if inspect.isawaitable(call):
            await block.call(call)
