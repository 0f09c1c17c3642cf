"""What a fold counts, and the outcome row that it produces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.ownership import CUT_SHORT
from cobalance.settings import HOUR_MS
from cobalance_sims.histogram import Histogram, bin_of, histogram
from cobalance_sims.records import OK, OUTCOME

if TYPE_CHECKING:
    from cobalance_sims.outcomes.crashes import Crashes


_KINDS = {
    "forced": "forced",
    "abandoned": "abandoned",
    "cancelled": "cancelled",
    "withdrawn": "withdrawn",
    "inherited": "inherited",
    "halted": "halted",
    "refused": "refused",
    "barrier": "barriers",
}
"""Kind of event → the column that counts it."""

UNMOVED = frozenset({"inherited", "withdrawn"})
"""These are no moves: nobody else got the resource, or nobody had started."""

UNCLEAN = CUT_SHORT | {"expired"}
"""Ends of a tenure that leave messages unacknowledged."""


@attrs.define(eq=False)
class Tally:
    """Sums and histograms of one run."""

    counts: Counter[str] = attrs.Factory(Counter)
    gaps: Histogram = attrs.Factory(dict)
    drains: Histogram = attrs.Factory(dict)
    lates: Histogram = attrs.Factory(dict)
    duplicates: int | None = None
    member_ms: int = 0
    resource_ms: int = 0
    uneven_ms: float = 0.0
    shared_ms: int = 0
    """How long there was something to share and a member to share it."""

    def saw(self, kind: str) -> None:
        """Counts an event of this kind."""
        name = _KINDS.get(kind)
        if name is not None:
            self.counts[name] += 1

    def ended(self, row: dict[str, Any]) -> None:
        """Counts the end of a tenure."""
        _count(self.drains, row["drain_ms"])
        _count(self.lates, row["late_ms"])
        self.counts["draining_resource_ms"] += row["drain_ms"] or 0
        self.counts["unclean_ends"] += row["how"] in UNCLEAN
        self.counts["deadline_moves"] += row["how"] == "forced" or row["reason"] == "deadline"
        if row["duplicates_at_risk"] is not None:
            self.duplicates = (self.duplicates or 0) + row["duplicates_at_risk"]

    def taken(self, row: dict[str, Any]) -> None:
        """Counts a completed handover."""
        self.counts["handovers"] += 1
        self.counts["moves"] += row["how"] not in UNMOVED and row["taker"] != row["giver"]
        _count(self.gaps, row["gap_ms"])

    def outcome(
        self, header: Mapping[str, Any], crashes: Crashes, observed_ms: int, ended_at_ms: int
    ) -> dict[str, Any]:
        """Returns the columns of :data:`OUTCOME`; values in ``header`` override the counted ones."""
        heal_ms, unhealed_ms = crashes.heal_ms, crashes.unhealed_ms(ended_at_ms)
        silent = header.get("silent_resource_ms")
        values: dict[str, Any] = {
            "status": OK,
            **{it.name: self.counts[it.name] for it in OUTCOME.columns if it.type == "long" and not it.nullable},
            "observed_ms": observed_ms,
            "member_hours": self.member_ms / HOUR_MS,
            "resource_hours": self.resource_ms / HOUR_MS,
            "expiries": len(crashes.expiries),
            "false_expiries": crashes.false,
            "crashes": len(crashes.expiries) - crashes.false,
            "heal_ms": heal_ms,
            "heal_hist": histogram(heal_ms),
            "unhealed": len(unhealed_ms),
            "unhealed_ms": unhealed_ms,
            "unavailable_resource_ms": self.counts["unowned_resource_ms"] + (silent or 0),
            "duplicates_at_risk": self.duplicates,
            "fairness": 1 - self.uneven_ms / self.shared_ms if self.shared_ms else None,
            "gap_hist": self.gaps,
            "drain_hist": self.drains,
            "late_hist": self.lates,
        }
        return values | {name: value for name, value in header.items() if value is not None}


def _count(counts: Histogram, ms: int | None) -> None:
    if ms is not None:
        bin_ = bin_of(max(0, ms))  # the clock may have been set back
        counts[bin_] = counts.get(bin_, 0) + 1
