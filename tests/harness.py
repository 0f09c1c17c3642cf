"""The simulator's world as tests drive it: calls with prescribed fates, work that takes a fixed time, lists by version."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from cobalance.coordinator.requests import Request
from cobalance.member import actions as act
from cobalance.member import events as ev
from cobalance.settings import GroupSettings, MemberSettings
from cobalance_sims.simulate import process, world
from cobalance_sims.simulate.checks import S1, S2, S3, S4, Check, S4Told
from cobalance_sims.simulate.checks.liveness import why_unsettled
from cobalance_sims.simulate.habits import Habits
from cobalance_sims.simulate.network import Fate, Network
from cobalance_sims.simulate.work import PlainWork
from proof.records import Records
from proof.stories.faults import Empty

SETTINGS = GroupSettings(
    session_timeout_ms=3_000,
    heartbeat_interval_ms=1_000,
    revocation_timeout_ms=5_000,
    rejoin_grace_ms=20_000,
    gather_ms=200,
)

STEADY = Network(latency_ms=(1, 1), slow=0.0)
DEAF = Network(latency_ms=(1, 1), slow=0.0, hint_lost=1.0)

MOST_CALLS_A_SECOND = 200


def names(count: int) -> tuple[str, ...]:
    return tuple(f"r{number}" for number in range(count))


def steady(*, drain_ms: int | None = 10, close_ms: int = 1, stop_ms: int | None = 1) -> Habits:
    """Work that always takes the same time. ``None`` means never."""
    drain, stop = (None if ms is None else (ms, ms) for ms in (drain_ms, stop_ms))
    return Habits(drain_ms=drain, close_ms=(close_ms, close_ms), stop_ms=stop)


class Process(process.Process):
    """Remembers what it did. Its next calls have the ``fates``, those after them the world's."""

    world: World
    work: PlainWork

    def __init__(self, in_world: World, name: str, member: MemberSettings, work: type[PlainWork] = PlainWork) -> None:
        super().__init__(in_world, name, member, in_world.settings, work)
        self.fates: deque[Fate] = deque()
        self.sent: list[Request] = []
        self.started: list[tuple[str, int, int | None]] = []
        self.aborted: list[tuple[str, str]] = []
        self.problems: list[str] = []
        self.commits: dict[int, ev.CommitOutcome | None] = {}
        self._sent_at: deque[int] = deque([-1_000], maxlen=MOST_CALLS_A_SECOND)
        self.subscribed = ""

    @property
    def subscription(self) -> str:
        return self.subscribed or super().subscription

    def works(self) -> dict[str, int]:
        """Resource → token of what it touches now."""
        working = [it for it in self.work.tenures.values() if it.state != "stopping"]
        return {it.resource: it.token for it in working} if self.running else {}

    def busy(self, resource: str, since: int | None) -> None:
        """A sample of its handler."""
        self.deliver(ev.Progressed((ev.Sample(resource, self.work.tenures[resource].token, since),)))

    def commit(self, resource: str, offset: int) -> int:
        """Commits; the outcome will be in ``commits`` under the ticket returned."""
        self.commits[self._tickets + 1] = None
        return super().commit(resource, offset)

    def fate(self, request: Request) -> Fate:
        self.sent.append(request)
        self._sent_at.append(self.world.now)
        in_circles = len(self._sent_at) == MOST_CALLS_A_SECOND and self.world.now - self._sent_at[0] < 1_000
        assert not in_circles, f"{self.name} calls Redis in circles: {request}"
        return self.fates.popleft() if self.fates else self.world.fate(self, request)

    def report(self, event: ev.Drained | ev.Abandoned) -> None:
        if isinstance(event, ev.Drained):
            self.world.log(self, f"has drained {event.resource} {self.world.trace.tag(event.token)}")
        super().report(event)

    def _carry_out(self, action: act.Action) -> None:
        match action:
            case act.Start(resource, token, committed):
                self.started.append((resource, token, committed))
            case act.Abort(resource, _, reason):
                self.aborted.append((resource, reason))
            case act.Problem(code):
                self.problems.append(code)
            case act.CommitDone(ticket, outcome) if ticket in self.commits:
                self.commits[ticket] = outcome
        super()._carry_out(action)


class World(world.World):
    """Checks promises all the while, and ``checks`` after each step. The same seed gives the same story."""

    def __init__(
        self,
        settings: GroupSettings = SETTINGS,
        *,
        seed: int = 0,
        created: bool = True,
        promises: Iterable[type[Check]] = (S1, S2, S3, S4, S4Told),
    ) -> None:
        super().__init__(settings, seed=seed, network=STEADY, habits=steady())
        for promise in promises:
            self.watch.add(promise(self))
        self.checks: list[Callable[[World], None]] = []
        self.fate: Callable[[Process, Request], Fate] = lambda _process, _request: "ok"
        if created:
            self.redis.create()

    def start(  # type: ignore[override]  # tests name their processes, and what each declares
        self,
        name: str,
        resources: tuple[str, ...],
        *,
        version: int = 1,
        member: MemberSettings | None = None,
        subscription: str = "",
    ) -> Process:
        """Starts a process, which joins."""
        process = Process(self, name, member or MemberSettings(drain_timeout_ms=4_000))
        process.subscribed = subscription
        self.enter(process, version, resources)
        return process

    def wanted(self) -> tuple[str, ...]:
        """Processes may declare what they like: the group's list is the one that it has accepted."""
        return tuple(self.redis.ledger.resources)

    def alive(self) -> list[Process]:
        """Processes that run, or will again."""
        return [it for it in self.living.values() if isinstance(it, Process)]

    def empty_redis(self) -> None:
        Empty(restarted=False).strike(self)

    def run(self, ms: int) -> None:
        self._run(ms, lambda: False)

    def run_until(self, condition: Callable[[], bool], within_ms: int = 60_000) -> None:
        """Runs until the condition holds.

        Raises:
            AssertionError: it did not within the time.
        """
        assert condition() or self._run(within_ms, condition), (
            f"it did not come to that in {within_ms} ms\n{self.story}"
        )

    def settle(self, within_ms: int = 60_000) -> None:
        """Runs until the group is even and quiet."""
        self.run_until(lambda: bool(self.wanted()) and not why_unsettled(self), within_ms)

    def _run(self, ms: int, condition: Callable[[], bool]) -> bool:
        def is_over() -> bool:
            for check in self.checks:
                check(self)
            return condition()

        try:
            return self.clock.run(ms, is_over)
        except AssertionError as broken:
            broken.add_note(self.story)
            raise

    def records(self) -> Records:
        """The contents of the store."""
        return Records.read(self.redis.store.dump())

    @property
    def story(self) -> str:
        """The end of the story, and how to replay it."""
        return "\n".join([*self.trace.tail(60), f"(seed {self.seed})"])
