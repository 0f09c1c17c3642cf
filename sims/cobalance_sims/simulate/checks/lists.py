"""S8, and what S5, S6 and L1 mean where members can work different resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.coordinator.requests import SetResources
from cobalance_sims.simulate.checks.base import Check

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.coordinator.requests import Request
    from cobalance.journal import JournalEntry
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.world import World


def on_record(world: World) -> list[Process]:
    """The processes of members, including those kept for their return."""
    found = (world.of_member(member) for member in world.redis.ledger.members)
    return [process for process in found if process is not None]


def are_mixed(processes: Iterable[Process]) -> bool:
    """Whether they name different resources."""
    return len({process.subscription for process in processes}) > 1


def has_said(process: Process) -> bool:
    """Whether it knows that the group has its list."""
    return not process.session.declaration.times()


def could_work(process: Process, resource: str) -> bool:
    """Whether its list allows the resource; where all lists are the same, the checkers of lists decide that."""
    return not process.world.has_lists or (resource in process.names and has_said(process))


def lessens(world: World, resource: str, giver: str, taker: str, more: int = 0) -> bool:
    """Whether the move would lessen the difference between two members, of which the giver expects ``more``."""
    one, other = world.of_member(giver), world.of_member(taker)
    if one is None or other is None or giver == taker or resource not in other.names:
        return False
    kept, capacity = world.redis.ledger.kept, other.member_settings.capacity
    return (kept[giver] + more) * capacity > (kept[taker] + 1) * one.member_settings.capacity


def why_not_shared(world: World, living: Iterable[str]) -> str:
    """Names a resource that is free or should move, and that a member with a share could work; else empty."""
    workers = [it for it in living if (process := world.of_member(it)) and process.member_settings.capacity]
    workable = {name for it in workers for name in (world.of_member(it) or world.processes[it]).names}
    free = sorted(world.redis.ledger.free & workable)
    if free:
        return f"{free[0]} is free, and somebody could work it"
    for name, it in world.redis.ledger.resources.items():
        taker = next((to for to in workers if it.owner in workers and lessens(world, name, it.owner, to)), None)
        if taker is not None:
            return f"{it.owner} keeps {world.redis.ledger.kept[it.owner]}, and {name} would be better off with {taker}"
    return ""


class S8(Check):
    """A member is never granted, nor left with, a resource that its present declaration does not name.

    A resource that any recorded member names is known, and one that nobody names is dropped, at the latest two
    heartbeats and a second after that began; its offset is kept (S4). The group's own list is the last one declared,
    plus newer ones that are on their way; until there is one, it includes every resource that no other list names.

    Exempt from dropping are a recovery, an eager barrier, and the time until every recorded member has sent its list.
    Everything is judged as of the last call.
    """

    promise = "S8"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._patience_ms = 2 * world.settings.heartbeat_interval_ms + 1_000
        self._known = 0
        """The version that the group certainly has."""
        self._off: dict[str, int] = {}
        """Since when a resource is known and named by nobody, or named and not known."""

    def data_lost(self, known_from: int) -> None:
        """It is unknown which list the group has now."""
        del known_from
        self._known = 0

    def executed(self, process: Process, request: Request, reply: CoordinatorReply) -> None:
        it = request.payload
        if isinstance(it, SetResources) and process.wants is None and reply.results[0] == "DONE":
            self._known = max(it.version, self._known)

    def journal(self, entry: JournalEntry) -> None:
        if entry.kind not in ("granted", "cancelled"):
            return
        process, resource = self.world.of_member(entry.member or ""), entry.resource or ""
        if process is None:
            return
        named = self._own() if process.wants is None else process.wants
        if named is not None and resource not in named:
            self.broken(f"{resource} is {entry.kind} to {entry.member}, whose code does not name it")

    def after_journal(self, entry: JournalEntry) -> None:
        """When the last member that uses the group's own list goes, the list goes, too."""
        if entry.kind in ("left", "expired_member") and all(it.wants is not None for it in on_record(self.world)):
            self._known = 0

    def _own(self) -> set[str] | None:
        if not self._known:
            return None
        lists = {**self.world.lists, self.world.list_version: self.world.resources}
        return {name for version, names in lists.items() if version >= self._known for name in names}

    def second(self) -> None:
        if not self.world.has_lists:
            return
        world, ledger, there = self.world, self.world.redis.ledger, on_record(self.world)
        is_unsure = ledger.recovering or ledger.barrier or not all(has_said(it) for it in there)
        if is_unsure or not there:
            self._off.clear()
            return
        named = {name for it in there for name in it.names}
        known = {name for name, it in ledger.resources.items() if not it.removing}
        self._off = {name: self._off.get(name, world.now) for name in sorted(named ^ known)}
        for name, since in self._off.items():
            if world.redis.heard_at - since > self._patience_ms:
                what = "nobody names it" if name in known else "somebody names it"
                self.broken(f"{name} is {'known' if name in known else 'not known'}, although {what}, since {since} ms")


class S6Lists(Check):
    """Where members name different resources, one is asked back only if that lessens the difference between its holder
    and another member that names it, or if its holder cannot work it, leaves, or is gone.

    A resource on its way to the holder counts as held: room may be made for what cannot be taken from another member.
    Nobody goes on draining for more than a heartbeat and a second if no other member would gain. Exempt is eager mode,
    which stops everything.
    """

    promise = "S6"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._patience_ms = world.settings.heartbeat_interval_ms + 1_000
        self._needless: dict[str, int] = {}
        """Since when a revocation is pending without any use."""

    def second(self) -> None:
        world, ledger = self.world, self.world.redis.ledger
        if not (ledger.pending and world.has_lists) or world.settings.mode == "eager" or ledger.recovering:
            self._needless.clear()
            return
        there = on_record(world)
        needless = [name for name in ledger.pending if are_mixed(there) and self._is_needless(name)]
        self._needless = {name: self._needless.get(name, world.now) for name in needless}
        for name, since in self._needless.items():
            if world.redis.heard_at - since > self._patience_ms:
                self.broken(f"{name} is drained since {since} ms, and nobody who names it would have fewer")

    def _is_needless(self, name: str) -> bool:
        ledger = self.world.redis.ledger
        it = ledger.resources[name]
        holder = self.world.of_member(it.owner)
        if holder is None or it.removing or ledger.members.get(it.owner) != "active" or name not in holder.names:
            return False
        active = [member for member, status in ledger.members.items() if status == "active"]
        return not any(lessens(self.world, name, it.owner, member, 1) for member in active)

    def journal(self, entry: JournalEntry) -> None:
        world, giver, resource = self.world, entry.member or "", entry.resource or ""
        if (
            entry.kind != "revoking"
            or not world.has_lists
            or entry.reason != "rebalance"
            or world.settings.mode == "eager"
        ):
            return
        there, process = on_record(world), world.of_member(giver)
        if process is None or resource not in process.names or not are_mixed(there):
            return
        coming = sum(process.wants is None or name in process.wants for name in world.redis.ledger.pending)
        active = [member for member, status in world.redis.ledger.members.items() if status == "active"]
        if not any(lessens(world, resource, giver, member, coming) for member in active):
            self.broken(f"{resource} is asked back from {giver}, and nobody who names it would have fewer")
