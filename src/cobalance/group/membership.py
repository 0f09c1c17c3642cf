"""The event loop's half of a membership: works what the engine assigns, and reports how it went.

The halves meet in a queue of commands, run by one task, and in the assignments. That task and those that work tenures
are shielded: cancelling the scope around an ``async with`` cancels the user's body, while everything held is still
drained and handed over.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, TypeVar

import anyio

from cobalance.coordinator.in_flight import written
from cobalance.errors import GroupFailed, counted
from cobalance.group.assignment import Assignment
from cobalance.group.clock import awake_ms, monotonic_ms
from cobalance.group.roster import Roster
from cobalance.group.stopping import Stoppable, tell_again
from cobalance.group.tasks import OWN
from cobalance.group.tenure import Tenure
from cobalance.group.tickets import Tickets
from cobalance.group.worker import FunctionWorker, Worker, is_async, outcome
from cobalance.member.events import Abandoned, CommitAsked, Drained, Sample
from cobalance.threads.forks import Forkable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from cobalance.group.engine import Engine
    from cobalance.group.tasks import Tasks
    from cobalance.member.actions import AbortReason, Problem
    from cobalance.member.events import CommitOutcome
    from cobalance.settings import GroupSettings, MemberSettings
    from cobalance.threads.event_loop import Attendance
    from cobalance.threads.wakeup import Wakeup

    Listener = Callable[[list[Tenure]], Awaitable[None]] | Callable[[list[Tenure]], None]
    Work = Callable[[Tenure], Awaitable[None]]

log = logging.getLogger("cobalance")

T = TypeVar("T")

LOST_MS = 1_000
"""The least time for ``on_lost``, where there is nothing to drain."""

UNBLOCK = "call what blocks in a thread, as is done with a handler that is a plain function"


class Membership(Forkable, ABC):
    """Implements :class:`cobalance.group.engine.Work`. :class:`cobalance.group.group.Group` opens and closes it."""

    own: MemberSettings
    _tasks: Tasks
    _engine: Engine
    _wakeup: Wakeup
    _attendance: Attendance
    _joined: anyio.Event
    _settled: anyio.Event
    """Joined, and the resource list accepted; or failed."""
    _left: anyio.Event
    _changed: anyio.Event

    def __init__(
        self, work: Work | None, on_assigned: Listener | None, on_revoked: Listener | None, on_lost: Listener | None
    ) -> None:
        self._work, self._on_assigned, self._on_revoked, self._on_lost = work, on_assigned, on_revoked, on_lost
        self._roster = Roster()
        self._starting: list[Assignment] = []
        self._commands: deque[Callable[[], None]] = deque()
        self._tickets = Tickets()
        self._cancelled_outside = False
        self._told: list[Stoppable] = []
        """What was cancelled a moment ago."""
        self._telling: dict[Stoppable, list[Assignment]] = {}
        """Calls of ``on_assigned`` that have not returned."""
        self._failure: Problem | None = None
        self._declares = self._blocked = self._unworked = False

    # -- the event loop's side ---------------------------------------------------------------------------------------

    async def _call_listener(
        self, listener: Listener, tenures: list[Tenure], block: Stoppable, *, limited: bool = False
    ) -> None:
        """Calls an async function on the event loop and a plain one in a thread, and awaits the result if it is
        awaitable.
        """
        if is_async(listener):
            call = listener(tenures)
        else:
            with self._tasks.contain():
                call = await self._tasks.in_thread(lambda: listener(tenures), limited=limited)
        if inspect.isawaitable(call):
            await outcome(block.call(call))

    async def _dispatch(self) -> None:
        with self._tasks.service_scope() as ours:
            try:
                while True:
                    while self._commands:
                        self._commands.popleft()()
                    if self._cancelled_outside and self._left.is_set():
                        return
                    await self._wait_for_commands(ours)
            except Exception as error:  # a bug: the session's decisions are no longer carried out
                self._tasks.note_error(error, OWN)
                self.abandon()
                raise

    async def _wait_for_commands(self, ours: anyio.CancelScope) -> None:
        """Waits for commands, also when asyncio cancels every task at the end of its loop: this one leaves the group
        and goes on until everything is given back, since nothing else may be left to do it.
        """
        try:
            await self._wakeup.wait()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if ours.cancel_called or task is None or self.is_copy:
                raise
            task.uncancel()
            if not self._cancelled_outside:
                self._cancelled_outside = True
                log.warning("group %s: its tasks were cancelled, as at the end of an event loop: it leaves", self.name)
                self._ask_leave()

    @abstractmethod
    def _ask_leave(self, *, remain: bool | None = None) -> None: ...

    def abandon(self) -> None:
        """Ends the membership without finishing anything or telling the coordinator: others take over when the session
        has expired.
        """
        self._engine.stop()
        busy = [
            it.resource
            for it in self._roster.everything()
            if it.worker is not None and it.worker.busy_since is not None
        ]
        if busy:
            log.warning(
                "group %s: the membership was ended while handlers ran. A thread of one that works %s may go on beside the next holder, "
                "whom the session timeout lets in; compare tokens before side effects",
                *(self.name, ", ".join(sorted(busy))),
            )
        self._end()

    def _make_worker(self, tenure: Tenure) -> Worker:
        return FunctionWorker(tenure, self._work)

    def _begin(self, batch: list[Assignment]) -> None:
        adopted = [it for it in batch if self._adopt(it)]
        self._notice()
        at_once = [it for it in adopted if it.predecessor is None]
        if at_once:
            self._tasks.start(self._assign, at_once)
        for it in adopted:
            if it not in at_once:
                self._tasks.start(self._assign_next, it)

    def _adopt(self, it: Assignment) -> bool:
        if (
            self._tasks.first_error is not None
        ):  # the program's code has failed and this member is about to leave: begin nothing
            it.report(Abandoned(it.resource, it.token, "resigned"))
            self._conclude(it)
            return False
        tenure = Tenure(it.resource, it.token, it.committed, self, it.tries)
        try:
            worker = self._make_worker(tenure)
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
                await self._changed.wait()
        it.waiting_since = None
        await self._assign([it])

    async def _assign(self, batch: list[Assignment]) -> None:
        with self._tasks.own_code.task():
            now = [it for it in batch if it.current]
            try:
                if self._on_assigned is not None and now:
                    await self._tell_assigned(self._on_assigned, now)
            except BaseException as error:
                self._tasks.note_error(error)
                for it in now:
                    it.report(Abandoned(it.resource, it.token, "failed"))
                    self._conclude(it)
                raise
        for it in batch:
            if it in now:
                self._tasks.start(self._run, it)
            else:  # lost before the program was notified
                self._conclude(it)

    async def _tell_assigned(self, listener: Listener, batch: list[Assignment]) -> None:
        """Counts as work on each of the resources, and is cancelled when all of them are lost."""
        call = Stoppable(name="on_assigned")
        with call.running():
            self._telling[call] = batch
            for it in batch:
                it.waiting_since = awake_ms()
            try:
                await self._call_listener(listener, [it.tenure for it in batch if it.tenure is not None], call)
            finally:
                del self._telling[call]
                for it in batch:
                    it.waiting_since = None

    def _stop_telling(self) -> None:
        for call, batch in self._telling.items():
            if not any(it.current for it in batch):
                call.scope.cancel()
                self._insist_on(call)

    def _stop(self, tenure: Tenure) -> None:
        tenure.stop_now()
        self._insist_on(tenure.work)

    def _insist_on(self, call: Stoppable) -> None:
        self._told.append(call)
        if len(self._told) == 1:  # one task serves everything cancelled at a time
            self._tasks.start(self._insist)

    async def _insist(self) -> None:
        told, self._told = self._told, []
        with anyio.CancelScope(shield=True):
            await tell_again(told, self._forsake)

    def _forsake(self, deaf: Sequence[Stoppable]) -> None:
        """Gives up on code that swallows its cancellation: a second after the end of the membership it is closed."""
        told = [it for it in deaf if not it.forsaken]
        if not told or not self._left.is_set():
            return
        for it in told:
            it.forsaken = True
        log.error(
            "group %s: code that was cancelled goes on (%s), though the membership is over: it is ended where it waits, or, if it shields "
            "that, waited for; let asyncio.CancelledError (trio.Cancelled) out of handlers, work and callbacks",
            *(self.name, ", ".join(sorted(it.name for it in told)[:5])),
        )

    async def _run(self, it: Assignment) -> None:
        if it.tenure is None:
            return
        with self._tasks.own_code.task():
            it.begun = True
            self._notice()
            try:
                finished = await self._work_and_report(it, it.tenure)
                if not finished and self._on_lost is not None:
                    await self._tell_lost(self._on_lost, it.tenure)
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
            self._tasks.note_error(error)
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
        tenure.ask_back()
        with self._tasks.service_scope(), anyio.move_on_after(within_s):
            await tenure.wait_unused()

    async def _tell_lost(self, listener: Listener, tenure: Tenure) -> None:
        call = Stoppable(name="on_lost")
        self._tasks.start(self._stop_in_time, call)
        try:
            with call.running():
                await self._call_listener(listener, [tenure], call, limited=True)
        except BaseException as error:
            self._tasks.note_error(error)
            raise
        if call.scope.cancelled_caught:
            log.warning(
                "group %s: on_lost did not return within drain_timeout_ms, and was cancelled, or, in a thread, left to itself",
                self.name,
            )

    async def _stop_in_time(self, call: Stoppable) -> None:
        with anyio.CancelScope(shield=True):  # the tasks may be cancelled, but this has to be stopped all the same
            await call.stop(max(self.own.drain_timeout_ms, LOST_MS), self._forsake)

    async def _work_to_the_end(self, it: Assignment, tenure: Tenure) -> Drained | Abandoned | None:
        worker = it.worker
        if worker is None:
            return None
        while tenure.active:  # repeated after a revocation that was cancelled in time
            await outcome(worker.run())
            await tenure.wait_unused()
        if tenure.scope.cancel_called or not it.begin_closing():
            return None
        if self._on_revoked is not None:
            await self._call_listener(self._on_revoked, [tenure], tenure.work)
        return await outcome(worker.finish())

    @property
    def failed(self) -> BaseException | None:
        """The exception that ended, or is ending, the membership: the program's own, a :class:`GroupFailed`, or what
        has failed in the group's own code. None while all is well, and after a normal leave. Any thread.
        """
        return self._tasks.failed

    def _conclude(self, it: Assignment) -> None:
        if it.tenure is not None:
            it.tenure.end()
        it.loop_stopped()
        self._roster.remove(it)
        self._notice()

    def _notice(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _ask_commit(self, tenure: Tenure, offset: int) -> CommitOutcome:
        if self._left.is_set():
            return "FENCED"
        ticket = self._tickets.take(lambda: tenure.note_commit(offset))
        self._engine.post(CommitAsked(ticket.number, tenure.resource, tenure.token, offset))
        await ticket.answered.wait()
        return ticket.outcome

    async def _confirm_held(self) -> None:
        """Returns when the coordinator has answered a request sent after this call. What it took from this member has
        been aborted by then.
        """
        confirmed = anyio.Event()
        self._engine.confirm(lambda: self._commands.append(confirmed.set))
        await confirmed.wait()

    @abstractmethod
    async def commit_tenure(self, tenure: Tenure, offset: int) -> None:
        """Stores an offset under a tenure's token."""

    # -- the engine's side (its thread) --------------------------------------------------------------------------------

    def begin(self, resource: str, token: int, committed: int | None, tries: int = 0) -> None:
        """Called by the engine: begin to work a resource."""
        self._starting.append(Assignment(resource, token, committed, self._engine.post, awake_ms(), tries=tries))

    def drain(self, resource: str, token: int, abort_in_ms: int) -> None:
        """Called by the engine: finish with a resource."""
        told_at = monotonic_ms()
        self._to(resource, token, lambda tenure: tenure.ask_back(_rest_of(abort_in_ms, told_at)))

    def hasten(self, resource: str, token: int, abort_in_ms: int) -> None:
        """Called by the engine: the time to finish was cut."""
        told_at = monotonic_ms()
        self._to(resource, token, lambda tenure: tenure.hasten(_rest_of(abort_in_ms, told_at)))

    def keep(self, resource: str, token: int) -> None:
        """Called by the engine: the revocation was cancelled."""
        it = self._find(resource, token)
        if it is not None:
            self._commands.append(lambda: it.tenure.keep() if it.tenure is not None and not it.closing else None)

    def abort(self, resource: str, token: int, reason: AbortReason) -> None:
        """Called by the engine: stop at once, with or without the event loop."""
        it = self._find(resource, token)
        if it is not None:
            it.abort(reason)
            self._to(resource, token, self._stop)
            self._commands += (self._stop_telling, self._notice)

    def _find(self, resource: str, token: int) -> Assignment | None:
        self._announce()
        return self._roster.find(resource, token)

    def _to(self, resource: str, token: int, do: Callable[[Tenure], None]) -> None:
        it = self._find(resource, token)
        if it is not None:
            self._commands.append(lambda: do(it.tenure) if it.tenure is not None else None)

    def commit_done(self, ticket: int, outcome: CommitOutcome) -> None:
        """Called by the engine: a commit was answered."""
        self._commands.append(lambda: self._tickets.answer(ticket, outcome))

    def joined(self, member: str) -> None:
        """Called by the engine: the process is a member."""
        del member
        self._commands.append(self._joined.set)
        if not self._declares:
            self._commands.append(self._settled.set)

    def _declared(self) -> None:
        self._commands.append(self._settled.set)

    def problem(self, problem: Problem) -> None:
        """Called by the engine: something the user should know. It is logged already."""
        if problem.fatal:
            self._failure = problem
            self._commands.append(lambda: self._fail(problem))

    def _fail(self, problem: Problem) -> None:
        self._end_with(GroupFailed(problem.message))

    def _end_with(self, error: Exception) -> None:
        self._tasks.note_error(error)
        self._tasks.start(_raise, error)
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        self._joined.set()
        self._settled.set()
        self._notice()

    def left(self) -> None:
        """Called by the engine: the session is over."""
        self._commands.append(self._end)

    def _end(self) -> None:
        """Stops everything: nothing is held any more, for whatever reason."""
        for it in self._roster.everything():
            if it.tenure is not None:
                self._stop(it.tenure)
        self._left.set()
        self._wake_waiters()
        self._tickets.answer_all()

    def sample(self) -> Iterator[Sample]:
        """Called by the engine: the progress of handlers that are busy, or were at the last call."""
        self._attend(awake_ms())
        for it in self._roster.everything():
            busy_since = it.busy_since
            if busy_since is None and not it.was_busy:
                continue
            it.was_busy = busy_since is not None
            if it.held:
                yield Sample(it.resource, it.token, busy_since)

    @abstractmethod
    def settings_read(self, settings: GroupSettings) -> None:
        """Called by the engine: the settings in force."""

    def in_flight(self) -> str:
        """Called by the engine: what is in flight, if known."""
        return written(None)

    def _attend(self, now: int) -> None:
        missing = self._attendance.missing(now)
        if missing is not None:
            self._leave_because(
                missing, "leave the group (its `async with`) before the event loop is stopped or closed"
            )
        if self._attendance.over:
            self._disown()
        else:
            self._attend_blocked(self._blocked_ms(now), now)

    def _leave_because(self, missing: str, advice: str) -> None:
        if self._failure is None:
            held = sum(it.held for it in self._roster.everything())
            self._engine.fail(
                f"{missing} while it was a member, so nobody works what it holds ({counted(held, 'resource')}): it leaves; {advice}"
            )

    def _blocked_ms(self, now: int) -> int:
        since = self._attendance.blocked_since(now)
        blocked_ms = 0 if since is None else now - since
        if since is not None and not self._blocked:
            log.warning(
                "group %s: its event loop has been blocked for %d ms. If that lasts %d ms more, it leaves, or, where something may be worked "
                "there, gives up what is certainly not; %s",
                *(self.name, blocked_ms, self.own.drain_timeout_ms, UNBLOCK),
            )
        self._blocked = since is not None
        return blocked_ms

    def _attend_blocked(self, blocked_ms: int, now: int) -> None:
        """What may be worked there, such as by a leader's block, is kept. Otherwise the member leaves, since a member
        that only gives up what it has is given as much again. One that stays is, too: it gives that up as slowly.

        A loop that goes on ends a leader's block some time before it answers, so two looks in a row decide on leaving.
        """
        was_unworked, self._unworked = self._unworked, False
        if not blocked_ms:
            return
        held = [it for it in self._roster.everything() if it.held]
        idle = [it for it in held if it.surely_idle]
        self._unworked = all(
            it in idle or it.busy_since is not None for it in held
        )  # who is busy gets the drain timeout
        patience_ms = self.own.max_processing_ms + self.own.drain_timeout_ms
        if blocked_ms < patience_ms:
            return
        if self._unworked:
            if not was_unworked:
                return
            self._leave_because(f"its event loop has been blocked for {blocked_ms} ms", UNBLOCK)
        else:
            idle = [it for it in idle if now - it.since >= patience_ms]
            if idle:
                log.warning(
                    "group %s: its event loop has been blocked for %d ms, so this process gives up %s",
                    *(self.name, blocked_ms, ", ".join(sorted(it.resource for it in idle))),
                )
        for it in idle:
            self.abort(it.resource, it.token, "blocked")
            if it.surely_idle:  # still: the event loop may go on at any moment
                it.loop_stopped()

    def _disown(self) -> None:
        """Gives up what only the event loop could finish, since nothing runs there any more. A busy worker may be in a
        thread: it gets the drain timeout, as in any leave.
        """
        self._announce()
        for it in self._roster.everything():
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
        self._roster.add(batch)
        self._commands.append(lambda: self._begin(batch))


async def _raise(error: BaseException) -> None:
    raise error


def _rest_of(ms: int, told_at: int) -> int:
    """What is left of it: the event loop may have been busy since it heard of it."""
    return max(0, told_at + ms - monotonic_ms())
