"""A set of delivery tags that costs what its gaps cost.

Messages that overtake one that waits may be millions, and what waits among them is a few: so the set is kept as runs of
neighbours.
"""

from __future__ import annotations

from bisect import bisect_right, insort


class TagSet:
    """Not thread-safe."""

    def __init__(self) -> None:
        self._starts: list[int] = []  # of the runs, ascending
        self._ends: dict[int, int] = {}  # start → last tag of the run
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, tag: int) -> bool:
        start = self._start_before(tag)
        return start is not None and tag <= self._ends[start]

    @property
    def last(self) -> int:
        """The highest tag, or 0."""
        return self._ends[self._starts[-1]] if self._starts else 0

    def add(self, tag: int) -> None:
        """Does nothing if it is there already."""
        before = self._start_before(tag)
        if before is not None and tag <= self._ends[before]:
            return
        self._count += 1
        end = self._ends.pop(tag + 1, None)  # of the run that begins behind it
        if end is not None:
            self._starts.remove(tag + 1)
        if before is not None and self._ends[before] == tag - 1:
            self._ends[before] = tag if end is None else end
        else:
            insort(self._starts, tag)
            self._ends[tag] = tag if end is None else end

    def pop_run(self, start: int) -> int:
        """Removes the run that begins with this tag, and returns its last tag; the one before `start` if there is none."""
        end = self._ends.pop(start, start - 1)
        if end >= start:
            self._starts.remove(start)
            self._count -= end + 1 - start
        return end

    def end_of_run(self, start: int) -> int:
        """The last tag of the run that begins with this tag; the one before `start` if there is none."""
        return self._ends.get(start, start - 1)

    def gap_before(self, tag: int) -> int:
        """The highest tag up to this one that is not in the set."""
        start = self._start_before(tag)
        return tag if start is None or self._ends[start] < tag else start - 1

    def discard_up_to(self, tag: int) -> None:
        """Removes this tag and all before it."""
        while self._starts and self._starts[0] <= tag:
            start = self._starts.pop(0)
            end = self._ends.pop(start)
            self._count -= min(end, tag) + 1 - start
            if end > tag:
                self._starts.insert(0, tag + 1)
                self._ends[tag + 1] = end

    def _start_before(self, tag: int) -> int | None:
        """Of the last run that begins at this tag or before."""
        index = bisect_right(self._starts, tag)
        return self._starts[index - 1] if index else None
