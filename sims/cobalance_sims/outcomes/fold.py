"""The fold: one pass over the events of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import attrs

from cobalance.ownership import BEGINNINGS, ENDINGS
from cobalance.settings import STORED_NAMES
from cobalance_sims.outcomes import tenures
from cobalance_sims.outcomes.crashes import UNSAID, Crashes
from cobalance_sims.outcomes.evenness import Evenness
from cobalance_sims.outcomes.event import Event
from cobalance_sims.outcomes.repairs import undone
from cobalance_sims.outcomes.tally import Tally
from cobalance_sims.outcomes.tenures import Seat
from cobalance_sims.records import HANDOVER, OUTCOME

NOBODY = frozenset({None, "", "-"})
"""How a journal writes "no member"."""

UNDONE = "undone"
"""Replaces the kind of an event that a repair took back."""


@attrs.frozen
class RunFacts:
    """What is known of a run besides its events."""

    begun_at_ms: int | None = None
    """Start and end of the observation, on the group's clock; by default the times of the first and last event."""
    ended_at_ms: int | None = None
    header: Mapping[str, Any] = attrs.Factory(dict)
    """Columns of the outcome that no event shows (settings, churn, seed, status …); they override counted ones."""


@attrs.frozen
class Folded:
    """The result: rows in the order of their columns."""

    handovers: list[tuple[Any, ...]]
    outcome: tuple[Any, ...]

    def outcome_dict(self) -> dict[str, Any]:
        """The outcome as column → value, for people and for tests."""
        return dict(zip(OUTCOME.names, self.outcome, strict=True))

    def handover_dicts(self) -> list[dict[str, Any]]:
        """The handovers as column → value."""
        return [dict(zip(HANDOVER.names, row, strict=True)) for row in self.handovers]


def fold(events: Iterable[Event], run: str, source: str, known: RunFacts | None = None) -> Folded:
    """Returns the handovers of one run, in the order in which they were completed, and its outcome.

    Args:
        events: of one run, in order of ``seq``; rows of ``EVENT`` also work as :class:`Event`.
        run: written into every row, as is ``source``.
        known: what the events do not show.
    """
    known, events = known or RunFacts(), list(events)
    it, gone = Fold(known.begun_at_ms), undone(events)
    for event in events:
        it.take(event._replace(kind=UNDONE) if event.seq in gone else event)
    handovers, outcome = it.close(known)
    width = HANDOVER.names
    rows = [tuple([row.get(name) for name in width]) for row in handovers]
    return Folded(rows, OUTCOME.row({"run": run, "source": source, **outcome}))


