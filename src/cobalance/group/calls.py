"""What the thread that calls the coordinator does next: what the member needs, else an errand for somebody else.

A request decides whether the member keeps what it holds; an errand answers a question, and anybody may ask as often as
they like. So an errand waits at most once, behind everything else, and is not run again for a while.
"""

from __future__ import annotations

import queue
from collections.abc import Callable

import attrs

from cobalance.coordinator.requests import Request

Function = Callable[[], None]
"""A best-effort call whose outcome does not matter."""

ERRAND_MS = 100
"""The shortest time between two runs of one errand. Who asks waits for half a second (`Coordinator.ask_in_flight`)."""


@attrs.frozen
class _Errand:
    run: Function


class Calls:
    """A queue that any thread fills, and one thread empties.

    Args:
        clock_ms: the member's own clock.
    """

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._queue: queue.SimpleQueue[Request | Function | _Errand | None] = queue.SimpleQueue()
        self._asked: set[Function] = set()
        self._due: dict[Function, int] = {}
        self._ran_at: dict[Function, int] = {}

    def put(self, call: Request | Function | None) -> None:
        """Adds what the member needs; None ends the thread."""
        self._queue.put(call)

    def ask(self, errand: Function) -> None:
        """Adds an errand, unless it waits already."""
        if errand not in self._asked:
            self._asked.add(errand)
            self._queue.put(_Errand(errand))

    def get(self) -> Request | Function | None:
        """Waits for the next call. None ends the thread."""
        while True:
            try:
                call = self._queue.get(timeout=self._wait_s())
            except queue.Empty:
                return self._take_errand()
            if not isinstance(call, _Errand):
                return call
            self._due[call.run] = self._ran_at.get(call.run, self._clock_ms() - ERRAND_MS) + ERRAND_MS

    def _wait_s(self) -> float | None:
        return max(0, min(self._due.values()) - self._clock_ms()) / 1000 if self._due else None

    def _take_errand(self) -> Function:
        errand = min(self._due, key=lambda it: self._due[it])
        del self._due[errand]
        self._asked.discard(errand)  # what is asked from now on is another question
        self._ran_at[errand] = self._clock_ms()
        return errand
