"""An assigned tenure, shared by the engine's thread and the user's event loop."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import attrs

from cobalance.member.events import Abandoned, DrainBegun, Drained

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.group.tenure import Tenure
    from cobalance.group.worker import Worker
    from cobalance.member.actions import AbortReason
    from cobalance.member.events import Event


class Assignment:
    """Created on the engine's thread, adopted by the event loop, aborted from either.

    An abort is complete when the event loop has stopped its part and the worker has stopped what needs no event loop.
    Code that never returns is awaited here; the session gives up on it after a while.
    """

    def __init__(
        self,
        resource: str,
        token: int,
        committed: int | None,
        post: Callable[[Event], None],
        since: int,
        *,
        tries: int = 0,
    ) -> None:
        self.resource, self.token, self.committed, self.tries = resource, token, committed, tries
        self.since = since
        """In ms awake."""
        self.predecessor: Assignment | None = None
        self.tenure: Tenure | None = None
        self.worker: Worker | None = None
        self.begun = False
        """Whether work on it may begin: the previous tenure is over here, and ``on_assigned`` has returned."""
        self.resigned = False
        """It is to be given up though nobody asks for it."""
        self.closing = False
        """``on_revoked`` has begun, so a cancelled revocation comes too late."""
        self.waiting_since: int | None = None
        """Since when (ms awake) its work has been waiting: for the previous handler of the resource, which has not
        returned, or for ``on_assigned``.
        """
        self.was_busy = False
        """Whether the session last heard that it is busy."""
        self.aborted: AbortReason | None = None
        self._post = post
        self._lock = threading.Lock()
        self._running = {"event loop", "worker"}
        self._reported = False

    @property
    def current(self) -> bool:
        """Whether this member still holds the resource, as far as it knows."""
        return self.tenure is not None and self.held

    @property
    def held(self) -> bool:
        """The same, also before the event loop has adopted it."""
        return self.aborted is None and not self._reported

    @property
    def busy_since(self) -> int | None:
        """Since when (ms awake) something has run for it, or its work has been waiting."""
        return self.waiting_since or (None if self.worker is None else self.worker.busy_since)

    def adopt(self, tenure: Tenure, worker: Worker) -> bool:
        """On the event loop: attaches the tenure and its worker. Returns False if it was aborted before."""
        with self._lock:
            self.tenure, self.worker = tenure, worker
            return self.aborted is None

    @property
    def surely_idle(self) -> bool:
        """Whether nothing of the program runs for it, as far as anybody can tell."""
        worker, tenure = self.worker, self.tenure
        if worker is None or tenure is None:
            return True
        is_used = self.closing or tenure.in_use or self.busy_since is not None
        return not is_used and worker.surely_idle

    def keep(self) -> None:
        """On the event loop: nobody asks for it any more."""
        if self.tenure is None or self.closing:
            return
        if self.tenure.ends:
            self.resigned = True
        else:
            self.tenure.keep()

    def begin_closing(self) -> bool:
        """On the event loop: ``on_revoked`` is about to run. Returns False if it was aborted before."""
        with self._lock:
            if self.aborted is not None:
                return False
            self.closing = True
            self._post(DrainBegun(self.resource, self.token))
            return True

    def abort(self, reason: AbortReason) -> None:
        """On the engine's thread: stops everything at once."""
        with self._lock:
            if self.aborted is not None:
                return
            self.aborted, worker = reason, self.worker
            if self.tenure is not None:
                self.tenure.aborted = True
        if worker is None:  # and it will not be adopted
            self._stopped("worker")
            self._stopped("event loop")
        else:
            worker.abort(reason, lambda: self._stopped("worker"))

    def loop_stopped(self) -> None:
        """On the event loop: nothing of this tenure runs there any more."""
        self._stopped("event loop")

    def report(self, event: Drained | Abandoned) -> None:
        """Reports to the session, once, how the tenure ended and how much was worked."""
        with self._lock:
            first, self._reported = not self._reported, True
        if first:
            effort = None if self.tenure is None else self.tenure.effort
            self._post(attrs.evolve(event, effort=effort))

    def _stopped(self, part: str) -> None:
        with self._lock:
            self._running.discard(part)
            done, reason = not self._running, self.aborted
        if done and reason is not None and reason != "lost":
            self.report(Abandoned(self.resource, self.token, reason))
