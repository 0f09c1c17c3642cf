"""The complete tuning: search, judgement on fresh seeds, others' defaults, the front, the effect of each setting."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from cobalance.settings import GroupSettings
from cobalance_sims.calibrate.drawing import DrawnChurns
from cobalance_sims.calibrate.interval import Interval
from cobalance_sims.tune import pareto
from cobalance_sims.tune.axes import Chosen
from cobalance_sims.tune.parsimony import Parsimony
from cobalance_sims.tune.peers import Peer, peers
from cobalance_sims.tune.preferences import Preferences
from cobalance_sims.tune.search import SearchResult, search
from cobalance_sims.tune.space import Axis, with_values
from cobalance_sims.tune.trade import trade
from cobalance_sims.tune.trials import Runner, Trials
from cobalance_sims.tune.verdict import TOLERANCE, Judged, Verdict, changed, decide, difference, judge

FRESH = 1_000_000
"""Seeds from here on are kept for the judgement."""

FACTORS = (0.25, 0.5, 2.0, 4.0)
"""Factors by which each setting is varied around the recommendation."""

MOST_IN_FRONT = 60


@attrs.frozen(kw_only=True)
class Varied:
    """One setting at another value, the others as they are."""

    setting: str
    value: int
    judged: Judged


@attrs.frozen(kw_only=True)
class Tuning:
    """The result of a search."""

    verdict: Verdict
    today: Judged
    peers: list[tuple[Peer, Judged]]
    judged: list[Judged]
    """The finalists and today's, over the same fresh seeds."""
    front: list[Judged]
    candidates: list[Judged]
    """All that were run with every seed of the search, except those of the front."""
    varied: list[Varied]
    around: Judged
    """What the settings were varied around: the choice, or the best that was found if there is none."""
    gain: Interval
    """How much less that costs than today's settings, in resource-seconds a day."""
    trade: str
    """What it gives and takes, in words; empty if nothing surely changes."""
    seeds: int
    runs: int
    failed: list[str]
    """Commands that replay the runs that broke a promise."""
    left: dict[str, str]
    preferences: Preferences
    is_of_group: bool = False
    """Whether intervals hold what the calibration leaves open of the group's churn."""


def tune(
    runner: Runner,
    today: GroupSettings,
    chosen: Chosen,
    preferences: Preferences,
    *,
    seeds: int,
    tolerance: float = TOLERANCE,
    report: Callable[[str], None] = lambda _: None,
    churns: DrawnChurns | None = None,
) -> Tuning:
    """Searches with half as many seeds as it judges with. The same arguments give the same answer.

    ``churns`` are what the runner runs, if each seed has one of its own: then intervals are those of the group that they
    were calibrated from, rather than of one churn.
    """
    trials, others = Trials(runner, report, churns), peers(today)
    like_others = [it for peer in others if (it := _along(today, peer.settings, chosen.axes)) is not None]
    found = search(trials, today, chosen.axes, preferences, range(1, max(2, seeds // 2) + 1), others=like_others)
    fresh = range(FRESH, FRESH + seeds)
    final = list(dict.fromkeys([*found.finalists, today]))
    everybody = list(dict.fromkeys([*final, *(it.settings for it in others)]))
    trials.make(everybody, fresh, "judging, with fresh seeds")
    judged = {it: judge(trials, it, fresh, preferences) for it in everybody}
    rivals = [judged[it] for it in final]
    verdict = decide(rivals, judged[today], preferences, trials.draws(fresh), tolerance=tolerance)
    if verdict.decision == "change" and verdict.choice is not None:
        parsimony = Parsimony(
            trials=trials, today=judged[today], preferences=preferences, seeds=fresh, tolerance=tolerance
        )
        verdict = changed(parsimony.simplest(verdict.choice), judged[today], preferences, trials.draws(fresh))
    around = verdict.choice or judged[found.best]
    front, candidates = _front(trials, found, preferences)
    return Tuning(
        verdict=verdict,
        today=judged[today],
        peers=[(it, judged[it.settings]) for it in others],
        judged=rivals,
        front=front,
        candidates=candidates,
        varied=_vary(trials, around.settings, chosen.axes, preferences, fresh[: max(2, seeds // 2)]),
        around=around,
        gain=difference(judged[today], around, trials.draws(fresh)),
        trade=trade(judged[today], around, trials.draws(fresh), preferences),
        seeds=seeds,
        runs=trials.runs,
        failed=sorted(str(it["replay"]) for it in trials.failed),
        left=chosen.left,
        preferences=preferences,
        is_of_group=churns is not None and bool(churns.open),
    )


def _along(today: GroupSettings, other: GroupSettings, axes: Sequence[Axis]) -> GroupSettings | None:
    """Today's settings with the searched ones of another; the rest stays."""
    return with_values(today, **{axis.name: getattr(other, axis.name) for axis in axes})


def _front(trials: Trials, found: SearchResult, preferences: Preferences) -> tuple[list[Judged], list[Judged]]:
    """By the costs that the preferences limit or weight."""
    judged = [judge(trials, it, found.seeds, preferences) for it in found.tried[:MOST_IN_FRONT]]
    names = [name for name in judged[0].costs if preferences.weight(name) or name in preferences.limits]
    tables = [pareto.table([it.drawn[name] for name in names]) for it in judged]
    on = set(pareto.front(tables, [it.total.value for it in judged], trials.draws(found.seeds).tail))
    return [it for place, it in enumerate(judged) if place in on], [
        it for place, it in enumerate(judged) if place not in on
    ]


def _vary(
    trials: Trials, around: GroupSettings, axes: Sequence[Axis], preferences: Preferences, seeds: Sequence[int]
) -> list[Varied]:
    points = [
        (axis.name, _feasible(around, axis, value))
        for axis in axes
        for value in _values(axis, getattr(around, axis.name))
    ]
    settings = {point: found for point in points if (found := with_values(around, **{point[0]: point[1]})) is not None}
    trials.make(list(dict.fromkeys(settings.values())), seeds, "what each setting matters")
    return [
        Varied(setting=name, value=value, judged=judge(trials, it, seeds, preferences))
        for (name, value), it in settings.items()
    ]


def _feasible(around: GroupSettings, axis: Axis, value: int) -> int:
    """The value, or the nearest to it that the other settings allow."""
    allowed, wanted = getattr(around, axis.name), value
    if with_values(around, **{axis.name: wanted}) is not None:
        return wanted
    while abs(wanted - allowed) > max(1, allowed // 100):
        middle = (wanted + allowed) // 2
        if with_values(around, **{axis.name: middle}) is None:
            wanted = middle
        else:
            allowed = middle
    return int(allowed)


def _values(axis: Axis, value: int) -> list[int]:
    """Values around a value, including it; around 0, the coarse ones."""
    if value == 0:
        return sorted({0, *axis.coarse})
    around = {value, *(axis.bounded(value * factor) for factor in FACTORS)}
    return sorted(around | ({0} if axis.off else set()))
