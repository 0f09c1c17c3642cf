"""S5 and S6: everything is held, evenly, and only what must move does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cobalance_sims.simulate.checks.base import Check
from cobalance_sims.simulate.checks.in_a_row import AVOIDED_SESSIONS
from cobalance_sims.simulate.checks.lists import are_mixed, could_work, on_record, why_not_shared

if TYPE_CHECKING:
    from cobalance.journal import JournalEntry
    from cobalance.member import actions as act
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.world import World


def retained(kept: Mapping[str, int], total: int, members: int) -> int:
    """Returns how many resources may stay with members of equal capacity when ``total`` is shared evenly among
    ``members`` of them, including those in ``kept``.
    """
    if members == 0:
        return 0
    low, extras = divmod(total, members)
    above = sum(1 for count in kept.values() if count > low)
    return sum(min(count, low) for count in kept.values()) + min(extras, above)


class S5(Check):
    """Every resource is held, pending, graced, claimed or about to be granted while any member lives; none is held by a
    non-member.

    About to be granted: nothing stays free for longer than two heartbeats and a second while there is a member with
    capacity whose list names it. Exempt are an eager barrier, during which nothing is granted, and the one session
    timeout of a recovery after a loss of data: the time counts from their ends. While nobody calls Redis, nothing can
    happen: everything is judged as of the last call.
    """

    promise = "S5"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._patience_ms = 2 * world.settings.heartbeat_interval_ms + 1_000
        self._blocked_at = 0
        self._ended_at: dict[str, int] = {}
        self._unworkable: dict[str, int] = {}
        """Resource that nobody could work → when that was seen."""

    def journal(self, entry: JournalEntry) -> None:
        if entry.kind in ("left", "expired_member") and entry.member is not None:
            self._ended_at[entry.member] = self.world.now

    def second(self) -> None:
        """Looks only at what is free, which is little."""
        world, ledger = self.world, self.world.redis.ledger
        takers = self._takers()
        if not takers or (ledger.pending and world.settings.mode == "eager"):
            self._blocked_at = world.now
        blocked = max(self._blocked_at, world.redis.recovers_by)
        for name in sorted(ledger.free):
            if not any(could_work(process, name) for process in takers):
                self._unworkable[name] = world.now
            since = max(ledger.resources[name].since, self._unworkable.get(name, 0))
            if world.redis.heard_at - max(since, blocked) > self._patience_ms:
                self.broken(f"{name} has been free since {since} ms, with {len(ledger.members)} members there")
        for owner in ledger.kept:
            ended = self._ended_at.get(owner)
            if (
                owner not in ledger.members
                and ended is not None
                and world.redis.heard_at - max(ended, blocked) > self._patience_ms
            ):
                self.broken(f"{owner} ended at {ended} ms and still holds something")

    def _takers(self) -> list[Process]:
        """Members with capacity; their processes may be cut off, which L3 ends."""
        members = self.world.redis.ledger.members
        return [
            process
            for process in self.world.running()
            if process.member_settings.capacity > 0 and members.get(process.session.member) == "active"
        ]


class S6(Check):
    """Balanced within one, moves minimal, nothing else interrupted.

    From one quiet moment to the next, if exactly one member came or went in between, as many revocations began as are
    needed for even loads, and not one more; if nothing changed, none did. Nobody drains what was not asked back, and
    nobody goes on draining while it keeps less than its share. Exempt from the count: members of unequal capacity or
    with different lists, eager mode, changes of the resource list, loss of data, and resources given up unfinished, for
    as long as the member that gave them up is avoided.
    """

    promise = "S6"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._patience_ms = world.settings.heartbeat_interval_ms + 1_000
        self._asked: set[tuple[str, int]] = set()
        self._needless: dict[str, int] = {}
        """Since when a revocation is pending although its holder is below its share."""
        self._kept: dict[str, int] | None = None
        self._avoiding_until = 0
        self._begin()

    def _begin(self) -> None:
        self._revoked = 0
        self._changes: list[str] = []
        self._leaving: set[str | None] = set()
        self._uncountable = self.world.now < self._avoiding_until

    def journal(self, entry: JournalEntry) -> None:
        """Counts what begins. Starting to leave and having left is one change."""
        kind = entry.kind
        if kind == "revoking":
            self._asked.add((entry.resource or "", entry.token or 0))
            self._revoked += entry.reason == "rebalance"
        elif kind in ("joined", "leaving", "left", "expired_member"):
            if entry.member not in self._leaving:
                self._changes.append(kind)
            if kind == "leaving":
                self._leaving.add(entry.member)
        elif kind in (
            "graced",
            "added",
            "removing",
            "claimed",
            "abandoned",
            "incarnation",
            "configured",
            "inherited",
            "repaired",
        ):
            self._uncountable = True
            if kind == "abandoned":
                self._avoiding_until = (
                    self.world.now + AVOIDED_SESSIONS * self.world.settings.session_timeout_ms + 1_000
                )

    def data_lost(self, known_from: int) -> None:
        """The last quiet moment is no longer known."""
        del known_from
        self._kept = None

    def asked_back(self, process: Process, action: act.Drain) -> None:
        """Only resources that were asked back drain."""
        asked = (action.resource, action.token) in self._asked
        if not asked and process.session.leaving.asked_at is None:
            self.broken(f"{process.name} drains {action.resource}, which nobody asked back")

    def second(self) -> None:
        """At a quiet moment, counts; at others, checks that every pending revocation is needed."""
        ledger = self.world.redis.ledger
        self._look_for_needless()
        nothing_new = self._kept is not None and not self._changes and not self._uncountable
        if nothing_new and self._revoked and self.world.settings.mode != "eager" and self._equal():
            self.broken(f"{self._revoked} resources move although nobody came or went")
        is_being_freed = not ledger.kept.keys() <= ledger.members.keys()  # besides what is pending
        if nothing_new or ledger.pending or ledger.free or ledger.recovering or is_being_freed:
            return
        kept = {member: ledger.kept[member] for member, status in ledger.members.items() if status == "active"}
        if not kept or max(kept.values()) - min(kept.values()) > 1:
            return  # changes in quick succession are being gathered
        countable = len(self._changes) == 1 and not self._uncountable and self.world.settings.mode != "eager"
        if self._kept is not None and countable and self._equal():
            self._compare(self._kept, kept)
        self._kept = kept
        self._begin()

    def _look_for_needless(self) -> None:
        ledger, redis = self.world.redis.ledger, self.world.redis
        blocked = ledger.recovering or self.world.settings.mode == "eager" or not self._equal()
        active = [member for member, status in ledger.members.items() if status == "active"]
        if blocked or not ledger.pending or not active:
            self._needless.clear()
            return
        graced = sum(ledger.kept[member] for member, status in ledger.members.items() if status == "graced")
        share = (sum(not (it.removing or it.halted) for it in ledger.resources.values()) - graced) // len(active)
        needless = [name for name in ledger.pending if self._is_needless(name, share)]
        self._needless = {name: self._needless.get(name, self.world.now) for name in needless}
        for name, since in self._needless.items():
            if redis.heard_at - since > self._patience_ms:
                self.broken(f"{name} is drained since {since} ms by a member that keeps less than its share of {share}")

    def _is_needless(self, name: str, share: int) -> bool:
        ledger = self.world.redis.ledger
        it = ledger.resources[name]
        return not it.removing and ledger.members.get(it.owner) == "active" and ledger.kept[it.owner] < share

    def _compare(self, before: dict[str, int], after: dict[str, int]) -> None:
        stayed = {member: count for member, count in before.items() if member in after}
        least = sum(stayed.values()) - retained(stayed, sum(after.values()), len(after))
        if self._revoked > least:
            self.broken(
                f"{self._revoked} resources moved where {least} must, when {len(before)} members became {len(after)}"
            )

    def _equal(self) -> bool:
        """Whether all recorded members have the same capacity and the same list."""
        there = on_record(self.world)
        return len({process.member_settings.capacity for process in there}) <= 1 and not are_mixed(there)

    def settled(self) -> None:
        """Even within one, or in proportion to capacities; where lists differ, among the members that qualify."""
        processes = {process.session.member: process for process in self.world.living.values()}
        if are_mixed(processes.values()):
            if why := why_not_shared(self.world, processes):
                self.broken(why)
            return
        capacity = sum(process.member_settings.capacity for process in processes.values())
        total = sum(not it.halted for it in self.world.redis.ledger.resources.values())
        for member, process in processes.items():
            share, kept = (
                total * process.member_settings.capacity / max(1, capacity),
                self.world.redis.ledger.kept[member],
            )
            if abs(kept - share) >= 1:
                self.broken(f"{member} keeps {kept}, its share is {share:.2f}")
