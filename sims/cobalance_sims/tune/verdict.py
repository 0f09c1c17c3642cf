"""What is recommended, or why nothing is: judged on seeds that the search has not seen.

A choice is recommended when it surely keeps every limit (the whole interval does), and when nothing that was judged
beside it could be cheaper by more than the tolerance. It is a change only if it is surely better than today's settings;
where today's keep the limits and may be as good, they are kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import attrs
import numpy as np

from cobalance.settings import GroupSettings
from cobalance_sims.calibrate.interval import Interval, short
from cobalance_sims.tune import pareto
from cobalance_sims.tune.bootstrap import Draws
from cobalance_sims.tune.costs import COSTS
from cobalance_sims.tune.preferences import Preferences
from cobalance_sims.tune.trials import Trials

TOLERANCE = 0.1
"""How much cheaper than the recommendation something else might be, as a share of the recommendation's cost."""

Decision = Literal["change", "keep", "refused"]
Verdict3 = Literal["kept", "broken", "unclear"]


@attrs.frozen(kw_only=True, eq=False)
class Judged:
    """The costs of one choice."""

    settings: GroupSettings
    costs: dict[str, Interval]
    total: Interval
    """In resource-seconds of standstill a day, as the preferences weight the costs."""
    drawn: dict[str, np.ndarray]
    drawn_total: np.ndarray

    def keeps(self, limits: Mapping[str, float]) -> Verdict3:
        """Whether it keeps all of the limits."""
        if any(self.costs[name].low > limit for name, limit in limits.items()):
            return "broken"
        return "kept" if all(self.costs[name].high <= limit for name, limit in limits.items()) else "unclear"


@attrs.frozen(kw_only=True)
class Verdict:
    """The decision."""

    decision: Decision
    choice: Judged | None
    reasons: list[str]
    collect: list[str]
    """What would help, where nothing is recommended."""


def judge(trials: Trials, settings: GroupSettings, seeds: Sequence[int], preferences: Preferences) -> Judged:
    """Judges one choice over these seeds, which must have been run."""
    draws = trials.draws(seeds)
    found = trials.estimates(settings, seeds)
    drawn = {name: it.drawn(draws) for name, it in found.items()}
    weighed = np.minimum(np.asarray(preferences.total(drawn), dtype=float), pareto.ENDLESS)
    value = min(float(preferences.total({name: it.value for name, it in found.items()})), pareto.ENDLESS)
    low, high = draws.bounds(weighed)
    return Judged(
        settings=settings,
        costs={name: it.interval(draws) for name, it in found.items()},
        total=Interval(value, min(low, value), max(high, value)),
        drawn=drawn,
        drawn_total=weighed,
    )


def decide(
    judged: Sequence[Judged], today: Judged, preferences: Preferences, draws: Draws, *, tolerance: float = TOLERANCE
) -> Verdict:
    """Decides among the judged choices, which include today's settings."""
    limits = preferences.limits
    keeping = sorted((it for it in judged if it.keeps(limits) == "kept"), key=lambda it: it.total.value)
    if not keeping:
        return _none_keeps(judged, limits, draws)
    best = keeping[0]
    overlap = _overlap(best, keeping[1:], draws, tolerance)
    if overlap is not None:
        return overlap
    gain = difference(today, best, draws)
    if best is today or (today.keeps(limits) == "kept" and gain.low <= 0):
        reason = "Today's settings keep every limit, and nothing that was tried is surely better"
        reason += "." if best is today else f": the best costs {gain} less a day."
        return Verdict(decision="keep", choice=today, reasons=[reason], collect=[])
    return changed(best, today, preferences, draws)


def changed(choice: Judged, today: Judged, preferences: Preferences, draws: Draws) -> Verdict:
    """The verdict that recommends this choice."""
    gain = difference(today, choice, draws)
    return Verdict(decision="change", choice=choice, reasons=_why(today, gain, preferences.limits), collect=[])


def difference(a: Judged, b: Judged, draws: Draws) -> Interval:
    """How much more a costs than b, run by run with the same seeds."""
    value = a.total.value - b.total.value
    low, high = draws.bounds(a.drawn_total - b.drawn_total)
    return Interval(value, min(low, value), max(high, value))


def _why(today: Judged, gain: Interval, limits: Mapping[str, float]) -> list[str]:
    state = today.keeps(limits)
    reasons = {
        "kept": [],
        "broken": ["Today's settings break a limit: " + "; ".join(_breaks(today, limits)) + "."],
        "unclear": [
            "It is not certain that today's settings keep every limit: " + "; ".join(_breaks(today, limits)) + "."
        ],
    }[state]
    amount, word = (gain, "less") if gain.value >= 0 else (Interval(-gain.value, -gain.high, -gain.low), "more")
    sure = "" if amount.low > 0 else ", as far as can be told"
    return [
        *reasons,
        f"It costs {amount} resource-seconds a day {word} than today's settings{sure}, as the preferences weigh the costs.",
    ]


