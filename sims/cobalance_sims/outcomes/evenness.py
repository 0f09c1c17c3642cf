"""How far from even resources are shared over time, and the fewest moves with which members can come and go.

Unevenness is the share of all resources that would have to move for every member to have the floor or the ceil of its
exact share (equal, or in proportion to capacity). Fairness is one minus its time-weighted mean.
"""

from __future__ import annotations


class Evenness:
    """Counts what members hold. Events cost O(1); changes of members or of the list cost O(members)."""

    def __init__(self) -> None:
        self.total = 0
        """Resources that count: neither halted nor being removed."""
        self._weights: dict[str, int] = {}
        self._held: dict[str, int] = {}
        self._bounds: dict[int, tuple[int, int]] = {}
        self._excess = self._deficit = self._owned = 0
        self._is_stale = True

    # -- what happens --------------------------------------------------------------------------------------------------

    def join(self, member: str, capacity: int) -> None:
        """Gives the member a share from now on."""
        self._weights[member] = capacity
        self._is_stale = True

    def suspend(self, member: str) -> None:
        """The member is leaving: everything it holds has to move."""
        if member in self._weights:
            self._weights[member] = 0
            self._is_stale = True

    def drop(self, member: str) -> None:
        """The member is gone; resources still recorded for it count as free."""
        if self._weights.pop(member, None) is not None:
            self._is_stale = True

    def count(self, delta: int) -> None:
        """Adds to the number of resources."""
        self.total += delta
        self._is_stale = True

    def hold(self, member: str, delta: int) -> None:
        """Adds to the number of resources a member holds."""
        before = self._held.get(member, 0)
        after = before + delta
        if after:
            self._held[member] = after
        else:
            self._held.pop(member, None)
        self._owned += delta
        if not self._is_stale:
            low, high = self._bounds[self._weights.get(member, 0)]
            self._excess += max(0, after - high) - max(0, before - high)
            self._deficit += max(0, low - after) - max(0, low - before)

    # -- what follows --------------------------------------------------------------------------------------------------

    def held_by(self, member: str) -> int:
        return self._held.get(member, 0)

    def share_of(self, member: str) -> int:
        """The fewest of the currently held resources that the member must have for an even share."""
        capacity = sum(self._weights.values())
        return min(self.total * self._weights[member] // capacity, self._owned) if capacity else 0

    @property
    def unevenness(self) -> float:
        """Current unevenness: 0 is even within one, 1 means that everything would have to move."""
        if self._is_stale:
            self._count_anew()
        if self.total <= 0 or not self._bounds:
            return 0.0
        lacking = self._deficit - max(0, self.total - self._owned)
        return min(1.0, max(self._excess, lacking, 0) / self.total)

    def _count_anew(self) -> None:
        self._is_stale = False
        capacity = sum(self._weights.values())
        self._bounds = {0: (0, 0)}
        for weight in set(self._weights.values()) - {0}:
            low, rest = divmod(self.total * weight, capacity)
            self._bounds[weight] = (low, low + bool(rest))
        self._excess = self._deficit = 0
        for member in self._weights.keys() | self._held.keys():
            low, high = self._bounds[self._weights.get(member, 0)]
            held = self._held.get(member, 0)
            self._excess += max(0, held - high)
            self._deficit += max(0, low - held)
