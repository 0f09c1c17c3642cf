"""Spreads runs of unequal cost over tasks, so that no core is idle while another still works through the big ones."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import attrs

TASK_CPU_S = 20.0
"""About what one task should cost. A task costs Spark some 60 ms, and the last one is what the other cores wait for."""

TASKS_A_CORE = 3
"""At least, so that a wrong guess of one task is made good by the others."""


def slots(costs: Sequence[float], cores: int) -> list[int]:
    """For each run the task it belongs to: the longest goes first, always to the task with least to do so far."""
    count = slot_count(sum(costs), len(costs), cores)
    free = [(0.0, slot) for slot in range(count)]
    found = [0] * len(costs)
    for index in sorted(range(len(costs)), key=lambda it: -costs[it]):
        load, slot = heapq.heappop(free)
        found[index] = slot
        heapq.heappush(free, (load + costs[index], slot))
    return found


def slot_count(cpu_s: float, runs: int, cores: int) -> int:
    """Into how many tasks this much work is cut: a multiple of the cores, and none without a run."""
    a_core = max(TASKS_A_CORE, round(cpu_s / cores / TASK_CPU_S))
    return max(1, min(runs, a_core * cores))


@attrs.define
class Costs:
    """What runs are expected to cost, learnt from those that are done. Runs of one shape cost about the same."""

    guess_s: float
    """CPU seconds, before anything was learnt."""
    _seen: dict[str, tuple[int, float]] = attrs.field(factory=dict, init=False)
    _all: tuple[int, float] = attrs.field(default=(0, 0.0), init=False)

    @property
    def learnt(self) -> bool:
        """Whether any run is done."""
        return bool(self._seen)

    def learn(self, shape: str, runs: int, cpu_s: float) -> None:
        """So many runs cost this much together."""
        self._seen[shape] = _sum(self._seen.get(shape, (0, 0.0)), (runs, cpu_s))
        self._all = _sum(self._all, (runs, cpu_s))

    def expected_s(self, shape: str) -> float:
        """CPU seconds of a run; one of an unknown shape is taken for an average one."""
        runs, cpu_s = self._seen.get(shape, self._all)
        return cpu_s / runs if runs else self.guess_s


def _sum(one: tuple[int, float], other: tuple[int, float]) -> tuple[int, float]:
    return one[0] + other[0], one[1] + other[1]
