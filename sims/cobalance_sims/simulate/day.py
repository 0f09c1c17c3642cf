"""A day of a group whose load has a daily curve, with an autoscaler and without.

The autoscaler is :class:`cobalance.operate.Scaling`, as the exporter and KEDA ask it. It is shown what ``describe``
reads of the simulated Redis, with the lag of the simulated queues, what each member has acknowledged, and how much of its
time that took. Members are production sessions, which join, take over, hand over and leave. The load is the same for each
way to choose their number: it depends on the seed and the time of day alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING

import attrs

from cobalance.description import Backlog, GroupDescription, MemberDescription
from cobalance.errors import UsageError
from cobalance.operate.desired import Scaling, ScalingSettings
from cobalance.settings import GroupSettings
from cobalance_sims.histogram import percentile
from cobalance_sims.simulate.checks import L2, S1, S3, S5
from cobalance_sims.simulate.distributions import Distribution, LogNormal
from cobalance_sims.simulate.habits import Habits
from cobalance_sims.simulate.queues import Queues, poisson
from cobalance_sims.simulate.run import Run
from cobalance_sims.simulate.scenario import Scenario

if TYPE_CHECKING:
    from cobalance_sims.simulate.process import Process

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MINUTE_MS = 60_000

ASKED_EVERY_MS = 15_000
"""How often the autoscaler asks, as Kubernetes' does."""

LONGEST_FLIGHT_S = 1.0
"""A message in flight that does not wait for others is done within this."""


class BadDay(UsageError):
    """The parameters are invalid; the message names the one at fault."""


