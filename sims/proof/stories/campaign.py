"""All scenarios with many seeds, and what they reached together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

import attrs

from cobalance_sims.simulate.reached import MUST_HAPPEN, Reached
from cobalance_sims.simulate.run import RunOutcome
from proof.stories.scenarios import SCENARIOS, story


@attrs.define
class ScenarioTally:
    """The results of one scenario."""

    runs: int = 0
    failed: int = 0
    virtual_ms: int = 0
    cpu_s: float = 0.0
    slowest_ms: int = 0

    def add(self, outcome: RunOutcome) -> None:
        self.runs += 1
        self.failed += bool(outcome.failure)
        self.virtual_ms += outcome.virtual_ms
        self.cpu_s += outcome.cpu_s
        self.slowest_ms = max(self.slowest_ms, outcome.converged_ms)


class Campaign:
    """Fails when a promise is broken, or when something that must happen sometimes never did."""

    def __init__(self, scenarios: Iterable[str], seeds: Iterable[int], lua: str | None = None) -> None:
        self.scenarios, self.seeds, self.lua = list(scenarios), list(seeds), lua
        self.tallies = {name: ScenarioTally() for name in self.scenarios}
        self.failures: list[RunOutcome] = []
        self.reached = Reached()

    @property
    def never(self) -> list[str]:
        """What should have been reached. Required only of a campaign of all scenarios."""
        return self.reached.never() if set(self.scenarios) == set(SCENARIOS) else []

    @property
    def passed(self) -> bool:
        return not self.failures and not self.never

    def run(self, progress: TextIO | None = None) -> None:
        """Runs every scenario with every seed."""
        for name in self.scenarios:
            for seed in self.seeds:
                self._one(name, seed)
            if progress is not None:
                tally = self.tallies[name]
                print(
                    f"{name}: {tally.runs} runs, {tally.failed} failed, {tally.cpu_s:.1f} s", file=progress, flush=True
                )

    def _one(self, name: str, seed: int) -> None:
        outcome = story(name, seed, lua=self.lua, verbose=False).tell()
        self.tallies[name].add(outcome)
        self.reached.add(outcome.reached)
        if outcome.failure:
            self.failures.append(outcome)

    def summary(self) -> str:
        lines = [
            f"{'scenario':<20} {'runs':>5} {'failed':>6} {'virtual h':>9} {'CPU s':>7} {'slowest to converge':>20}"
        ]
        for name, it in self.tallies.items():
            hours = it.virtual_ms / 3_600_000
            lines.append(
                f"{name:<20} {it.runs:>5} {it.failed:>6} {hours:>9.2f} {it.cpu_s:>7.1f} {it.slowest_ms:>17} ms"
            )
        lines += ["", f"{'reached':<28} {'times':>8}"]
        lines += [f"{name:<28} {self.reached.counts[name]:>8}" for name in MUST_HAPPEN]
        for failure in self.failures:
            lines += ["", f"FAILED {failure.failure}", f"replay: {failure.replay}"]
        lines += [f"NEVER REACHED: {name} ({MUST_HAPPEN[name]})" for name in self.never]
        return "\n".join(lines)
