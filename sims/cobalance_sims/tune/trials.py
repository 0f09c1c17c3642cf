"""The runs that were made, by candidate and seed. Each is made once; every candidate gets the same seeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from cobalance.errors import CobalanceError, counted
from cobalance.settings import GroupSettings
from cobalance_sims.calibrate.drawing import DrawnChurns, elasticities
from cobalance_sims.tune.bootstrap import Draws, Estimate
from cobalance_sims.tune.costs import estimates

MOST_FAILED = 0.02
"""The greatest share of failed runs: with more, something is wrong, and no figure can be trusted."""

OTHER_CHURNS = range(2_000_000, 2_000_500)
"""Seeds of churns that are drawn, not simulated: what the group's may be as well."""

Outcome = Mapping[str, Any]
"""A row of OUTCOME (records.py)."""

Asked = tuple[GroupSettings, int]
"""A candidate and a seed."""

Runner = Callable[[Sequence[Asked]], list[Outcome]]
"""Makes runs, in this process or on Spark; returns their outcomes in any order, each with its settings and seed."""


class RunsFailed(CobalanceError):
    """Simulated runs broke a promise or failed: no figure can be drawn from them."""


@attrs.define
class Trials:
    """Makes the missing runs."""

    runner: Runner
    report: Callable[[str], None] = lambda _: None
    """Called with messages about progress."""
    churns: DrawnChurns | None = None
    """What the runs are of, where that differs from seed to seed."""
    runs: int = 0
    failed: list[Outcome] = attrs.field(factory=list)
    """Runs that broke a promise. They count as well: leaving them out would favour what breaks more."""
    _outcomes: dict[Asked, Outcome] = attrs.field(factory=dict, init=False)
    _draws: dict[tuple[int, ...], Draws] = attrs.field(factory=dict, init=False)

    def make(self, candidates: Sequence[GroupSettings], seeds: Sequence[int], why: str) -> None:
        """Makes those runs that were not made yet.

        Raises:
            RunsFailed: too many failed.
        """
        asked = [(it, seed) for it in candidates for seed in seeds if (it, seed) not in self._outcomes]
        if not asked:
            return
        self.report(
            f"{why}: {counted(len(candidates), 'candidate')}, {counted(len(seeds), 'seed')}, {counted(len(asked), 'run')} to make"
        )
        for outcome in self.runner(asked):
            self._outcomes[settings_of(outcome, asked[0][0]), outcome["seed"]] = outcome
            if outcome["status"] != "ok":
                self.failed.append(outcome)
        missing = [it for it in asked if it not in self._outcomes]
        if missing:
            raise RunsFailed(
                f"{len(missing)} of {len(asked)} runs gave no outcome, such as seed {missing[0][1]} of {missing[0][0]}"
            )
        self.runs += len(asked)
        if len(self.failed) > max(1, MOST_FAILED * self.runs):
            it = self.failed[0]
            raise RunsFailed(
                f"{counted(len(self.failed), 'simulated run')} failed, such as: {it['error']}. Replay it with: {it['replay']}"
            )

    def estimates(self, candidate: GroupSettings, seeds: Sequence[int]) -> dict[str, Estimate]:
        """The costs of one candidate over seeds that were run."""
        return estimates([self._outcomes[candidate, seed] for seed in seeds], candidate)

    def outcomes(self, candidate: GroupSettings, seeds: Sequence[int]) -> list[Outcome]:
        """The outcomes of one candidate."""
        return [self._outcomes[candidate, seed] for seed in seeds]

    def draws(self, seeds: Sequence[int]) -> Draws:
        """The same for all candidates."""
        if self.churns is None or not self.churns.open:
            return Draws.of(len(seeds))
        key = tuple(seeds)
        if key not in self._draws:
            features = (self.churns.features(seeds), self.churns.features(OTHER_CHURNS), elasticities())
            self._draws[key] = Draws.of(len(seeds), churns=features)
        return self._draws[key]


def settings_of(outcome: Outcome, like: GroupSettings) -> GroupSettings:
    """The candidate of an outcome; settings that the outcome lacks are as in ``like``."""
    said = {name: outcome[name] for name in attrs.asdict(like) if outcome.get(name) is not None}
    return attrs.evolve(like, **said)
