"""Which messages of a partition may be begun, where order is kept by key: of each key one at a time, oldest first.

    ready ──take──▶ begun ──finish──▶ gone; the next of its key is ready
      ▲               │
      │            put back
      ├───────────────┤
      └──── due ◀── waiting (it failed, and is tried again later)

A key in any of these states has one line: its messages in order of arrival. Those that were taken stay first in it until
they are finished, so that nothing behind them can be begun, however they end.

Of several keys, the oldest message goes first. A retry takes its turn behind what had arrived when it became due: so
neither do those that fail again and again keep others from their first try, nor do new arrivals keep them from theirs.
Pure; not thread-safe.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence


class Keyed(Protocol):
    """What is ordered."""

    @property
    def key(self) -> Hashable:
        """What order is kept by."""

    @property
    def tag(self) -> int:
        """Its place in the order of arrival."""


T = TypeVar("T", bound=Keyed)


@attrs.define(eq=False)  # not frozen, which takes longer to make
class Key:
    """All keys that are equal, as one object, which is compared by identity."""

    value: Hashable
    hash: int


class Keys:
    """The keys of unfinished messages. The program's ``__hash__`` and ``__eq__``, which may raise anything and change their
    minds, are called when a message arrives, and never again.
    """

    def __init__(self) -> None:
        self._by_hash: dict[int, list[Key]] = {}

    def find(self, value: Hashable) -> Key:
        """The key of a message that has arrived. Raises what hashing and comparing it raise, and has changed nothing then."""
        number = hash(value)
        for key in self._by_hash.get(number, ()):
            if key.value is value or value == key.value:
                return key
        bool(value == value)  # noqa: PLR0124 -- what raises here would raise over the messages behind it
        key = Key(value, number)
        self._by_hash.setdefault(number, []).append(key)
        return key

    def forget(self, key: Key) -> None:
        """No message has it any more."""
        same = self._by_hash[key.hash]
        same.remove(key)
        if not same:
            del self._by_hash[key.hash]

    def __len__(self) -> int:
        return sum(map(len, self._by_hash.values()))


class KeyOrder(Generic[T]):
    """The messages of one partition that are not finished. `now` and times are monotonic ms."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, deque[T]] = {}
        self._taken: dict[Hashable, int] = {}
        """Of each key at work, how many messages were taken together."""
        self._ready: list[tuple[int, Hashable]] = []
        """A heap of the first tags of lines, so that the oldest message goes first."""
        self._due: deque[tuple[int, Hashable]] = deque()
        """The lines whose retries are due, each with the newest tag that goes before it."""
        self._newest = 0
        self._later: list[tuple[float, int, Hashable]] = []
        """A heap of the lines that wait, by time."""

    def __bool__(self) -> bool:
        return bool(self._lines)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._lines

    def add(self, item: T) -> None:
        """A message has arrived, behind all others."""
        self._newest = item.tag
        line = self._lines.get(item.key)
        if line is None:
            self._lines[item.key] = deque((item,))
            heappush(self._ready, (item.tag, item.key))
        else:
            line.append(item)

    def take(self, now: float) -> T | None:
        """Begins the next message whose turn it is; None if nothing may be begun."""
        while self._later and self._later[0][0] <= now:
            self._due.append((self._newest, heappop(self._later)[2]))
        if self._due and not (self._ready and self._ready[0][0] <= self._due[0][0]):
            _, key = self._due.popleft()
        elif self._ready:
            _, key = heappop(self._ready)
        else:
            return None
        self._taken[key] = 1
        return self._lines[key][0]

    def take_next(self, key: Hashable, is_alone: Callable[[T], bool] = lambda _: False) -> T | None:
        """Begins the next message of a key together with those taken before; None if there is none, or it is to be alone."""
        line, taken = self._lines[key], self._taken[key]
        if len(line) == taken or is_alone(line[taken]):
            return None
        self._taken[key] += 1
        return line[taken]

    def finish(self, key: Hashable) -> None:
        """What was taken of this key is finished, or given up."""
        line = self._lines[key]
        for _ in range(self._taken.pop(key)):
            line.popleft()
        if line:
            heappush(self._ready, (line[0].tag, key))
        else:
            del self._lines[key]

    def put_back(self, key: Hashable, items: Sequence[T], at: float | None = None) -> None:
        """Of what was taken of this key, these are unfinished: they come first in it again. With a time, they are a retry."""
        line = self._lines[key]
        for _ in range(self._taken.pop(key)):
            line.popleft()
        line.extendleft(reversed(items))
        if at is None:
            heappush(self._ready, (line[0].tag, key))
        else:
            heappush(self._later, (at, line[0].tag, key))

    def is_ready(self, now: float) -> bool:
        """Whether something may be begun."""
        return bool(self._ready or self._due) or (bool(self._later) and self._later[0][0] <= now)

    def next_in(self, now: float) -> float | None:
        """How long until the next message that waits is due; None if none waits."""
        return max(0.0, self._later[0][0] - now) if self._later else None

    def clear(self) -> list[T]:
        """Removes and returns everything that was not taken."""
        left = []
        for key, line in list(self._lines.items()):
            taken = self._taken.get(key, 0)
            while len(line) > taken:
                left.append(line.pop())
            if not line:
                del self._lines[key]
        self._ready, self._later = [], []
        self._due.clear()
        return left
