"""What is compared: the figures of one run, computed from real and simulated evidence by the same code."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import attrs

from cobalance_sims.outcomes import RunFacts, fold
from proof.fidelity.telling import Telling, TenureCallback

PLANNED = "released"


@attrs.frozen(kw_only=True)
class Figures:
    """The figures of one run. Tuples hold one value, in ms, for each occurrence."""

    pauses_ms: tuple[float, ...]
    """A planned handover as users see it: from ``on_revoked`` at the old holder to ``on_assigned`` at the new one."""
    gaps_ms: tuple[float, ...]
    """Every handover as the journal shows it: from the end of a tenure to the grant of the next."""
    drains_ms: tuple[float, ...]
    """Revocations that the holder ended itself: from the request to the end of the tenure."""
    heals_ms: tuple[float, ...]
    """For each killed process: until all its resources are owned again."""
    counts: dict[str, int]
    """Columns of the outcome, and ``duplicates``: how often a handler started on an already started message."""


COUNTED = (
    "handovers",
    "moves",
    "minimum_moves",
    "deadline_moves",
    "forced",
    "cancelled",
    "expiries",
    "false_expiries",
    "crashes",
)


def figures(telling: Telling) -> Figures:
    """Computes the figures of one run, up to the end of its story."""
    known = RunFacts(round(telling.begun_at_ms), round(telling.ended_at_ms))
    folded = fold(telling.events(), "truth", telling.source, known)
    rows, outcome = folded.handover_dicts(), folded.outcome_dict()
    counts = {name: outcome[name] for name in COUNTED}
    counts["duplicates"] = sum(count - 1 for count in Counter(telling.handled).values())
    counts["messages"] = len(set(telling.handled))
    return Figures(
        pauses_ms=tuple(_pauses(telling.turns, rows)),
        gaps_ms=_times(rows, "gap_ms"),
        drains_ms=_times([row for row in rows if row["how"] in (PLANNED, "abandoned")], "drain_ms"),
        heals_ms=tuple(map(float, outcome["heal_ms"])),
        counts=counts,
    )


def _times(rows: Sequence[dict[str, Any]], name: str) -> tuple[float, ...]:
    return tuple(float(row[name]) for row in rows if row[name] is not None)


def _pauses(turns: Sequence[TenureCallback], rows: Sequence[dict[str, Any]]) -> list[float]:
    """Only tenures that were drained and released; forced, abandoned and crashed ones are not planned handovers."""
    planned = {row["handover_id"] for row in rows if row["how"] == PLANNED}
    by_partition: dict[int, list[TenureCallback]] = defaultdict(list)
    for turn in sorted(turns, key=lambda it: it.at_ms):
        by_partition[turn.partition].append(turn)
    pauses = []
    for own in by_partition.values():
        ends = {turn.token: turn.at_ms for turn in own if not turn.begins and turn.token in planned}
        begins = sorted((turn.token, turn.at_ms) for turn in own if turn.begins)
        for token, ended_at in ends.items():
            later = next((at for next_token, at in begins if next_token > token), None)
            if later is not None:
                pauses.append(later - ended_at)
    return pauses
