"""The result of one run of a story, real or simulated: the evidence, from which the same code computes the figures."""

from __future__ import annotations

import attrs

from cobalance.journal import JournalEntry
from cobalance_sims.outcomes import Event, of_entry
from proof.fidelity.story import Incident

LATE_MS = 1_000
"""A session may end this long after its frozen process resumes: its first requests are still on their way."""


@attrs.frozen
class ProcessSilence:
    """A process was killed, or frozen."""

    process: str
    """The prefix of its members' ids."""
    since_ms: float
    until_ms: float
    """Infinite for a killed one."""
    alive: bool


@attrs.frozen
class TenureCallback:
    """User code was notified that a tenure has begun (``on_assigned``), or ends (``on_revoked``)."""

    at_ms: float
    partition: int
    token: int
    begins: bool


@attrs.frozen(kw_only=True)
class Telling:
    """All times are of the group's clock."""

    source: str
    begun_at_ms: float
    ended_at_ms: float
    entries: tuple[JournalEntry, ...]
    steps: tuple[Incident, ...]
    """What happened, and when it really did. Founders' joins are included; a member joins, and begins to leave, when
    the coordinator learns of it.
    """
    silences: tuple[ProcessSilence, ...]
    turns: tuple[TenureCallback, ...]
    handled: tuple[tuple[int, int], ...]
    """Partition and number of each message that a handler started on, as often as it did."""

    def events(self) -> list[Event]:
        """The journal up to the end of the story, completed with what is known of silent members."""
        return [
            self._annotated(of_entry(entry, "truth", self.source))
            for entry in self.entries
            if entry.at_ms <= self.ended_at_ms
        ]

    def _annotated(self, event: Event) -> Event:
        if event.kind not in ("expired_member", "expired"):
            return event
        for it in self.silences:
            is_its = (event.member or "").startswith(it.process + ".")
            if is_its and it.since_ms <= event.at_ms <= it.until_ms + LATE_MS:
                return event._replace(silent_since_ms=round(it.since_ms), alive=it.alive)
        return event


def partition_number(resource: str) -> int:
    """The number in the name of a partition queue."""
    return int(resource.rpartition("-")[2])
