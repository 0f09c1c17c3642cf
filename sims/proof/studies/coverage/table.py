"""What came of it, as a table in Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, median
from typing import Any

from cobalance_sims.calibrate.interval import share, short
from proof.studies.coverage.judgement import COSTS

GOALS = {"intervals": "85 to 95 %", "no worse": "95 % or more"}
SURELY = NormalDist().inv_cdf(0.95)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """All of it."""
    lines = [f"{len(rows)} true churns.", "", "| | measured | 95 % interval | goal |", "|---|---:|---:|---:|"]
    both = []
    for cost in COSTS:
        estimates = [it for row in rows for it in _told(row, cost)]
        both += estimates
        lines.append(
            _line(
                f"{cost.replace('_', ' ')}: 90 % intervals that hold it",
                [holds(it) for it in estimates],
                GOALS["intervals"],
            )
        )
    lines.append(_line("all of these together", [holds(it) for it in both], GOALS["intervals"]))
    lines.append(_line("… if the runs of the truth were the truth itself", [held(it) for it in both], ""))
    losses = [row["loss"] for row in rows if row["decision"] == "change"]
    lines.append(_line("recommendations no dearer than the shipped default", [it["share"] <= 0 for it in losses], ""))
    sure = [it["share"] <= SURELY * it["error"] for it in losses]
    lines.append(_line("… or by no more than chance explains", sure, GOALS["no worse"]))
    regrets = sorted(row["regret"] for row in rows)
    words = f"median | {median(regrets):+.0%} | 90th: {regrets[len(regrets) * 9 // 10]:+.0%} | told |"
    lines.append(f"| regret of what it comes to against the best of the grid: {words.replace('%', ' %')}")
    decisions = ", ".join(
        f"{word} {sum(row['decision'] == word for row in rows)}" for word in ("change", "keep", "refused")
    )
    return "\n".join([*lines, "", f"Decisions: {decisions}."])


def _told(row: dict[str, Any], cost: str) -> list[dict[str, Any]]:
    """What is said of it, of today's settings and of the choice. Messages that nobody knows of are not judged."""
    if cost == "duplicates" and not row["knows_messages"]:
        return []
    return [it[cost] for it in row["costs"].values()]


def held(it: dict[str, Any]) -> bool:
    """Whether the interval holds the truth."""
    said = it["said"]
    return bool(said["low"] - 1e-9 <= it["true"] <= said["high"] + 1e-9)


def holds(it: dict[str, Any]) -> bool:
    """The same with what chance adds, since the truth is known from runs only: both spreads together, as independent ones
    are.
    """
    said, chance = it["said"], SURELY * it["error"]
    low = said["value"] - math.hypot(said["value"] - said["low"], chance)
    high = said["value"] + math.hypot(said["high"] - said["value"], chance)
    return bool(low - 1e-9 <= it["true"] <= high + 1e-9)


def _line(name: str, which: Sequence[bool], goal: str) -> str:
    found = share(sum(which), len(which))
    bounds = f"{found.low:.0%} to {found.high:.0%}" if which else ""
    value = f"{found.value:.0%} of {short(len(which))}" if which and not math.isnan(found.value) else "none to judge"
    return f"| {name} | {value} | {bounds} | {goal} |".replace("%", " %").replace("  %", " %")
