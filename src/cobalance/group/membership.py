"""The event loop's half of a membership: works what the engine assigns, and reports how it went.

The halves meet in a queue of commands, run by one task, and in the assignments. That task and those that work tenures
are shielded: cancelling the scope around an ``async with`` cancels the user's body, while everything held is still
drained and handed over.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections import deque
from typing import TYPE_CHECKING

import anyio
import attrs

from cobalance.coordinator.in_flight import written
from cobalance.errors import CommitOutcomeUnknown, Fenced, GroupFailed, OffsetRegressed, counted
from cobalance.group.assignment import Assignment
from cobalance.group.callbacks import Callbacks
from cobalance.group.clock import awake_ms, monotonic_ms
from cobalance.group.engine import Engine
from cobalance.group.loop_watch import LoopWatch
from cobalance.group.roster import Roster
from cobalance.group.stopping import Stopping
from cobalance.group.tasks import OWN, Tasks
from cobalance.group.tenure import Tenure
from cobalance.group.tickets import Tickets
from cobalance.member.events import Abandoned, CommitAsked, Drained, ResourcesDeclared, Sample, StopAsked
from cobalance.threads.cancellation import asyncio_task
from cobalance.threads.event_loop import Attendance
from cobalance.threads.forks import Forkable
from cobalance.threads.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
    from typing import Any, Literal

    from cobalance.coordinator.client import Coordinator
    from cobalance.group.callbacks import Listener
    from cobalance.group.worker import Worker
    from cobalance.member.actions import AbortReason, Problem
    from cobalance.member.events import CommitOutcome
    from cobalance.settings import GroupSettings, MemberSettings

    Work = Callable[[Tenure], Awaitable[None]]
    Move = Literal["granted", "asked_back", "kept"]

log = logging.getLogger("cobalance")


@attrs.define(kw_only=True)
class Hooks:
    """What the owner of a membership adds to it. On the engine's thread, unless noted."""

    make_worker: Callable[[Tenure], Worker]
    """Makes what works a tenure. On the event loop."""
    settings_read: Callable[[GroupSettings], None]
    """The group's settings in force. On the thread that calls the coordinator."""
    joined: list[Callable[[str], None]] = attrs.field(factory=list)
    """The process is this member."""
    left: Callable[[], None] = lambda: None
    """The session is over."""
    moved: Callable[[str, int, Move], None] = lambda *_: None
    """What becomes of a tenure."""
    concluded: Callable[[Assignment], None] = lambda _: None
    """Nothing of it is left. On the event loop."""
    commit: Callable[[Tenure, int], Coroutine[Any, Any, None]] | None = None
    """Stores an offset, by :meth:`Membership.commit` after all. On the event loop."""
    in_flight: Callable[[], str] = lambda: written(None)
    """What is in flight, if known. On the thread that calls the coordinator."""


