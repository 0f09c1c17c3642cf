"""The shape of Confluent's published table (900 Connect tasks, 3 workers, eager against incremental), in virtual time.

Connectors of ten tasks each are added one after the other, the next when all tasks of the last one work; then the group
runs undisturbed until the window ends; then each worker is bounced; then connectors are removed one after the other.
How long a task takes to stop is an assumption, since the published text does not say: every time below scales with it,
and the eager ones with how many must stop at once.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import attrs

from cobalance.lab.stage import StageFailed
from cobalance.member import events as ev
from cobalance.settings import GroupSettings
from cobalance_sims.simulate.checks.base import Check
from cobalance_sims.simulate.distributions import Distribution, LogNormal
from cobalance_sims.simulate.habits import Habits
from cobalance_sims.simulate.world import World
from proof.fidelity.table import markdown

if TYPE_CHECKING:
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.work import SimulatedTenure

CONNECTORS, TASKS_EACH, WORKERS = 90, 10, 3
STOPPING: Distribution = LogNormal(1_000.0, 0.8)
"""Time for a task to stop: an assumption."""

WINDOW_MS = 30 * 60_000
"""Length of the window in which work is counted, from the first connector on."""

AWAY_MS = 10_000
PATIENCE_MS = 3_600_000
SEEDS = 3
MINUTE_MS = 60_000

Mode = Literal["eager", "cooperative", "instances"]
MODES: tuple[Mode, ...] = ("eager", "cooperative", "instances")


@attrs.frozen(kw_only=True)
class Shape:
    """The results of one mode. Times in ms."""

    start_ms: int
    stop_ms: int
    first_ms: float
    """Time to add one of the first ten connectors …"""
    last_ms: float
    """… and one of the last ten."""
    bounce_lost_ms: int
    """Time that tasks were not worked while three workers were bounced, summed over the tasks."""
    bounce_moves: int
    """How many tenures ended meanwhile."""
    shares: tuple[float, ...]
    """For each task, in order: the share of the window in which it was worked."""


@attrs.frozen
class ConfluentReport:
    """All modes, seed by seed."""

    shapes: dict[Mode, list[Shape]]
    sizes: tuple[int, int]
    window_ms: int

    def markdown(self) -> str:
        """The table, Confluent's figures beside ours."""
        tasks, workers = self.sizes
        conditions = (
            f"{tasks} tasks, {workers} workers, default settings; a task takes {STOPPING.text} ms to stop (assumed). Medians over "
            f"{len(self.shapes['eager'])} seed(s); work is counted over {self.window_ms // MINUTE_MS} minutes from the first connector on."
        )
        rows = [(name, *published, *(self._of(mode, what) for mode in MODES)) for name, published, what in ROWS]
        return f"{conditions}\n\n{markdown(HEADS, rows)}"

    def _of(self, mode: Mode, what: Callable[[Shape], float]) -> str:
        return _number([what(shape) for shape in self.shapes[mode]])

    def as_json(self) -> dict[str, Any]:
        """Everything, for other programs."""
        return {mode: [attrs.asdict(shape) for shape in shapes] for mode, shapes in self.shapes.items()}


def _number(values: Sequence[float]) -> str:
    value = statistics.median(values)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}".rstrip("0").rstrip(".")


HEADS = (
    "",
    "Confluent, eager",
    "Confluent, incremental",
    "ours, eager",
    "ours, cooperative",
    "cooperative, instance ids",
)
NOTHING = ("", "")

ROWS: tuple[tuple[str, tuple[str, str], Callable[[Shape], float]], ...] = (
    ("all tasks work after, min", ("~14", "within 1"), lambda it: it.start_ms / MINUTE_MS),
    ("one of the first ten connectors is up after, s", NOTHING, lambda it: it.first_ms / 1000),
    ("one of the last ten, s", NOTHING, lambda it: it.last_ms / 1000),
    ("all tasks have stopped after, min", ("~12", "within 1"), lambda it: it.stop_ms / MINUTE_MS),
    ("work done in all: MB/s there, share of the time here, %", ("252.68", "537.81"), lambda it: 100 * statistics.fmean(it.shares)),
    ("slowest task", ("0.23", "0.42"), lambda it: 100 * it.shares[0]),
    ("median task", ("0.27", "0.54"), lambda it: 100 * statistics.median(it.shares)),
    ("fastest task", ("0.41", "3.82"), lambda it: 100 * it.shares[-1]),
    ("each worker bounced once: unworked, task-seconds", NOTHING, lambda it: it.bounce_lost_ms / 1000),
    ("tenures that ended for it", NOTHING, lambda it: float(it.bounce_moves)),
)  # fmt: skip


