"""Queues of a group without a broker, as fluids: what comes in, what members get done, and how old it is by then.

Every two seconds each resource gets messages. What a member can do in that time goes to what it holds, evenly, but to
none more than waits there. Messages of a resource are done in their order. Their age is right within two seconds; where
nothing waits, it is 0.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

import attrs

from cobalance_sims.histogram import Histogram, bin_of
from cobalance_sims.simulate.checks.base import Check

if TYPE_CHECKING:
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.work import SimulatedTenure
    from cobalance_sims.simulate.world import World

STEP_MS = 2_000

MANY = 30.0

LEAST = 1e-9
"""Less than this of a message counts as nothing."""


@attrs.define
class FluidQueue:
    """One resource's messages, and who works them."""

    worker: Process | None = None
    waiting: float = 0.0
    cohorts: deque[list[float]] = attrs.Factory(deque)
    """Of what waits, oldest first: how many came, and when on average (ms)."""

    def add(self, count: float, at: float) -> None:
        if count > LEAST:
            self.waiting += count
            self.cohorts.append([count, at])


class Queues(Check):
    """Not a promise: follows what happens to the resources of a world.

    Args:
        world: whose they are.
        arrivals: messages a second of all resources together, at a time in ms.
        each_per_s: messages a second that a member gets done.
        random: decides how many messages come. Nothing else draws from it, so that they are the same whatever the
            members do.
    """

    promise = ""

    def __init__(self, world: World, arrivals: Callable[[int], float], each_per_s: float, random: Random) -> None:
        super().__init__(world)
        self._arrivals, self._each_per_s, self._random = arrivals, each_per_s, random
        self.queues = {name: FluidQueue() for name in world.resources}
        self.ages: Histogram = {}
        self.done_by: dict[str, float] = {}
        """Process → what it has done."""
        self.moves = self.came = 0
        self.oldest_ms = self.unworked_ms = 0.0
        self._holders: dict[str, str] = {}
        self._at = 0
        self._step_ends = 0
        self._names = list(self.queues)
        self._coming = Counter[str]()

    # -- who works what ------------------------------------------------------------------------------------------------

    def active(self, process: Process, tenure: SimulatedTenure) -> None:
        """A resource is worked from now on; by another process than before, it has moved."""
        self.pass_time()
        self.queues[tenure.resource].worker = process
        self.moves += self._holders.get(tenure.resource, process.name) != process.name
        self._holders[tenure.resource] = process.name

    def idle(self, process: Process, tenure: SimulatedTenure) -> None:
        """Nobody works it, until the next one does."""
        self.pass_time()
        if self.queues[tenure.resource].worker is process:
            self.queues[tenure.resource].worker = None

    # -- time ----------------------------------------------------------------------------------------------------------

    def pass_time(self) -> None:
        """Brings everything up to now."""
        now = self.world.clock.story
        while self._at < now:
            if self._at == self._step_ends:
                self._begin_step()
            until = min(now, self._step_ends)
            self._flow(self._at, until)
            self._at = until

    def _begin_step(self) -> None:
        came = poisson(self._arrivals(self._step_ends) * STEP_MS / 1_000, self._random)
        self._coming = Counter(self._random.choices(self._names, k=came))
        self.came += came
        self._step_ends += STEP_MS

    def _flow(self, begin: int, end: int) -> None:
        part, held = (end - begin) / STEP_MS, dict[str, list[FluidQueue]]()
        for name, queue in self.queues.items():
            queue.add(self._coming[name] * part, (begin + end) / 2)
            if queue.worker is None:
                self.unworked_ms += end - begin if name in self._holders else 0
            else:
                held.setdefault(queue.worker.name, []).append(queue)
        for worker, queues in held.items():
            self._work(worker, queues, begin, end)

    def _work(self, worker: str, queues: list[FluidQueue], begin: int, end: int) -> None:
        able = before = self._each_per_s * (end - begin) / 1_000
        for left, queue in enumerate(sorted(queues, key=lambda it: it.waiting)):
            done = min(queue.waiting, able / (len(queues) - left))
            able -= done
            self._take(queue, done, begin, end)
        self.done_by[worker] = self.done_by.get(worker, 0.0) + before - able

    def _take(self, queue: FluidQueue, count: float, begin: int, end: int) -> None:
        """They are done evenly within that time."""
        queue.waiting -= count
        taken = 0.0
        while queue.cohorts and count - taken > LEAST:
            cohort = queue.cohorts[0]
            part = min(cohort[0], count - taken)
            at = begin + (taken + part / 2) / count * (end - begin)
            self._note(at - cohort[1] if cohort[1] < begin else 0.0, part)
            taken += part
            cohort[0] -= part
            if cohort[0] <= LEAST:
                queue.cohorts.popleft()

    def _note(self, age_ms: float, count: float) -> None:
        self.oldest_ms = max(self.oldest_ms, age_ms)
        found = bin_of(age_ms)
        self.ages[found] = self.ages.get(found, 0) + round(1_000 * count)

    @property
    def left(self) -> int:
        """How many messages wait."""
        return round(sum(it.waiting for it in self.queues.values()))


def poisson(mean: float, random: Random) -> int:
    """How many come where this many are expected: by the gaps between them, or, of many, by the normal law."""
    if mean > MANY:
        return max(0, round(random.gauss(mean, mean**0.5)))
    count, at = 0, random.expovariate(1.0)
    while at < mean:
        count, at = count + 1, at + random.expovariate(1.0)
    return count