class Membership(Forkable):
    """Implements :class:`cobalance.group.engine.Work`. :class:`cobalance.group.group.Group` opens and closes it."""

    engine: Engine
    coordinator: Coordinator
    _wakeup: Wakeup
    _loop_watch: LoopWatch
    accepted: anyio.Event
    """Set when the coordinator has accepted it, or it has failed."""
    settled: anyio.Event
    """Set when its resource list was accepted, too, or it has failed."""
    over: anyio.Event
    """Set when nothing is held any more."""
    changed: anyio.Event
    """Set, and replaced by another one, whenever something changes in what is held."""

    def __init__(
        self,
        name: str,
        own: MemberSettings,
        hooks: Hooks,
        *,
        on_assigned: Listener | None,
        on_revoked: Listener | None,
        on_lost: Listener | None,
        log_exceptions: bool,
    ) -> None:
        self.name, self.own, self.hooks = name, own, hooks
        self.tasks = Tasks(name, log_exceptions=log_exceptions)
        self.stopping = Stopping(name, self.tasks.start, lambda: self.over.is_set())  # noqa: PLW0108 -- made later
        self.callbacks = Callbacks(
            name, own, self.tasks, self.stopping, on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost
        )
        self.roster = Roster()
        self._starting: list[Assignment] = []
        self._commands: deque[Callable[[], None]] = deque()
        self._tickets = Tickets()
        self._cancelled_outside = False
        self._dispatcher: asyncio.Task[Any] | None = None
        self.tasks.loop_ends = self._are_all_cancelled
        self.failure: Problem | None = None
        self._declares = False
        self.was_member = False
        self.remain: bool | None = None
        """Set once it leaves: whether what it holds is kept for its next process."""
        self.stop_asked_at = 0
        self.given_up, self.revoked = list[str](), list[str]()
        """What was still being worked when a leave ran out of time; and the part of it whose revocation timeout passed first."""

    # -- for the group -----------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """It belongs to this process from now on."""
        self._process = os.getpid()

    @property
    def is_entered(self) -> bool:
        """Whether it belongs to a process."""
        return self._process != 0

    def open(
        self, coordinator: Coordinator, settings: GroupSettings, former: str, time_calls: Callable[[int], None]
    ) -> None:
        """Prepares it for this event loop; `former` is the dead member whose resources it takes over at once."""
        self.coordinator, self._wakeup = coordinator, Wakeup()
        self.accepted, self.over = anyio.Event(), anyio.Event()
        self.changed, self.settled = anyio.Event(), anyio.Event()
        self._loop_watch = LoopWatch(
            self.name,
            self.own,
            Attendance(self._wakeup.loop, self.own.max_processing_ms),
            self.roster,
            leave=self._leave_because,
            give_up=lambda it: self.abort(it.resource, it.token, "blocked"),
            disown=self._disown,
        )
        self.engine = Engine(coordinator, self, settings, self.own, on_declared=self._declared, time_calls=time_calls)
        self.engine.session.succeed(former)

    @property
    def is_open(self) -> bool:
        """Whether it was prepared for an event loop."""
        return hasattr(self, "engine")

    def join(self, subscription: str, resources: Collection[str] | None, version: int | None) -> None:
        """Joins the group, and declares these resources, if any."""
        self.tasks.start(self._dispatch)
        self._declares = resources is not None
        self.engine.start(subscription)
        if resources is not None:
            self.engine.post(ResourcesDeclared(version or 1, tuple(resources)))

    def ask_leave(self, *, remain: bool | None = None) -> None:
        """Begins to leave. Any thread."""
        keep = self.own.instance_id is not None if remain is None else remain
        self.remain, self.stop_asked_at = keep, self.stop_asked_at or monotonic_ms()
        self.engine.post(StopAsked(remain=keep))

    def leave_soon(self) -> None:
        """Called by a signal handler: begins to leave, even if the event loop is blocked."""
        if self.is_open:
            self.ask_leave(remain=self.remain)

    def raise_failure(self) -> None:
        """Raises GroupFailed if the group refuses this member."""
        if self.failure is not None:
            raise GroupFailed(self.failure.message)

    async def wait_role(self, wait_held: Callable[[], Awaitable[list[Tenure]]]) -> Tenure:
        """A tenure of these on which work may begin, and that no other block of this process uses."""
        while True:
            for tenure in await wait_held():
                held = self.roster.find(tenure.resource, tenure.token)
                if tenure.active and not tenure.in_use and held is not None and held.begun:
                    return tenure
            await self.changed.wait()

    def resign(self, tenure: Tenure) -> None:
        """Lets another member have it, also if it is asked back now and may be kept after all."""
        held = self.roster.find(tenure.resource, tenure.token)
        if held is not None and not self.is_copy:
            held.resigned = held.resigned or tenure.active
            tenure.ask_back(for_good=True)

    def commit_tenure(self, tenure: Tenure, offset: int) -> Coroutine[Any, Any, None]:
        """Stores an offset under this tenure's token; see :meth:`Tenure.commit`."""
        return (self.hooks.commit or self.commit)(tenure, offset)

    async def commit(self, tenure: Tenure, offset: int) -> None:
        """The same without the owner's hook."""
        self.check_process()
        resource, held = tenure.resource, self.roster.find(tenure.resource, tenure.token)
        outcome = await self._ask_commit(tenure, offset) if held and held.current else "FENCED"
        if outcome == "FENCED":
            raise Fenced(
                f"{resource!r} was lost before the commit: its next holder starts at the last committed offset"
            )
        if outcome == "REGRESSED":
            raise OffsetRegressed(f"{resource!r} has a higher committed offset than {offset}: offsets never fall")
        if outcome == "UNKNOWN":
            raise CommitOutcomeUnknown(
                f"the session ended before the commit of {resource!r} was answered: its next tenure has what is committed"
            )

    def soon(self, do: Callable[[], None]) -> None:
        """Calls this on the event loop. Any thread."""
        self._commands.append(do)
        self._wakeup.notify()

    def end_soon(self, error: Exception) -> None:
        """Ends the membership with this error, even if handlers are still running. Any thread."""
        self.soon(lambda: self._end_with(error))

    def start_soon(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Starts a task of the program's code on the event loop. Any thread."""
        self.soon(lambda: self.tasks.start(self.tasks.run_program, call))

    # -- the event loop's side ---------------------------------------------------------------------------------------

    async def _dispatch(self) -> None:
        self._dispatcher = asyncio_task()
        with self.tasks.service_scope() as ours:
            try:
                while True:
                    while self._commands:
                        self._commands.popleft()()
                    if self._cancelled_outside and self.over.is_set():
                        return
                    await self._wait_for_commands(ours)
            except Exception as error:  # a bug: the session's decisions are no longer carried out
                self.tasks.note_error(error, OWN)
                self.abandon()
                raise

    async def _wait_for_commands(self, ours: anyio.CancelScope) -> None:
        """Waits for commands, also when asyncio cancels every task at the end of its loop: this one leaves the group
        and goes on until everything is given back, since nothing else may be left to do it.
        """
        try:
            await self._wakeup.wait()
        except asyncio.CancelledError:
            task = asyncio_task()
            if ours.cancel_called or task is None or self.is_copy:
                raise
            task.uncancel()
            if not self._cancelled_outside:
                self._cancelled_outside = True
                log.warning("group %s: its tasks were cancelled, as at the end of an event loop: it leaves", self.name)
                self.ask_leave()

    def _are_all_cancelled(self) -> bool:
        """Whether asyncio has cancelled every task. That of :meth:`_dispatch` may be about to notice."""
        return self._cancelled_outside or (self._dispatcher is not None and self._dispatcher.cancelling() > 0)

    def abandon(self) -> None:
        """Ends the membership without finishing anything or telling the coordinator: others take over when the session
        has expired.
        """
        self.engine.stop()
        busy = [
            it.resource for it in self.roster.everything() if it.worker is not None and it.worker.busy_since is not None
        ]
        if busy:
            log.warning(
                "group %s: the membership was ended while handlers ran. A thread of one that works %s may go on beside the next holder, "
                "whom the session timeout lets in; compare tokens before side effects",
                *(self.name, ", ".join(sorted(busy))),
            )
        self.end()

    def _begin(self, batch: list[Assignment]) -> None:
        adopted = [it for it in batch if self._adopt(it)]
        self._notice()
        at_once = [it for it in adopted if it.predecessor is None]
        if at_once:
            self.tasks.start(self._assign, at_once)
        for it in adopted:
            if it not in at_once:
                self.tasks.start(self._assign_next, it)

    def _adopt(self, it: Assignment) -> bool:
        if (
            self.tasks.first_error is not None
        ):  # the program's code has failed and this member is about to leave: begin nothing
            it.report(Abandoned(it.resource, it.token, "resigned"))
            self._conclude(it)
            return False
        tenure = Tenure(it.resource, it.token, it.committed, self, it.tries)
        try:
            worker = self.hooks.make_worker(tenure)
        except Exception as error:  # noqa: BLE001 -- raised where it ends the membership, and not this task
            it.report(Abandoned(it.resource, it.token, "failed"))
            self._end_with(error)
        else:
            if it.adopt(tenure, worker):
                return True
            tenure.end()
        self._conclude(it)
        return False

    async def _assign_next(self, it: Assignment) -> None:
        """One handler per resource at a time, also within this process. A hung one holds up only its own resource, and
        no longer than handlers may run, since another process can work it.
        """
        it.waiting_since = awake_ms()
        with anyio.CancelScope(shield=True):
            while it.predecessor is not None and it.current:
                await self.changed.wait()
        it.waiting_since = None
        await self._assign([it])

    async def _assign(self, batch: list[Assignment]) -> None:
        with self.tasks.own_code.task():
            now = [it for it in batch if it.current]
            try:
                if now:
                    await self.callbacks.assigned(now)
            except BaseException as error:
                self.tasks.note_error(error)
                for it in now:
                    it.report(Abandoned(it.resource, it.token, "failed"))
                    self._conclude(it)
                raise
        for it in batch:
            if it in now:
                self.tasks.start(self._run, it)
            else:  # lost before the program was notified
                self._conclude(it)

    def _stop(self, tenure: Tenure) -> None:
        tenure.stop_now()
        self.stopping.insist_on(tenure.work)

    async def _run(self, it: Assignment) -> None:
        if it.tenure is None:
            return
        with self.tasks.own_code.task():
            it.begun = True
            self._notice()
            try:
                finished = await self._work_and_report(it, it.tenure)
                if not finished:
                    await self.callbacks.lost(it.tenure)
            finally:
                self._conclude(it)

    async def _work_and_report(self, it: Assignment, tenure: Tenure) -> bool:
        """Returns whether it was finished; otherwise it is lost. Its next holder elsewhere need not wait for more."""
        end: Drained | Abandoned | None = None
        try:
            with tenure.work.running():
                end = await self._work_to_the_end(it, tenure)
            await self._end_use(tenure)
            if end is not None:
                it.report(Abandoned(it.resource, it.token, "resigned") if it.resigned else end)
            elif it.aborted is None:  # the user cancelled the scope
                it.report(Abandoned(it.resource, it.token, "cancelled"))
        except BaseException as error:
            self.tasks.note_error(error)
            await self._end_use(tenure, self.own.drain_timeout_ms / 1000)
            it.report(Abandoned(it.resource, it.token, "failed"))
            raise
        finally:
            tenure.end()
            it.loop_stopped()
            self._notice()
        return end is not None

    async def _end_use(self, tenure: Tenure, within_s: float = math.inf) -> None:
        """Ends blocks that use the tenure, such as a leader's, and waits for them, but no longer than the membership
        lasts.
        """
        tenure.ask_back(for_good=True)
        with self.tasks.service_scope(), anyio.move_on_after(within_s):
            await tenure.wait_unused()

    async def _work_to_the_end(self, it: Assignment, tenure: Tenure) -> Drained | Abandoned | None:
        worker = it.worker
        if worker is None:
            return None
        while tenure.active:  # repeated after a revocation that was cancelled in time
            await worker.run()
            await tenure.wait_unused()
        if tenure.scope.cancel_called or not it.begin_closing():
            return None
        await self.callbacks.revoked(tenure)
        return await worker.finish()

    def _conclude(self, it: Assignment) -> None:
        if it.tenure is not None:
            it.tenure.end()
        it.loop_stopped()
        self.roster.remove(it)
        self._notice()
        self.hooks.concluded(it)

    def _notice(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    async def _ask_commit(self, tenure: Tenure, offset: int) -> CommitOutcome:
        if self.over.is_set():
            return "FENCED"
        ticket = self._tickets.take(lambda: tenure.note_commit(offset))
        self.engine.post(CommitAsked(ticket.number, tenure.resource, tenure.token, offset))
        await ticket.answered.wait()
        return ticket.outcome

    async def confirm_held(self) -> None:
        """Returns when the coordinator has answered a request sent after this call. What it took from this member has
        been aborted by then.
        """
        confirmed = anyio.Event()
        self.engine.confirm(lambda: self._commands.append(confirmed.set))
        await confirmed.wait()

    # -- the engine's side (its thread) --------------------------------------------------------------------------------

    def begin(self, resource: str, token: int, committed: int | None, tries: int = 0) -> None:
        """Called by the engine: begin to work a resource."""
        self._starting.append(Assignment(resource, token, committed, self.engine.post, awake_ms(), tries=tries))
        self.hooks.moved(resource, token, "granted")

    def drain(self, resource: str, token: int, abort_in_ms: int) -> None:
        """Called by the engine: finish with a resource."""
        told_at = monotonic_ms()
        self._to(resource, token, lambda tenure: tenure.ask_back(_rest_of(abort_in_ms, told_at)))
        self.hooks.moved(resource, token, "asked_back")

    def hasten(self, resource: str, token: int, abort_in_ms: int) -> None:
        """Called by the engine: the time to finish was cut."""
        told_at = monotonic_ms()
        self._to(resource, token, lambda tenure: tenure.hasten(_rest_of(abort_in_ms, told_at)))

    def keep(self, resource: str, token: int) -> None:
        """Called by the engine: the revocation was cancelled."""
        it = self._find(resource, token)
        if it is not None:
            self._commands += (it.keep, self._notice)
        self.hooks.moved(resource, token, "kept")

    def abort(self, resource: str, token: int, reason: AbortReason) -> None:
        """Called by the engine: stop at once, with or without the event loop."""
        if self.remain is not None and reason == "deadline":
            self.given_up.append(resource)
            if monotonic_ms() - self.stop_asked_at < self.own.drain_timeout_ms:
                self.revoked.append(resource)
        it = self._find(resource, token)
        if it is not None:
            it.abort(reason)
            self._to(resource, token, self._stop)
            self._commands += (self.callbacks.stop_assigned, self._notice)

    def _find(self, resource: str, token: int) -> Assignment | None:
        self._announce()
        return self.roster.find(resource, token)

    def _to(self, resource: str, token: int, do: Callable[[Tenure], None]) -> None:
        it = self._find(resource, token)
        if it is not None:
            self._commands.append(lambda: do(it.tenure) if it.tenure is not None else None)

    def commit_done(self, ticket: int, outcome: CommitOutcome) -> None:
        """Called by the engine: a commit was answered."""
        self._commands.append(lambda: self._tickets.answer(ticket, outcome))

    def joined(self, member: str) -> None:
        """Called by the engine: the process is a member."""
        for hear in self.hooks.joined:
            hear(member)
        self.was_member = True
        self._commands.append(self.accepted.set)
        if not self._declares:
            self._commands.append(self.settled.set)

    def _declared(self) -> None:
        self._commands.append(self.settled.set)

    def problem(self, problem: Problem) -> None:
        """Called by the engine: something the user should know. It is logged already."""
        if problem.fatal:
            self.failure = problem
            self._commands.append(lambda: self._fail(problem))

    def _fail(self, problem: Problem) -> None:
        self._end_with(GroupFailed(problem.message))

    def _end_with(self, error: Exception) -> None:
        self.tasks.note_error(error)
        self.tasks.start(_raise, error)
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        self.accepted.set()
        self.settled.set()
        self._notice()

    def left(self) -> None:
        """Called by the engine: the session is over."""
        self._commands.append(self.end)
        self.hooks.left()

    def end(self) -> None:
        """Stops everything: nothing is held any more, for whatever reason."""
        for it in self.roster.everything():
            if it.tenure is not None:
                self._stop(it.tenure)
        self.over.set()
        self._wake_waiters()
        self._tickets.answer_all()

    def sample(self) -> Iterator[Sample]:
        """Called by the engine: the progress of handlers that are busy, or were at the last call."""
        self._loop_watch.look(awake_ms())
        for it in self.roster.everything():
            busy_since = it.busy_since
            if busy_since is None and not it.was_busy:
                continue
            it.was_busy = busy_since is not None
            if it.held:
                yield Sample(it.resource, it.token, busy_since)

    def settings_read(self, settings: GroupSettings) -> None:
        """Called by the engine: the settings in force."""
        self.hooks.settings_read(settings)

    def in_flight(self) -> str:
        """Called by the engine: what is in flight, if known."""
        return self.hooks.in_flight()

    def _leave_because(self, missing: str, advice: str) -> None:
        if self.failure is None:
            held = sum(it.held for it in self.roster.everything())
            self.engine.fail(
                f"{missing} while it was a member, so nobody works what it holds ({counted(held, 'resource')}): it leaves; {advice}"
            )

    def _disown(self) -> None:
        """Gives up what only the event loop could finish, since nothing runs there any more. A busy worker may be in a
        thread: it gets the drain timeout, as in any leave.
        """
        self._announce()
        for it in self.roster.everything():
            if it.worker is None or it.worker.busy_since is None:
                it.abort("left")
                it.loop_stopped()

    def flush(self) -> None:
        """Called by the engine: wakes the event loop, once for all results of one event."""
        self._announce()
        if self._commands:
            self._wakeup.notify()

    def _announce(self) -> None:
        """Announces together what starts together, as Kafka's on_assigned does."""
        if not self._starting:
            return
        batch, self._starting = self._starting, []
        self.roster.add(batch)
        self._commands.append(lambda: self._begin(batch))


async def _raise(error: BaseException) -> None:
    raise error


def _rest_of(ms: int, told_at: int) -> int:
    """What is left of it: the event loop may have been busy since it heard of it."""
    return max(0, told_at + ms - monotonic_ms())
