"""Where the reading of a stream has come to: maps delivery tags, which acks are about, to offsets."""

from __future__ import annotations

from collections import deque

BEFORE_FIRST = -1
"""Committed where there was no message yet, so that whatever is missing before the first one is a gap."""


class Position:
    """Messages get tags in the order of their arrival. Not thread-safe."""

    def __init__(self, after: int) -> None:
        self._offset = after
        self._arrived: deque[int] = deque()  # offsets of the messages behind the position, in order of their tags
        self._counted = 0  # messages at or before the position

    def arrived(self, offset: int) -> None:
        """The next message has this offset."""
        self._arrived.append(offset)

    def at(self, settled: int) -> int:
        """The offset of the last message processed without a gap, if so many are; where reading began, before that."""
        while self._counted < settled:
            self._offset = max(self._offset, self._arrived.popleft())
            self._counted += 1
        return self._offset

    def last_tag(self, offset: int) -> int:
        """The tag of the last message that arrived up to this offset."""
        return self._counted + sum(1 for arrived in self._arrived if arrived <= offset)
