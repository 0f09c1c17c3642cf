"""A calibration as files: the churn, for ``tune`` and ``sweep``; all details, for programs; a page, for people."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.errors import counted
from cobalance_sims.calibrate.durations import CLOSE, ENOUGH, Durations
from cobalance_sims.calibrate.interval import Interval, short
from cobalance_sims.calibrate.parameter import ENOUGH_EVENTS

if TYPE_CHECKING:
    from cobalance_sims.calibrate.calibration import Calibration
    from cobalance_sims.calibrate.parameter import Parameter

CHURN, KNOWN, PAGE = "churn.json", "calibration.json", "calibration.txt"
CHECK = "check.json"
"""How the churn compares with its journal: written by verify/check.py."""

RULES = f"""\
How it is decided. A distribution of drains takes {ENOUGH} that are known exactly; those cut short (forced, given up, called off)
count as "longer than". A lognormal is taken where its distance from the data (Kolmogorov-Smirnov) is at most {CLOSE}, or what chance
gives; else the data's own quantiles are, as far as they are known. A rate takes {ENOUGH_EVENTS} events; below, the base churn's is
taken if what was seen does not speak against it, else half an event more than was seen. Intervals hold the truth 95 times in 100.
"""


def write(calibration: Calibration, folder: Path) -> None:
    """Writes all three into the folder, which is created."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CHURN).write_text(json.dumps(calibration.churn().table(), indent=2) + "\n", encoding="utf-8")
    (folder / KNOWN).write_text(json.dumps(_plain(attrs.asdict(calibration)), indent=2) + "\n", encoding="utf-8")
    (folder / PAGE).write_text(page(calibration), encoding="utf-8")


def _plain(value: Any) -> Any:
    """JSON has no infinity, and a distribution is its text."""
    if isinstance(value, dict):
        return {str(name): _plain(it) for name, it in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(it) for it in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value.text if hasattr(value, "text") else value


def page(calibration: Calibration) -> str:
    """The page for people."""
    group = calibration.group
    more = " …" if len(calibration.runs) > 5 else ""
    whose = f"{calibration.events:,} events of {', '.join(calibration.runs[:5])}{more}"
    span = f"{short(group.hours)} h with {group.mean_members:.1f} members on average, {short(group.member_hours)} member-hours"
    lines = [
        f"Calibration {calibration.name}: {whose}; {span}",
        *calibration.notes,
        "",
        *_table(calibration.parameters),
        "",
        *_drains(calibration),
        *_thin(calibration),
        "",
        RULES,
    ]
    return "\n".join(lines)


def _table(parameters: list[Parameter]) -> list[str]:
    rows = [("PARAMETER", "VALUE", "95 % INTERVAL", "BASIS", "SEEN")]
    rows += [(it.name, _value(it.value), _interval(it.interval), it.basis, f"{it.observations:,}") for it in parameters]
    return table(rows)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return counted(len(value), "resource")
    text = value if isinstance(value, str) else (f"{value:g}" if isinstance(value, float) else str(value))
    return text if len(text) <= 36 else f"{text[:33]}…"


def _interval(interval: Interval | None) -> str:
    return f"{short(interval.low)} to {short(interval.high)}" if interval else ""


def _drains(calibration: Calibration) -> list[str]:
    lines = [f"Drains: {_fit(calibration.drains)}"]
    for it in calibration.drains.quantiles:
        data = "longer than any seen" if it.data_ms is None else f"{short(it.data_ms)} ms"
        lines.append(f"  {it.share:>6.1%} take at most {data:>22}, by the fit {short(it.fit_ms)} ms")
    own = sorted(calibration.drains_of.items(), key=lambda it: -(it[1].median_ms.value if it[1].median_ms else 0))
    lines += [f"  {resource}: {_fit(it)}" for resource, it in own[:10]]
    if len(own) > 10:
        lines.append(f"  and {len(own) - 10} more that drain otherwise than the others")
    return [*lines, ""]


def _fit(it: Durations) -> str:
    if it.median_ms is None or it.sigma is None or it.distance is None:
        return it.note
    return (
        f"{it.count:,} known and {it.cut_short:,} cut short; median {it.median_ms} ms, sigma {it.sigma}; distance "
        f"{it.distance:.3f}; quantiles rest on ten or more up to {it.reliable_to:.1%}{'; ' + it.note if it.note else ''}"
    )


def _thin(calibration: Calibration) -> list[str]:
    thin = [it for it in calibration.parameters if it.basis != "measured" and it.note]
    if not thin:
        return ["Everything was measured."]
    words = {"few": "rests on little", "assumed": f"is assumed, as in {calibration.base}"}
    return ["Where the data is too thin to say:", *(f"  {it.name} {words[it.basis]}: {it.note}." for it in thin)]
