"""Virtual time: one queue of what is going to happen, ordered by time and then by the order of scheduling."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

MOST_STEPS_AT_ONCE = 50_000


class TimeStandsStill(AssertionError):
    """Things keep happening without any time passing: somebody turns in circles."""


class Clock:
    """Whole milliseconds since the world began. Nothing waits: time jumps to the next entry."""

    def __init__(self) -> None:
        self.now = 0
        self.steps = 0
        self._queue: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._scheduled = 0
        self._at_once = 0

    def at(self, when: int, do: Callable[[Any], None], argument: Any = None) -> None:
        """Schedules ``do(argument)``; what lies in the past happens now."""
        self._scheduled += 1
        heapq.heappush(self._queue, (max(when, self.now), self._scheduled, do, argument))

    def after(self, ms: int, do: Callable[[Any], None], argument: Any = None) -> None:
        """The same, counted from now."""
        self._scheduled += 1
        heapq.heappush(self._queue, (self.now + ms, self._scheduled, do, argument))

    def run(self, ms: int, until: Callable[[], bool] | None = None) -> bool:
        """Lets time pass; whether ``until``, which is asked after each step, came true before the time was up.

        Raises:
            TimeStandsStill: too much happens at one moment.
        """
        end, queue = self.now + ms, self._queue
        while queue and queue[0][0] <= end:
            at, _, do, argument = heapq.heappop(queue)
            self.steps += 1
            if at != self.now:
                self.now, self._at_once = at, 0
            else:
                self._count_standstill()
            do(argument)
            if until is not None and until():
                return True
        self.now = end
        return False

    def _count_standstill(self) -> None:
        self._at_once += 1
        if self._at_once > MOST_STEPS_AT_ONCE:
            raise TimeStandsStill(f"{MOST_STEPS_AT_ONCE} steps at {self.now} ms")
