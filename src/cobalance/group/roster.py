"""The assignments of one process, by resource. One that came back before its last tenure ended has several."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cobalance.group.assignment import Assignment
    from cobalance.group.tenure import Tenure


class Roster:
    """Assignments, each linked to the previous one of the same resource. The engine adds, the event loop removes.

    They are read without the lock, which a thread may hold for ever that a fork of the process does not have.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[str, Assignment] = {}

    def add(self, batch: Iterable[Assignment]) -> None:
        """Adds the newest assignments of their resources."""
        with self._lock:
            for it in batch:
                it.predecessor = self._newest.get(it.resource)
                self._newest[it.resource] = it

    def remove(self, gone: Assignment) -> None:
        """Removes an assignment, so that its successor no longer waits for it."""
        with self._lock:
            it = self._newest.get(gone.resource)
            if it is gone:
                self._put(gone.resource, gone.predecessor)
                return
            while it is not None and it.predecessor is not gone:
                it = it.predecessor
            if it is not None:
                it.predecessor = gone.predecessor

    def _put(self, resource: str, it: Assignment | None) -> None:
        if it is None:
            del self._newest[resource]
        else:
            self._newest[resource] = it

    def find(self, resource: str, token: int) -> Assignment | None:
        """The assignment with this token, if any."""
        return next((it for it in _line_of(self._newest.get(resource)) if it.token == token), None)

    def current(self, resource: str) -> Assignment | None:
        """The assignment under which the resource is held now, if any."""
        it = self._newest.get(resource)
        return it if it is not None and it.current else None

    @property
    def tenures(self) -> dict[str, Tenure]:
        """The tenures held now, by resource."""
        return {it.resource: it.tenure for it in self.everything() if it.tenure is not None and it.current}

    def everything(self) -> list[Assignment]:
        """All assignments, including those that only delay a successor."""
        return [it for newest in self._newest.copy().values() for it in _line_of(newest)]


def _line_of(it: Assignment | None) -> Iterator[Assignment]:
    while it is not None:
        yield it
        it = it.predecessor