def tell(*, seeds: int = SEEDS, connectors: int = CONNECTORS, window_ms: int = WINDOW_MS) -> ConfluentReport:
    """Runs every mode with every seed."""
    shapes: dict[Mode, list[Shape]] = {mode: [] for mode in MODES}
    for mode in MODES:
        for seed in range(1, seeds + 1):
            sys.stderr.write(f"{mode}, seed {seed} of {seeds}\n")
            shapes[mode].append(ConfluentRun(mode, seed, connectors, window_ms).play())
    return ConfluentReport(shapes, (connectors * TASKS_EACH, WORKERS), window_ms)


class ConfluentRun:
    """One mode, one seed."""

    def __init__(self, mode: Mode, seed: int, connectors: int, window_ms: int = WINDOW_MS) -> None:
        settings = GroupSettings(mode="eager" if mode == "eager" else "cooperative")
        self.world = World(settings, seed=seed, habits=Habits(drain_ms=STOPPING), verbose=False)
        self._worked = Worked(self.world)
        self.world.watch.add(self._worked)
        self._mode, self._connectors, self._window_ms = mode, connectors, window_ms

    def play(self) -> Shape:
        """Runs from the first connector to the last."""
        world = self.world
        world.redis.create()
        for number in range(WORKERS):
            self._start(number)
        world.clock.run(2 * world.settings.session_timeout_ms)
        begun = world.now
        added = [self._declare(number + 1) for number in range(self._connectors)]
        start_ms = world.now - begun
        world.clock.run(max(0, begun + self._window_ms - world.now))
        shares = [self._worked.of(name) / self._window_ms for name in world.resources]
        lost, ends = self._bounce_all()
        begun = world.now
        for number in range(self._connectors, 0, -1):
            self._declare(number - 1)
        return Shape(
            start_ms=start_ms,
            stop_ms=world.now - begun,
            first_ms=statistics.fmean(added[:10]),
            last_ms=statistics.fmean(added[-10:]),
            bounce_lost_ms=lost,
            bounce_moves=ends,
            shares=tuple(sorted(shares)),
        )

    def _start(self, number: int) -> Process:
        return self.world.start(instance=f"i{number}" if self._mode == "instances" else None)

    def _declare(self, connectors: int) -> int:
        """Declares this many connectors; returns how long they took to work, ms."""
        world = self.world
        begun = world.now
        world.resources = tuple(sorted(f"t{number:04}" for number in range(connectors * TASKS_EACH)))
        world.list_version += 1
        for process in list(world.living.values()):
            process.deliver(ev.ResourcesDeclared(world.list_version, world.resources))
        self._until(self._is_settled, "the list had changed")
        return world.now - begun

    def _bounce_all(self) -> tuple[int, int]:
        """Bounces every worker, one after the other; returns task-ms not worked meanwhile, and tenures that ended."""
        world, tasks = self.world, len(self.world.resources)
        begun, worked, ends = world.now, self._worked.total(), self._worked.ends
        for number, process in enumerate(list(world.living.values())):
            process.stop(remain=self._mode == "instances")
            self._until(lambda gone=process: not gone.alive, "a worker was asked to leave")  # type: ignore[misc]  # bound at once
            world.clock.run(AWAY_MS)
            self._start(number)
            world.clock.run(2 * world.settings.session_timeout_ms)
            self._until(self._is_settled, "a worker had come back")
        return (world.now - begun) * tasks - (self._worked.total() - worked), self._worked.ends - ends

    def _is_settled(self) -> bool:
        """All tasks of the list are worked, no others, and none is asked back."""
        return (
            self._worked.count == len(self.world.resources)
            and not self.world.redis.ledger.pending
            and self._worked.names == set(self.world.resources)
        )

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        if not condition() and not self.world.clock.run(PATIENCE_MS, condition):
            raise StageFailed(f"{self._mode}: an hour after {what}, the group had not settled")


class Worked(Check):
    """Not a promise: measures for how long each resource is worked."""

    promise = ""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.count = 0
        """Number of resources worked now."""
        self.ends = 0
        self._since: dict[str, int] = {}
        self._ms: dict[str, int] = {}

    def active(self, process: Process, tenure: SimulatedTenure) -> None:
        del process
        if tenure.resource not in self._since:
            self._since[tenure.resource] = self.world.now
            self.count += 1

    def idle(self, process: Process, tenure: SimulatedTenure) -> None:
        del process
        since = self._since.pop(tenure.resource, None)
        if since is not None:
            self.count -= 1
            self.ends += 1
            self._ms[tenure.resource] = self._ms.get(tenure.resource, 0) + self.world.now - since

    @property
    def names(self) -> set[str]:
        """The resources worked now."""
        return set(self._since)

    def of(self, resource: str) -> int:
        """How long the resource was worked so far, ms."""
        return self._ms.get(resource, 0) + (self.world.now - self._since.get(resource, self.world.now))

    def total(self) -> int:
        """Time worked in total, over all resources, ms."""
        return sum(map(self.of, {*self._ms, *self._since}))
