"""Virtual time: one queue of future events, ordered by time and then by the order of scheduling."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

MOST_STEPS_AT_ONCE = 50_000


class TimeStandsStill(AssertionError):
    """Events keep happening without time passing: a loop."""


class Clock:
    """Whole milliseconds since the world began. Nothing waits: time jumps to the next entry."""

    def __init__(self) -> None:
        self.now = 0
        self.steps = 0
        self._queue: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._scheduled = 0
        self._at_once = 0
        self._end = 0
        self.skipped = 0
        """Idle time left out so far, ms."""

    @property
    def story(self) -> int:
        """Milliseconds since the story began, including the time left out."""
        return self.now + self.skipped

    def plan(self, ms: int, do: Callable[[Any], None], argument: Any = None) -> None:
        """Schedules an event of the story itself, as :meth:`after` does: time is never skipped past it."""
        self.after(ms, self._tell, (do, argument))

    @staticmethod
    def _tell(what: tuple[Callable[[Any], None], Any]) -> None:
        what[0](what[1])

    def forget_plan(self) -> None:
        """Cancels all remaining events of the story."""
        self._queue[:] = [entry for entry in self._queue if entry[2] is not self._tell]
        heapq.heapify(self._queue)

    def skip_idle(self, period_ms: int) -> None:
        """Leaves out the time until the next entry of the story, or until the end of this run: everything else in the
        queue keeps its distance from now. The caller knows that nothing would change, and that events in between recur
        in each such period; only whole periods are left out.
        """
        tell = self._tell
        planned = [entry[0] for entry in self._queue if entry[2] is tell]
        ms = min([self._end, *planned]) - self.now
        ms -= ms % period_ms
        if ms > 0:
            self._queue[:] = [(at - ms, n, do, it) if do is tell else (at, n, do, it) for at, n, do, it in self._queue]
            heapq.heapify(self._queue)
            self._end -= ms
            self.skipped += ms

    def at(self, when: int, do: Callable[[Any], None], argument: Any = None) -> None:
        """Schedules ``do(argument)``; a time in the past means now."""
        self._scheduled += 1
        heapq.heappush(self._queue, (max(when, self.now), self._scheduled, do, argument))

    def after(self, ms: int, do: Callable[[Any], None], argument: Any = None) -> None:
        """Schedules ``do(argument)`` in ``ms`` from now."""
        self._scheduled += 1
        heapq.heappush(self._queue, (self.now + ms, self._scheduled, do, argument))

    def run(self, ms: int, until: Callable[[], bool] | None = None) -> bool:
        """Lets time pass; returns whether ``until``, which is checked after each step, came true in time.

        Raises:
            TimeStandsStill: too much happens at one moment.
        """
        self._end, queue = self.now + ms, self._queue
        while queue and queue[0][0] <= self._end:
            at, _, do, argument = heapq.heappop(queue)
            self.steps += 1
            if at != self.now:
                self.now, self._at_once = at, 0
            else:
                self._count_standstill()
            do(argument)
            if until is not None and until():
                return True
        self.now = self._end
        return False

    def _count_standstill(self) -> None:
        self._at_once += 1
        if self._at_once > MOST_STEPS_AT_ONCE:
            raise TimeStandsStill(f"{MOST_STEPS_AT_ONCE} steps at {self.now} ms")
