"""One truth, judged: what ``tune`` says of the churn that was calibrated from its journal, and what is so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from cobalance.settings import HOUR_MS, GroupSettings
from cobalance_sims.calibrate.drawing import DrawnChurns, elasticities
from cobalance_sims.calibrate.interval import Interval
from cobalance_sims.simulate.churn import Churn
from cobalance_sims.tune.axes import Chosen
from cobalance_sims.tune.bootstrap import Draws, Ratio
from cobalance_sims.tune.costs import estimates
from cobalance_sims.tune.preferences import Preferences
from cobalance_sims.tune.runners import InProcess
from cobalance_sims.tune.space import Axis, with_values
from cobalance_sims.tune.trials import OTHER_CHURNS, Asked, Outcome, settings_of
from cobalance_sims.tune.tuning import FRESH, tune

BEYOND = 0.05
"""Intervals of 90 in 100 are judged."""

COSTS = ("unavailable", "draining", "duplicates", "moves", "false_expiries")
"""Those that are measured in runs, and that every group has."""

AXES = (Axis("session_timeout_ms", 1_000, 60_000, (3_000, 5_000, 12_000)),)
"""What is searched: the setting on which most hangs."""

GRID_S = (1.5, 2.5, 4.0, 7.0, 12.0, 25.0)
"""Sessions of the grid that the regret is measured against, with the recommendation's other settings."""

SHORTEST_MS = 240_000
"""The least length of a run."""

TRUE_SEEDS = 5_000_000
"""Seeds from here on are kept for the truth."""


@attrs.frozen(kw_only=True)
class Effort:
    """How many runs are made."""

    seeds: int = 8
    """Of each final candidate, as in ``tune --seeds``."""
    true_runs: int = 18
    """Of the truth, for the defaults and the recommendation."""
    grid_runs: int = 4
    """Of the truth, for each session of the grid."""
    happenings: float = 8.0
    """How much happens in each run, and at most in those of ``tune``."""
    longest_ms: int = 1_200_000
    """The greatest length of a run."""


@attrs.define
class _Remembered:
    """Makes runs, and keeps their outcomes."""

    runner: InProcess
    outcomes: dict[Asked, Outcome] = attrs.field(factory=dict)

    def __call__(self, asked: Sequence[Asked]) -> list[Outcome]:
        missing = [it for it in asked if it not in self.outcomes]
        for outcome in self.runner(missing):
            self.outcomes[settings_of(outcome, asked[0][0]), outcome["seed"]] = outcome
        return [self.outcomes[it] for it in asked]

    def of(self, settings: GroupSettings, seeds: Sequence[int]) -> list[Outcome]:
        return [*self([(settings, seed) for seed in seeds])]


def judged(
    true: Churn, churns: DrawnChurns, effort: Effort, per_hour: float, *, knows_messages: bool = True
) -> dict[str, Any]:
    """What is said and what is so, as plain values. ``per_hour`` is how much happens in an hour of the truth."""
    shipped = GroupSettings()
    preferences = Preferences({}, {} if knows_messages else {"duplicates": 0.0})
    length_ms = int(min(max(effort.happenings / per_hour * HOUR_MS, SHORTEST_MS), effort.longest_ms))
    churns = attrs.evolve(churns, churn=churns.churn.changed(length_ms=length_ms))
    said = _Remembered(InProcess(churns))
    found = tune(said, shipped, Chosen(AXES, {}), preferences, seeds=effort.seeds, churns=churns)
    choice = found.verdict.choice.settings if found.verdict.choice else shipped
    truth = _Remembered(InProcess(true.changed(length_ms=length_ms)))
    fresh = range(FRESH, FRESH + effort.seeds)
    return {
        "decision": found.verdict.decision,
        "choice": _told(choice),
        "runs": found.runs,
        "costs": {
            name: _costs(said.of(settings, fresh), _draws(churns, fresh), settings, truth, effort)
            for name, settings in {"shipped": shipped, "choice": choice}.items()
            if name == "shipped" or choice != shipped
        },
        "loss": _loss(truth, choice, shipped, preferences, range(TRUE_SEEDS, TRUE_SEEDS + effort.true_runs)),
        "regret": _regret(truth, choice, preferences, range(TRUE_SEEDS, TRUE_SEEDS + effort.grid_runs)),
    }


