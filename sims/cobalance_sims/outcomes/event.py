"""One event as a named tuple, in the order of the columns of :data:`cobalance_sims.records.EVENT`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from cobalance_sims.records import JOURNAL

if TYPE_CHECKING:
    from cobalance.journal import JournalEntry


class Event(NamedTuple):
    """A row of ``EVENT``; a test compares the two."""

    run: str
    source: str
    id: str | None
    seq: int
    kind: str
    at_ms: int
    resource: str | None = None
    member: str | None = None
    token: int | None = None
    handover_id: int | None = None
    deadline_ms: int | None = None
    drain_ms: int | None = None
    committed: int | None = None
    reason: str | None = None
    handled: int | None = None
    busy_ms: int | None = None
    late_ms: int | None = None
    unacked: int | None = None
    silent_since_ms: int | None = None
    alive: bool | None = None
    capacity: int | None = None


def of_entry(entry: JournalEntry, run: str, source: str = JOURNAL, *, shift_ms: int = 0) -> Event:
    """Converts an entry of a journal. ``shift_ms`` is added to its times (idle time that a simulation left out)."""
    deadline = entry.deadline_ms
    return Event(
        run, source, entry.id if source == JOURNAL else None, entry.seq, entry.kind, entry.at_ms + shift_ms,
        entry.resource, entry.member, entry.token, entry.handover_id, deadline + shift_ms if deadline else None,
        entry.drain_ms, entry.committed, entry.reason, entry.handled, entry.busy_ms, entry.late_ms, capacity=entry.capacity,
    )  # fmt: skip
