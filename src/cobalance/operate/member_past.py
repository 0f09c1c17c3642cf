"""What a journal says of members: since when each was there, how it ended, and what it got done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cobalance.ownership import BEGINNINGS, CUT_SHORT, ENDINGS

if TYPE_CHECKING:
    from cobalance.journal import JournalEntry

_DEPARTURES = frozenset({"left", "expired_member"})


@attrs.define
class MemberPast:
    """One member. What it got done is known of tenures that ended and were reported: a crash takes the rest along."""

    joined_ms: int | None = None
    """In group time; None if the journal does not reach back so far."""
    ended: JournalEntry | None = None
    """How its membership ended; None while it lasts."""
    seen_ms: int = 0
    """Since when the journal says nothing of it."""
    begun: int = 0
    """Tenures that began."""
    finished: int = 0
    """Tenures that ended, however they did."""
    cut_short: int = 0
    """Of these, those that were ended by force or given up."""
    handled: int | None = None
    """How often its handlers ran; None if that was never reported."""
    busy_ms: int | None = None
    """The total running time of its handlers."""
    late_ms: int | None = None
    """By how much a heartbeat was late at most."""

    def take(self, entry: JournalEntry) -> None:
        """Reads one more entry about this member."""
        self.seen_ms = entry.at_ms
        if entry.kind == "joined":
            self.joined_ms, self.ended = entry.at_ms, None
        elif entry.kind in _DEPARTURES:
            self.ended = entry
        elif entry.kind in BEGINNINGS:
            self.begun += 1
        elif entry.kind in ENDINGS:
            self.finished += 1
            self.cut_short += entry.kind in CUT_SHORT
        self._take_effort(entry)

    def _take_effort(self, entry: JournalEntry) -> None:
        if entry.handled is not None:
            self.handled = (self.handled or 0) + entry.handled
        if entry.busy_ms is not None:
            self.busy_ms = (self.busy_ms or 0) + entry.busy_ms
        if entry.late_ms is not None:
            self.late_ms = max(self.late_ms or 0, entry.late_ms)
