"""A small world in virtual time: real sessions, the real Lua on an in-memory store, and a network that may misbehave.

Nothing here sleeps, and nothing is random except by a seed. Everything that happens is an entry of one queue, ordered
by time and then by the order of scheduling, so the same story always runs the same way. The world's checks run after
each step.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from random import Random

from tests.coordinator.records import Records
from tests.process import Fate, Habits, Process

__all__ = ["SETTINGS", "Fate", "Habits", "Process", "World", "names"]

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.keys import group_keys
from cobalance.coordinator.memory.store import MemoryStore
from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.coordinator.requests import Request
from cobalance.settings import GroupSettings, MemberSettings

START_MS = 1_800_000_000_000

SETTINGS = GroupSettings(
    session_timeout_ms=3_000,
    heartbeat_interval_ms=1_000,
    revocation_timeout_ms=5_000,
    rejoin_grace_ms=20_000,
    gather_ms=200,
)

MOST_STEPS_AT_ONCE = 2_000


def names(count: int) -> tuple[str, ...]:
    return tuple(f"r{number}" for number in range(count))


class World:
    """The clock, the queue, Redis, and all processes."""

    def __init__(
        self, settings: GroupSettings = SETTINGS, *, seed: int = 0, created: bool = True, lua: str | None = None
    ) -> None:
        self.settings, self.seed = settings, seed
        self.random = Random(seed)
        self.now = 0
        self.redis_up = True
        self.era = 0
        """How often Redis has lost its data."""
        self.store = MemoryStore(lua=lua, seed=seed, clock_us=lambda: (START_MS + self.now) * 1000, identity="redis-1")
        self.coordinator = Coordinator(MemoryTransport(self.store), "g")
        self.processes: dict[str, Process] = {}
        self.trace: list[str] = []
        self.checks: list[Callable[[World], None]] = [no_two_work_one_resource]
        self.highest_tokens: dict[str, int] = {}
        self.offsets: dict[str, int] = {}
        self.fate: Callable[[Process, Request], Fate] = lambda _process, _request: "ok"
        self.latency_ms: Callable[[], int] = lambda: 1
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._scheduled = 0
        self._tags: dict[int, str] = {}
        if created:
            self.coordinator.create(settings)

    # -- processes -----------------------------------------------------------------------------------------------------

    def start(
        self, name: str, resources: Iterable[str] = (), *, version: int = 1, member: MemberSettings | None = None
    ) -> Process:
        """Starts a process, which joins."""
        process = Process(self, name, member or MemberSettings(drain_timeout_ms=4_000), tuple(resources), version)
        self.processes[name] = process
        return process

    def alive(self) -> list[Process]:
        """Processes that run, or will again."""
        return [process for process in self.processes.values() if process.alive]

    def empty_redis(self) -> None:
        """All data is lost."""
        self.log(None, "Redis loses its data")
        self.store.flush()
        self.offsets.clear()
        self.era += 1

    # -- time ----------------------------------------------------------------------------------------------------------

    def at(self, in_ms: int, do: Callable[[], None]) -> None:
        self._scheduled += 1
        heapq.heappush(self._queue, (self.now + in_ms, self._scheduled, do))

    def run(self, ms: int) -> None:
        self.run_until(lambda: False, ms, must=False)

    def run_until(self, condition: Callable[[], bool], within_ms: int = 60_000, *, must: bool = True) -> None:
        """Runs until the condition holds.

        Raises:
            AssertionError: it did not within the time.
        """
        end = self.now + within_ms
        steps = 0
        while not condition():
            if not self._queue or self._queue[0][0] > end:
                self.now = end
                assert not must, f"it did not come to that within {within_ms} ms\n{self.story()}"
                return
            at, _, do = heapq.heappop(self._queue)
            steps = steps + 1 if at == self.now else 0
            assert steps < MOST_STEPS_AT_ONCE, f"time stands still\n{self.story()}"
            self.now = at
            do()
            for check in self.checks:
                check(self)

    def settle(self, within_ms: int = 60_000) -> None:
        """Runs until the group is even and quiet."""
        self.run_until(self.is_settled, within_ms)

    def is_settled(self) -> bool:
        """Whether everything is held, even within one, known to its holder, and nothing is pending. Read directly from
        the store, since a script that was asked for it would settle what is due.
        """
        living = {process.session.member: process for process in self.alive()}
        if any(it.state in ("draining", "closing") for process in living.values() for it in process.tenures.values()):
            return False
        loads = [len(process.works()) for process in living.values()]
        if living and (not sum(loads) or max(loads) - min(loads) > 1):
            return False
        resources = self.records().resources
        return sum(loads) == len(resources) and all(
            it.status == "held"
            and not it.removing
            and it.owner in living
            and living[it.owner].works().get(name) == it.token
            for name, it in resources.items()
        )

    def records(self) -> Records:
        """The contents of the store."""
        return Records.read(self.store.dump(), group_keys("g"))

    # -- what is known ---------------------------------------------------------------------------------------------------

    def on_start(self, resource: str, token: int, committed: int | None) -> None:
        """Tokens rise, and a tenure begins no earlier than the last acknowledged commit."""
        assert token > self.highest_tokens.get(resource, 0), f"the token of {resource} did not rise\n{self.story()}"
        self.highest_tokens[resource] = token
        known = self.offsets.get(resource, 0)
        assert (committed or 0) >= known, f"{resource} starts at {committed}, below {known}\n{self.story()}"

    def acknowledged(self, resource: str, offset: int) -> None:
        """A commit was answered with OK."""
        self.offsets[resource] = max(offset, self.offsets.get(resource, 0))

    def tag(self, token: int) -> str:
        """A short name for a token, in order of appearance."""
        return self._tags.setdefault(token, f"t{len(self._tags) + 1}")

    def log(self, process: Process | None, text: str) -> None:
        """Adds one line to the story."""
        if text:
            self.trace.append(f"{self.now:>7}  {process.name if process else '-':<3} {text}")

    def story(self, last: int = 60) -> str:
        """The end of the story, and how to replay it."""
        return "\n".join([*self.trace[-last:], f"(seed {self.seed})"])


def no_two_work_one_resource(world: World) -> None:
    """Promise S2. A guarded holder that is cut off keeps consuming: its successor is refused by the broker."""
    working: dict[str, str] = {}
    for process in world.processes.values():
        for resource in process.works():
            if process.tenures[resource].guarded:
                continue  # the broker ensures it
            other = working.setdefault(resource, process.name)
            assert other == process.name, f"{other} and {process.name} both work {resource}\n{world.story()}"
