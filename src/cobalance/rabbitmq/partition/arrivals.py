"""Arrival times of a tenure's unacknowledged messages, to a tenth of a second, at almost no cost."""

from __future__ import annotations

from collections import deque

STEP_MS = 100

MOST = 1_000
"""So many steps are remembered. While one message waits for long, others may arrive and be acknowledged for hours."""


class Arrivals:
    """Messages are numbered 1, 2, 3 … in order of arrival and acknowledgement. Not thread-safe."""

    def __init__(self) -> None:
        self._marks: deque[tuple[int, int]] = deque()
        """The first message of each step, and when it arrived."""

    def note(self, number: int, acknowledged: int, now: int) -> None:
        """Records an arrival."""
        if self._marks and now - self._marks[-1][1] < STEP_MS:
            return
        self._marks.append((number, now))
        self._forget(acknowledged)
        if len(self._marks) > MOST:  # of the first, nothing is lost; what is behind it looks up to twice as old
            self._marks = deque(it for number, it in enumerate(self._marks) if not number % 2)

    def since(self, acknowledged: int) -> int | None:
        """When the first unacknowledged message arrived."""
        self._forget(acknowledged)
        return self._marks[0][1] if self._marks else None

    def _forget(self, acknowledged: int) -> None:
        while len(self._marks) > 1 and self._marks[1][0] <= acknowledged + 1:
            self._marks.popleft()
