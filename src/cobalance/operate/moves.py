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
"""Kinds of entries after which resources are dealt anew."""


TRIED_AGAIN = "tried again"
"""Reason of a ``resumed`` entry, once completed, that ends a pause as it was to end."""

MOST_CHANGES = 1_000
"""So many of the last are kept, to tell how many of them were one."""


@attrs.define
class Change:
    """A change after which resources were dealt anew, and how many tenures began between it and the next."""

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
            self.ended = entry
        elif entry.kind == "halted":
            self.halted = entry


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
    is_new: bool = False
    """Whether the group was created, and has not recovered since: so far, no member has said that it held anything."""

    @property
    def last_change(self) -> JournalEntry | None:
        """The last one after which resources were dealt anew."""
        return self.changes[-1].entry if self.changes else None

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
            self.moves.take(entry, self.last_change)

    def completed(self, entry: JournalEntry) -> JournalEntry:
        """The next entry; that a group has recovered with the reason "created" if there was nothing to recover, and that a
        resource was resumed with that it is tried again if its pause was over.
        """
        if entry.kind == "halted":
            self._paused_until[entry.resource] = entry.deadline_ms
        elif entry.kind == "resumed":
            until = self._paused_until.pop(entry.resource, None)
            return attrs.evolve(entry, reason=TRIED_AGAIN) if until and entry.at_ms >= until else entry
        if entry.kind in {"incarnation", "claimed"}:
            self.is_new = entry.reason == "created"
        elif entry.kind == "recovered" and self.is_new:
            self.is_new = False
            return attrs.evolve(entry, reason="created")
        return entry


def is_same_list(entry: JournalEntry, last: JournalEntry | None) -> bool:
    """Whether this goes on with the last change: a list is one change, with an entry for each name."""
    return last is not None and entry.kind == last.kind and entry.kind in {"added", "removing"}
