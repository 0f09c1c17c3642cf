"""L1 to L3: everything ends, and in time."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from cobalance_sims.simulate.checks.base import Check
from cobalance_sims.simulate.checks.lists import are_mixed, why_not_shared

if TYPE_CHECKING:
    from cobalance.journal import JournalEntry
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.world import World


LONGEST_PAUSE_MS = 300_000
"""Longest pause of a resource that is given up again and again (50_moves.lua)."""

TIMERS = 5
"""Of a member that is gone; each counts as a move where it is due (70_timers.lua)."""


def why_unsettled(world: World) -> str:
    """Says what has not converged yet; empty when the group has."""
    living = {process.session.member: process for process in world.living.values()}
    return _why_not_at_rest(world, living) if living else ""  # where nobody calls, nothing happens


def _why_not_at_rest(world: World, living: dict[str, Process]) -> str:
    ledger, wanted = world.redis.ledger, world.wanted()
    if why := _why_in_motion(world, living):
        return why
    if set(ledger.resources) != set(wanted):
        return f"{len(ledger.resources)} resources are known, {len(wanted)} declared"
    if set(ledger.members) != set(living):
        return f"members {sorted(ledger.members)} are not the living {sorted(living)}"
    return _why_uneven(world, living) or _why_not_done(world)


def _why_in_motion(world: World, living: dict[str, Process]) -> str:
    ledger = world.redis.ledger
    if ledger.recovering:
        return "the group is recovering"
    leaving = [process.name for process in living.values() if process.session.leaving.asked_at is not None]
    if leaving:
        return f"{leaving[0]} is leaving"
    paused = [name for name, it in ledger.resources.items() if it.paused]
    if paused:
        return f"{min(paused)} is paused"
    if ledger.pending:
        return f"{len(ledger.pending)} revocations are pending: {sorted(ledger.pending)[:5]}"
    return ""


def _why_not_done(world: World) -> str:
    """The next call elects a coordinator where there is none, and does what one call may not: so many moves, no more."""
    state = world.redis.coordinator.state()
    if not state["coordinator"]:
        return "nobody is the coordinator"
    return "" if int(state["due"]) else "a call has left moves to the next one"


def _why_uneven(world: World, living: dict[str, Process]) -> str:
    capacity = sum(process.member_settings.capacity for process in living.values())
    if not capacity:
        return _why_members_disagree(world, living)
    if are_mixed(living.values()):
        return why_not_shared(world, living) or _why_members_disagree(world, living)
    if world.redis.ledger.free:
        return f"{len(world.redis.ledger.free)} resources are free"
    shared = sum(not it.halted for it in world.redis.ledger.resources.values())
    for member, process in living.items():
        share = shared * process.member_settings.capacity / capacity
        if abs(world.redis.ledger.kept[member] - share) >= 1:
            return f"{member} keeps {world.redis.ledger.kept[member]}, its share is {share:.2f}"
    return _why_members_disagree(world, living)


def _why_members_disagree(world: World, living: dict[str, Process]) -> str:
    ledger = world.redis.ledger
    on_record = {
        name: (it.owner, it.token) for name, it in ledger.resources.items() if not (it.halted or name in ledger.free)
    }
    worked: set[str] = set()
    for member, process in living.items():
        if process.session.lease.over(world.now + process.offset_ms + world.settings.heartbeat_interval_ms):
            return f"{member} has not been heard for so long that its lease is about to end"
        for name, (token, state) in process.session.holdings.snapshot().items():
            if state == "held" and on_record.get(name) != (member, token):
                return f"{name} is on record as {on_record.get(name)}, {member} believes to hold it under {token}"
            worked |= {name} if state == "held" else set()
    idle = on_record.keys() - worked
    return f"{min(idle)} is worked by nobody" if idle else ""


class L1(Check):
    """When churn stops, the group converges.

    Within :meth:`bound_ms` everything is held, even within one, nothing is pending, and each holder knows what it
    holds; from then on nothing changes.
    """

    promise = "L1"

    def bound_ms(self) -> int:
        """The longest possible sequence of timeouts: recovery, then grace, then expiry, then a forced drain; twice; and
        the longest pause of a resource that could not be worked.
        """
        it = self.world.settings
        return (
            2 * (2 * it.session_timeout_ms + it.rejoin_grace_ms + 2 * it.revocation_timeout_ms)
            + 10 * it.heartbeat_interval_ms
            + (LONGEST_PAUSE_MS if any(it.paused for it in self.world.redis.ledger.resources.values()) else 0)
        )

    def converge(self) -> int:
        """Lets time pass until the group has converged; returns how long it took, ms."""
        world, begun, bound_ms = self.world, self.world.now, self.bound_ms()
        while why := why_unsettled(world):
            if world.now - begun > bound_ms:
                self.broken(f"after {bound_ms} ms of calm {why}")
            world.clock.run(100)
        return world.now - begun

    def stay(self, ms: int) -> None:
        """Checks that nothing changes while nothing happens."""
        world = self.world
        if not world.living:
            return
        before = world.redis.coordinator.state()["version"]
        world.clock.run(ms)
        after = world.redis.coordinator.state()["version"]
        if before != after:
            self.broken(f"it had converged, and then the version went from {before} to {after}")


class L2(Check):
    """A revocation ends by its timeout even if the holder never answers.

    Its holder learns of it, or expires, within a session timeout; then it has the revocation timeout; two heartbeats
    and a second are allowed for. A silence that began before the deadline postpones it by one revocation timeout, once.
    A recovery, which lasts one session timeout after a loss of data, restarts the count.
    """

    promise = "L2"

    def second(self) -> None:
        """Looks at what is pending, as of the last call."""
        world, it = self.world, self.world.settings
        slack_ms = 2 * it.heartbeat_interval_ms + 1_000 + world.redis.stood_still_ms
        for name, since in world.redis.ledger.pending.items():
            if world.redis.heard_at > self._ends_by(since) + slack_ms:
                self.broken(f"{name} of {world.redis.ledger.resources[name].owner} has been pending since {since} ms")

    def _ends_by(self, since: int) -> int:
        redis, it = self.world.redis, self.world.settings
        deadline = max(session_ends_by(self.world, since), redis.recovers_by) + it.revocation_timeout_ms
        late = [silence.ended for silence in redis.silences if since < silence.ended and silence.began <= deadline]
        return max([deadline, *(ended + it.revocation_timeout_ms for ended in late[-1:])])


class L3(Check):
    """A crash is healed within a session timeout plus a heartbeat, at worst two session timeouts.

    One session timeout after a killed process was last heard (plus a heartbeat and a second, for the call that notices)
    nothing is recorded for any of its members. The first silence that began in the first half of that time postpones
    this to half a session timeout after that silence; a second silence postpones nothing. The same holds for the end of
    a rejoin grace, which any silence that began within it postpones; an heir that has come is waited for, for one session
    timeout more. What is left of the member is then gone, too. A heartbeat is allowed for each call that it takes, as long
    as calls leave work to the next one. A recovery, which lasts one session timeout after a loss of data, ends first.
    """

    promise = "L3"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._crashed: dict[str, int] = {}
        self._graced: dict[str, int] = {}
        self._were_graced: dict[str, int] = {}
        """Former ones → when their grace had to be over, or was if that is earlier."""
        self._awaiting: set[str] = set()
        """Those of them whose heir has come."""

    def died(self, process: Process) -> None:
        self._crashed[process.name] = self.world.now

    def data_lost(self, known_from: int) -> None:
        """A member kept for a grace may be forgotten, or be active again."""
        del known_from
        self._graced.clear()
        self._awaiting.clear()

    def second(self) -> None:
        """Looks at processes killed a while ago, and at graces that should be over."""
        world, ledger = self.world, self.world.redis.ledger
        for owner in sorted(
            {*ledger.members, *ledger.kept, *(ledger.resources[name].owner for name in ledger.pending)}
        ):
            at = self._crashed.get(owner.rpartition(".")[0])
            heard_at = world.redis.heard_of.get(owner, 0)
            by = max(self._gone_by(heard_at), self._were_graced.get(owner, 0))
            if at is not None and ledger.members.get(owner) != "graced" and self._is_overdue(by):
                self.broken(f"{owner} was killed at {at} ms, last heard at {heard_at} ms, and is still on record")
        for member, since in self._graced.items():
            if self._is_overdue(self._kept_until(since, awaits_heir=member in self._awaiting)):
                self.broken(f"{member} is kept for its return since {since} ms")

    def _is_overdue(self, by: int) -> bool:
        redis = self.world.redis
        calls = self._calls_to_come() if redis.has_more else 1
        slack_ms = calls * self.world.settings.heartbeat_interval_ms + 1_000 + redis.stood_still_ms
        for lull in redis.lulls if redis.has_more else ():
            if by < lull.ended and lull.began <= by + slack_ms:
                by = lull.ended
        return redis.heard_at - slack_ms > by

    def _calls_to_come(self) -> int:
        """The most that it takes to do what is due of those who are gone, as a call makes so many moves."""
        ledger = self.world.redis.ledger
        gone = {
            it for it, status in ledger.members.items() if status == "graced" or it.rpartition(".")[0] in self._crashed
        }
        moves = TIMERS * len(gone) + sum(it.owner in gone for it in ledger.resources.values())
        return max(1, ceil(moves / self.world.settings.moves_per_call))

    def _gone_by(self, heard_at: int) -> int:
        return max(session_ends_by(self.world, heard_at), self.world.redis.recovers_by)

    def _kept_until(self, since: int, *, awaits_heir: bool) -> int:
        redis, it = self.world.redis, self.world.settings
        ends = max(since + it.rejoin_grace_ms, redis.recovers_by if awaits_heir else 0)
        late = [silence.ended for silence in redis.silences if since < silence.ended and silence.began <= ends]
        given_up = max([ends, redis.recovers_by, *(ended + it.session_timeout_ms // 2 for ended in late[-1:])])
        return given_up + (it.session_timeout_ms if awaits_heir else 0)

    def journal(self, entry: JournalEntry) -> None:
        """Notes who is kept for the rejoin grace, since when, and whose heir comes."""
        if entry.kind == "graced" and entry.member:
            self._graced[entry.member] = self.world.now
            if entry.reason == "replaced":
                self._awaiting.add(entry.member)
        elif entry.kind == "joined" and entry.instance_id:
            self._awaiting.update(it for it in self._graced if self._instance_of(it) == entry.instance_id)
        elif entry.kind in ("left", "expired_member") and entry.member:
            self._end_grace(entry.member)
        elif entry.kind == "repaired" and entry.member and entry.resource is None:
            # The session of a member whose join died half-way begins now.
            self.world.redis.heard_of.setdefault(entry.member, self.world.now)

    def _end_grace(self, member: str) -> None:
        since = self._graced.pop(member, None)
        if since is not None:
            by = self._kept_until(since, awaits_heir=member in self._awaiting)
            self._were_graced[member] = min(by, self.world.now)
        self._awaiting.discard(member)

    def _instance_of(self, member: str) -> str | None:
        process = self.world.of_member(member)
        return process.member_settings.instance_id if process is not None else None


def session_ends_by(world: World, heard_at: int) -> int:
    """When a member that was last heard at ``heard_at`` expires at the latest, if it stays silent."""
    session_ms = world.settings.session_timeout_ms
    first = next((it for it in world.redis.silences if it.ended > heard_at), None)
    is_excuse = first is not None and 2 * (first.began - heard_at) <= session_ms
    return max(heard_at + session_ms, first.ended + session_ms // 2 if first is not None and is_excuse else 0)
