"""Reports from work may be late: after a freeze, after the clock has given up on it, while Redis is away.

Each tenure is worked under a real :class:`cobalance.group.assignment.Assignment`, so that a session hears exactly what
an engine's queue would bring it, in the order of that queue.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

import attrs
import pytest
from hypothesis import HealthCheck, assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from tests.harness import SETTINGS, Process, World, names

from cobalance.coordinator.requests import Release, Request
from cobalance.group.assignment import Assignment
from cobalance.member import actions as act
from cobalance.member import events as ev
from cobalance.member.session import NOBODY, Phase
from cobalance.settings import MemberSettings
from cobalance_sims.simulate import process as simulate
from cobalance_sims.simulate.checks import S1, S3, S4
from cobalance_sims.simulate.work import PlainWork, SimulatedTenure

RESOURCES = names(4)
MOST_PROCESSES = 3
MEMBER = MemberSettings(max_processing_ms=1_500, drain_timeout_ms=2_500)

Key = tuple[str, int]


@attrs.define
class Code:
    """How the user's code behaves from now on. ``None`` means until it is released."""

    drain_ms: int | None = 10
    revoked_ms: int | None = 1
    """Duration of ``on_revoked``."""
    blocks: bool = False
    """Whether it blocks its thread, so that it cannot be cancelled and still reports its result."""
    cleanup_ms: int | None = 1
    """How long it takes to stop after a cancellation."""


@attrs.define(eq=False)
class Job(SimulatedTenure):
    """A tenure and the code that works it."""

    assignment: Assignment = attrs.field(kw_only=True)
    touches: bool = True
    """False while the previous job goes on."""


class Adopted:
    """The worker of a job that the event loop has begun: all that there is to stop runs there."""

    busy_since = None
    surely_idle = False

    async def run(self) -> None:
        raise NotImplementedError

    async def finish(self) -> ev.Drained:
        raise NotImplementedError

    def abort(self, reason: act.AbortReason, stopped: Callable[[], None]) -> None:
        del reason
        stopped()


class Threads(PlainWork):
    """The user's code, as run by an event loop: one job of a resource at a time."""

    def __init__(self, process: simulate.Process) -> None:
        super().__init__(process)
        self.code = Code()
        self.jobs: dict[Key, Job] = {}

    def active(self) -> list[SimulatedTenure]:
        """Nothing: :func:`nobody_touches_what_another_works` looks at the code itself."""
        return []

    def begin(self, resource: str, token: int, committed: int | None) -> None:
        before = [it for it in self.jobs.values() if it.resource == resource]
        assignment = Assignment(resource, token, committed, self._process.deliver, 0)
        assignment.worker = Adopted()
        job = Job(resource, token, committed or 0, assignment=assignment, touches=not before)
        self.jobs[resource, token] = self.tenures[resource] = job

    def drain(self, resource: str, token: int, within_ms: int = 0) -> None:
        del within_ms
        job = self.jobs.get((resource, token))
        if job is not None and job.state == "working":
            job.state = "draining"
            self._when(job, self.code.drain_ms, self._close_job)

    def resume(self, resource: str, token: int) -> None:
        job = self.jobs.get((resource, token))
        if job is not None and job.state == "draining":
            job.state, job.turn = "working", job.turn + 1

    def abort(self, resource: str, token: int, reason: act.AbortReason) -> None:
        job = self.jobs.get((resource, token))
        if job is None:
            return
        job.assignment.abort(reason)
        if not (job.state == "closing" and self.code.blocks):
            job.state = "stopping"
            self._when(job, self.code.cleanup_ms if job.touches else 0, self._conclude)

    def _when(self, job: Job, ms: int | None, then: Callable[[Job], None]) -> None:
        if ms is None:
            job.turn += 1
        else:
            self._later(job, ms, then)

    def _close_job(self, job: Job) -> None:
        if not job.touches:
            return
        if not job.assignment.begin_closing():
            self._conclude(job)
            return
        self._log(job, "has on_revoked run for")
        job.state = "closing"
        self._when(job, self.code.revoked_ms, self._finish_job)

    def _finish_job(self, job: Job) -> None:
        self._log(job, "has finished")
        job.assignment.report(ev.Drained(job.resource, job.token, 0, 0, job.done or None))
        self._conclude(job)

    def fail(self, job: Job, reason: str) -> None:
        """The code ends with an error."""
        job.assignment.report(ev.Abandoned(job.resource, job.token, reason))
        self._conclude(job)

    def _conclude(self, job: Job) -> None:
        job.turn += 1
        del self.jobs[job.resource, job.token]
        if self.tenures.get(job.resource) is job:
            del self.tenures[job.resource]
        job.assignment.loop_stopped()
        following = next((it for it in self.jobs.values() if it.resource == job.resource), None)
        if following is not None and not following.touches:
            following.touches = True
            if following.state == "draining":
                self._when(following, self.code.drain_ms, self._close_job)

    def let_go(self, job: Job) -> None:
        """What it waited for has come."""
        steps = {"draining": self._close_job, "closing": self._finish_job, "stopping": self._conclude}
        if job.state in steps and job.touches:
            job.turn += 1
            steps[job.state](job)

    def _log(self, job: Job, what: str) -> None:
        self._world.log(self._process, f"{what} {job.resource} {self._world.trace.tag(job.token)}")


