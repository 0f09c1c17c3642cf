"""A process in virtual time: a real session, work with prescribed behaviour, a connection that may misbehave."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import attrs

from cobalance.coordinator.keys import hint_channel
from cobalance.coordinator.requests import Join, Request
from cobalance.group.engine import call_timeout_ms
from cobalance.member import actions as act
from cobalance.member import events as ev
from cobalance.member.session import Session
from cobalance.settings import MemberSettings

if TYPE_CHECKING:
    from tests.harness import World

Fate = Literal["ok", "lost", "no_reply", "late"]
"""Fate of one call: it never arrives; it runs and the reply is lost; it runs after the caller has given it up."""

MOST_CALLS_A_SECOND = 200


@attrs.define
class Tenure:
    """A resource as the process works it."""

    resource: str
    token: int
    done: int
    """Progress: the offset it would commit."""
    state: Literal["working", "draining", "closing", "stopping"] = "working"
    guarded: bool = False
    turn: int = 0
    """Rises when everything scheduled for it becomes void."""


@attrs.define
class Habits:
    """How a process works. ``None`` means never."""

    drain_ms: int | None = 10
    close_ms: int = 1
    stop_ms: int | None = 1
    commits_on_drain: bool = True


class Process:
    """One process: a session, its work, its connection to Redis, its clock."""

    def __init__(
        self, world: World, name: str, member: MemberSettings, resources: tuple[str, ...], version: int
    ) -> None:
        self.world, self.name = world, name
        self.session = Session(name, f"host/{name}", world.settings, member)
        self.habits = Habits()
        self.clock_offset_ms = world.random.randrange(1_000_000)
        self.fates: deque[Fate] = deque()
        self.hears_hints = True
        self.tenures: dict[str, Tenure] = {}
        self.commits: dict[int, ev.CommitOutcome | None] = {}
        self.started: list[tuple[str, int, int | None]] = []
        self.aborted: list[tuple[str, str]] = []
        self.problems: list[str] = []
        self.sent: list[Request] = []
        self.alive, self.paused, self.left = True, False, False
        self._asked: dict[int, tuple[str, int]] = {}
        self._inbox: deque[ev.Event] = deque()
        self._calls: deque[Request] = deque()
        self._attempt = 0
        self._in_flight = False
        self._turn = 0
        self._reply_era = -1
        self._channel = ""
        self._recent: deque[int] = deque(maxlen=MOST_CALLS_A_SECOND)
        world.at(0, lambda: self.deliver(ev.Started()))
        if resources:
            world.at(0, lambda: self.deliver(ev.ResourcesDeclared(version, resources)))

    # -- what happens to it ------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """Its own clock, which shares nothing with any other's but the rate."""
        return self.world.now + self.clock_offset_ms

    @property
    def running(self) -> bool:
        """Whether it executes anything."""
        return self.alive and not self.paused

    def deliver(self, event: ev.Event) -> None:
        """Passes an event to the session, or keeps it while the process is frozen."""
        if self.paused and self.alive:
            self._inbox.append(event)
        elif self.alive:
            for action in self.session.handle(event, self.now):
                self._carry_out(action)

    def kill(self) -> None:
        """SIGKILL."""
        self.world.log(self, "is killed")
        self.alive = False
        self.tenures.clear()
        self._unsubscribe()

    def pause(self) -> None:
        """SIGSTOP."""
        self.world.log(self, "is frozen")
        self.paused = True

    def resume(self) -> None:
        """SIGCONT: its own clock is checked first, then the backlog is handled."""
        self.world.log(self, "goes on")
        self.paused = False
        self.deliver(ev.TimerFired())
        while self._inbox:
            self.deliver(self._inbox.popleft())

    def stop(self, *, remain: bool = False) -> None:
        """Asks it to leave gracefully."""
        self.world.log(self, "is asked to leave" + (" and come back" if remain else ""))
        self.deliver(ev.StopAsked(remain))

    def commit(self, resource: str, offset: int) -> int:
        """Commits; the outcome will be in ``commits`` under the ticket returned."""
        ticket, tenure = len(self.commits) + 1, self.tenures[resource]
        tenure.done = max(tenure.done, offset)
        self.commits[ticket] = None
        self._asked[ticket] = (resource, offset)
        self.deliver(ev.CommitAsked(ticket, resource, tenure.token, offset))
        return ticket

    def guard(self, resource: str, *, proven: bool = True) -> None:
        """The broker is proven to admit one consumer only (or not any more)."""
        it = self.tenures[resource]
        it.guarded = proven
        self.deliver(ev.GuardChanged(resource, it.token, proven))

    def busy(self, resource: str, since: int | None) -> None:
        """A sample of its handler."""
        self.deliver(ev.Progressed((ev.Sample(resource, self.tenures[resource].token, since),)))

    def works(self) -> dict[str, int]:
        """Resource → token of what it touches now."""
        if not self.running:
            return {}
        return {it.resource: it.token for it in self.tenures.values() if it.state != "stopping"}

    # -- what its session wants ----------------------------------------------------------------------------------------

    def _carry_out(self, action: act.Action) -> None:
        match action:
            case act.Wait(until):
                self._wait(until)
            case act.Call(request):
                self._call(request)
            case act.Listen(member):
                self._listen(member)
            case act.Start() | act.Drain() | act.Resume() | act.Abort():
                self._work(action)
            case _:
                self._hear(action)

    def _hear(self, action: act.Action) -> None:
        match action:
            case act.CommitDone(ticket, outcome):
                self._commit_done(ticket, outcome)
            case act.Joined(member):
                self.world.log(self, f"joined as {member}")
            case act.Problem(code, _, fatal):
                self._problem(code, fatal=fatal)
            case act.Left():
                self.world.log(self, "left")
                self.left, self.alive = True, False
                self._unsubscribe()

    def _work(self, action: act.Action) -> None:
        match action:
            case act.Start(resource, token, committed):
                self._start(resource, token, committed)
            case act.Drain(resource, token, abort_at):
                self._drain(resource, token, abort_at)
            case act.Resume(resource, token):
                self._resume_work(resource, token)
            case act.Abort(resource, token, reason):
                self._abort(resource, token, reason)
            case _:
                raise AssertionError(f"not an action: {action!r}")

    def _wait(self, until: int) -> None:
        self._turn += 1
        turn = self._turn
        self.world.at(max(0, until - self.now), lambda: self.deliver(ev.TimerFired()) if turn == self._turn else None)

    def _problem(self, code: str, *, fatal: bool) -> None:
        self.problems.append(code)
        self.world.log(self, f"has a problem: {code}")
        if fatal:
            self.world.at(0, lambda: self.deliver(ev.StopAsked()))

    def _commit_done(self, ticket: int, outcome: ev.CommitOutcome) -> None:
        if ticket in self._asked:
            self.commits[ticket] = outcome
            resource, offset = self._asked[ticket]
            self.world.log(self, f"committed {resource} at {offset}: {outcome}")
            if outcome == "OK" and self._reply_era == self.world.era:
                self.world.acknowledged(resource, offset)

    # -- its work ------------------------------------------------------------------------------------------------------

    def _start(self, resource: str, token: int, committed: int | None) -> None:
        self.world.log(self, f"starts {resource} {self.world.tag(token)}{_from(committed)}")
        self.world.on_start(resource, token, committed)
        self.started.append((resource, token, committed))
        self.tenures[resource] = Tenure(resource, token, committed or 0)

    def _find(self, resource: str, token: int) -> Tenure | None:
        it = self.tenures.get(resource)
        return it if it is not None and it.token == token else None

    def _drain(self, resource: str, token: int, abort_at: int) -> None:
        self.world.log(self, f"drains {resource} {self.world.tag(token)} within {abort_at - self.now} ms")
        it = self._find(resource, token)
        assert it is not None
        it.state = "draining"
        if self.habits.drain_ms is not None:
            self._later(it, self.habits.drain_ms, self._begin_closing)

    def _later(self, it: Tenure, ms: int, do: Callable[[Tenure], None]) -> None:
        turn = it.turn = it.turn + 1

        def due() -> None:
            if not self.alive or it.turn != turn:
                return
            if self.paused:
                self.world.at(100, due)
            else:
                do(it)

        self.world.at(ms, due)

    def _begin_closing(self, it: Tenure) -> None:
        it.state = "closing"
        self._later(it, self.habits.close_ms, self._finish)
        self.deliver(ev.DrainBegun(it.resource, it.token))

    def _finish(self, it: Tenure) -> None:
        self.world.log(self, f"has drained {it.resource} {self.world.tag(it.token)}")
        self._forget(it)
        offset = it.done if self.habits.commits_on_drain and it.done else None
        self.deliver(ev.Drained(it.resource, it.token, 0, 0, offset))

    def _resume_work(self, resource: str, token: int) -> None:
        self.world.log(self, f"keeps {resource} {self.world.tag(token)}")
        it = self._find(resource, token)
        if it is not None and it.state == "draining":
            it.turn += 1
            it.state = "working"

    def _abort(self, resource: str, token: int, reason: act.AbortReason) -> None:
        self.world.log(self, f"aborts {resource} {self.world.tag(token)}: {reason}")
        self.aborted.append((resource, reason))
        it = self._find(resource, token)
        assert it is not None
        it.state, it.turn = "stopping", it.turn + 1
        if reason == "lost":
            self._forget(it)
        elif self.habits.stop_ms is not None:
            self._later(it, self.habits.stop_ms, lambda it: self._stopped(it, reason))

    def _stopped(self, it: Tenure, reason: str) -> None:
        self._forget(it)
        self.deliver(ev.Abandoned(it.resource, it.token, reason))

    def _forget(self, it: Tenure) -> None:
        it.turn += 1
        if self.tenures.get(it.resource) is it:
            del self.tenures[it.resource]

    # -- its connection to Redis: one attempt at a time, each given up after the engine's own timeout ------------------

    def _call(self, request: Request) -> None:
        self._recent.append(self.world.now)
        if len(self._recent) == MOST_CALLS_A_SECOND and self.world.now - self._recent[0] < 1_000:
            raise AssertionError(f"{self.name} calls Redis in circles: {request}")
        self._calls.append(request)
        self._pump()

    def _pump(self) -> None:
        if self._in_flight or not self._calls:
            return
        request = self._calls.popleft()
        self.sent.append(request)
        self._in_flight, sent_at = True, self.now
        self._attempt += 1
        attempt, fate = self._attempt, self.fates.popleft() if self.fates else self.world.fate(self, request)
        if fate != "ok":
            self.world.log(self, f"calls {_verb(request)}: {fate.replace('_', ' ')}")
        timeout = call_timeout_ms(self.world.settings.session_timeout_ms)
        self.world.at(timeout, lambda: self._end(attempt, ev.CallFailed(request, "no answer")))
        if fate != "lost":
            delay = self.world.latency_ms() + (2 * timeout if fate == "late" else 0)
            self.world.at(delay, lambda: self._execute(attempt, request, sent_at, answered=fate == "ok"))

    def _execute(self, attempt: int, request: Request, sent_at: int, *, answered: bool) -> None:
        if not self.world.redis_up:
            return
        reply = self.world.coordinator.execute(request)
        if reply.status != "OK":
            self.world.log(self, f"hears {reply.status} to its {_verb(request)}" if answered else "")
        if answered:
            event, era = ev.Replied(request, reply, sent_at), self.world.era
            self.world.at(self.world.latency_ms(), lambda: self._end(attempt, event, era))

    def _end(self, attempt: int, event: ev.Event, era: int = -1) -> None:
        if attempt != self._attempt or not self._in_flight:
            return
        self._in_flight, self._reply_era = False, era
        self.deliver(event)
        self._pump()

    def _listen(self, member: str) -> None:
        self._unsubscribe()
        self._channel = hint_channel("g", member)
        self.world.store.subscribe(self._channel, self._hinted)
        self.world.at(1, lambda: self.deliver(ev.Hinted(-1)))

    def _unsubscribe(self) -> None:
        if self._channel:
            self.world.store.unsubscribe(self._channel, self._hinted)
        self._channel = ""

    def _hinted(self, channel: str, message: bytes) -> None:
        if self.hears_hints and channel == self._channel:
            self.world.at(self.world.latency_ms(), lambda: self.deliver(ev.Hinted(int(message))))


def _verb(request: Request) -> str:
    claims = f" with {len(request.payload.claims)} claims" if isinstance(request.payload, Join) else ""
    return request.payload.verb + claims


def _from(committed: int | None) -> str:
    return "" if committed is None else f" from {committed}"
