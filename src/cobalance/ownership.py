"""Who owns what, replayed from the journal. Used by the demo, the simulator's checkers, chaos and reports.

It is not a model of the protocol: it decides nothing and rejects nothing.
"""

from __future__ import annotations

from collections import Counter

import attrs

from cobalance.journal import JournalEntry

ENDINGS = frozenset({"released", "abandoned", "forced", "expired", "inherited", "withdrawn"})
"""Kinds of journal entries that end a tenure."""

BEGINNINGS = frozenset({"granted", "claimed"})
"""Kinds of journal entries that begin one."""

CUT_SHORT = frozenset({"forced", "abandoned"})
"""Ends of a tenure whose drain did not finish."""

_KINDS = {"active": "joined", "leaving": "leaving", "graced": "graced"}
"""The entry that would have given a member the status named by a repair."""


@attrs.define
class Standing:
    """The state of one resource."""

    owner: str = ""
    """Member id; empty if it is free."""
    token: int = 0
    since: int = 0
    """When it became owned or free: the ``now`` of that entry."""
    pending_since: int | None = None
    removing: bool = False
    halted: bool = False
    """Not assigned until an operator resumes it, …"""
    paused: bool = False
    """… or until a pause is over."""


@attrs.define
class Ownership:
    """All resources and members of the group."""

    resources: dict[str, Standing] = attrs.Factory(dict)
    free: set[str] = attrs.Factory(set)
    pending: dict[str, int] = attrs.Factory(dict)
    """Resource → since when its revocation has been pending."""
    members: dict[str, str] = attrs.Factory(dict)
    """Member id → active, leaving or graced."""
    kept: Counter[str] = attrs.Factory(Counter)
    """Member id → resources owned and not pending."""
    recovering: bool = False
    barrier: bool = False

    def copy(self) -> Ownership:
        resources = {name: attrs.evolve(it) for name, it in self.resources.items()}
        return Ownership(
            resources,
            set(self.free),
            dict(self.pending),
            dict(self.members),
            Counter(self.kept),
            self.recovering,
            self.barrier,
        )

    def apply(self, entry: JournalEntry, now: int) -> None:
        """Takes the next entry, written at ``now`` on any clock of the caller's choice."""
        if entry.resource is not None:
            self._apply_resource(entry, entry.resource, now)
        elif entry.member is not None:
            self._apply_member(
                _KINDS.get(entry.reason, "left") if entry.kind == "repaired" else entry.kind, entry.member
            )
        else:
            self._apply_group(entry)

    def _apply_group(self, entry: JournalEntry) -> None:
        if entry.kind == "incarnation" and entry.reason != "seen":
            self.recovering = True
            if entry.reason == "created":  # whatever was on record is gone
                self._forget()
        elif entry.kind == "recovered":
            self.recovering = False
        elif entry.kind == "barrier":
            self.barrier = True
        elif entry.kind == "repaired":
            self.recovering, self.barrier = "recovering" in entry.reason, "barrier" in entry.reason

    def _forget(self) -> None:
        for record in (self.resources, self.free, self.pending, self.members, self.kept):
            record.clear()

    def _apply_member(self, kind: str, member: str) -> None:
        if kind == "joined":
            self.members[member] = "active"
        elif kind == "leaving":
            self.members[member] = "leaving"
        elif kind == "graced":
            self.members[member] = "graced"
        elif kind in ("left", "expired_member"):
            self.members.pop(member, None)

    def _apply_resource(self, entry: JournalEntry, name: str, now: int) -> None:
        kind, it = entry.kind, self._standing(entry.kind, name, now)
        if it is None:
            return
        if kind in ("added", "removing"):
            it.removing = kind == "removing"
        elif kind in BEGINNINGS:
            if kind == "granted":  # never before it has recovered (if it had to), nor behind a barrier
                self.recovering = self.barrier = False
            self._own(name, it, entry, now)
        elif kind == "revoking":
            self._suspend(name, it, now)
        elif kind == "cancelled":
            self._resume(name, it)
        elif kind in ENDINGS:
            self._end(name, it, now)
        else:
            self._apply_rare(entry, name, it, now)

    def _apply_rare(self, entry: JournalEntry, name: str, it: Standing, now: int) -> None:
        if entry.kind in ("halted", "resumed"):
            it.halted, it.since = entry.kind == "halted", now
            it.paused = it.halted and entry.reason == "paused"
            (self.free.discard if it.halted else self.free.add)(name)
        elif entry.kind == "reset":
            it.token = entry.token or it.token
        elif entry.kind == "repaired":
            self._mend(entry, name, it, now)
        elif entry.kind == "removed":
            del self.resources[name]
            self.free.discard(name)

    def _mend(self, entry: JournalEntry, name: str, it: Standing, now: int) -> None:
        """Adopts the recorded status, whatever a script wrote into the journal before it died."""
        status = entry.reason.split(" ")[0]
        self._end(name, it, now)
        it.removing, it.halted, it.token = "removing" in entry.reason, status == "halted", entry.token or it.token
        if status in ("granted", "held", "pending"):
            self._own(name, it, entry, now)
        if status == "pending":
            self._suspend(name, it, now)
        if status == "gone":
            del self.resources[name]
        (self.free.add if status == "free" else self.free.discard)(name)

    def _standing(self, kind: str, name: str, now: int) -> Standing | None:
        if name not in self.resources and kind in BEGINNINGS | {"added", "repaired"}:
            self.resources[name] = Standing(since=now)
            self.free.add(name)
        return self.resources.get(name)

    def _own(self, name: str, it: Standing, entry: JournalEntry, now: int) -> None:
        self._end(name, it, now)
        it.owner, it.token, it.since = entry.member or "", entry.token or 0, now
        self.kept[it.owner] += 1
        self.free.discard(name)

    def _suspend(self, name: str, it: Standing, now: int) -> None:
        it.pending_since = self.pending[name] = now
        self.kept[it.owner] -= 1

    def _resume(self, name: str, it: Standing) -> None:
        it.pending_since = None
        self.pending.pop(name, None)
        self.kept[it.owner] += 1

    def _end(self, name: str, it: Standing, now: int) -> None:
        if not it.owner:
            return
        if it.pending_since is None:
            self.kept[it.owner] -= 1
        if not self.kept[it.owner]:
            del self.kept[it.owner]
        it.owner, it.pending_since, it.since = "", None, now
        self.pending.pop(name, None)
        self.free.add(name)