class Threaded(Process):
    """A process whose work runs by itself. Its engine hears of it through one queue, together with everything else."""

    work: Threads

    def __init__(self, world: World, name: str, member: MemberSettings) -> None:
        self.lag_ms = 0
        self.named: set[Key] = set()
        """The resources reported as possibly worked twice."""
        self.answers: Counter[int] = Counter()
        self.wakes = False
        """Resumed, but its clock is not checked yet."""
        self._queue: deque[ev.Event] = deque()
        super().__init__(world, name, member, Threads)

    @property
    def jobs(self) -> dict[Key, Job]:
        return self.work.jobs

    # -- the engine's queue ------------------------------------------------------------------------------------------

    def deliver(self, event: ev.Event) -> None:
        """Queues an event. Clocks are checked after each event, so a timer says nothing while others wait."""
        if not self._queue or not isinstance(event, ev.TimerFired):
            self._queue.append(event)
            self.world.clock.after(self.lag_ms, self._take)

    def _take(self, _: object) -> None:
        if self._queue and self.running:
            super().deliver(self._queue.popleft())
            self.wakes = False

    def resume(self) -> None:
        """SIGCONT: what waits in the queue comes first."""
        self.wakes = True
        super().resume()
        for _ in range(len(self._queue)):
            self.world.clock.after(0, self._take)

    def _carry_out(self, action: act.Action) -> None:
        if isinstance(action, act.CommitDone):
            self.answers[action.ticket] += 1
        if isinstance(action, act.Problem) and action.code == "overlap":
            self.named |= {key for key in self.jobs if repr(key[0]) in action.message}
        super()._carry_out(action)

    def _call(self, request: Request) -> None:
        for item in request.payload.items if isinstance(request.payload, Release) else ():
            key = item.resource, item.token
            told = key not in self.jobs or not self.jobs[key].touches or key in self.named
            assert told, f"{self.name} releases {item.resource}, which its code still touches"
        super()._call(request)


def nobody_touches_what_another_works(world: World) -> None:
    """S2 for the code itself. Code that was told to stop may go on for a while after a forced move."""
    working: dict[str, str] = {}
    for process in world.processes.values():
        if not isinstance(process, Threaded) or process.wakes or not process.running:
            continue
        for job in process.jobs.values():
            if job.touches and not job.guarded and job.assignment.aborted is None:
                other = working.setdefault(job.resource, process.name)
                assert other == process.name, f"{other} and {process.name} work {job.resource}\n{world.story}"


any_of = st.integers(0, 10**6)
spans = st.sampled_from([0, 1, 100, 1_000, 4_000, None])


