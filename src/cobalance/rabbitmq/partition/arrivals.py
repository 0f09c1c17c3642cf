"""When the messages of one tenure came, as far as they are not acknowledged: to a tenth of a second, at next to no cost a message."""

from __future__ import annotations

from collections import deque

STEP_MS = 100


class Arrivals:
    """Messages count 1, 2, 3 … in the order in which they come and are acknowledged. Not thread-safe."""

    def __init__(self) -> None:
        self._marks: deque[tuple[int, int]] = deque()
        """The first message of each step, and when it came."""

    def note(self, number: int, acknowledged: int, now: int) -> None:
        """This message came."""
        if self._marks and now - self._marks[-1][1] < STEP_MS:
            return
        self._marks.append((number, now))
        self._forget(acknowledged)

    def since(self, acknowledged: int) -> int | None:
        """When the first message came that is not acknowledged."""
        self._forget(acknowledged)
        return self._marks[0][1] if self._marks else None

    def _forget(self, acknowledged: int) -> None:
        while len(self._marks) > 1 and self._marks[1][0] <= acknowledged + 1:
            self._marks.popleft()
