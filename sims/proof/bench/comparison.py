"""What got worse since an earlier run: ratios where there is a peer, values otherwise.

A figure is worse, or better, only beyond the noise: each round of one run is on one side of the other run's median, and
the medians differ by a tenth; by a quarter where there was one round, or no peer of the same minutes to divide by.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import attrs
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rich.console import Console

LEAST = 0.10
LEAST_ALONE = 0.25


@attrs.frozen
class Difference:
    """One figure in two runs."""

    name: str
    unit: str
    """Empty for a ratio."""
    old: float
    new: float
    factor: float | None
    """How many times as bad: above 1 is worse, below 1 better; None where it was zero, and is not."""
    verdict: str
    """`worse`, `better` or `same`."""


def show(old: Mapping[str, Any], new: Mapping[str, Any], console: Console) -> int:
    """Says what got worse; returns 1 if anything did, else 0."""
    found = list(differences(old, new))
    differing = [it for it in found if it.verdict != "same"]
    if differing:
        console.print(table(differing))
    worse = sum(it.verdict == "worse" for it in differing)
    console.print(
        f"{worse} of {len(found)} figures got worse since {old['at']}, {len(differing) - worse} better; "
        f"{len(missing(old, new))} of that run were not measured.",
        f"Then: {_machine(old)}. Now: {_machine(new)}.",
        highlight=False,
        soft_wrap=True,
    )
    return 1 if worse else 0


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Difference]:
    """Of the figures that both reports have, in the order of the newer one."""
    before = {it["name"]: it for it in old["figures"]}
    for figure in new["figures"]:
        if figure["name"] in before:
            yield compared(before[figure["name"]], figure)


def missing(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Figures that the newer report does not have."""
    names = {it["name"] for it in new["figures"]}
    return [it["name"] for it in old["figures"] if it["name"] not in names]


def compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> Difference:
    """Judges one figure."""
    before, now = _rounds(old), _rounds(new)
    bad, worse = ([1 / it for it in before], [1 / it for it in now]) if new.get("better") == "higher" else (before, now)
    factor = _factor(bad, worse)
    is_alone = new["ratio"] is None or min(len(before), len(now)) == 1
    is_far = factor is None or max(factor, 1 / factor if factor else float("inf")) >= 1 + (
        LEAST_ALONE if is_alone else LEAST
    )
    verdict = "same"
    if is_far and _surely_above(worse, bad):
        verdict = "worse"
    elif is_far and _surely_above(bad, worse):
        verdict = "better"
    unit = new["unit"] if new["ratio"] is None else ""
    return Difference(new["name"], unit, statistics.median(before), statistics.median(now), factor, verdict)


def table(found: Iterable[Difference]) -> Table:
    """Those that differ; how much worse or better in the last column."""
    drawn = Table(title="beyond the noise")
    for column in ("figure", "before", "now", "", "times as bad"):
        drawn.add_column(column)
    for it in found:
        factor = "" if it.factor is None else f"{it.factor:.2f}"
        drawn.add_row(it.name, f"{it.old:.4g} {it.unit}", f"{it.new:.4g} {it.unit}", it.verdict, factor)
    return drawn


def _machine(report: Mapping[str, Any]) -> str:
    named = report["machine"]
    return f"load {named.get('load', 'unknown')}, {named.get('yardstick_ms', 'unknown')} ms for a fixed piece of Python"


def _rounds(figure: Mapping[str, Any]) -> list[float]:
    value = figure["ours"] if figure["ratio"] is None else figure["ratio"]
    return list(figure.get("each") or [value])


def _surely_above(these: list[float], those: list[float]) -> bool:
    return min(these) > statistics.median(those) and statistics.median(these) > max(those)


def _factor(before: list[float], now: list[float]) -> float | None:
    base, value = statistics.median(before), statistics.median(now)
    if base == 0:
        return 1.0 if value == 0 else None
    return value / base
