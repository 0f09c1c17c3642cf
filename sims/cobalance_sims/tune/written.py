"""A recommendation as JSON, for the report and for programs, and as a page, for people."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import attrs

from cobalance.coordinator import advice
from cobalance.coordinator.keys import DEFAULT_PREFIX
from cobalance.errors import counted
from cobalance.settings import GroupSettings
from cobalance_sims.calibrate.interval import Interval
from cobalance_sims.calibrate.written import table
from cobalance_sims.tune.costs import COSTS
from cobalance_sims.tune.tuning import Tuning
from cobalance_sims.tune.verdict import Judged, describe

HEADINGS = {"change": "RECOMMENDED", "keep": "KEEP TODAY'S SETTINGS", "refused": "NO RECOMMENDATION"}
OF_CHURN = "of this churn alone"
OF_GROUP = "of the group, what its journal leaves open included"


def command(
    group: str,
    today: GroupSettings,
    chosen: GroupSettings,
    unknown: Collection[str] = (),
    *,
    key_prefix: str = DEFAULT_PREFIX,
) -> str:
    """The command that makes the change; empty if there is none. It includes what is unknown of today's settings: the
    group may have other values than those that the choice was judged with.
    """
    before, after = attrs.asdict(today), attrs.asdict(chosen)
    if before == after:
        return ""
    named = [(name, value) for name, value in after.items() if value != before[name] or name in unknown]
    times = {name.removesuffix("_ms"): f"{value}ms" for name, value in named}
    return advice.command("group configure", group, key_prefix=key_prefix, **times)


def assumption(today: GroupSettings, unknown: Collection[str]) -> list[str]:
    """Says which of today's settings are unknown."""
    if not unknown:
        return []
    values = ", ".join(f"{name} {getattr(today, name):,}" for name in unknown)
    words = f"Some of today's settings are not known, and taken to be the defaults: {values}."
    return [f"{words} Give --today, or --group with --redis-url, if they are others."]


def as_json(
    found: Tuning,
    *,
    churn: dict[str, Any],
    group: str,
    key_prefix: str = DEFAULT_PREFIX,
    unknown: Collection[str] = (),
    check: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The result with plain values. ``unknown`` are those of today's settings that are not known; ``check`` is how the
    churn compares with its journal.
    """
    choice = found.verdict.choice
    return {
        "decision": found.verdict.decision,
        "reasons": [*found.verdict.reasons, *assumption(found.today.settings, unknown)],
        "collect": found.verdict.collect,
        "command": command(group, found.today.settings, choice.settings, unknown, key_prefix=key_prefix)
        if choice
        else "",
        "recommended": _judged(choice) if choice else None,
        "best": _judged(found.around),
        "gain": _interval(found.gain),
        "trade": traded(found),
        "today": _judged(found.today),
        "peers": [{"name": peer.name, "translation": peer.translation, **_judged(it)} for peer, it in found.peers],
        "judged": [_judged(it) for it in found.judged],
        "front": [{**_judged(it), "on_front": True} for it in found.front],
        "candidates": [_judged(it) for it in found.candidates],
        "sensitivity": _sensitivity(found),
        "not_searched": found.left,
        "limits": dict(found.preferences.limits),
        "weights": {name: found.preferences.weight(name) for name in COSTS},
        "units": {name: cost.unit for name, cost in COSTS.items()},
        "seeds": found.seeds,
        "runs": found.runs,
        "failed": found.failed,
        "churn": churn,
        "check": dict(check or {}),
    }


def traded(found: Tuning) -> list[str]:
    """What the choice gives and takes; of a refusal, what the best that was found would, and gain."""
    words = f"{found.trade[0].upper()}{found.trade[1:]}." if found.trade else ""
    if found.verdict.decision != "refused":
        return [words] if words and found.around is not found.today else []
    if found.around.settings == found.today.settings:
        return ["The best that was found are today's settings."]
    gain, today = found.gain, found.today.total.value
    share = f", {abs(gain.value) / today:.0%} of what today's cost".replace("%", " %") if today else ""
    amount, word = (gain, "less") if gain.value >= 0 else (Interval(-gain.value, -gain.high, -gain.low), "more")
    best = describe(found.around.settings, found.today.settings)
    return [
        f"The best that was found ({best}) would cost {amount} resource-seconds a day {word}{share}.",
        *([words] if words else []),
    ]


def _judged(it: Judged) -> dict[str, Any]:
    costs = {name: _interval(interval) for name, interval in it.costs.items()}
    return {"settings": attrs.asdict(it.settings), "costs": costs, "total": _interval(it.total)}


def _interval(it: Interval) -> dict[str, float | None]:
    """Without infinity, which JSON does not have: null means no bound."""
    return {name: value if math.isfinite(value) else None for name, value in attrs.asdict(it).items()}


def _sensitivity(found: Tuning) -> list[dict[str, Any]]:
    names = list(dict.fromkeys(it.setting for it in found.varied))
    return [
        {
            "setting": name,
            "chosen": getattr(found.around.settings, name),
            "points": [{"value": it.value, **_judged(it.judged)} for it in found.varied if it.setting == name],
        }
        for name in names
    ]


def page(found: Tuning, *, group: str, key_prefix: str = DEFAULT_PREFIX, unknown: Collection[str] = ()) -> str:
    """The page for people; see :func:`as_json`."""
    verdict, today = found.verdict, found.today.settings
    lines = [
        HEADINGS[verdict.decision],
        *traded(found),
        *verdict.reasons,
        *assumption(today, unknown),
        *verdict.collect,
        "",
    ]
    if verdict.choice is not None:
        words = command(group, today, verdict.choice.settings, unknown, key_prefix=key_prefix)
        lines += [words, ""] if words else []
    lines += [*_settings_table(found), "", *_costs_table(found), ""]
    lines += [f"{name} was not searched: {why}." for name, why in found.left.items()]
    lines += [f"{peer.name}: {peer.translation}." for peer, _ in found.peers]
    lines.append(
        f"{counted(found.runs, 'run')}; the table is over {found.seeds} seeds that the search has not seen, the same for every column; "
        f"intervals are of 95 in 100, {OF_GROUP if found.is_of_group else OF_CHURN} ({counted(len(found.front), 'choice')} on the Pareto front)."
    )
    lines += [f"A run broke a promise; replay it with: {replay}" for replay in found.failed]
    return "\n".join(lines) + "\n"


def _columns(found: Tuning) -> list[tuple[str, Judged]]:
    choice = found.verdict.choice
    chosen = [("RECOMMENDED", choice)] if choice is not None and choice is not found.today else []
    if choice is None:
        chosen = [("BEST FOUND", found.around)]
    return [*chosen, ("TODAY", found.today), *((peer.name.upper(), it) for peer, it in found.peers)]


def _settings_table(found: Tuning) -> list[str]:
    columns = _columns(found)
    names = [name for name in attrs.asdict(found.today.settings) if name.endswith("_ms")]
    return table(
        [
            ["SETTING", *(name for name, _ in columns)],
            *([name, *(f"{getattr(it.settings, name):,}" for _, it in columns)] for name in names),
        ]
    )


def _costs_table(found: Tuning) -> list[str]:
    columns = _columns(found)
    rows = [["COST", *(name for name, _ in columns)]]
    rows += [[f"{name}, {cost.unit}", *(str(it.costs[name]) for _, it in columns)] for name, cost in COSTS.items()]
    return table([*rows, ["all, as weighed, a day", *(str(it.total) for _, it in columns)]])
