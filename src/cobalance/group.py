"""A group of processes that share resources: the public face of the engine, on asyncio and on trio."""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Self

import anyio
import anyio.to_thread

from cobalance.assignment import Assignment
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.transport import open_transport
from cobalance.engine import Engine
from cobalance.errors import CommitOutcomeUnknown, Fenced, GroupFailed, NotHeld, OffsetRegressed, UnknownGroup
from cobalance.events import Abandoned, CommitAsked, DrainBegun, Drained, Progressed, ResourcesDeclared, StopAsked
from cobalance.names import validate_name
from cobalance.settings import GroupSettings, MemberSettings
from cobalance.tenure import Tenure
from cobalance.wakeup import Wakeup
from cobalance.worker import FunctionWorker, Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
    from types import TracebackType

    from cobalance.actions import AbortReason, Problem
    from cobalance.coordinator.transport import Transport
    from cobalance.events import CommitOutcome

    Listener = Callable[[list[Tenure]], Awaitable[None]]


class Group:
    """Membership in a group, for the length of an ``async with``.

    Every resource is worked by exactly one member. Give ``work`` (a function that runs for each tenure), or callbacks, or
    both:

    - ``on_assigned(tenures)``: these came *in addition*; no work on them begins before it returns.
    - ``on_revoked(tenures)``: work on these has stopped and they are about to be released; it may still commit.
    - ``on_lost(tenures)``: these are gone already; committing is refused.

    An exception in ``work`` or a callback ends the ``async with``: the member leaves gracefully, and it propagates.

    Args:
        name: of the group.
        resources: the list all members agree on; ``None`` when somebody else declares it.
        redis_url: ``redis://``, ``rediss://``, ``unix://``, or ``memory://NAME`` within one process.
        settings: stored by the first member of a new group; later ones adopt what is stored.
        member: this process's own settings.
        resources_version: raise it with every change of the list.
        transport: instead of ``redis_url``.

    Raises:
        CobalanceError: on entering, when the server cannot be used; the message says what to do.
    """

    def __init__(
        self,
        name: str,
        resources: Iterable[str] | None = None,
        *,
        redis_url: str = "redis://127.0.0.1:6379/0",
        settings: GroupSettings | None = None,
        member: MemberSettings | None = None,
        work: Callable[[Tenure], Awaitable[None]] | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
        resources_version: int = 1,
        transport: Transport | None = None,
    ) -> None:
        self.name = validate_name("group", name)
        self.settings = settings or GroupSettings()
        self.own = member or MemberSettings()
        if self.own.instance_id is not None:
            validate_name("instance id", self.own.instance_id)
        self._resources = None if resources is None else tuple(validate_name("resource", name) for name in resources)
        self._version = resources_version
        self._redis_url, self._transport = redis_url, transport
        self._work, self._on_assigned, self._on_revoked, self._on_lost = work, on_assigned, on_revoked, on_lost
        self._live: dict[str, Assignment] = {}
        self._starting: list[Assignment] = []
        self._commands: deque[Callable[[], None]] = deque()
        self._tickets: dict[int, _Ticket] = {}
        self._next_ticket = 0
        self._remain: bool | None = None
        self._failure: Problem | None = None

    # -- the user's side ---------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._coordinator = await anyio.to_thread.run_sync(self._connect)
        self._wakeup, self._joined, self._left = Wakeup(), anyio.Event(), anyio.Event()
        self._changed = anyio.Event()
        self._engine = Engine(self._coordinator, self, self.settings, self.own)
        self._services: list[anyio.CancelScope] = []
        try:
            await self._prepare()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._close_transport, self._coordinator.transport)
            raise
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._dispatch)
        self._engine.start()
        if self._resources is not None:
            self.declare(self._resources, self._version)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        with anyio.CancelScope(shield=True):
            await self.leave(remain=self._remain)
            for service in self._services:
                service.cancel()
            await self._release_servers()
        swallowed = await self._tasks.__aexit__(kind, error, trace)
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._close)
        if self._failure is not None and error is None:
            raise GroupFailed(self._failure.message)
        return swallowed

    @property
    def member(self) -> str:
        """This process's member id; it changes when the member has to join again."""
        return self._engine.session.member

    @property
    def tenures(self) -> dict[str, Tenure]:
        """What is held now, by resource."""
        return {name: it.tenure for name, it in self._live.items() if it.tenure is not None and it.current}

    def declare(self, resources: Iterable[str], version: int) -> None:
        """Declares the resource list. A version lower than the group's is ignored, an equal one must name the same list."""
        names = tuple(validate_name("resource", name) for name in resources)
        self._engine.post(ResourcesDeclared(version, names))

    async def wait_joined(self) -> None:
        """Returns when the coordinator has accepted this member.

        Raises:
            GroupFailed: it cannot be one; the message says why.
        """
        await self._joined.wait()
        self._raise_failure()

    async def wait_held(self, *resources: str) -> list[Tenure]:
        """Returns when this member holds all of these (or, without any, at least one), and which those are."""
        while True:
            self._raise_failure()
            held = self.tenures
            if resources and all(name in held for name in resources):
                return [held[name] for name in resources]
            if held and not resources:
                return list(held.values())
            await self._changed.wait()

    async def commit(self, resource: str, offset: int) -> None:
        """Stores an offset that outlives the tenure.

        Raises:
            NotHeld: this member does not hold the resource; nothing was stored.
            Fenced: it has lost it meanwhile; nothing was stored.
            OffsetRegressed: a higher offset is stored; nothing was changed.
            CommitOutcomeUnknown: the session ended before an answer came.
        """
        assignment = self._live.get(resource)
        if assignment is None:
            raise NotHeld(f"this member does not hold {resource!r}: commit only what you hold")
        outcome = await self._ask_commit(resource, assignment.token, offset)
        if outcome == "FENCED":
            raise Fenced(f"{resource!r} was lost before the commit: its next holder starts at the last committed offset")
        if outcome == "REGRESSED":
            raise OffsetRegressed(f"{resource!r} has a higher committed offset than {offset}: offsets never fall")
        if outcome == "UNKNOWN":
            raise CommitOutcomeUnknown(f"the session ended before the commit of {resource!r} was answered")

    @asynccontextmanager
    async def leadership(self, resource: str | None = None) -> AsyncIterator[Tenure]:
        """Waits for a role, and has it for the length of the block; the block is cancelled when the role is asked back or
        lost. Leaving the block gives the role to another member, if there is one.

        Args:
            resource: which role; may be left out when the group has one resource.
        """
        tenure = (await self.wait_held(*([resource] if resource else [])))[0]
        with tenure.using():
            yield tenure
        if tenure.active:
            self._resign(tenure)

    def _resign(self, tenure: Tenure) -> None:
        self._live[tenure.resource].resigned = True
        tenure.ask_back()

    async def leave(self, *, remain: bool | None = None) -> None:
        """Drains everything, hands it over and ends the membership; called by leaving the ``async with``, too.

        Args:
            remain: with an instance id, keep what is held for the rejoin grace (the default); ``False`` gives it up for good,
                for scaling in.
        """
        keep = self.own.instance_id is not None if remain is None else remain
        self._remain = keep
        self._engine.post(StopAsked(remain=keep))
        await self._left.wait()

    async def describe(self) -> dict[str, str]:
        """The group's state by name; see ``cobalance group describe``."""
        return await anyio.to_thread.run_sync(self._coordinator.state)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise GroupFailed(self._failure.message)

    # -- connecting --------------------------------------------------------------------------------------------------

    def _connect(self) -> Coordinator:
        timeout_ms = min(2_000, max(100, self.settings.session_timeout_ms // 4))
        transport = self._transport or open_transport(self._redis_url, call_timeout_ms=timeout_ms)
        coordinator = Coordinator(transport, self.name)
        try:
            coordinator.tick()
        except UnknownGroup:
            if getattr(transport, "born_empty", False):  # in memory, nobody can have held anything before
                coordinator.create(self.settings)
        except BaseException:
            self._close_transport(transport)
            raise
        return coordinator

    async def _prepare(self) -> None:
        """For groups that need more than Redis: before joining."""

    async def _release_servers(self) -> None:
        """Undoes :meth:`_prepare`, when nothing is held any more."""

    def _service_scope(self) -> anyio.CancelScope:
        """For tasks that live until the membership is over."""
        scope = anyio.CancelScope(shield=True)
        self._services.append(scope)
        return scope

    def _close(self) -> None:
        self._engine.wait_left(5)
        self._close_transport(self._coordinator.transport)

    def _close_transport(self, transport: Transport) -> None:
        if self._transport is None:
            transport.close()

    # -- commits -----------------------------------------------------------------------------------------------------

    async def _ask_commit(self, resource: str, token: int, offset: int) -> CommitOutcome:
        self._next_ticket += 1
        ticket = self._tickets[self._next_ticket] = _Ticket()
        self._engine.post(CommitAsked(self._next_ticket, resource, token, offset))
        await ticket.answered.wait()
        return ticket.outcome

    # -- the event loop's side ---------------------------------------------------------------------------------------
    #
    # Tasks are shielded: cancelling the block around the `async with` cancels the user's body, and what is held is still
    # drained and handed over.

    async def _dispatch(self) -> None:
        with self._service_scope():
            while True:
                while self._commands:
                    self._commands.popleft()()
                await self._wakeup.wait()

    def _make_worker(self, tenure: Tenure) -> Worker:
        return FunctionWorker(tenure, self._work)

    def _begin(self, batch: list[Assignment]) -> None:
        adopted = []
        for it in batch:
            tenure = Tenure(it.resource, it.token, it.committed, self)
            if it.adopt(tenure, self._make_worker(tenure)):
                adopted.append(it)
            else:
                tenure.end()
                it.loop_stopped()
        self._notice()
        if adopted:
            self._tasks.start_soon(self._assign, adopted)

    async def _assign(self, batch: list[Assignment]) -> None:
        with anyio.CancelScope(shield=True):
            for it in batch:
                if it.predecessor is not None and it.predecessor.tenure is not None:
                    await it.predecessor.tenure.wait_ended()  # one handler of a resource at a time, in this process too
                it.predecessor = None
            if self._on_assigned is not None:
                await self._on_assigned([it.tenure for it in batch if it.tenure is not None])
        for it in batch:
            self._tasks.start_soon(self._run, it)

    async def _run(self, it: Assignment) -> None:
        assert it.tenure is not None
        tenure = it.tenure
        with anyio.CancelScope(shield=True):
            drained = None
            try:
                with tenure.scope:
                    drained = await self._work_to_the_end(it, tenure)
            except BaseException:
                it.report(Abandoned(it.resource, it.token, "failed"))
                raise
            finally:
                tenure.end()
                it.loop_stopped()
                self._forget(it)
            if drained is not None:
                it.report(Abandoned(it.resource, it.token, "resigned") if it.resigned else drained)
            elif self._on_lost is not None:
                await self._on_lost([tenure])

    async def _work_to_the_end(self, it: Assignment, tenure: Tenure) -> Drained:
        assert it.worker is not None
        await it.worker.run()
        while tenure.active:  # the revocation was cancelled in time
            await it.worker.run()
        self._engine.post(DrainBegun(it.resource, it.token))
        if self._on_revoked is not None:
            await self._on_revoked([tenure])
        return await it.worker.finish()

    def _forget(self, it: Assignment) -> None:
        if self._live.get(it.resource) is it:
            del self._live[it.resource]
        self._notice()

    def _notice(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    # -- the engine's side (its thread) --------------------------------------------------------------------------------

    def start(self, resource: str, token: int, committed: int | None) -> None:
        """Engine: begin to work a resource."""
        self._starting.append(Assignment(resource, token, committed, self._engine.post))

    def drain(self, resource: str, token: int, abort_in_ms: int) -> None:
        """Engine: finish with a resource."""
        self._to(resource, token, lambda tenure: tenure.ask_back(abort_in_ms))

    def resume(self, resource: str, token: int) -> None:
        """Engine: the revocation was cancelled."""
        self._to(resource, token, lambda tenure: tenure.keep())

    def abort(self, resource: str, token: int, reason: AbortReason) -> None:
        """Engine: stop at once, with or without the event loop."""
        it = self._find(resource, token)
        if it is not None:
            it.abort(reason)
            self._to(resource, token, lambda tenure: tenure.stop_now())

    def _find(self, resource: str, token: int) -> Assignment | None:
        self._announce()
        it = self._live.get(resource)
        while it is not None and it.token != token:
            it = it.predecessor
        return it

    def _to(self, resource: str, token: int, do: Callable[[Tenure], None]) -> None:
        it = self._find(resource, token)
        if it is not None:
            self._commands.append(lambda: do(it.tenure) if it.tenure is not None else None)

    def commit_done(self, ticket: int, outcome: CommitOutcome) -> None:
        """Engine: a commit was answered."""
        self._commands.append(lambda: self._answer(ticket, outcome))

    def _answer(self, ticket: int, outcome: CommitOutcome) -> None:
        waiting = self._tickets.pop(ticket, None)
        if waiting is not None:
            waiting.outcome = outcome
            waiting.answered.set()

    def joined(self, member: str) -> None:
        """Engine: the process is a member."""
        del member
        self._commands.append(self._joined.set)

    def problem(self, problem: Problem) -> None:
        """Engine: something the user should know; it is in the log already."""
        if problem.fatal:
            self._failure = problem
            self._commands.append(self._wake_waiters)

    def _wake_waiters(self) -> None:
        self._joined.set()
        self._notice()

    def left(self) -> None:
        """Engine: the session is over."""
        self._commands.append(self._end)

    def _end(self) -> None:
        self._left.set()
        self._wake_waiters()
        for ticket in list(self._tickets):
            self._answer(ticket, "UNKNOWN")

    def sample(self) -> Iterator[Progressed]:
        """Engine: how the handlers are getting on."""
        for it in list(self._live.values()):
            if it.worker is not None and it.current:
                yield Progressed(it.resource, it.token, it.worker.busy_since)

    def flush(self) -> None:
        """Engine: wake the event loop, once for everything that one event brought."""
        self._announce()
        if self._commands:
            self._wakeup.notify()

    def _announce(self) -> None:
        """What starts together is announced together (Kafka's contract for on_assigned)."""
        if not self._starting:
            return
        batch, self._starting = self._starting, []
        for it in batch:
            it.predecessor = self._live.get(it.resource)
            self._live[it.resource] = it
        self._commands.append(lambda: self._begin(batch))


class _Ticket:
    """A commit that waits for its answer."""

    def __init__(self) -> None:
        self.answered = anyio.Event()
        self.outcome: CommitOutcome = "UNKNOWN"
