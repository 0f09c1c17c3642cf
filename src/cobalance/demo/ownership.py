"""Who holds what, replayed from the journal."""

from __future__ import annotations

from collections import Counter

import attrs

from cobalance.journal import JournalEntry

ENDS = frozenset({"released", "abandoned", "forced", "expired", "inherited", "withdrawn"})
"""The kinds of entries that end a tenure."""


@attrs.define
class Tenure:
    """One member's hold on one resource."""

    resource: str
    member: str
    token: int
    began_seq: int
    ended_seq: int | None = None
    ended_by: str = ""
    """released, expired, forced, abandoned, …; empty while it lasts."""
    interrupted: bool = False
    """It was asked for, whether or not it was given up in the end."""

    @property
    def planned_end(self) -> bool:
        """It was drained and handed over, not taken."""
        return self.ended_by == "released"


@attrs.define
class Ownership:
    """The state after the entries applied so far."""

    members: set[str] = attrs.field(factory=set)
    """Active ones; who is leaving is not counted any more."""
    present: dict[str, Tenure] = attrs.field(factory=dict)
    pending: dict[str, int] = attrs.field(factory=dict)
    """Resources asked back, and since when (ms, group's clock)."""
    tenures: list[Tenure] = attrs.field(factory=list)
    """All of them, in the order of their beginning; those that nobody ever heard of are left out."""
    seq: int = 0
    at_ms: int = 0

    def apply(self, entry: JournalEntry) -> None:
        """Takes the next entry."""
        self.seq, self.at_ms = entry.seq, entry.at_ms
        if entry.kind in {"granted", "claimed"}:
            self._begin(entry)
        elif entry.kind in ENDS:
            self._end(entry)
        elif entry.kind == "repaired":
            self._mend(entry)
        elif entry.kind == "revoking":
            self._ask_back(entry)
        elif entry.kind == "cancelled":
            self._keep(entry)
        elif entry.kind == "joined":
            self.members.add(entry.member or "")
        elif entry.kind in {"leaving", "left", "expired_member"}:
            self.members.discard(entry.member or "")

    @property
    def owners(self) -> dict[str, str]:
        """Resource → member."""
        return {resource: tenure.member for resource, tenure in self.present.items()}

    def is_even(self, resources: int, members: int) -> bool:
        """Whether so many members hold so many resources, evenly within one, and nothing is on its way."""
        held = Counter(self.owners.values())
        loads = [held[member] for member in self.members]
        return (
            len(self.members) == members
            and set(held) <= self.members
            and len(self.present) == resources
            and not self.pending
            and max(loads) - min(loads) <= 1
        )

    def _mend(self, entry: JournalEntry) -> None:
        """So it is on record, whatever a script wrote into the journal before it died."""
        status = entry.reason.partition(" ")[0]
        if entry.resource is not None:
            tenure = self.present.get(entry.resource)
            if tenure is not None and (tenure.member, tenure.token) != (entry.member, entry.token):
                self._end(entry)
            if status in {"granted", "held", "pending"} and entry.resource not in self.present:
                self._begin(entry)
            if status == "pending":
                self._ask_back(entry)
            else:
                self.pending.pop(entry.resource, None)
        elif entry.member is not None:
            (self.members.add if status in {"active", "graced"} else self.members.discard)(entry.member)

    def _begin(self, entry: JournalEntry) -> None:
        tenure = Tenure(entry.resource or "", entry.member or "", entry.token or 0, entry.seq)
        self.present[tenure.resource] = tenure
        self.pending.pop(tenure.resource, None)
        self.tenures.append(tenure)

    def _end(self, entry: JournalEntry) -> None:
        tenure = self.present.pop(entry.resource or "")
        self.pending.pop(tenure.resource, None)
        tenure.ended_seq, tenure.ended_by = entry.seq, entry.kind
        if entry.kind == "withdrawn":
            self.tenures.remove(tenure)

    def _ask_back(self, entry: JournalEntry) -> None:
        self.pending[entry.resource or ""] = entry.at_ms
        self.present[entry.resource or ""].interrupted = True

    def _keep(self, entry: JournalEntry) -> None:
        self.pending.pop(entry.resource or "", None)