class Fold:
    """The state between two events."""

    def __init__(self, begun_at_ms: int | None = None) -> None:
        self._now = self._begun_at = begun_at_ms
        self._with_members_ms = 0
        self._last_seq: int | None = None
        self._recovering = False
        self._seats: dict[str, Seat] = {}
        self._members: dict[str, str] = {}
        self._had: dict[str, set[str]] = {}
        self._charged: dict[str, int] = {}
        self._settings: dict[str, Any] = {}
        self._rows: list[dict[str, Any]] = []
        self._even, self._crashes, self._tally = Evenness(), Crashes(), Tally()

    # -- one event -----------------------------------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """Processes the next event. A gap row (from the journal's reader) is ignored: the next seq shows the gap."""
        if event.kind == "gap":
            return
        self._pass_time(event.at_ms)
        self._check_seq(event)
        self._tally.counts["observed_events"] += 1
        self._tally.saw(event.kind)
        handler = self._HANDLERS.get(event.kind)
        if handler is not None:
            handler(self, event)

    def _pass_time(self, at: int) -> None:
        if self._now is None:
            self._now = self._begun_at = at
        ms = at - self._now
        if ms <= 0:
            return
        self._now = at
        members = len(self._members)
        if members:
            self._with_members_ms += ms
            self._tally.member_ms += members * ms
            if self._even.total > 0 and not self._recovering:
                self._tally.shared_ms += ms
                self._tally.uneven_ms += ms * self._even.unevenness

    def _check_seq(self, event: Event) -> None:
        last, self._last_seq = self._last_seq, event.seq
        if last is not None and event.seq > last + 1 and event.kind != "incarnation":
            self._tally.counts["missing_events"] += event.seq - last - 1
            self._forget()

    def _forget(self) -> None:
        """Events are missing: from here, only what is seen again counts."""
        for seat in self._seats.values():
            self._close_handover(seat)
            seat.revoking_at = seat.held_at = seat.free_since_ms = None
        for member in [it for it in self._members if not self._had.get(it)]:
            self._remove_member(member)

    # -- members -------------------------------------------------------------------------------------------------------

    def _joined(self, event: Event) -> None:
        member, previous = event.member or "", event.reason
        self._members[member] = "active"
        self._even.join(member, 1 if event.capacity is None else event.capacity)
        is_heir = previous in self._members
        if previous in NOBODY:
            self._tally.counts["joins"] += 1
        else:
            self._crashes.came_back(previous or "")
        charge = 0 if is_heir or self._recovering else self._even.share_of(member)
        self._charged[member] = charge
        self._tally.counts["minimum_moves"] += charge

    def _leaving(self, event: Event) -> None:
        member = event.member or ""
        self._meet(member)
        self._members[member] = "leaving"
        self._tally.counts["minimum_moves"] += self._even.held_by(member)
        self._even.suspend(member)

    def _left(self, event: Event) -> None:
        self._tally.counts["leaves"] += event.reason in ("left", None, "")
        self._remove_member(event.member or "")

    def _graced(self, event: Event) -> None:
        member = event.member or ""
        self._meet(member)
        self._members[member] = "graced"
        self._tally.counts["leaves"] += event.reason == "left"
        if event.reason in UNSAID:
            self._crashes.expired(event, self._had.get(member, set()))

    def _expired_member(self, event: Event) -> None:
        member = event.member or ""
        if self._members.get(member) != "leaving":
            self._tally.counts["minimum_moves"] += self._even.held_by(member)
        if event.reason != "grace":
            self._crashes.expired(event, self._had.get(member, set()))
        self._remove_member(member)

    def _remove_member(self, member: str) -> None:
        self._members.pop(member, None)
        self._charged.pop(member, None)
        self._even.drop(member)

    def _meet(self, member: str) -> None:
        """Adds a member whose join was not seen because the journal began later."""
        if member not in self._members:
            self._members[member] = "active"
            self._even.join(member, 1)

    # -- the group -----------------------------------------------------------------------------------------------------

    def _incarnation(self, event: Event) -> None:
        if event.reason == "seen":
            return
        is_first = event.reason == "created" and not self._members
        self._tally.counts["incarnations"] += not is_first
        self._recovering = event.reason != "created"
        for member in list(self._members):
            self._remove_member(member)

    def _recovered(self, _: Event) -> None:
        self._recovering = False

    def _configured(self, event: Event) -> None:
        words = (event.reason or "").split()
        stored = dict(zip(words[::2], words[1::2], strict=False))
        for name, short in STORED_NAMES.items():
            if short in stored and name in OUTCOME.names:
                self._settings[name] = stored[short] if name == "mode" else int(stored[short])

    # -- resources -----------------------------------------------------------------------------------------------------

    def _seat(self, event: Event) -> Seat:
        seat = self._seats.get(event.resource or "")
        if seat is None:
            seat = self._seats[event.resource or ""] = Seat()
            self._even.count(1)
        return seat

    def _added(self, event: Event) -> None:
        seat = self._seat(event)
        if seat.is_removing:
            seat.is_removing = False
            self._even.count(1)
        if seat.owner and event.member in NOBODY:  # Redis forgot that it was held
            self._vacate(event.resource or "", seat)

    def _removing(self, event: Event) -> None:
        seat = self._seat(event)
        if not seat.is_removing:
            seat.is_removing = True
            self._even.count(0 if seat.is_halted else -1)

    def _removed(self, event: Event) -> None:
        name = event.resource or ""
        seat = self._seats.pop(name, None)
        if seat is None:
            return
        self._even.count(0 if seat.is_removing or seat.is_halted else -1)
        self._close_handover(seat)
        self._vacate(name, seat)
        self._count_unowned(seat)
        self._count_owned_life(seat)
        self._crashes.owned_again(name, event.at_ms)

    def _owned(self, event: Event) -> None:
        """The resource was granted or claimed."""
        name, member = event.resource or "", event.member or ""
        seat = self._seat(event)
        self._vacate(name, seat)
        self._meet(member)
        self._count_unowned(seat)
        seat.owner, seat.token, seat.held_at, seat.revoking_at = member, event.token or 0, event.at_ms, None
        if seat.first_owned_at is None:
            seat.first_owned_at = event.at_ms
        self._even.hold(member, 1)
        self._had.setdefault(member, set()).add(name)
        self._crashes.owned_again(name, event.at_ms)
        if seat.open is not None:
            row, seat.open = tenures.taken(seat.open, member, event.at_ms), None
            self._tally.taken(row)
            self._rows.append(row)
            if row["how"] == "inherited":
                self._tally.counts["minimum_moves"] -= self._charged.pop(member, 0)

    def _revoking(self, event: Event) -> None:
        seat = self._reseat(event)
        seat.revoking_at = event.at_ms

    def _cancelled(self, event: Event) -> None:
        seat = self._reseat(event)
        row = tenures.cancelled(event, seat)
        self._rows.append(row)
        self._tally.counts["draining_resource_ms"] += row["drain_ms"] or 0
        seat.revoking_at = None

    def _ended(self, event: Event) -> None:
        """The tenure was released, abandoned, forced, expired, inherited or withdrawn."""
        seat = self._reseat(event)
        self._close_handover(seat)
        row = seat.open = tenures.ended(event, seat)
        if event.kind == "expired":
            row["false_expiry"] = self._crashes.was_false(event.member)
        self._tally.ended(row)
        self._vacate(event.resource or "", seat)
        if not seat.is_removing:
            seat.free_since_ms = self._with_members_ms

    def _halted(self, event: Event) -> None:
        seat = self._seat(event)
        self._vacate(event.resource or "", seat)
        seat.free_since_ms = None
        if not seat.is_halted:
            seat.is_halted = True
            self._even.count(-1)

    def _resumed(self, event: Event) -> None:
        seat = self._seat(event)
        seat.free_since_ms = self._with_members_ms if seat.first_owned_at is not None else None
        if seat.is_halted:
            seat.is_halted = False
            self._even.count(1)

    def _repaired(self, event: Event) -> None:
        """A repair shows the recorded state. Events that a script reported but did not carry out are not among the
        events. A journal that began later learns from it.
        """
        status = (event.reason or "").split(" ")[0]
        if event.resource is not None and status in ("granted", "held", "pending"):
            self._reseat(event)
        elif event.resource is None and event.member is None:
            self._recovering = "recovering" in (event.reason or "")

    def _refused(self, event: Event) -> None:
        self._crashes.came_back(event.member or "")

    # -- one seat --------------------------------------------------------------------------------------------------------

    def _reseat(self, event: Event) -> Seat:
        """The seat as this event shows it: a journal that began later, or lost something, knows no better."""
        seat = self._seat(event)
        member, token = event.member or "", event.token or 0
        if (seat.owner, seat.token) != (member, token):
            self._vacate(event.resource or "", seat)
            self._count_unowned(seat)
            if event.kind not in ("expired", "repaired"):  # the member is gone by now, or may be
                self._meet(member)
            seat.owner, seat.token, seat.held_at, seat.revoking_at = member, token, None, None
            if seat.first_owned_at is None:
                seat.first_owned_at = event.at_ms
            self._even.hold(member, 1)
            self._had.setdefault(member, set()).add(event.resource or "")
        return seat

    def _vacate(self, name: str, seat: Seat) -> None:
        if seat.owner:
            self._even.hold(seat.owner, -1)
            self._had[seat.owner].discard(name)
            if not self._had[seat.owner]:
                del self._had[seat.owner]
        seat.owner, seat.held_at, seat.revoking_at = "", None, None

    def _count_unowned(self, seat: Seat) -> None:
        if seat.free_since_ms is not None:
            self._tally.counts["unowned_resource_ms"] += self._with_members_ms - seat.free_since_ms
        seat.free_since_ms = None

    def _count_owned_life(self, seat: Seat) -> None:
        if seat.first_owned_at is not None and self._now is not None:
            self._tally.resource_ms += self._now - seat.first_owned_at

    def _close_handover(self, seat: Seat) -> None:
        """Closes a handover that nobody took within the observation."""
        if seat.open is not None:
            self._rows.append(seat.open)
            seat.open = None

    # -- the end -----------------------------------------------------------------------------------------------------------

    def close(self, known: RunFacts) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Returns the rows of the handovers and the columns of the outcome."""
        if known.ended_at_ms is not None:
            self._pass_time(known.ended_at_ms)
        for seat in self._seats.values():
            self._close_handover(seat)
            self._count_unowned(seat)
            self._count_owned_life(seat)
            if seat.revoking_at is not None and self._now is not None:
                self._tally.counts["draining_resource_ms"] += self._now - seat.revoking_at
        for row in self._rows:
            if row["how"] == "expired" and row["false_expiry"] is None:
                row["false_expiry"] = self._crashes.was_false(row["giver"])
        observed = (self._now or 0) - (self._begun_at or 0)
        return self._rows, self._tally.outcome(
            {**self._settings, **known.header}, self._crashes, observed, self._now or 0
        )

    # -- handlers by kind of event -------------------------------------------------------------------------------------

    _HANDLERS: ClassVar[dict[str, Callable[[Fold, Event], None]]] = {
        "joined": _joined,
        "leaving": _leaving,
        "left": _left,
        "graced": _graced,
        "expired_member": _expired_member,
        "incarnation": _incarnation,
        "recovered": _recovered,
        "configured": _configured,
        "added": _added,
        "removing": _removing,
        "removed": _removed,
        "revoking": _revoking,
        "cancelled": _cancelled,
        "halted": _halted,
        "resumed": _resumed,
        "refused": _refused,
        "repaired": _repaired,
        **dict.fromkeys(BEGINNINGS, _owned),
        **dict.fromkeys(ENDINGS, _ended),
    }
    """Coordinator and barrier change nothing here; a reset raises the token of a resource that nobody holds."""
