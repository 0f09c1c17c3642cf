"""Spreads runs of unequal cost over tasks, so that no core is idle while another still works through the big ones."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import attrs

TASK_CPU_S = 20.0
"""The approximate cost of one task. A task costs Spark some 60 ms, and the other cores wait for the last one."""

TASKS_A_CORE = 3
"""The least number, so that a wrong guess for one task is evened out by the others."""


def slots(costs: Sequence[float], cores: int) -> list[int]:
    """Returns the task of each run: the longest run goes first, always to the task with the least work so far."""
    count = slot_count(sum(costs), len(costs), cores)
    free = [(0.0, slot) for slot in range(count)]
    found = [0] * len(costs)
    for index in sorted(range(len(costs)), key=lambda it: -costs[it]):
        load, slot = heapq.heappop(free)
        found[index] = slot
        heapq.heappush(free, (load + costs[index], slot))
    return found


def slot_count(cpu_s: float, runs: int, cores: int) -> int:
    """Returns how many tasks this much work is cut into: a multiple of the cores, and none without a run."""
    a_core = max(TASKS_A_CORE, round(cpu_s / cores / TASK_CPU_S))
    return max(1, min(runs, a_core * cores))


@attrs.define
class Costs:
    """The expected costs of runs, learned from those that are done. Runs of one shape cost about the same."""

    guess_s: float
    """CPU seconds, before anything was learned."""
    _seen: dict[str, tuple[int, float]] = attrs.field(factory=dict, init=False)
    _all: tuple[int, float] = attrs.field(default=(0, 0.0), init=False)

    @property
    def learnt(self) -> bool:
        """Whether any run is done."""
        return bool(self._seen)

    def learn(self, shape: str, runs: int, cpu_s: float) -> None:
        """Records that this many runs cost this much together."""
        self._seen[shape] = _sum(self._seen.get(shape, (0, 0.0)), (runs, cpu_s))
        self._all = _sum(self._all, (runs, cpu_s))

    def expected_s(self, shape: str) -> float:
        """Expected CPU seconds of a run; one of an unknown shape counts as an average one."""
        runs, cpu_s = self._seen.get(shape, self._all)
        return cpu_s / runs if runs else self.guess_s


def _sum(one: tuple[int, float], other: tuple[int, float]) -> tuple[int, float]:
    return one[0] + other[0], one[1] + other[1]
