"""One member's side of the protocol, without I/O: ``handle(event, now) → actions``.

A session has at most one request outstanding, and repeats it unchanged until it is answered. A lost reply does no harm:
the coordinator gives a repeated request the same answer. What a member wants is state, never a queue of messages: when
no request is outstanding, :meth:`Session._next_payload` looks for what is due and requests it.

Every answer renews the lease, counted from the *first* send of its request, or from its last refusal, because the
coordinator cannot have counted from earlier. When the lease ends without an answer, the member fences itself: it aborts
whatever no broker guards, before the coordinator may assign it to another member.

            Started             answer OK              StopAsked            results LEFT
    NEW ───────────► JOINING ───────────► ACTIVE ───────────────► LEAVING ───────────► LEFT
                        ▲                  │  ▲                      │
                        │   REJOIN, ENDED  │  │ answer OK            │ REJOIN
                        ├──────────────────┤  │                      │
                        │       lease over ▼  │                      │
                        ├──────────────── CUT ┘                      │
                        └────────────────────────────────────────────┘

A member id is never reused: each join has its own, and names its predecessor.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from cobalance.coordinator.requests import Claim, Heartbeat, Join, Leave, Payload, Release, Tick
from cobalance.coordinator.requests import Commit as CommitRequest
from cobalance.errors import IllegalTransition, counted
from cobalance.member import actions as act
from cobalance.member import events as ev
from cobalance.member.declaration import Declaration
from cobalance.member.holdings import Holdings
from cobalance.member.joining import Joining
from cobalance.member.lease import Lease
from cobalance.member.leaving import Leaving
from cobalance.member.offsets import PendingCommits
from cobalance.member.outstanding import Line

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.settings import GroupSettings, MemberSettings

NOBODY = 0
"""The ticket of a commit that no user waits for."""


class Phase(Enum):
    NEW = "new"  # Nothing was requested yet. Left by Started.
    JOINING = "joining"  # Not a member, or one no longer known. Waits for the answer to its join.
    ACTIVE = "active"  # A member within its lease.
    CUT = "cut"  # No answer within the lease. What no broker guards has been aborted. Waits for any answer.
    LEAVING = "leaving"  # Draining everything. Waits until nothing is held.
    LEFT = "left"  # Over.


TRANSITIONS: dict[Phase, frozenset[Phase]] = {
    Phase.NEW: frozenset({Phase.JOINING, Phase.LEFT}),
    Phase.JOINING: frozenset({Phase.ACTIVE, Phase.LEFT}),
    Phase.ACTIVE: frozenset({Phase.CUT, Phase.JOINING, Phase.LEAVING}),
    Phase.CUT: frozenset({Phase.ACTIVE, Phase.JOINING, Phase.LEAVING}),
    Phase.LEAVING: frozenset({Phase.JOINING, Phase.LEFT}),
    Phase.LEFT: frozenset(),
}


class Session:
    """The protocol of one member.

    Args:
        name: unique to this process; member ids are derived from it.
        label: shown by ``describe`` (host and process id).
        settings: used if the group has none yet.
        member: this process's own settings.
    """

    def __init__(self, name: str, label: str, settings: GroupSettings, member: MemberSettings) -> None:
        self.phase = Phase.NEW
        self._own = member
        self._is_coordinator = self._is_head = False
        self._due_at: int | None = None
        self._ours_first = False
        """Whether commits have had their turn."""
        self._heartbeat_at, self._heartbeat_ms = 0, settings.heartbeat_interval_ms
        self._now = 0
        self._out: list[act.Action] = []
        self.line = Line(name)
        self.joining = Joining(label, settings, member)
        self.leaving = Leaving(member)
        self.holdings = Holdings(member)
        self.lease = Lease(settings.session_timeout_ms)
        self.declaration = Declaration()
        self.commits = PendingCommits()

    # -- entry point -----------------------------------------------------------------------------------------------

    def handle(self, event: ev.Event, now: int) -> list[act.Action]:
        """Takes one event at monotonic time ``now`` (ms) and returns what to do, in order.

        Raises:
            IllegalTransition: the event cannot happen now; nothing has changed.
        """
        handler = self._HANDLERS.get(type(event))
        if handler is None:
            raise IllegalTransition(f"not an event: {event!r}")
        self._now = now
        self._out = self.holdings.out = []
        handler(self, event)
        self._check_clocks()
        self._ask_what_is_due()
        if self.phase is not Phase.LEFT:
            self._out.append(act.Wait(self._wake_at()))
        return self._out

    def succeed(self, member: str) -> None:
        """Before the first join: inherit what this member, whose process is dead, held."""
        if self.phase is not Phase.NEW:
            raise IllegalTransition("a session that has begun succeeds nobody")
        self.line.member = member

    @property
    def member(self) -> str:
        """The current member id. Before the first join it is empty, or that of the dead process to be succeeded."""
        return self.line.member

    @property
    def name(self) -> str:
        """Unique to this process; its member ids begin with it."""
        return self.line.name

    @property
    def is_coordinator(self) -> bool:
        """Whether the last answer named this member as the elected coordinator."""
        return self._is_coordinator

    @property
    def is_head(self) -> bool:
        """Whether the last answer elected this member to look for its subscription's resources."""
        return self._is_head

    def _to(self, phase: Phase) -> None:
        if phase not in TRANSITIONS[self.phase]:
            raise IllegalTransition(f"a session that is {self.phase.value} cannot become {phase.value}")
        self.phase = phase

    # -- requests of the process -----------------------------------------------------------------------------------

    def _started(self, event: ev.Started) -> None:
        self._to(Phase.JOINING)
        self.joining.subscription = event.subscription
        self._prepare_join(claims=[])

    def _commit_asked(self, event: ev.CommitAsked) -> None:
        if self.holdings.find(event.resource, event.token) is None:
            self._out.append(act.CommitDone(event.ticket, "FENCED"))
        else:
            self.commits.add(event)

    def _stop_asked(self, event: ev.StopAsked) -> None:
        if self.phase is Phase.LEFT:
            return
        if self.leaving.asked_at is not None:
            if not event.remain:
                self.leaving.ask_for_good()
            return
        if self.phase is Phase.NEW:
            self._finish()
            return
        self.holdings.drain_all(self.leaving.ask(self._now, remain=event.remain))
        if self.phase is not Phase.JOINING:  # otherwise once the join is answered, so that no ghost stays behind
            self._begin_leaving()

    def _begin_leaving(self) -> None:
        self._to(Phase.LEAVING)
        self.leaving.begin()

    # -- replies of the coordinator --------------------------------------------------------------------------------

    def _call_failed(self, event: ev.CallFailed) -> None:
        if self.line.waits_for(event.request):
            self.lease.failed(self._now)

    def _replied(self, event: ev.Replied) -> None:
        if not self.line.waits_for(event.request):
            return
        reply, payload = event.reply, event.request.payload
        if reply.status == "INSTANCE_IN_USE":
            self._refused_as_double(reply)
            return
        if reply.status == "SUBSCRIPTIONS":
            self._refused_as_one_too_many(reply)
            return
        self.line.answered(reply)
        if reply.status == "OK":
            self._accept(payload, reply, event.sent_at)
        elif reply.status == "REJOIN":
            self.commits.retry()
            self._rejoin(self.holdings.claims())
        else:  # ENDED, UNKNOWN, STALE: the coordinator has given up this member id, and what it held
            self.holdings.lose_all()
            self._out += self.commits.drop_all()
            self.lease.forget()
            if self.phase is Phase.LEAVING:
                self._finish()
            else:
                self._rejoin([])

    def _refused_as_double(self, reply: CoordinatorReply) -> None:
        until_ms = reply.owner_until_ms
        ends_at = None if until_ms is None else self._now + until_ms - reply.now_ms
        self.lease.refused(self._now, reply.session_timeout_ms, ends_at)
        if self.leaving.asked_at is not None and not self.holdings.any_known():
            self._finish()  # it is not a member, so there is nothing to leave
        else:
            self._out += self.joining.refused(reply)

    def _refused_as_one_too_many(self, reply: CoordinatorReply) -> None:
        self.lease.refused(self._now, reply.session_timeout_ms)
        message = (
            "the members of this group already declare as many different lists as a group may have: let those that work "
            "the same declare the same, or use several groups"
        )
        self._out.append(act.Problem("subscriptions", message, fatal=True))
        if not self.holdings.any_known():
            self._finish()  # it is not a member, so there is nothing to leave

    def _accept(self, payload: Payload, reply: CoordinatorReply, sent_at: int) -> None:
        if not isinstance(payload, Join) or payload.last_page:  # a page of claims does not renew those still to come
            self.lease.renewed(reply.session_timeout_ms)
        self._heartbeat_ms = reply.heartbeat_interval_ms
        self._heartbeat_at = min(self._heartbeat_at, sent_at + self._heartbeat_ms)  # the interval may be shorter now
        self._is_coordinator, self._is_head = reply.coordinator, reply.head
        self._due_at = sent_at + reply.due_ms - reply.now_ms
        if self.phase is Phase.CUT and not self.lease.over(self._now):
            self._to(Phase.ACTIVE)
        self._apply_results(payload, reply)
        if self.lease.over(self._now):  # too old to begin anything because of it
            self.line.ask_again()
        elif self.phase is not Phase.LEFT:
            self.line.heard(reply)
            self._apply_changes(reply, sent_at)

    def _apply_results(self, payload: Payload, reply: CoordinatorReply) -> None:
        if isinstance(payload, Join):
            self._joined(payload, reply)
        elif isinstance(payload, Heartbeat):
            self.holdings.received(payload.progress)
        elif isinstance(payload, Release):
            for item, result in zip(payload.items, reply.results, strict=True):
                self._released(item.resource, item.token, result)
        elif isinstance(payload, CommitRequest):
            self._committed(payload, reply)
        elif isinstance(payload, Leave):
            self._leave_answered(reply.results[0])
        else:
            self._out += self.declaration.answered(payload, reply, self._now)

    def _apply_changes(self, reply: CoordinatorReply, sent_at: int) -> None:
        for change in reply.changes:
            if change.kind == "revoke":
                self.holdings.revoke(change, sent_at + change.deadline_ms - reply.now_ms, self._now)
            elif change.kind == "lost":
                self.holdings.lose(change)
            elif self.leaving.asked_at is None:
                self.holdings.hold(change)
            else:  # also while it joins again, page by page, before it can leave
                self.holdings.decline(change)

    def _released(self, resource: str, token: int, result: str) -> None:
        if result in ("UNCOMMITTED", "REGRESSED"):
            message = f"the release of {resource!r} was refused as {result}: it is given up as unfinished instead"
            self._out.append(act.Problem("commit_refused", message))
        self.holdings.release_answered(resource, token, result)

    def _committed(self, payload: CommitRequest, reply: CoordinatorReply) -> None:
        for item, result in zip(payload.items, reply.results, strict=True):
            if result == "OK":
                self.holdings.committed(item.resource, item.token, item.offset)
        self._out += self.commits.answered(payload, reply.results)

    def _leave_answered(self, result: str) -> None:
        if result == "LEFT":
            self.holdings.lose_all()
            self._finish()
        else:
            self.leaving.remain = False  # otherwise LEFT: this group keeps nothing, so release what is parked

    # -- joining and leaving ---------------------------------------------------------------------------------------

    def _prepare_join(self, claims: list[Claim]) -> None:
        self.joining.begin(claims)
        self._due_at, self._is_coordinator, self._is_head = None, False, False
        self._out.append(act.Listen(self.line.begin_member()))

    def _rejoin(self, claims: list[Claim]) -> None:
        if self.phase is not Phase.JOINING:
            self._to(Phase.JOINING)
        self.declaration.rejoined(is_looked_for=self.joining.is_looked_for)
        self._prepare_join(claims)

    def _joined(self, payload: Join, reply: CoordinatorReply) -> None:
        for claim, result in zip(payload.claims, reply.results, strict=True):
            if result != "KEPT":
                self.holdings.lose_token(claim.resource, claim.token)
        self.joining.answered(payload)
        if not payload.last_page:
            return
        self._to(Phase.ACTIVE)
        self._out.append(act.Joined(self.member))
        if reply.recovering_ms > 0:
            message = (
                f"the group is new, or Redis lost its data: waiting {reply.recovering_ms} ms for members to claim what "
                f"they hold before anything is given out"
            )
            is_new = not self.line.previous
            self._out.append(act.Problem("recovering", message, expected=is_new))
        if self.leaving.asked_at is not None:
            self._begin_leaving()

    def _finish(self) -> None:
        self._to(Phase.LEFT)
        self.line.outstanding = None
        self._out += self.commits.drop_all()
        self._out.append(act.Left())

    # -- clocks ----------------------------------------------------------------------------------------------------

    def _check_clocks(self) -> None:
        if self.phase in (Phase.NEW, Phase.LEFT):
            return
        self.holdings.check_deadlines(self._now)
        if self.lease.over(self._now):
            self._fence()
        if self.leaving.over(self._now, self.holdings, self.lease):
            self.holdings.lose_all()  # the coordinator cannot be reached: the session will expire
            self._finish()

    def _fence(self) -> None:
        patient = not self.lease.over_by(self._now, self._own.guarded_outage_ms)
        aborted = self.holdings.fence(self._now, keep_guarded=patient)
        if self.phase is Phase.ACTIVE:
            self._to(Phase.CUT)
        if not aborted:
            return
        if self.phase is Phase.JOINING:  # what was aborted is not claimed: start another join
            self._prepare_join(self.holdings.claims())
        message = (
            f"no call to Redis has succeeded within the session timeout: stopped working {counted(aborted, 'resource')}; "
            f"it goes on by itself when Redis answers"
        )
        self._out.append(act.Problem("cut_off", message))

    def _wake_at(self) -> int:
        times = [*self.holdings.times(), *self.lease.times(self._now, self._own.guarded_outage_ms)]
        if self.leaving.asked_at is not None:
            times.append(self.leaving.gives_up_at(self.leaving.asked_at, self.holdings, self.lease))
        if self.line.outstanding is None:
            times.append(self._heartbeat_at)
            times += self.declaration.times() if self.phase is not Phase.LEAVING else []
            times += [self._due_at] if self._is_coordinator and self._due_at is not None else []
        return max(min(times, default=self._now + self._heartbeat_ms), self._now)

    # -- requests to the coordinator -------------------------------------------------------------------------------

    def _ask_what_is_due(self) -> None:
        if self.phase in (Phase.NEW, Phase.LEFT):
            return
        if self.line.outstanding is not None:
            if self.lease.retry_due(self._now):
                self.lease.sent_again(self._now)
                self._out.append(act.Call(self.line.outstanding))
            return
        payload = self._next_payload()
        if payload is not None:
            self._send(payload)

    def _next_payload(self) -> Payload | None:
        """Order matters: what frees resources for others comes first, what only informs this member comes last."""
        if self.phase is Phase.JOINING:
            return self.joining.page(
                self.line.previous, self.holdings.highest_token, self.lease.session_ms, self._heartbeat_ms
            )
        return self.leaving.first_request() or self._next_release() or self._next_in_turn()

    def _next_release(self) -> Release | None:
        releasing = self.holdings.take_releases(park=self._is_parking)
        return Release(tuple(releasing)) if releasing else None

    def _next_in_turn(self) -> Payload | None:
        """Commits may be requested without pause, so after each of them progress is reported first. News comes with
        every answer.
        """
        ours_first, self._ours_first = self._ours_first, False
        if ours_first:
            return self._next_to_tell() or self._next_for_others() or self._next_for_us()
        return self._next_for_others() or self._next_for_us()

    @property
    def _is_parking(self) -> bool:
        return self.phase is Phase.LEAVING and self.leaving.remain

    def _next_for_others(self) -> Payload | None:
        for resource, token, offset in self.holdings.park() if self._is_parking else []:
            self.commits.add(ev.CommitAsked(NOBODY, resource, token, offset))
        committing = self.commits.take()
        if committing:
            return CommitRequest(tuple(committing))
        return self.leaving.last_request(self.holdings) if self.phase is Phase.LEAVING else None

    def _next_to_tell(self) -> Payload | None:
        page = self._next_page()
        if page is None and self._now >= self._heartbeat_at and (progress := tuple(self.holdings.news())):
            return Heartbeat(progress)
        return page or self._next_tick()

    def _next_for_us(self) -> Payload | None:
        page = self._next_page()
        if page is None and (self.line.has_news or self._now >= self._heartbeat_at):
            return Heartbeat(tuple(self.holdings.news()))
        return page or self._next_tick()

    def _next_page(self) -> Payload | None:
        return None if self.phase is Phase.LEAVING else self.declaration.next_page(self._now)

    def _next_tick(self) -> Tick | None:
        is_due = self._is_coordinator and self._due_at is not None and self._now >= self._due_at
        return Tick() if is_due else None

    def _send(self, payload: Payload) -> None:
        self._ours_first = isinstance(payload, CommitRequest)
        if not self._ours_first:  # commits renew the session too, but do not report who is busy
            self._heartbeat_at = self._now + self._heartbeat_ms
        self.lease.first_sent(self._now)
        held = None if self.phase is Phase.JOINING else self._on_record()  # a join claims them page by page
        self._out.append(act.Call(self.line.send(payload, held)))

    def _on_record(self) -> tuple[int, ...]:
        return (self.holdings.token_sum,)

    # -- event handlers --------------------------------------------------------------------------------------------

    _HANDLERS: ClassVar[dict[type, Callable[[Session, Any], None]]] = {
        ev.Started: _started,
        ev.ResourcesDeclared: lambda self, event: self.declaration.declare(event.version, event.names),
        ev.CommitAsked: _commit_asked,
        ev.StopAsked: _stop_asked,
        ev.Progressed: lambda self, event: self.holdings.progressed(event, self._now),
        ev.GuardChanged: lambda self, event: self.holdings.guard_changed(event),
        ev.DrainBegun: lambda self, event: self.holdings.begun(event, self._now),
        ev.Drained: lambda self, event: self.holdings.drained(event),
        ev.Abandoned: lambda self, event: self.holdings.abandoned(event),
        ev.Replied: _replied,
        ev.CallFailed: _call_failed,
        ev.Hinted: lambda self, event: self.line.hinted(event.version),
        ev.TimerFired: lambda *_: None,  # the clocks are checked after every event
    }
