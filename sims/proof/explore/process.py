"""One process: a production session and its surroundings. Its steps are looked up like everything else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, cast

import attrs

from cobalance.coordinator.replies import CoordinatorReply
from cobalance.coordinator.requests import Join, Release, Request
from cobalance.errors import CobalanceError
from cobalance.member import actions as act
from cobalance.member import events as ev
from cobalance.member.holding import Holding
from cobalance.member.session import Phase, Session
from cobalance_sims.simulate.paging import pages_of
from proof.explore.codec import Encoder, TermSession, decode
from proof.explore.pool import Pool
from proof.explore.scope import MEMBER_MS, Scope

MOST_OFFSET = 100
"""A commit's ticket says which resource and offset it is about: resource * 100 + offset."""

Status = Literal["absent", "up", "paused", "dead", "left"]


@attrs.define
class Slot:
    """A slot for a process; the next one that starts in it is another process with another name."""

    slot: str
    status: Status = "absent"
    life: int = 0
    is_cut: bool = False
    """It cannot reach Redis."""
    is_calling: bool = False
    """Its session waits for its call to be carried out."""
    session: Session | None = None
    begun: dict[str, int] = attrs.field(factory=dict)
    """The tenures whose on_revoked has run, by token."""
    aborted: dict[str, int] = attrs.field(factory=dict)
    """The last tenure of each resource that it stopped unfinished, by token."""

    @property
    def outstanding(self) -> Request:
        """The request its session waits for."""
        request = None if self.session is None else self.session.line.outstanding
        if request is None:
            raise LookupError(f"{self.slot} waits for nothing")
        return request

    @property
    def tenures(self) -> dict[str, Holding]:
        """The tenures its session knows."""
        return {} if self.session is None else self.session.holdings._by_name  # noqa: SLF001

    def working(self) -> dict[str, int]:
        """Resource → token of what its user code may touch, while it runs on a sound clock."""
        if self.status != "up":
            return {}
        return {it.resource: it.token for it in self.tenures.values() if it.working}


@attrs.frozen(eq=False)
class ProcessStep:
    """What an event did to a process."""

    after: int
    started: tuple[tuple[str, int, int | None], ...] = ()
    acknowledged: tuple[tuple[str, int], ...] = ()
    """Resource and offset of commits answered with OK."""
    aborted: tuple[str, ...] = ()
    """Why it stopped work, for each tenure that it stopped."""
    wrong: str = ""
    """A promise that this very step broke."""


