"""Indexes tenures by what has to happen to them next: a member may hold 100,000, too many to scan per event."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING

from cobalance.member.holding import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cobalance.member.holding import Holding

Pile = dict[str, "Holding"]
"""By resource, in order of arrival."""


class HoldingIndex:
    """Files each tenure in the piles it belongs to. A changed tenure is filed again by itself."""

    def __init__(self, holdings: Iterable[Holding]) -> None:
        self.exposed: Pile = {}
        """User code may use them, without a broker that guards them."""
        self.guarded: Pile = {}
        """User code may use them, and a broker admits no other consumer."""
        self.aborted: Pile = {}
        """Aborted, and not stopped yet."""
        self.finished: Pile = {}
        """Ended in order: to be released, or kept for the rejoin grace period."""
        self.unstored: Pile = {}
        """The finished ones whose offset has yet to be sent to the coordinator."""
        self.given_up: Pile = {}
        """Ended with work unfinished: to be released."""
        self.unreported: Pile = {}
        """Turned busy or idle since the last report to the coordinator."""
        self._piles: tuple[tuple[Pile, Callable[[Holding], bool]], ...] = (
            (self.exposed, lambda held: held.working and not held.guarded),
            (self.guarded, lambda held: held.working and held.guarded),
            (self.aborted, lambda held: held.state is State.ABORTED),
            (self.finished, _is_finished),
            (self.unstored, lambda held: _is_finished(held) and held.offset is not None),
            (self.given_up, lambda held: held.state is State.ENDED and bool(held.reason)),
            (self.unreported, lambda held: held.working and held.reported_busy != held.is_busy),
        )
        self.token_sum = 0
        """Of the tenures on record."""
        self._tokens: dict[str, int] = {}
        self._clocks: dict[str, int] = {}
        self._alarms: list[tuple[int, int, str]] = []
        """A heap of all clocks ever set that have not run out. Outdated ones are skipped when they come up."""
        self._set = count()
        for held in holdings:
            self.file(held.resource, held)

    def file(self, resource: str, held: Holding | None) -> None:
        """Files the tenure of a resource under its current state; ``None`` removes it."""
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
        """The resources whose clocks have run out. Each is returned once, and has to be changed and filed again."""
        due = []
        while (at := self.next_clock()) is not None and at <= now:
            resource = heapq.heappop(self._alarms)[2]
            del self._clocks[resource]
            due.append(resource)
        return due

    @property
    def is_any_in_use(self) -> bool:
        """Whether the program may still be working any of them."""
        return bool(self.exposed or self.guarded or self.aborted)


def _is_finished(held: Holding) -> bool:
    return held.state is State.ENDED and not held.reason
