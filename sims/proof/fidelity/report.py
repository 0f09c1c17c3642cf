"""Runs a story on both sides, and says how they compare."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import attrs

from proof.fidelity import real, simulated
from proof.fidelity.compare import ComparedFigure, compare
from proof.fidelity.figures import Figures, figures
from proof.fidelity.load import PlannedMessage, messages
from proof.fidelity.machine import Machine, conditions
from proof.fidelity.story import Incident, Story
from proof.fidelity.table import conditions as under_conditions
from proof.fidelity.table import machine_table, table
from proof.fidelity.telling import Telling


@attrs.frozen(kw_only=True)
class FidelityReport:
    """Both sides of a story."""

    story: Story
    seeds: int
    machines: tuple[Machine, ...]
    """As measured before each real run."""
    busy: tuple[str, ...]
    """How busy the machine was, before and after each."""
    real: tuple[Figures, ...]
    rows: tuple[ComparedFigure, ...]

    def markdown(self) -> str:
        """Conditions, the table, and what was measured before the first real run."""
        parts = (
            under_conditions(self.story, len(self.real), self.seeds, self.busy),
            table(self.rows),
            machine_table(_merged(self.machines)),
        )
        return "\n\n".join(parts)

    def as_json(self) -> dict[str, Any]:
        """Everything, for other programs."""
        return {
            "story": self.story.name,
            "seeds": self.seeds,
            "busy": self.busy,
            "real": [attrs.asdict(it) for it in self.real],
            "machines": [attrs.asdict(it) for it in self.machines],
            "rows": [{**attrs.asdict(it), "difference": it.difference, "verdict": it.verdict} for it in self.rows],
        }


def tell(story: Story, *, runs: int, seeds: int) -> FidelityReport:
    """Runs the story ``runs`` times on real servers, and ``seeds`` times as often simulated, with the same loads.

    Raises:
        StageFailed, ServerUnavailable: there is no real side to compare with.
    """
    evidence: list[Telling] = []
    machines: list[Machine] = []
    busy: list[str] = []
    loads = [messages(story, run) for run in range(1, runs + 1)]
    for number, load in enumerate(loads, 1):
        _say(f"telling {number} of {runs} on real servers: {story.summary}")
        telling, machine = real.tell(story, load)
        evidence.append(telling)
        machines.append(machine)
        busy.append(f"{machine.load} before, {conditions()} after")
    steps = [telling.steps for telling in evidence]
    compared = [figures(telling) for telling in evidence]
    measured = _simulate(story, loads, steps, list(machines), seeds)
    stock = _simulate(story, loads, steps, [None] * runs, max(1, seeds // 4))
    return FidelityReport(
        story=story,
        seeds=seeds,
        machines=tuple(machines),
        busy=tuple(busy),
        real=tuple(compared),
        rows=tuple(compare(compared, measured, stock)),
    )


def _simulate(
    story: Story,
    loads: Sequence[list[PlannedMessage]],
    steps: Sequence[tuple[Incident, ...]],
    machines: Sequence[Machine | None],
    seeds: int,
) -> list[list[Figures]]:
    """For each seed, one run for each load, each with the latencies of the machine at that time."""
    compared = []
    for seed in range(1, seeds + 1):
        _say(f"simulated with seed {seed} of {seeds}")
        compared.append(
            [
                figures(simulated.tell(story, load, happened, machine, seed))
                for load, happened, machine in zip(loads, steps, machines, strict=True)
            ]
        )
    return compared


def _merged(machines: Sequence[Machine]) -> Machine:
    samples = {
        it.name: tuple(sorted(sample for machine in machines for sample in getattr(machine, it.name)))
        for it in attrs.fields(Machine)
        if it.name != "load"
    }
    return Machine(**samples, load=machines[0].load)


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
