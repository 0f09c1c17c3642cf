"""The broker's clock, which a test can advance."""

from __future__ import annotations

import time
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Clock:
    """Real time plus what a test has skipped. On the broker's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._skipped_ms = 0.0
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()
        self._wake_up: asyncio.TimerHandle | None = None

    @property
    def now_ms(self) -> float:
        """Milliseconds on a clock that never goes back."""
        return self._loop.time() * 1000 + self._skipped_ms

    @property
    def time_s(self) -> float:
        """Seconds since 1970."""
        return time.time() + self._skipped_ms / 1000

    def call_at(self, due_ms: float, job: Callable[[], object]) -> None:
        """Runs the job at that time. It cannot be cancelled, and must look whether there is anything to do."""
        entry = due_ms, next(self._numbers), job
        heappush(self._due, entry)
        if self._due[0] is entry:
            self._set_alarm()

    def advance(self, ms: float) -> None:
        """Skips this much time, and runs what becomes due, in order."""
        target = self.now_ms + ms
        while self._due and self._due[0][0] <= target:
            self._skipped_ms += max(0.0, self._due[0][0] - self.now_ms)
            self._run_due()
        self._skipped_ms += max(0.0, target - self.now_ms)

    def _run_due(self) -> None:
        while self._due and self._due[0][0] <= self.now_ms:
            heappop(self._due)[2]()
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        if self._due:
            self._wake_up = self._loop.call_later(max(0.0, self._due[0][0] - self.now_ms) / 1000, self._run_due)
