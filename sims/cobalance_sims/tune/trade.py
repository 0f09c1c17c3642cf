"""What a change gives and takes, in words: what is surely more, and what is surely less."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cobalance_sims.tune.preferences import Preferences

if TYPE_CHECKING:
    from cobalance_sims.tune.bootstrap import Draws
    from cobalance_sims.tune.verdict import Judged

NOTICED = 0.05
"""A change by a smaller share does not count."""

NOUNS = {
    "unavailable": "unworked time",
    "draining": "draining time",
    "duplicates": "duplicates",
    "moves": "moves",
    "forced": "forced moves",
    "false_expiries": "false expiries",
    "heartbeats": "heartbeats",
}
_COUNTED = {"duplicates", "moves", "forced", "false_expiries", "heartbeats"}


def trade(today: Judged, choice: Judged, draws: Draws, preferences: Preferences) -> str:
    """Such as ``20 % more unworked time, healing 37 % slower, for 53 % fewer duplicates``. Empty if nothing changes surely.

    Costs without weight or limit are left out, but for healing and false expiries, which users feel.
    """
    named = [
        name
        for name in today.costs
        if preferences.weight(name) or name in preferences.limits or name in ("heal", "false_expiries")
    ]
    worse = [words for name in named if (words := _change(name, today, choice, draws, sign=1))]
    better = [words for name in named if (words := _change(name, today, choice, draws, sign=-1))]
    if worse and better:
        return f"{', '.join(worse)}, for {', '.join(better)}"
    return ", ".join(worse or better)


def _change(name: str, today: Judged, choice: Judged, draws: Draws, *, sign: int) -> str:
    """What has surely changed in this direction: 1 is more."""
    before, after = today.costs[name].value, choice.costs[name].value
    low, high = draws.bounds(np.asarray(choice.drawn[name] - today.drawn[name]))
    is_sure = low > 0 if sign > 0 else high < 0
    if not is_sure or abs(after - before) < NOTICED * max(before, 1e-12):
        return ""
    if name == "heal":
        return f"healing {_share(before, after)} {'slower' if sign > 0 else 'faster'}" if before else ""
    less = "fewer" if name in _COUNTED else "less"
    if not before:
        return f"some {NOUNS[name]} where there were none"
    return f"{_share(before, after)} {'more' if sign > 0 else less} {NOUNS[name]}"


def _share(before: float, after: float) -> str:
    ratio = after / before
    return f"{ratio:,.0f} times" if ratio >= 10 else f"{abs(ratio - 1):.0%}".replace("%", " %")
