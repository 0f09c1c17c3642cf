"""What one process has been given, by resource. A resource that came back before its last tenure was quite over has two."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cobalance.group.assignment import Assignment


class Roster:
    """Assignments, each linked to the one before it of the same resource. The engine adds, the event loop removes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: dict[str, Assignment] = {}

    def add(self, batch: Iterable[Assignment]) -> None:
        """These are the newest of their resources."""
        with self._lock:
            for it in batch:
                it.predecessor = self._newest.get(it.resource)
                self._newest[it.resource] = it

    def remove(self, gone: Assignment) -> None:
        """This one is over; whoever came after it has one less to wait for."""
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
        """The assignment of this tenure."""
        with self._lock:
            return next((it for it in _line_of(self._newest.get(resource)) if it.token == token), None)

    def current(self, resource: str) -> Assignment | None:
        """The assignment under which the resource is held now."""
        with self._lock:
            it = self._newest.get(resource)
            return it if it is not None and it.current else None

    def everything(self) -> list[Assignment]:
        """All of them, those included that are only waited for."""
        with self._lock:
            return [it for newest in self._newest.values() for it in _line_of(newest)]


def _line_of(it: Assignment | None) -> Iterator[Assignment]:
    while it is not None:
        yield it
        it = it.predecessor
