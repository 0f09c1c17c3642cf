"""How resources came to where they are, read from a journal: each with the change that caused it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

import attrs

from cobalance.journal import Gap
from cobalance.ownership import BEGINNINGS, ENDINGS

if TYPE_CHECKING:
    from cobalance.journal import JournalEntry

CAUSES = frozenset(
    {
        "joined",
        "leaving",
        "left",
        "expired_member",
        "graced",
        "added",
        "removing",
        "resumed",
        "incarnation",
        "recovered",
    }
)
"""Kinds of entries after which resources are assigned again."""


TRIED_AGAIN = "tried again"
"""Reason of a ``resumed`` entry, once completed, that ends a pause as it was to end."""

LOST = "lost"
"""Reason of an ``incarnation`` entry, once corrected, after which a former member turned up."""

MOST_CHANGES = 1_000
"""So many of the last are kept, to tell how many of them were one."""


@attrs.define
class Change:
    """A change after which resources were assigned again, and how many tenures began between it and the next."""

    entry: JournalEntry
    moves: int = 0


@attrs.define
class Moves:
    """What a journal says of one resource."""

    begun: JournalEntry | None = None
    """How its present tenure began."""
    begun_after: JournalEntry | None = None
    """The last change before that."""
    ended: JournalEntry | None = None
    """How the tenure before that one ended."""
    revoked: JournalEntry | None = None
    """The revocation that ended it, or that is under way."""
    revoked_after: JournalEntry | None = None
    """The last change before the revocation."""
    halted: JournalEntry | None = None
    resumed: JournalEntry | None = None
    """By which it was worked again after that."""
    count: int = 0
    """How often it began, as far as the journal reaches back."""

    def take(self, entry: JournalEntry, last_change: JournalEntry | None) -> None:
        """Reads one more entry about this resource; `last_change` is that of the group."""
        if entry.kind in BEGINNINGS:
            self.begun, self.begun_after = entry, last_change
            self.halted, self.count = None, self.count + 1
        elif entry.kind == "revoking":
            self.revoked, self.revoked_after = entry, last_change
        elif entry.kind in ENDINGS:
            self.ended, self.resumed = entry, None
        elif entry.kind == "halted":
            self.halted = entry
        elif entry.kind == "resumed":
            self.resumed = entry


class Losses:
    """Tells groups whose data Redis has lost from new ones. The first member to join creates a group that is not there, though
    it may be a former member; so the proof is another one that joins, or claims something, before the group has recovered. A
    loss after which every process was started again looks like a deletion.
    """

    def __init__(self) -> None:
        self.is_proven = False
        """Whether the present incarnation has been found to follow a loss."""
        self._founders: set[str | None] | None = None
        """Who has joined a group that was created, until it has recovered."""

    def take(self, entry: JournalEntry) -> bool:
        """Reads one more entry. Returns whether it is the first to prove a loss."""
        if entry.kind == "incarnation" and entry.reason != "seen":
            self.is_proven, self._founders = False, set() if entry.reason == "created" else None
        is_proof = self._is_proof(entry)
        if entry.kind == "joined" and self._founders is not None:
            self._founders.add(entry.member)
        elif entry.kind in {"granted", "recovered"}:
            self._founders = None
        is_first = is_proof and not self.is_proven
        self.is_proven |= is_proof
        return is_first

    def _is_proof(self, entry: JournalEntry) -> bool:
        if entry.kind == "incarnation":
            return entry.reason != "created"
        if self._founders is None:
            return False
        return entry.kind == "claimed" or (
            entry.kind == "joined" and entry.reason not in {"", "-"} and entry.reason not in self._founders
        )


@attrs.define
class Account:
    """What a journal says of a group, and of one of its resources."""

    resource: str | None = None
    moves: Moves = attrs.Factory(Moves)
    labels: dict[str, str] = attrs.Factory(dict)
    """Member id → host and process id, also of those that are gone."""
    changes: deque[Change] = attrs.field(factory=lambda: deque(maxlen=MOST_CHANGES))
    """The last ones, oldest first."""
    missing: int = 0
    """Entries that are gone."""
    _paused_until: dict[str | None, int | None] = attrs.Factory(dict)
    _losses: Losses = attrs.Factory(Losses)
    _is_new: bool = False
    """Whether the group was created, and has not recovered since."""

    @property
    def last_change(self) -> JournalEntry | None:
        """The last one after which resources were assigned again."""
        return self.changes[-1].entry if self.changes else None

    def graced(self, member: str | None) -> JournalEntry | None:
        """With which this member's place came to be kept."""
        entries = (it.entry for it in reversed(self.changes))
        return next((it for it in entries if it.kind == "graced" and it.member == member), None)

    def last_changes(self, gather_ms: int) -> list[Change]:
        """The last change, and those before it that were one with it: a list has an entry for each name, a member begins to leave
        before it has left, and changes that follow each other closely are gathered.
        """
        changes, first = [*self.changes], len(self.changes) - 1
        leaving = {it.entry.member: at for at, it in enumerate(changes) if it.entry.kind == "leaving"}
        at = first
        while at >= max(first, 1):
            entry, before = changes[at].entry, changes[at - 1].entry
            if is_same_list(entry, before) or entry.at_ms - before.at_ms < gather_ms:
                first = at - 1
            if entry.kind == "left":
                first = min(first, leaving.get(entry.member, first))
            at -= 1
        return changes[max(first, 0) :]

    @classmethod
    def read(cls, entries: Iterable[JournalEntry | Gap], resource: str | None = None) -> Account:
        """Reads a journal from its beginning."""
        account = cls(resource)
        for entry in entries:
            if isinstance(entry, Gap):
                account.missing += entry.missing
            else:
                account.take(entry)
        return account

    def take(self, entry: JournalEntry) -> None:
        """Reads one more entry."""
        if entry.label is not None and entry.member is not None:
            self.labels[entry.member] = entry.label
        entry = self.completed(entry)
        if entry.kind in CAUSES:
            self.changes.append(Change(entry))
        elif entry.kind in BEGINNINGS and self.changes:
            self.changes[-1].moves += 1
        if entry.resource is not None and entry.resource == self.resource:
            after = self._beginning if entry.kind == "claimed" else None
            self.moves.take(entry, after.entry if after else self.last_change)

    def completed(self, entry: JournalEntry) -> JournalEntry:
        """The next entry; that a group has recovered with the reason "created" if there was nothing to recover, and that a
        resource was resumed with that it is tried again if its pause was over.
        """
        if entry.kind == "halted":
            self._paused_until[entry.resource] = entry.deadline_ms
        elif entry.kind == "removed":
            self._paused_until.pop(entry.resource, None)
        elif entry.kind == "resumed":
            until = self._paused_until.pop(entry.resource, None)
            return attrs.evolve(entry, reason=TRIED_AGAIN) if until and entry.at_ms >= until else entry
        if self._losses.take(entry):  # what looked like a new group has lost its data
            beginning = self._beginning
            if beginning is not None:
                beginning.entry = attrs.evolve(beginning.entry, reason=LOST)
        if entry.kind == "incarnation":
            self._is_new = entry.reason == "created"
        elif entry.kind == "recovered" and self._is_new:
            self._is_new = False
            return entry if self._losses.is_proven else attrs.evolve(entry, reason="created")
        return entry

    @property
    def _beginning(self) -> Change | None:
        return next((it for it in reversed(self.changes) if it.entry.kind == "incarnation"), None)


def is_same_list(entry: JournalEntry, last: JournalEntry | None) -> bool:
    """Whether this goes on with the last change: a list is one change, with an entry for each name."""
    return last is not None and entry.kind == last.kind and entry.kind in {"added", "removing"}
