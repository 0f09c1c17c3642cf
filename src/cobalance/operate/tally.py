"""Counts what a group's journal tells: rebalances, handovers, refusals. From when it is made, so that it only rises."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cobalance.journal import JournalFollower
from cobalance.operate.moves import Losses

if TYPE_CHECKING:
    from cobalance.journal import Journal, JournalEntry

REBALANCES = {
    "joined": "join",
    "left": "leave",
    "expired_member": "crash",
    "added": "resources",
    "removing": "resources",
    "barrier": "eager",
}
"""Kind of entry → why the group was assigned again; and "grace", when a process did not come back for its place; and
"data_loss", see :class:`Losses`.
"""

DATA_LOSS = "data_loss"

REASONS = (*dict.fromkeys(REBALANCES.values()), "grace", DATA_LOSS)

ENDS = {"released": "planned", "abandoned": "abandoned", "cancelled": "cancelled", "expired": "expired"}
"""Kind of entry → how a handover ended, unless it overran, or a handler had failed."""

OUTCOMES = ("planned", "forced", "failed", "abandoned", "cancelled", "expired")

FENCED_VERBS = ("claim", "commit", "release")

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Tally:
    """What happened in one group since this was made."""

    def __init__(self, journal: Journal) -> None:
        self._follower = JournalFollower.from_newest(journal)
        self._last_kind = ""
        self._is_loss = Losses().take
        self.rebalances: Counter[str] = Counter()
        """Reason → number."""
        self.handovers: Counter[str] = Counter()
        """Outcome → number."""
        self.fenced: Counter[str] = Counter()
        """Verb → number."""
        self.durations = Durations()
        self.last_rebalance_ms: int | None = None
        """In group time; None before the first."""

    def read(self) -> None:
        """Counts what is new.

        Raises:
            ServerError: the journal could not be read.
        """
        for entry in self._follower.entries():
            if self._is_loss(entry):
                self._count(DATA_LOSS, entry)
            self._count_change(entry)
            self._count_end(entry)

    def _count_change(self, entry: JournalEntry) -> None:
        kind, before = entry.kind, self._last_kind
        self._last_kind = kind
        reason = "grace" if (kind, entry.reason) == ("expired_member", "grace") else REBALANCES.get(kind)
        if reason is not None and not (reason == REBALANCES.get(before) == "resources"):  # a list is one reason
            self._count(reason, entry)

    def _count(self, reason: str, entry: JournalEntry) -> None:
        self.rebalances[reason] += 1
        self.last_rebalance_ms = entry.at_ms

    def _count_end(self, entry: JournalEntry) -> None:
        kind = entry.kind
        outcome = "forced" if entry.is_overrun else "failed" if entry.is_failure else ENDS.get(kind)
        if outcome is not None:
            self.handovers[outcome] += 1
            if entry.drain_ms and kind != "cancelled":  # 0 where nobody had asked for it
                self.durations.add(entry.drain_ms / 1000)
        verb, _, verdict = entry.reason.partition(" ")
        if kind == "refused" and verdict in {"", "FENCED"}:
            self.fenced[verb] += 1


class Durations:
    """A cumulative histogram, as Prometheus has it."""

    def __init__(self, bounds: Sequence[float] = BUCKETS) -> None:
        self._bounds, self._counts = bounds, [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound → how many were not longer."""
        total, found = 0, []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            found.append((bound, float(total)))
        return found
