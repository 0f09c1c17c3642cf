"""Tells one story: builds its world, lets its plan happen, then calm, and says how it ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import attrs

from cobalance.errors import CobalanceError
from cobalance.session import Phase
from cobalance_sims.checks import ALL, L1, Check
from cobalance_sims.habits import QUICK
from cobalance_sims.network import SOUND
from cobalance_sims.reached import Reached
from cobalance_sims.scenario import At, Every, Scenario
from cobalance_sims.world import World

if TYPE_CHECKING:
    from cobalance_sims.process import Process

SETTLING_MS = 120_000
"""Until everybody of a large group is there, before speed is measured."""


@attrs.frozen
class Outcome:
    """How a story ended."""

    scenario: str
    seed: int
    engine: str
    digest: str
    failure: str
    """Empty when every promise was kept."""
    virtual_ms: int
    converged_ms: int
    steps: int
    cpu_s: float
    reached: Reached = attrs.field(repr=False)
    lines: list[str] = attrs.field(repr=False)

    @property
    def replay(self) -> str:
        """The command that tells it again."""
        return f"cobalance sims run {self.scenario} --seed {self.seed} --lua {self.engine}"


class Run:
    """One story with one seed."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        *,
        lua: str | None = None,
        checks: tuple[type[Check], ...] = ALL,
        verbose: bool = True,
    ) -> None:
        self.scenario = scenario
        self.world = World(
            scenario.settings,
            seed=seed,
            lua=lua,
            network=scenario.network,
            habits=scenario.habits,
            partitions=scenario.partitions,
            verbose=verbose,
        )
        self._calm = False
        self._l1 = L1(self.world)
        for check in checks:
            self.world.watch.add(self._l1 if check is L1 else check(self.world))

    def tell(self) -> Outcome:
        """From the beginning to the end; a broken promise ends it early."""
        begun = time.process_time()
        converged, failure = -1, ""
        try:
            self.begin()
            self.world.clock.run(self.scenario.length_ms)
            converged = self.calm()
        except (AssertionError, CobalanceError) as problem:
            failure = f"{type(problem).__name__}: {problem}"
            self.world.log(None, failure)
        self._fold_state()
        world = self.world
        return Outcome(
            self.scenario.name, world.seed, world.redis.store.engine, world.trace.digest, failure, world.now, converged,
            world.clock.steps, time.process_time() - begun, world.reached, list(world.trace.lines),
        )  # fmt: skip

    def measure(self) -> str:
        """Speed under the plan, once everybody is there."""
        world = self.world
        self.begin()
        world.clock.run(SETTLING_MS)
        begun, steps, at = time.process_time(), world.clock.steps, world.now
        world.clock.run(self.scenario.length_ms)
        cpu_s = time.process_time() - begun
        hours = len(world.living) * (world.now - at) / 3_600_000
        return (
            f"{len(world.living)} members, {len(world.resources)} resources, {(world.now - at) / 1000:.0f} virtual s in {cpu_s:.2f} s "
            f"of CPU on {world.redis.store.engine}: {hours / cpu_s:.1f} member-hours a CPU-second, "
            f"{(world.clock.steps - steps) / cpu_s:,.0f} steps a second"
        )

    def _fold_state(self) -> None:
        for key in self.world.redis.store.dump():
            self.world.trace.fold(repr((key.key, key.kind, key.contents)))

    def begin(self) -> None:
        """Who is there at first."""
        world, scenario = self.world, self.scenario
        if scenario.created:
            world.redis.create()
        world.resources = tuple(sorted(f"r{number}" for number in range(scenario.resources)))
        for number in range(scenario.members):
            instance = f"i{number}" if scenario.instances else None
            capacity = scenario.capacities[number % len(scenario.capacities)]
            world.start(instance=instance, capacity=capacity)
        for step in scenario.plan:
            self._schedule(step)

    # -- the plan --------------------------------------------------------------------------------------------------------

    def _schedule(self, step: At | Every) -> None:
        if isinstance(step, At):
            self.world.clock.after(step.ms + self._jitter(step.jitter_ms), self._strike_once, step)
        else:
            self.world.clock.after(step.start_ms + step.ms + self._jitter(step.jitter_ms), self._strike_again, step)

    def _jitter(self, ms: int) -> int:
        return self.world.random.randint(-ms, ms) if ms else 0

    def _strike_once(self, step: At) -> None:
        if not self._calm:
            step.fault.strike(self.world)

    def _strike_again(self, step: Every) -> None:
        if self._calm:
            return
        self.world.clock.after(max(1, step.ms + self._jitter(step.jitter_ms)), self._strike_again, step)
        step.fault.strike(self.world)

    # -- calm ------------------------------------------------------------------------------------------------------------

    def calm(self) -> int:
        """Every trouble ends, and the group must converge; how long that took, ms."""
        world = self.world
        self._calm = True
        world.log(None, "calm")
        self._heal()
        world.clock.run(5_000)
        self._heal()  # what was scheduled to end only now, and successors that had still to start
        for process in list(world.living.values()):
            if process.session.phase is Phase.JOINING and self._is_double(process):
                process.kill()  # it wants the instance id of another
        if not world.living:
            world.start()
        took = self._l1.converge()
        self._let_queues_run_empty()
        self._l1.stay(3 * self.scenario.settings.heartbeat_interval_ms)
        world.watch.settled()
        return took

    def _is_double(self, process: Process) -> bool:
        instance, others = process.member_settings.instance_id, self.world.living.values()
        return instance is not None and any(
            it is not process and it.member_settings.instance_id == instance for it in others
        )

    def _heal(self) -> None:
        world = self.world
        if not world.redis.up:
            world.redis.set_up(up=True)
        for process in list(world.living.values()):
            process.habits, process.network, process.reaches_redis = QUICK, SOUND, True
            process.resume()
            process.work.hurry()

    def _let_queues_run_empty(self) -> None:
        broker = self.world.broker
        if broker is not None:
            self.world.clock.run(3_600_000, until=lambda: broker.waiting == 0)
