"""The tenures of a group, from its journal."""

from __future__ import annotations

from collections import Counter

import attrs

from cobalance.journal import JournalEntry
from cobalance.ownership import Ownership


@attrs.define
class ObservedTenure:
    """One member's hold on one resource."""

    resource: str
    member: str
    token: int
    began_seq: int
    ended_seq: int | None = None
    ended_by: str = ""
    """released, expired, forced, abandoned, …; empty while it lasts."""
    interrupted: bool = False
    """It was asked back, even if it was kept in the end."""

    @property
    def planned_end(self) -> bool:
        """Whether it was drained and handed over, not taken."""
        return self.ended_by == "released"


@attrs.define
class Tenures:
    """All tenures in the entries applied so far, and who owns what after them."""

    ownership: Ownership = attrs.field(factory=Ownership)
    tenures: list[ObservedTenure] = attrs.field(factory=list)
    """In the order of their start, without those that were withdrawn before anyone heard of them."""
    seq: int = 0
    at_ms: int = 0
    _present: dict[str, ObservedTenure] = attrs.field(factory=dict)

    def apply(self, entry: JournalEntry) -> None:
        self.seq, self.at_ms = entry.seq, entry.at_ms
        self.ownership.apply(entry, entry.at_ms)
        if entry.resource is not None:
            self._compare(entry, entry.resource)

    @property
    def members(self) -> set[str]:
        """Active members; a leaving member no longer counts."""
        return {member for member, status in self.ownership.members.items() if status != "leaving"}

    @property
    def owners(self) -> dict[str, str]:
        """Resource → member."""
        return {resource: tenure.member for resource, tenure in self._present.items()}

    @property
    def pending(self) -> dict[str, int]:
        """Resource → since when it has been pending revocation (ms, group time)."""
        return self.ownership.pending

    def is_settled(self, resources: int, members: int) -> bool:
        """Whether this many members hold this many resources, evenly within one, with nothing in transition."""
        held, active = Counter(self.owners.values()), self.members
        loads = [held[member] for member in active]
        return (
            len(active) == members == len(self.ownership.members)  # nobody is leaving, which would start another change
            and set(held) <= active
            and len(self._present) == resources
            and not self.pending
            and max(loads) - min(loads) <= 1
        )

    def _compare(self, entry: JournalEntry, resource: str) -> None:
        tenure, state = self._present.get(resource), self.ownership.resources.get(resource)
        owner, token = (state.owner, state.token) if state is not None else ("", 0)
        if tenure is not None and (tenure.member, tenure.token) != (owner, token):
            self._end(tenure, entry)
        if owner and resource not in self._present:
            self._present[resource] = ObservedTenure(resource, owner, token, entry.seq)
            self.tenures.append(self._present[resource])
        if resource in self.pending:
            self._present[resource].interrupted = True

    def _end(self, tenure: ObservedTenure, entry: JournalEntry) -> None:
        del self._present[tenure.resource]
        tenure.ended_seq, tenure.ended_by = entry.seq, entry.kind
        if entry.kind == "withdrawn":
            self.tenures.remove(tenure)
