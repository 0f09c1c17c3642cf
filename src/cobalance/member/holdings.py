"""All tenures of one member: applies the table of :mod:`cobalance.member.holding` to replies, clocks and work."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING

from cobalance.coordinator.requests import Claim, ReleaseItem
from cobalance.errors import IllegalTransition
from cobalance.member import actions as act
from cobalance.member.holding import Holding, State, Step
from cobalance.member.holding_index import HoldingIndex

if TYPE_CHECKING:
    from cobalance.coordinator.replies import Change
    from cobalance.member import events as ev
    from cobalance.settings import MemberSettings

RELEASES_A_CALL = 25
"""Each is a move, and a resource given up is offered to others in the same call."""

NEWS_A_CALL = 200

LAST_MS = 1_000
"""The least time that a hung handler gets, even if its time to stop was over before."""


class Holdings:
    """What this member holds, by resource. ``out`` collects the actions of the event being handled.

    Whatever changes a tenure touches it first. Touched tenures are filed again, one by one, before the index is used: a
    member may have a hundred thousand, and an event concerns one.
    """

    def __init__(self, member: MemberSettings) -> None:
        self._own = member
        self._by_name: dict[str, Holding] = {}
        self._index: HoldingIndex | None = None
        """Lacks what was touched since; ``None`` before its first use."""
        self._touched: list[str] = []
        self._drain_by: int | None = None
        self.highest_token = 0
        self.out: list[act.Action] = []

    # -- reading ---------------------------------------------------------------------------------------------------

    def find(self, resource: str, token: int) -> Holding | None:
        """The tenure, if it is still known.

        Raises:
            IllegalTransition: there never was such a tenure.
        """
        self._check_token(resource, token)
        return self._touch_tenure(resource, token)

    def _check_token(self, resource: str, token: int) -> None:
        if token > self.highest_token:
            raise IllegalTransition(f"there was no tenure of {resource!r} with token {token}")

    def _filed(self) -> HoldingIndex:
        """The index, brought up to date."""
        if self._index is None:
            self._index = HoldingIndex(self._by_name.values())
        for resource in self._touched:
            self._index.file(resource, self._by_name.get(resource))
        self._touched = []
        return self._index

    def _touch(self, resource: str) -> Holding | None:
        """Marks a resource as about to change, and returns its tenure."""
        self._touched.append(resource)
        return self._by_name.get(resource)

    def _touch_tenure(self, resource: str, token: int) -> Holding | None:
        """The same, but only if it is the tenure with this token."""
        held = self._touch(resource)
        return held if held is not None and held.token == token else None

    @property
    def number(self) -> int:
        return len(self._by_name)

    def is_worked(self, resource: str, token: int) -> bool:
        """Whether this tenure is known and not ended."""
        held = self._by_name.get(resource)
        return held is not None and held.token == token and held.working

    def any_known(self) -> bool:
        """Whether the coordinator may believe that this member holds something."""
        return bool(self._by_name)

    def unfinished(self) -> bool:
        return self._filed().is_any_in_use

    @property
    def token_sum(self) -> int:
        """The sum of the tokens of all tenures on record."""
        return self._filed().token_sum

    def tokens(self) -> tuple[int, ...]:
        """The tokens of all tenures on record, sorted."""
        return tuple(sorted(it.token for it in self._by_name.values() if it.on_record))

    def snapshot(self) -> dict[str, tuple[int, str]]:
        """Resource → (token, state), for display."""
        return {name: (it.token, it.state.value) for name, it in self._by_name.items()}

    def claims(self) -> list[Claim]:
        """What to claim from a coordinator that lost its state: nothing that was aborted or given up. What has not
        stopped yet still has to.
        """
        kept = {name: it for name, it in self._by_name.items() if it.state is State.ABORTED or not it.reason}
        self._by_name, self._index = kept, None
        for it in kept.values():
            it.on_record = it.state is not State.ABORTED
            if it.state is State.RELEASING:
                it.step(Step.RETRY)
        return [
            Claim(it.resource, it.token, it.offset if it.offset is not None else it.committed)
            for _, it in sorted(kept.items())
            if it.on_record
        ]

    # -- replies ---------------------------------------------------------------------------------------------------

    def hold(self, change: Change) -> None:
        """The coordinator says that the member holds it: a new tenure, or the end of a revocation."""
        held = self._present(change)
        if held is None:
            self._add(change, State.HELD)
            self.out.append(act.Start(change.resource, change.token, change.committed, change.tries))
            return
        was = held.state
        if held.step(Step.KEEP) is State.HELD and was is State.DRAINING:
            held.abort_at = None
            self.out.append(act.Keep(held.resource, held.token))

    def decline(self, change: Change) -> None:
        """A grant that crossed this member's leave: nothing was started, so it has ended."""
        if self._present(change) is None:
            self._add(change, State.ENDED)

    def revoke(self, change: Change, deadline: int, now: int) -> None:
        """The coordinator asks for it back. Work is aborted a little before the deadline."""
        held = self._present(change)
        if held is None:
            self._add(change, State.ENDED)  # granted and revoked again before this member heard of it
            return
        was, was_at = held.state, held.abort_at
        if held.step(Step.REVOKE) not in (State.DRAINING, State.CLOSING):
            return
        abort_at = deadline - min(1_000, max(0, deadline - now) // 10)
        held.abort_at = abort_at if self._drain_by is None else min(abort_at, self._drain_by)
        if was is State.HELD:
            self.out.append(act.Drain(held.resource, held.token, held.abort_at))
        else:
            self._tell_sooner(held, was_at)

    def lose(self, change: Change) -> None:
        """The member has lost it. The change carries a token above the lost one."""
        held = self._touch(change.resource)
        if held is not None and held.token <= change.token:
            self._lose(held)

    def lose_token(self, resource: str, token: int) -> None:
        """A claim was refused."""
        held = self._touch_tenure(resource, token)
        if held is not None:
            self._lose(held)

    def lose_all(self) -> None:
        """The session has ended."""
        for held in list(self._by_name.values()):
            self._lose(held)

    def release_answered(self, resource: str, token: int, result: str) -> None:
        held = self._touch_tenure(resource, token)
        if held is None or held.state is not State.RELEASING:
            return
        if result in ("OK", "FENCED"):
            held.step(Step.ANSWER)
            self._forget(held)
            return
        held.step(Step.RETRY)
        held.reason, held.offset = "uncommitted" if result == "UNCOMMITTED" else "regressed", None

    def _present(self, change: Change) -> Holding | None:
        """The tenure of this change. An older one of the same resource is treated as lost."""
        held = self._touch(change.resource)
        if held is not None and held.token < change.token:
            self._lose(held)
            return None
        return held

    def _add(self, change: Change, state: State) -> None:
        self.highest_token = max(self.highest_token, change.token)
        self._by_name[change.resource] = Holding(change.resource, change.token, change.committed, state)

    def _forget(self, held: Holding) -> None:
        self._touch(held.resource)
        del self._by_name[held.resource]

    def _lose(self, held: Holding) -> None:
        working = held.working
        held.step(Step.LOSE)
        self._forget(held)
        if working:
            self.out.append(act.Abort(held.resource, held.token, "lost"))

    # -- reports from work -----------------------------------------------------------------------------------------

    def begun(self, event: ev.DrainBegun, now: int) -> None:
        """``on_revoked`` runs, so there is no way back. If no deadline was set, it has as long as a handler."""
        held = self.find(event.resource, event.token)
        if held is not None and held.step(Step.BEGIN) is State.CLOSING and held.abort_at is None:
            held.abort_at = now + self._own.max_processing_ms

    def drained(self, event: ev.Drained) -> None:
        """Everything delivered was finished and committed. Ignored once it was given up: others may work it by now."""
        held = self.find(event.resource, event.token)
        if held is None:
            return
        late = held.over
        held.step(Step.FINISH)
        if late:
            return
        held.abort_at = None
        held.reason = ""
        held.delivered, held.acknowledged, held.offset = event.delivered, event.committed, event.offset
        held.effort = event.effort

    def committed(self, resource: str, token: int, offset: int) -> None:
        held = self._touch_tenure(resource, token)
        if held is not None:
            held.committed = offset if held.committed is None else max(offset, held.committed)

    def abandoned(self, event: ev.Abandoned) -> None:
        """It was stopped with work unfinished."""
        held = self.find(event.resource, event.token)
        if held is None:
            return
        late = held.over
        held.step(Step.STOP)
        held.abort_at = None
        if not late:
            is_halted = event.reason.startswith("halted:")  # also if it was already being stopped
            held.reason = event.reason if is_halted else held.reason or event.reason
            held.effort = event.effort

    def guard_changed(self, event: ev.GuardChanged) -> None:
        """A guard counts only while it is proven."""
        held = self.find(event.resource, event.token)
        if held is not None:
            held.guarded = event.proven

    def progressed(self, event: ev.Progressed, now: int) -> None:
        """A handler that is busy for too long is hung, and loses its resource, but not the membership."""
        for sample in event.samples:
            self._check_token(sample.resource, sample.token)
        for sample in event.samples:
            held = self._by_name.get(sample.resource)
            if held is not None and held.token == sample.token and held.working:
                self._sampled(held, sample, now)

    def _sampled(self, held: Holding, sample: ev.Sample, now: int) -> None:
        was_busy, held.busy_since = held.is_busy, sample.busy_since
        if held.is_busy != was_busy:
            self._touch(held.resource)
        if sample.busy_since is not None and now - sample.busy_since >= self._own.max_processing_ms:
            self._hung(held, sample.busy_since, now)

    def _hung(self, held: Holding, busy_since: int, now: int) -> None:
        self._abort(held, "hung", now)
        told_at = busy_since + self._own.max_processing_ms  # in the past, if its worker has stopped it by itself
        patience_ms = self._own.drain_timeout_ms
        held.stop_by = max(told_at + patience_ms, now + min(patience_ms, LAST_MS))
        message = (
            f"the code that works {held.resource!r} has run for {now - busy_since} ms: it is hung, so this process gives up "
            f"{held.resource!r}. It is told to stop, which a thread cannot be; it is released when that has ended, or in "
            f"{held.stop_by - now} ms as an overlap. A longer max_processing_ms lets slower work finish"
        )
        self.out.append(act.Problem("hung", message))

    # -- clocks ----------------------------------------------------------------------------------------------------

    def drain_all(self, abort_at: int) -> None:
        """The process stops: everything has to drain by this time."""
        self._drain_by = abort_at
        for held in self._by_name.values():
            self._touch(held.resource)
            if held.state is State.HELD:
                held.step(Step.REVOKE)
                held.abort_at = abort_at
                self.out.append(act.Drain(held.resource, held.token, abort_at))
            elif held.working:
                was_at, held.abort_at = held.abort_at, min(held.abort_at or abort_at, abort_at)
                self._tell_sooner(held, was_at)

    def _tell_sooner(self, held: Holding, was_at: int | None) -> None:
        """Its work paces itself by the deadline it was given, so it hears of a sooner one."""
        if held.state is State.DRAINING and held.abort_at is not None and was_at is not None and held.abort_at < was_at:
            self.out.append(act.Hasten(held.resource, held.token, held.abort_at))

    def check_deadlines(self, now: int) -> None:
        """Aborts what has passed its deadline, ahead of the coordinator's own; gives up on aborts that never end."""
        for resource in self._filed().take_due(now):
            held = self._touch(resource)
            if held is not None and held.working:
                self._abort(held, "deadline", now)
            elif held is not None:
                self._overlap(held)

    def _overlap(self, held: Holding) -> None:
        """Stops waiting for its work."""
        held.step(Step.STOP)
        message = (
            f"the code that works {held.resource!r} was told to stop ({held.reason}) and has not: {held.resource!r} is given up "
            f"all the same, so another member may work it while that goes on; compare tokens before side effects"
        )
        held.reason = "overlap"
        self.out.append(act.Problem("overlap", message))

    def fence(self, now: int, *, keep_guarded: bool) -> int:
        """The lease is over: aborts what no broker guards, and returns how many that is."""
        index = self._filed()
        doomed = [*index.exposed.values(), *(() if keep_guarded else index.guarded.values())]
        for held in doomed:
            self._abort(held, "fenced", now)
        return len(doomed)

    def _abort(self, held: Holding, reason: act.AbortReason, now: int) -> None:
        self._touch(held.resource)
        held.step(Step.ABORT)
        is_hung = reason == "hung"  # it has already had its max_processing_ms
        patience_ms = self._own.drain_timeout_ms if is_hung else self._own.max_processing_ms
        held.reason, held.abort_at, held.stop_by = reason, None, now + patience_ms
        self.out.append(act.Abort(held.resource, held.token, reason))

    def times(self) -> list[int]:
        """When to check the clocks again."""
        at = self._filed().next_clock()
        return [] if at is None else [at]

    # -- what to send ----------------------------------------------------------------------------------------------

    def take_releases(self, *, park: bool) -> list[ReleaseItem]:
        """Takes what has ended and is to be released now. ``park`` keeps finished ones for the rejoin grace period."""
        index = self._filed()
        if not index.given_up and (park or not index.finished):
            return []
        ended = list(islice(chain(index.given_up.values(), () if park else index.finished.values()), RELEASES_A_CALL))
        for held in ended:
            self._touch(held.resource)
            held.step(Step.SEND)
        return list(map(_item, ended))

    def park(self) -> list[tuple[str, int, int]]:
        """The offsets of ended tenures that are kept for the rejoin grace period: not released, so committed
        separately.
        """
        parked = [(it, it.offset) for it in self._filed().unstored.values() if it.offset is not None]
        for held, offset in parked:
            self._touch(held.resource)
            held.committed, held.offset = offset, None
        return [(held.resource, held.token, offset) for held, offset in parked]

    def news(self) -> list[tuple[str, int, bool]]:
        """Tenures that turned busy or idle since the last report to the coordinator, as many as fit into a call."""
        unreported = islice(self._filed().unreported.values(), NEWS_A_CALL)
        return [(it.resource, it.token, it.is_busy) for it in unreported]

    def received(self, progress: tuple[tuple[str, int, bool], ...]) -> None:
        """The coordinator has received this progress."""
        for resource, token, busy in progress:
            held = self._touch_tenure(resource, token)
            if held is not None:
                held.reported_busy = busy


def _item(held: Holding) -> ReleaseItem:
    return ReleaseItem(
        resource=held.resource,
        token=held.token,
        delivered=held.delivered,
        committed=held.acknowledged,
        offset=held.offset,
        reason=held.reason,
        effort=held.effort,
    )