class Processes:
    """Steps of processes by part number."""

    def __init__(self, scope: Scope, pool: Pool) -> None:
        self.scope, self.pool = scope, pool
        self._steps: dict[tuple[int, object], ProcessStep] = {}
        self._decoded: dict[int, Slot] = {}
        self._working: dict[int, frozenset[str]] = {}

    def steps(self) -> Iterable[ProcessStep]:
        return self._steps.values()

    def working(self, part: int) -> frozenset[str]:
        """The resources that its user code may touch."""
        if part not in self._working:
            self._working[part] = frozenset(self.look(part).working())
        return self._working[part]

    def add(self, process: Slot) -> int:
        """Returns the part number of a process."""
        encoder = Encoder()
        skeleton = encoder.encode(process)
        return self.pool.add(skeleton, tuple(encoder.numbers), tuple(encoder.kinds))

    def look(self, part: int) -> Slot:
        """Returns the process, which must not be changed."""
        found = self._decoded.get(part)
        if found is None:
            found = self._decoded[part] = self.copy(part)
        return found

    def copy(self, part: int) -> Slot:
        """Returns a copy that may be changed."""
        it = self.pool.parts[part]
        return cast("Slot", decode(it.skeleton, iter(it.numbers)))

    def aged(self, part: int) -> int:
        """Returns a process one tick later, before it has checked its clock."""
        it = self.pool.parts[part]
        process = decode(it.skeleton, iter(self.pool.aged(part)))
        return self.add(process)

    def step(self, part: int, key: tuple[object, ...], event: ev.Event | None = None) -> ProcessStep:
        """Applies an event, for which `key` stands. Without one, the key says what changes around the session."""
        return self._steps.get((part, key)) or self._take(part, key, key, event)

    def _take(self, part: int, name: object, key: tuple[object, ...], event: ev.Event | None) -> ProcessStep:
        try:
            with pages_of(self.scope.page):
                found = _Run(self, self.copy(part)).run(key, event)
        except (CobalanceError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
            found = ProcessStep(part, wrong=f"the session raises {type(problem).__name__}: {problem}")
        self._steps[part, name] = found
        return found

    def replied(self, part: int, reply: CoordinatorReply, number: int) -> ProcessStep:
        """Its call was carried out, and the numbered reply comes back."""
        return self._steps.get((part, number)) or self._take(part, number, ("replied", reply), None)


class _Run:
    """One step of one process."""

    def __init__(self, processes: Processes, process: Slot) -> None:
        self._processes, self._it = processes, process
        self._started: list[tuple[str, int, int | None]] = []
        self._acknowledged: list[tuple[str, int]] = []
        self._aborted: list[str] = []
        self._wrong = ""

    def run(self, key: tuple[object, ...], event: ev.Event | None) -> ProcessStep:
        """Does what the key says."""
        change = getattr(self, f"_{key[0]}", None)
        if change is not None:
            change(*key[1:])
        elif event is not None:
            self._handle(event)
        if self._it.is_calling and self._it.is_cut:
            self._fail()
        self._forget_aborted()
        part = self._processes.add(self._it)
        return ProcessStep(part, tuple(self._started), tuple(self._acknowledged), tuple(self._aborted), self._wrong)

    def _forget_aborted(self) -> None:
        """It can no longer claim what the session has forgotten."""
        it = self._it
        held = it.tenures
        it.aborted = {name: at for name, at in it.aborted.items() if name in held and held[name].token == at}
        it.begun = {name: at for name, at in it.begun.items() if name in held and held[name].token == at}

    # -- what surrounds the session ----------------------------------------------------------------------------------

    def _start(self) -> None:
        it, scope = self._it, self._processes.scope
        it.status, it.life, it.is_cut = "up", it.life + 1, False
        it.session = TermSession(f"{it.slot}{it.life}", "-", scope.group, scope.member(it.slot))
        self._handle(ev.Started(scope.subscription(it.slot)))
        self._handle(ev.ResourcesDeclared(1, scope.named_by(it.slot)))

    def _crash(self) -> None:
        self._end("dead")

    def _end(self, status: Status) -> None:
        it = self._it
        it.session, it.status, it.is_calling, it.is_cut, it.aborted = None, status, False, False, {}

    def _pause(self) -> None:
        self._it.status = "paused"

    def _resume(self) -> None:
        self._it.status = "up"
        self._handle(ev.TimerFired())

    def _cut(self) -> None:
        self._it.is_cut = True

    def _heal(self) -> None:
        self._it.is_cut = False

    # -- calls -------------------------------------------------------------------------------------------------------

    def _replied(self, reply: CoordinatorReply) -> None:
        request = self._request()
        self._it.is_calling = False
        self._handle(ev.Replied(request, reply, MEMBER_MS))
        if isinstance(request.payload, Release) and reply.status == "OK":
            self._check_released(request.payload, reply)

    def _check_released(self, payload: Release, reply: CoordinatorReply) -> None:
        for item, result in zip(payload.items, reply.results, strict=True):
            held = self._it.tenures.get(item.resource)
            if result in ("OK", "FENCED") and held is not None and held.token == item.token:
                self._wrong = f"still believes to have {item.resource}, which it has released"

    def _failed(self) -> None:
        self._fail()

    def _fail(self) -> None:
        self._it.is_calling = False
        self._handle(ev.CallFailed(self._request(), "no answer"))

    def _request(self) -> Request:
        return self._it.outstanding

    # -- the session -------------------------------------------------------------------------------------------------

    def _handle(self, event: ev.Event) -> None:
        session = self._it.session
        if session is None:
            return
        if isinstance(event, ev.DrainBegun):
            self._it.begun[event.resource] = event.token
        waiting = None if isinstance(event, ev.Replied) else session.line.outstanding
        for action in session.handle(event, MEMBER_MS):
            self._carry_out(action)
            if isinstance(action, act.Call) and waiting is not None:
                self._check_repeat(waiting, action.request)
            if isinstance(action, act.Keep) and self._it.begun.get(action.resource) == action.token:
                self._wrong = f"takes {action.resource} up again, although on_revoked has run"
            if isinstance(action, act.Start | act.Keep) and session.leaving.asked_at is not None:
                verb = "begins to work" if isinstance(action, act.Start) else "goes on with"
                self._wrong = f"is leaving, and {verb} {action.resource}"

    def _carry_out(self, action: act.Action) -> None:
        match action:
            case act.Call(request):
                self._it.is_calling = True
                self._check_claims(request)
            case act.Start(resource, token, committed):
                self._started.append((resource, token, committed))
            case act.Abort(resource, token, reason):
                if reason != "deadline" or not self._is_joining:
                    self._it.aborted[resource] = token
                self._aborted.append(reason)
                if reason != "lost":
                    self._handle(ev.Abandoned(resource, token, reason))
            case act.CommitDone(ticket, "OK"):
                self._acknowledged.append((self._processes.scope.names[ticket // MOST_OFFSET], ticket % MOST_OFFSET))
            case act.Left():
                self._end("left")
            case _:
                pass

    def _check_repeat(self, waiting: Request, request: Request) -> None:
        """What waits for an answer is repeated unchanged; only a new member starts again."""
        if request.header.member == waiting.header.member and request != waiting:
            self._wrong = f"repeats its {waiting.payload.verb} as another request"

    @property
    def _is_joining(self) -> bool:
        """Whether it claims what it held when it began to join: until a deadline passes, which is no reason to begin again."""
        return self._it.session is not None and self._it.session.phase is Phase.JOINING

    def _check_claims(self, request: Request) -> None:
        if isinstance(request.payload, Join):
            for claim in request.payload.claims:
                if self._it.aborted.get(claim.resource) == claim.token:
                    self._wrong = f"claims {claim.resource}, which it has aborted"