@attrs.frozen(kw_only=True)
class Day:
    """What a day is like.

    Raises:
        BadDay: a value is out of range.
    """

    mean_per_s: float = 40.0
    """Messages a second, over the day."""
    peak: float = 1.8
    """The busiest time of day as a multiple of that, 12 hours after the quietest. 1 is the same load all day."""
    unrest: float = 0.1
    """By how much the load differs from that curve from minute to minute, as a share of it."""
    each_per_s: float = 10.0
    """Messages a second that a member gets done."""
    partitions: int = 24
    startup_ms: Distribution = attrs.field(factory=lambda: LogNormal(20_000, 0.4))
    """From the autoscaler's order to the join."""
    drain_ms: Distribution = attrs.field(factory=lambda: LogNormal(200, 1.0))
    """How long a handler takes to finish, when its partition is asked back."""
    scaling: ScalingSettings = attrs.Factory(ScalingSettings)
    settings: GroupSettings = attrs.Factory(GroupSettings)
    length_ms: int = DAY_MS
    """How much of it is played, from midnight on."""
    day_ms: int = DAY_MS
    """From midnight to midnight; less makes the load rise and fall faster than it does anywhere."""

    def __attrs_post_init__(self) -> None:
        for name, low, high in (
            ("mean_per_s", 0.001, 1_000_000),
            ("peak", 1, 2),
            ("unrest", 0, 1),
            ("each_per_s", 0.001, 1_000_000),
            ("partitions", 1, 1_000),
            ("length_ms", MINUTE_MS, 30 * DAY_MS),
            ("day_ms", MINUTE_MS, DAY_MS),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise BadDay(f"{name} is {value!r}: give a number from {low:g} to {high:,g}")

    def per_s(self, at_ms: int) -> float:
        """The curve: quietest at midnight, busiest at noon."""
        return self.mean_per_s * (1 - (self.peak - 1) * math.cos(2 * math.pi * at_ms / self.day_ms))

    def members_for(self, per_s: float) -> int:
        """How many are needed for so much, and never more than there are partitions."""
        return min(self.partitions, math.ceil(per_s / self.each_per_s))

    def play(self, seed: int, fixed: int | None = None) -> DayOutcome:
        """Plays it with this many members all the time, or as many as the autoscaler wants."""
        return _Playing(self, seed, fixed).play()

    def compare(self, seed: int) -> dict[str, DayOutcome]:
        """The autoscaler beside as many members as the peak takes, and as many as the mean does."""
        return {
            "autoscaled": self.play(seed),
            "fixed for the peak": self.play(seed, self.members_for(self.mean_per_s * self.peak)),
            "fixed for the mean": self.play(seed, self.members_for(self.mean_per_s)),
        }


@attrs.frozen(kw_only=True)
class DayOutcome:
    """What came of a day."""

    least_members: int
    most_members: int
    member_hours: float
    """What it costs, from the order of a member to its end."""
    changes: int
    """How often the number of members was changed."""
    moves: int
    """How often a partition went from one member to another."""
    unworked_s: float
    """For how long partitions had nobody, added up, once they had somebody for the first time."""
    messages: int
    age_p50_s: float
    """How old messages are when they are done: half of them no older than this."""
    age_p99_s: float
    age_max_s: float
    left: int
    """How many messages wait at the end."""


class Weather:
    """The unrest of one seed: factors minute by minute that remember the last ones for a quarter of an hour or so."""

    def __init__(self, unrest: float, seed: int) -> None:
        self._unrest, self._random = unrest, Random(f"weather {seed}")
        self._states: list[float] = []

    def at(self, ms: int) -> float:
        """1 on average."""
        while len(self._states) <= ms // MINUTE_MS:
            before = self._states[-1] if self._states else 0.0
            self._states.append(0.93 * before + (1 - 0.93**2) ** 0.5 * self._random.gauss(0, 1))
        return math.exp(self._unrest * self._states[ms // MINUTE_MS] - self._unrest**2 / 2)


class _Playing:
    """One day of one seed."""

    def __init__(self, day: Day, seed: int, fixed: int | None) -> None:
        self._day, self._fixed, self._weather = day, fixed, Weather(day.unrest, seed)
        members = fixed or day.members_for(day.mean_per_s * day.peak)  # as a deployment that was never scaled
        scenario = Scenario(
            name="day",
            summary="a day",
            plan=(),
            members=members,
            resources=day.partitions,
            length_ms=day.length_ms,
            settings=day.settings,
            habits=Habits(drain_ms=day.drain_ms),
            skips_idle=True,
        )
        self._run = Run(scenario, seed, checks=(S1, S3, S5, L2), verbose=False, traced=False)
        self._world, self._random = self._run.world, Random(f"autoscaler {seed}")
        self._flights = Random(f"flights {seed}")
        self._scaling = Scaling(day.scaling)
        self._starting = self._changes = 0
        self._least = self._most = members
        self._member_ms = self._paid_to = 0
        self._seed = seed

    @cached_property
    def _queues(self) -> Queues:
        return Queues(self._world, self._per_s, self._day.each_per_s, Random(f"messages {self._seed}"))

    def _per_s(self, at_ms: int) -> float:
        return self._day.per_s(at_ms) * self._weather.at(at_ms)

    def play(self) -> DayOutcome:
        world, day = self._world, self._day
        world.resources = tuple(sorted(f"r{number}" for number in range(day.partitions)))
        world.watch.add(self._queues)
        self._run.begin()
        if self._fixed is None:
            world.clock.plan(ASKED_EVERY_MS, self._ask)
        world.clock.run(day.length_ms)
        queues = self._queues
        queues.pass_time()
        self._pay()
        p50, p99 = (percentile(queues.ages, share) or 0.0 for share in (0.5, 0.99))
        return DayOutcome(
            least_members=self._least,
            most_members=self._most,
            member_hours=self._member_ms / HOUR_MS,
            changes=self._changes,
            moves=queues.moves,
            unworked_s=queues.unworked_ms / 1_000,
            messages=queues.came,
            age_p50_s=p50 / 1_000,
            age_p99_s=p99 / 1_000,
            age_max_s=queues.oldest_ms / 1_000,
            left=queues.left,
        )

    # -- the autoscaler ------------------------------------------------------------------------------------------------

    def _ask(self, _: object) -> None:
        world = self._world
        world.clock.plan(ASKED_EVERY_MS, self._ask)
        self._pay()
        wanted = self._scaling.judge(self._described()).members
        staying = [it for it in world.living.values() if not it.leaving]
        there = len(staying) + self._starting
        if wanted is None or wanted == there:
            return
        self._changes += 1
        self._least, self._most = min(self._least, wanted), max(self._most, wanted)
        world.changed_at = world.now
        for _ in range(wanted - there):
            self._starting += 1
            world.clock.plan(self._day.startup_ms.sample(self._random), self._start)
        for process in staying[wanted:] if wanted < there else ():
            process.stop(remain=False)

    def _pay(self) -> None:
        now = self._world.clock.story
        self._member_ms += (now - self._paid_to) * (len(self._world.living) + self._starting)
        self._paid_to = now

    def _start(self, _: object) -> None:
        self._starting -= 1
        self._world.changed_at = self._world.now
        self._world.start()

    def _described(self) -> GroupDescription:
        """What a snapshot would have: Redis's part as the product reads it."""
        world, queues = self._world, self._queues
        queues.pass_time()
        found = GroupDescription.read(world.redis.coordinator)
        flights = self._in_flight()
        return attrs.evolve(
            found,
            at_ms=found.at_ms + world.clock.skipped,
            members=tuple(self._reported(it) for it in found.members),
            resources=tuple(
                attrs.evolve(it, backlog=Backlog(lag=int(queues.queues[it.name].waiting) + flights(it.name)))
                for it in found.resources
            ),
        )

    def _reported(self, member: MemberDescription) -> MemberDescription:
        done = self._queues.done_by.get(member.id.rpartition(".")[0], 0.0)
        return attrs.evolve(member, handled=int(done), occupied_ms=int(1_000 * done / self._day.each_per_s))

    def _in_flight(self) -> Callable[[str], int]:
        """What a handler has at this moment although nothing waits: as much as comes in while it is at one."""
        day, queues = self._day, self._queues.queues
        each = self._per_s(self._world.clock.story) / len(queues)
        held: dict[Process | None, int] = {}
        for queue in queues.values():
            held[queue.worker] = held.get(queue.worker, 0) + 1

        def in_flight(name: str) -> int:
            worker = queues[name].worker
            free_per_s = day.each_per_s - each * held[worker]
            mean = each * min(LONGEST_FLIGHT_S, 1 / free_per_s if free_per_s > 0 else LONGEST_FLIGHT_S)
            return poisson(mean, self._flights) if worker is not None else 0

        return in_flight