def _told(settings: GroupSettings) -> dict[str, int]:
    return {axis.name: getattr(settings, axis.name) for axis in AXES}


def _draws(churns: DrawnChurns, seeds: Sequence[int]) -> Draws:
    features = (churns.features(seeds), churns.features(OTHER_CHURNS), elasticities()) if churns.open else None
    return Draws.of(len(seeds), churns=features, beyond=BEYOND)


def _costs(
    predicted: list[Outcome], draws: Draws, settings: GroupSettings, truth: _Remembered, effort: Effort
) -> dict[str, Any]:
    seeds = range(TRUE_SEEDS, TRUE_SEEDS + effort.true_runs)
    predicted_costs, true_costs = estimates(predicted, settings), estimates(truth.of(settings, seeds), settings)
    return {name: _cost(predicted_costs[name].interval(draws), true_costs[name]) for name in COSTS}


def _cost(said: Interval, so: Any) -> dict[str, Any]:
    """``error`` is the standard error of the truth, which is known from runs only."""
    error = 0.0
    if isinstance(so, Ratio):
        each = so.amounts - so.value * so.exposures
        error = float(max(np.sqrt((each**2).sum()), 0.0 if so.amounts.any() else 1.0) / so.exposures.sum())
    return {"said": attrs.asdict(said), "true": so.value, "error": error}


def _total(truth: _Remembered, settings: GroupSettings, preferences: Preferences, seeds: Sequence[int]) -> np.ndarray:
    """The weighted cost of each run of the truth."""
    found = estimates(truth.of(settings, seeds), settings)
    each = {
        name: it.amounts / it.exposures if isinstance(it, Ratio) else np.full(len(seeds), it.value)
        for name, it in found.items()
    }
    return np.asarray(preferences.total(each))


def _loss(
    truth: _Remembered, choice: GroupSettings, shipped: GroupSettings, preferences: Preferences, seeds: Sequence[int]
) -> dict[str, float]:
    """By how much the choice is dearer than what is shipped, run by run, as a share of that; and its standard error."""
    if choice == shipped:
        return {"share": 0.0, "error": 0.0}
    ours, theirs = (_total(truth, it, preferences, seeds) for it in (choice, shipped))
    mean = max(float(theirs.mean()), 1e-9)
    more = (ours - theirs) / mean
    return {"share": float(more.mean()), "error": float(more.std(ddof=1) / np.sqrt(len(more)))}


def _regret(truth: _Remembered, choice: GroupSettings, preferences: Preferences, seeds: Sequence[int]) -> float:
    """How much cheaper the best of the grid is, as a share of it. The best is chosen on half of the seeds and judged on the
    others, since chance favours the best of many.
    """
    grid = [it for second in GRID_S if (it := _with_session(choice, int(second * 1_000))) is not None]
    totals = {it: _total(truth, it, preferences, seeds) for it in dict.fromkeys([choice, *grid])}
    half = len(seeds) // 2
    both = []
    for chosen, judged_on in ((slice(None, half), slice(half, None)), (slice(half, None), slice(None, half))):
        best = min(totals, key=lambda it, part=chosen: float(totals[it][part].mean()))  # type: ignore[misc]
        both.append((float(totals[choice][judged_on].mean()), float(totals[best][judged_on].mean())))
    ours, least = (sum(pair[at] for pair in both) / 2 for at in (0, 1))
    return ours / max(least, 1e-9) - 1


def _with_session(choice: GroupSettings, session_ms: int) -> GroupSettings | None:
    return with_values(
        choice,
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=min(choice.heartbeat_interval_ms, session_ms // 3),
        revocation_timeout_ms=max(choice.revocation_timeout_ms, session_ms),
    )
