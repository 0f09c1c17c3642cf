"""Tenures by what is next for them. A member may hold a hundred thousand, and no event may look at all of them."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING

from cobalance.member.holding import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cobalance.member.holding import Holding

Pile = dict[str, "Holding"]
"""By resource, in the order in which they came to it."""


class HoldingIndex:
    """Each tenure is in the piles where it belongs, and is filed again, alone, when it has changed."""

    def __init__(self, holdings: Iterable[Holding]) -> None:
        self.exposed: Pile = {}
        """User code may touch them, and no broker guards them."""
        self.guarded: Pile = {}
        """User code may touch them, and a broker admits nobody else."""
        self.aborted: Pile = {}
        """Told to stop, and waited for."""
        self.finished: Pile = {}
        """Ended in order: to be released, or kept for the rejoin grace."""
        self.unstored: Pile = {}
        """Those of the finished whose offset the coordinator has yet to hear."""
        self.given_up: Pile = {}
        """Ended with work unfinished: to be released."""
        self.untold: Pile = {}
        """Turned busy or idle since the coordinator was last told."""
        self._piles: tuple[tuple[Pile, Callable[[Holding], bool]], ...] = (
            (self.exposed, lambda held: held.working and not held.guarded),
            (self.guarded, lambda held: held.working and held.guarded),
            (self.aborted, lambda held: held.state is State.ABORTED),
            (self.finished, _is_finished),
            (self.unstored, lambda held: _is_finished(held) and held.offset is not None),
            (self.given_up, lambda held: held.state is State.ENDED and bool(held.reason)),
            (self.untold, lambda held: held.working and held.told_busy != held.is_busy),
        )
        self.token_sum = 0
        """Of what is on record."""
        self._tokens: dict[str, int] = {}
        self._clocks: dict[str, int] = {}
        self._alarms: list[tuple[int, int, str]] = []
        """A heap of all clocks that were ever set and have not run out; those that are void now are left out when they come up."""
        self._set = count()
        for held in holdings:
            self.file(held.resource, held)

    def file(self, resource: str, held: Holding | None) -> None:
        """Puts what is held of a resource where it belongs now; ``None`` when nothing is."""
        for pile, belongs in self._piles:
            if held is not None and belongs(held):
                pile[resource] = held
            else:
                pile.pop(resource, None)
        self._count(resource, held.token if held is not None and held.on_record else 0)
        self._set_clock(resource, held.next_clock() if held is not None else None)

    def _count(self, resource: str, token: int) -> None:
        self.token_sum += token - self._tokens.pop(resource, 0)
        if token:
            self._tokens[resource] = token

    def _set_clock(self, resource: str, at: int | None) -> None:
        if at == self._clocks.get(resource):
            return
        if at is None:
            del self._clocks[resource]
        else:
            self._clocks[resource] = at
            heapq.heappush(self._alarms, (at, next(self._set), resource))

    def next_clock(self) -> int | None:
        """When the first clock runs out."""
        while self._alarms and self._clocks.get(self._alarms[0][2]) != self._alarms[0][0]:
            heapq.heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    def take_due(self, now: int) -> list[str]:
        """The resources whose clocks have run out; each is named once, and is to be changed and filed again."""
        due = []
        while (at := self.next_clock()) is not None and at <= now:
            resource = heapq.heappop(self._alarms)[2]
            del self._clocks[resource]
            due.append(resource)
        return due

    @property
    def is_any_touched(self) -> bool:
        """Whether user code may still touch anything."""
        return bool(self.exposed or self.guarded or self.aborted)


def _is_finished(held: Holding) -> bool:
    return held.state is State.ENDED and not held.reason