class LateEvents(RuleBasedStateMachine):
    """Delays caused by user code, freezes and an unreachable Redis."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(attrs.evolve(SETTINGS, gather_ms=0, rejoin_grace_ms=4_000), promises=(S1, S3, S4))
        self.world.checks = [nobody_touches_what_another_works]
        self.born = 0
        self.join(None, 0)
        self.join(None, 0)
        self.world.run(50)

    @property
    def alive(self) -> list[Threaded]:
        """Processes that have not left."""
        return [it for it in self.world.alive() if isinstance(it, Threaded)]

    def process(self, index: int) -> Threaded:
        running = [it for it in self.alive if it.running]
        assume(running)
        return running[index % len(running)]

    def job(self, index: int) -> tuple[Threaded, Job]:
        """Any job, whether or not its resource is still held."""
        jobs = [(process, job) for process in self.alive if process.running for job in process.jobs.values()]
        assume(jobs)
        return jobs[index % len(jobs)]

    @rule(ms=st.sampled_from([1, 10, 300, 1_500, 4_000]))
    def wait(self, ms: int) -> None:
        self.world.run(ms)

    @rule(instance=st.sampled_from([None, "i1"]), lag_ms=st.sampled_from([0, 0, 40]))
    def join(self, instance: str | None, lag_ms: int) -> None:
        """A new process with a somewhat delayed engine."""
        if len(self.alive) < MOST_PROCESSES:
            self.born += 1
            name = f"p{self.born}"
            outage = 4_000 if self.born % 2 else 0
            member = attrs.evolve(MEMBER, instance_id=instance, guarded_outage_ms=outage)
            process = Threaded(self.world, name, member)
            process.lag_ms = lag_ms
            self.world.enter(process, 1, RESOURCES)

    @rule(index=any_of, remain=st.booleans())
    def stop(self, index: int, remain: bool) -> None:
        """Asked to leave, perhaps repeatedly."""
        self.process(index).stop(remain=remain)

    @rule(index=any_of, drain_ms=spans, revoked_ms=spans, blocks=st.booleans(), cleanup_ms=spans)
    def behave(
        self, index: int, drain_ms: int | None, revoked_ms: int | None, blocks: bool, cleanup_ms: int | None
    ) -> None:
        """Code becomes fast, slow or stuck."""
        self.process(index).work.code = Code(drain_ms, revoked_ms, blocks, cleanup_ms)

    @rule(index=any_of)
    def let_go(self, index: int) -> None:
        """Stuck code returns."""
        process, job = self.job(index)
        process.work.let_go(job)

    @rule(index=any_of, reason=st.sampled_from(["failed", "cancelled", "unconnected"]))
    def fail(self, index: int, reason: str) -> None:
        process, job = self.job(index)
        if job.touches:
            process.work.fail(job, reason)

    @rule(index=any_of)
    def resign(self, index: int) -> None:
        """A role is given back unasked, any number of times."""
        process, job = self.job(index)
        process.work.drain(job.resource, job.token)

    @rule(index=any_of, behind_ms=st.sampled_from([None, 0, 2_000]))
    def sample(self, index: int, behind_ms: int | None) -> None:
        """A handler is idle, busy, or hung. The engine samples what is held, and passes it on at once."""
        process, job = self.job(index)
        if job.assignment.aborted is None and not process._queue:
            since = None if behind_ms is None else process.now - behind_ms
            process.deliver(ev.Progressed((ev.Sample(job.resource, job.token, since),)))

    @rule(index=any_of, proven=st.booleans())
    def guard(self, index: int, proven: bool) -> None:
        """News from the broker, perhaps after everything else."""
        process, job = self.job(index)
        job.guarded = proven
        process.deliver(ev.GuardChanged(job.resource, job.token, proven))

    @rule(index=any_of, offset=st.integers(0, 3))
    def commit(self, index: int, offset: int) -> None:
        """By code that may not know yet that its tenure is over."""
        process, job = self.job(index)
        ticket = len(process.commits) + 1
        job.done += offset
        process.commits[ticket], process.tickets[ticket] = None, (job.resource, job.token, job.done)
        process.deliver(ev.CommitAsked(ticket, job.resource, job.token, job.done))

    @rule(index=any_of)
    def hint(self, index: int) -> None:
        """A hint without a change."""
        self.process(index).deliver(ev.Hinted(-1))

    @rule(index=any_of)
    def declare(self, index: int) -> None:
        """The same list again."""
        self.process(index).deliver(ev.ResourcesDeclared(1, RESOURCES))

    @rule(up=st.booleans())
    def redis(self, up: bool) -> None:
        """Redis becomes unreachable, or returns."""
        self.world.redis.up = up

    @rule()
    def lose_data(self) -> None:
        self.world.empty_redis()

    @rule(index=any_of)
    def freeze(self, index: int) -> None:
        """SIGSTOP, or SIGCONT."""
        assume(self.alive)
        process = self.alive[index % len(self.alive)]
        if process.paused:
            process.resume()
        else:
            process.pause()

    def teardown(self) -> None:
        """Calm: stuck code returns, everything is worked, and all requests are answered."""
        self.world.redis.up = True
        for process in self.alive:
            process.work.code, process.lag_ms = Code(), 0
            if process.paused:
                process.resume()
        for process in self.alive:
            for job in list(process.jobs.values()):
                process.work.let_go(job)
        self.world.run(15_000)
        for process in self.alive:
            if process.session.phase is Phase.JOINING:
                process.kill()  # another one has its instance id
        self.join(None, 0)
        self.world.settle()
        self.world.run_until(self._is_worked)
        for anybody in self.world.processes.values():
            assert isinstance(anybody, Threaded)
            answers = Counter(anybody.answers)
            del answers[NOBODY]
            assert set(answers.values()) <= {1}
            assert set(answers) == set(anybody.commits) or not anybody.alive  # later ones are answered by its group

    def _is_worked(self) -> bool:
        worked = [
            job.resource
            for process in self.alive
            for job in process.jobs.values()
            if job.state == "working" and job.touches and job.assignment.aborted is None
        ]
        return sorted(worked) == sorted(RESOURCES)


@pytest.mark.parametrize("examples", [6, pytest.param(25, marks=pytest.mark.thorough)])
@pytest.mark.thorough
def test_a_session_survives_whatever_comes_late(examples: int) -> None:
    """No order of events ends it, every commit is answered once, nothing is kept forever, and nothing is worked twice
    unreported.
    """
    profile = settings(
        max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(LateEvents, settings=profile)