def _breaks(it: Judged, limits: Mapping[str, float]) -> list[str]:
    return [
        f"{name} is {it.costs[name]} {COSTS[name].unit}, wanted at most {short(limit)}"
        for name, limit in limits.items()
        if it.costs[name].high > limit
    ]


def _none_keeps(judged: Sequence[Judged], limits: Mapping[str, float], draws: Draws) -> Verdict:
    unclear = [it for it in judged if it.keeps(limits) == "unclear"]
    if unclear:
        nearest = min(unclear, key=lambda it: it.total.value)
        words = f"No choice surely keeps every limit; the best that may: {'; '.join(_breaks(nearest, limits))}."
        return Verdict(
            decision="refused",
            choice=None,
            reasons=[words],
            collect=[*_what_would_tell(nearest, judged, limits, draws), "Or raise the limit."],
        )
    reasons, collect = ["No choice that was tried keeps all limits together."], []
    for name, limit in limits.items():
        least = min(judged, key=lambda it, name=name: it.costs[name].value)  # type: ignore[misc]
        if least.costs[name].low > limit:
            reasons.append(
                f"{name}: at least {least.costs[name]} {COSTS[name].unit} whatever the settings, wanted at most {short(limit)}."
            )
            collect.append(
                f"Raise the limit of {name} above {short(_bound(least.costs[name]))}, or change what causes it: timeouts cannot."
            )
    if not collect:
        reasons.append(
            "Each limit can be kept, but not at once: "
            + "; ".join(_breaks(min(judged, key=lambda it: it.total.value), limits))
            + "."
        )
        collect.append("Raise one of the limits.")
    return Verdict(decision="refused", choice=None, reasons=reasons, collect=collect)


def _bound(it: Interval) -> float:
    """The upper bound; the value where there is none."""
    return it.high if math.isfinite(it.high) else it.value


def _overlap(best: Judged, rivals: Sequence[Judged], draws: Draws, tolerance: float) -> Verdict | None:
    """Whether another may be cheaper by more than the tolerance."""
    allowed = tolerance * max(best.total.value, 1e-9)
    gains = [(difference(best, rival, draws), rival) for rival in rivals]
    open_ = [(gain, rival) for gain, rival in gains if gain.high > allowed]
    if not open_:
        return None
    gain, rival = max(open_, key=lambda it: it[0].high)
    runs = draws.runs
    factor = ((gain.high - gain.value) / max(allowed - min(gain.value, allowed / 2), 1e-9)) ** 2
    words = (
        f"The intervals overlap too much: the best costs {best.total} a day, but {describe(rival.settings, best.settings)} may cost "
        f"up to {short(gain.high)} less, and {short(allowed)} is the tolerance."
    )
    return Verdict(
        decision="refused",
        choice=None,
        reasons=[words],
        collect=[more_seeds(math.ceil(runs * factor)), "Or raise --tolerance."],
    )


def describe(settings: GroupSettings, against: GroupSettings) -> str:
    """What differs, in words."""
    ours, theirs = attrs.asdict(settings), attrs.asdict(against)
    return ", ".join(f"{name} {value}" for name, value in ours.items() if value != theirs[name]) or "the same settings"


def _what_would_tell(it: Judged, judged: Sequence[Judged], limits: Mapping[str, float], draws: Draws) -> list[str]:
    """For limits that it may keep or not. More runs help only against chance."""
    unclear = {name: limit for name, limit in limits.items() if it.costs[name].high > limit}
    words = [
        f"That there never are any {name} cannot be shown by any number of runs: give a small number instead of 0."
        for name, limit in unclear.items()
        if limit == 0
    ]
    runs = []
    for name, limit in unclear.items():
        found = it.costs[name]
        if name == "heal" and not any(other.costs[name].value for other in judged):
            words.append(
                "No crash was seen to heal in any run: raise crashes_per_member_hour or length_ms of the churn, or collect a journal with crashes."
            )
        elif limit:
            runs.append(_runs_to_tell(found, limit, draws))
    return [*words, *([more_seeds(max(runs))] if runs else [])]


def _runs_to_tell(found: Interval, limit: float, draws: Draws) -> int:
    """Intervals shrink with the square root of the number of runs."""
    runs = draws.runs
    if found.high <= limit:
        return runs
    apart = abs(limit - found.value)
    if not apart or math.isinf(found.high):
        return 8 * runs
    wide = (found.high - found.value) if limit > found.value else (found.value - found.low)
    return min(math.ceil(runs * (wide / apart) ** 2), 1_000_000)


def more_seeds(runs: int) -> str:
    """What to do about chance, as the command takes it."""
    return f"Run it with more seeds: --seeds {short(max(runs, 2)).replace(',', '')} would be about enough."
