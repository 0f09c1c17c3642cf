"""Runs one scenario: builds its world, carries out its plan, then lets it calm down, and reports how it ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import attrs

from cobalance.errors import CobalanceError
from cobalance.member.session import Phase
from cobalance.settings import HOUR_MS
from cobalance_sims.simulate.checks import ALL, L1, Check
from cobalance_sims.simulate.habits import QUICK
from cobalance_sims.simulate.idle import Idle
from cobalance_sims.simulate.network import SOUND
from cobalance_sims.simulate.paging import pages_of
from cobalance_sims.simulate.reached import Reached
from cobalance_sims.simulate.scenario import At, Every, Fault, Randomly, Regularly, Scenario, Step
from cobalance_sims.simulate.world import World

if TYPE_CHECKING:
    from cobalance.coordinator.memory.store import MemoryStore
    from cobalance_sims.simulate.process import Process


@attrs.frozen
class RunOutcome:
    """How a run ended."""

    scenario: str
    seed: int
    engine: str
    digest: str
    failure: str
    """Empty if every promise was kept."""
    virtual_ms: int
    converged_ms: int
    steps: int
    cpu_s: float
    reached: Reached = attrs.field(repr=False)
    lines: list[str] = attrs.field(repr=False)
    replay: str = ""
    """The command that replays it."""

    @property
    def verdict(self) -> str:
        """The last lines of the report."""
        seconds = f"{self.virtual_ms / 1000:.0f} s in {self.cpu_s:.2f} s of CPU on {self.engine}"
        lines = [f"hash {self.digest}   {self.scenario} seed {self.seed}: {seconds}"]
        if self.failure:
            lines += [f"FAILED {self.failure}", f"replay: {self.replay}"]
        else:
            lines.append(f"every promise was kept; converged {self.converged_ms} ms after the end of churn")
        return "\n".join(lines)


class Run:
    """One scenario with one seed."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        *,
        lua: str | None = None,
        checks: tuple[type[Check], ...] = ALL,
        verbose: bool = True,
        traced: bool = True,
        store: MemoryStore | None = None,
        replay: str = "",
    ) -> None:
        self.scenario, self._traced, self._replay = scenario, traced, replay
        self.world = World(
            scenario.settings,
            seed=seed,
            lua=lua,
            network=scenario.network,
            habits=scenario.habits,
            partitions=scenario.partitions,
            witnesses=scenario.witnesses,
            messages=scenario.messages,
            verbose=verbose,
            traced=traced,
            store=store,
        )
        self._calm = False
        self._l1 = L1(self.world)
        for check in checks:
            self.world.watch.add(self._l1 if check is L1 else check(self.world))
        if scenario.skips_idle:
            self.world.watch.add(Idle(self.world))

    def tell(self) -> RunOutcome:
        """Runs from the beginning to the end; a broken promise ends it early."""
        begun = time.process_time()
        converged, failure = -1, ""
        try:
            with pages_of(self.scenario.page):
                self.begin()
                self.world.clock.run(self.scenario.length_ms)
                self.on_calm()
                converged = self.calm()
        except (AssertionError, CobalanceError) as problem:
            failure = f"{type(problem).__name__}: {problem}"
            self.world.log(None, failure)
        if self._traced:
            self._fold_state()
        world = self.world
        return RunOutcome(
            self.scenario.name, world.seed, world.redis.store.engine, world.trace.digest, failure, world.now, converged,
            world.clock.steps, time.process_time() - begun, world.reached, list(world.trace.lines), self._replay,
        )  # fmt: skip

    def on_calm(self) -> None:
        """The story is over; what follows is its proof. Replace this method to be notified."""

    def _fold_state(self) -> None:
        for key in self.world.redis.store.dump():
            self.world.trace.fold(repr((key.key, key.kind, key.contents)))

    def begin(self) -> None:
        """Starts the first processes."""
        world, scenario = self.world, self.scenario
        if scenario.created:
            world.redis.create()
        world.resources = tuple(sorted(f"r{number}" for number in range(scenario.resources)))
        world.deployed = scenario.wants
        for number in range(scenario.members):
            instance = f"i{number}" if scenario.instances else None
            capacity = scenario.capacities[number % len(scenario.capacities)]
            world.start(instance=instance, capacity=capacity)
        for step in scenario.plan:
            self._schedule(step)

    # -- the plan --------------------------------------------------------------------------------------------------------

    def _schedule(self, step: Step) -> None:
        clock = self.world.clock
        if isinstance(step, At):
            clock.plan(step.ms + self._jitter(step.jitter_ms), self._strike_once, step)
        elif isinstance(step, Every):
            clock.plan(step.start_ms + step.ms + self._jitter(step.jitter_ms), self._strike_again, step)
        elif isinstance(step, Regularly):
            clock.plan(self.world.random.randrange(step.every_ms), self._strike_again, step)
        else:
            self._await_chance(step)

    def _jitter(self, ms: int) -> int:
        return self.world.random.randint(-ms, ms) if ms else 0

    def _strike_once(self, step: At) -> None:
        if not self._calm:
            self._strike(step.fault)

    def _strike_again(self, step: Every | Regularly) -> None:
        if self._calm:
            return
        ms = step.every_ms if isinstance(step, Regularly) else max(1, step.ms + self._jitter(step.jitter_ms))
        self.world.clock.plan(ms, self._strike_again, step)
        self._strike(step.fault)

    def _await_chance(self, step: Randomly) -> None:
        """Draws at twice the present rate, since more processes may be alive by then; drops about half of the draws."""
        most = 2 * len(self.world.living) + 1 if step.per_member else 1
        ms = self.world.random.expovariate(step.per_hour * most / HOUR_MS)
        self.world.clock.plan(min(int(ms), 100 * HOUR_MS), self._take_chance, (step, most))

    def _take_chance(self, what: tuple[Randomly, int]) -> None:
        step, most = what
        if self._calm:
            return
        if not step.per_member or self.world.random.random() * most < len(self.world.living):
            self._strike(step.fault)
        self._await_chance(step)

    def _strike(self, fault: Fault) -> None:
        self.world.changed_at = self.world.now
        fault.strike(self.world)

    # -- calm ------------------------------------------------------------------------------------------------------------

    def calm(self) -> int:
        """Ends every fault and lets the group converge; returns how long that took, ms."""
        world = self.world
        self._calm = True
        if self.scenario.skips_idle:
            world.clock.forget_plan()  # deployments would go on, and machines come back, for minutes
        world.log(None, "calm")
        self._heal()
        if not self.scenario.skips_idle:
            world.clock.run(5_000)
            self._heal()  # what was scheduled to end only now, and successors that had still to start
        for process in list(world.living.values()):
            if process.session.phase is Phase.JOINING and self._is_double(process):
                process.kill()  # it wants the instance id of another process
        if all(process.leaving for process in world.living.values()):
            world.start()  # if nobody calls the group, nobody can tell who has died
        took = self._l1.converge()
        self._let_queues_run_empty()
        self._l1.stay((3 if self._traced else 1) * self.scenario.settings.heartbeat_interval_ms)
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
        world.redis.store.die_at(0)
        world.habits, world.network = QUICK, SOUND  # of those that start from now on
        for process in list(world.living.values()):
            process.habits, process.network, process.reaches_redis = QUICK, SOUND, True
            process.resume()
            process.work.hurry()

    def _let_queues_run_empty(self) -> None:
        broker = self.world.broker
        if broker is not None:
            self.world.clock.run(3_600_000, until=lambda: broker.waiting == 0)
