"""The search: a coarse grid on few seeds; the better half on twice as many, repeatedly; then ever finer steps around
the best. Chance favours the leader of a search, so the result is judged afterwards, on seeds that it has not seen
(verdict.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from cobalance.settings import GroupSettings
from cobalance_sims.tune.preferences import Preferences
from cobalance_sims.tune.space import Axis, coarse_grid, neighbours
from cobalance_sims.tune.trials import Trials

STEPS = (2.0, 1.4)
"""Factors of the finer steps, one after the other."""

PATIENCE = 4
"""Most rounds with one factor."""

SURVIVORS = 4
"""Number of candidates at which halving ends."""


@attrs.frozen(kw_only=True)
class SearchResult:
    """The result of the search."""

    best: GroupSettings
    finalists: list[GroupSettings]
    """The best ones, best first."""
    tried: list[GroupSettings]
    """All that were run with every seed of the search, best first."""
    seeds: Sequence[int]


def search(
    trials: Trials,
    today: GroupSettings,
    axes: Sequence[Axis],
    preferences: Preferences,
    seeds: Sequence[int],
    *,
    others: Sequence[GroupSettings] = (),
) -> SearchResult:
    """Searches, beginning with the grid, today's settings and those of other systems."""
    ranking = _Ranking(trials, preferences)
    candidates = list(dict.fromkeys([*coarse_grid(today, axes), today, *others]))
    candidates = _halve(ranking, candidates, seeds)
    tried = list(candidates)
    for factor in STEPS:
        tried = _refine(ranking, tried, axes, seeds, factor)
    ordered = ranking.ordered(tried, seeds)
    return SearchResult(best=ordered[0], finalists=ordered[:SURVIVORS], tried=ordered, seeds=seeds)


@attrs.frozen
class _Ranking:
    trials: Trials
    preferences: Preferences

    def ordered(self, candidates: Sequence[GroupSettings], seeds: Sequence[int]) -> list[GroupSettings]:
        """Those that keep the limits first, then by cost."""
        return sorted(candidates, key=lambda it: self._key(it, seeds))

    def _key(self, candidate: GroupSettings, seeds: Sequence[int]) -> tuple[float, float]:
        values = {name: it.value for name, it in self.trials.estimates(candidate, seeds).items()}
        excess = sum(max(0.0, values[name] / max(limit, 1e-9) - 1) for name, limit in self.preferences.limits.items())
        return (min(excess, 1e18), float(self.preferences.total(values)))


def _halve(ranking: _Ranking, candidates: list[GroupSettings], seeds: Sequence[int]) -> list[GroupSettings]:
    """Only the last rung runs all seeds; it also keeps only the better half of its candidates."""
    rungs = max(1, math.ceil(math.log2(max(len(candidates) / SURVIVORS, 1))))
    for rung in range(rungs):
        count = max(min(2, len(seeds)), math.ceil(len(seeds) / 2 ** (rungs - 1 - rung)))
        ranking.trials.make(candidates, seeds[:count], f"halving {rung + 1} of {rungs}")
        candidates = ranking.ordered(candidates, seeds[:count])[: max(SURVIVORS, math.ceil(len(candidates) / 2))]
    ranking.trials.make(candidates, seeds, "the survivors")
    return candidates


def _refine(
    ranking: _Ranking, tried: list[GroupSettings], axes: Sequence[Axis], seeds: Sequence[int], factor: float
) -> list[GroupSettings]:
    for turn in range(PATIENCE):
        best = ranking.ordered(tried, seeds)[0]
        near = [it for it in neighbours(best, axes, factor) if it not in tried]
        if not near:
            break
        ranking.trials.make(near, seeds, f"steps of {factor:g}, round {turn + 1}")
        tried = tried + near
        if ranking.ordered(tried, seeds)[0] == best:
            break
    return tried
