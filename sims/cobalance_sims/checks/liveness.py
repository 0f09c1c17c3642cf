"""L1 to L3: things end, and in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance_sims.checks.base import Check

if TYPE_CHECKING:
    from cobalance.journal import JournalEntry
    from cobalance_sims.process import Process
    from cobalance_sims.world import World


def why_unsettled(world: World) -> str:
    """What is not yet as it should be; empty when the group has converged."""
    ledger = world.redis.ledger
    living = {process.session.member: process for process in world.living.values()}
    if ledger.recovering:
        return "the group is recovering"
    if ledger.pending:
        return f"{len(ledger.pending)} revocations are pending: {sorted(ledger.pending)[:5]}"
    if set(ledger.resources) != set(world.resources):
        return f"{len(ledger.resources)} resources are known, {len(world.resources)} declared"
    if set(ledger.members) != set(living):
        return f"members {sorted(ledger.members)} are not the living {sorted(living)}"
    return _why_uneven(world, living)


def _why_uneven(world: World, living: dict[str, Process]) -> str:
    capacity = sum(process.member_settings.capacity for process in living.values())
    if not capacity:
        return ""
    if world.redis.ledger.free:
        return f"{len(world.redis.ledger.free)} resources are free"
    shared = sum(not it.halted for it in world.redis.ledger.resources.values())
    for member, process in living.items():
        share = shared * process.member_settings.capacity / capacity
        if abs(world.redis.ledger.kept[member] - share) >= 1:
            return f"{member} keeps {world.redis.ledger.kept[member]}, its share is {share:.2f}"
    return _why_members_disagree(world, living)


def _why_members_disagree(world: World, living: dict[str, Process]) -> str:
    on_record = {name: (it.owner, it.token) for name, it in world.redis.ledger.resources.items() if not it.halted}
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
    """When churn stops the group converges.

    Within the patience of :meth:`bound_ms` everything is held, even within one, nothing is pending, and each holder knows; and
    from then on nothing changes any more.
    """

    promise = "L1"

    def bound_ms(self) -> int:
        """The longest that timeouts may follow each other: recovery, then grace, then expiry, then a forced drain; twice."""
        it = self.world.settings
        return (
            2 * (2 * it.session_timeout_ms + it.rejoin_grace_ms + 2 * it.revocation_timeout_ms)
            + 10 * it.heartbeat_interval_ms
        )

    def converge(self) -> int:
        """Lets time pass until the group has converged; how long it took, ms."""
        world, begun = self.world, self.world.now
        while why := why_unsettled(world):
            if world.now - begun > self.bound_ms():
                self.broken(f"after {self.bound_ms()} ms of calm {why}")
            world.clock.run(100)
        return world.now - begun

    def stay(self, ms: int) -> None:
        """Nothing changes while nothing happens."""
        world = self.world
        before = world.redis.coordinator.state()["version"]
        world.clock.run(ms)
        after = world.redis.coordinator.state()["version"]
        if before != after:
            self.broken(f"it had converged, and then the version went from {before} to {after}")


class L2(Check):
    """A revocation ends by its timeout even if the holder never answers.

    Nothing is pending for longer than a session timeout (until its holder is told, or has expired), the revocation timeout, two
    heartbeats and a second. Trouble with Redis, and recovery, start the count again: nobody can be told, or be forced, then.
    """

    promise = "L2"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        it = world.settings
        self._patience_ms = it.session_timeout_ms + it.revocation_timeout_ms + 2 * it.heartbeat_interval_ms + 1_000
        self._blocked_at = 0

    def second(self) -> None:
        """Looks at what is pending."""
        world, ledger = self.world, self.world.redis.ledger
        if ledger.recovering or not world.redis.up or world.now - world.redis.heard_at > 1_000:
            self._blocked_at = world.now
        blocked = max(self._blocked_at, world.redis.disturbed_at)
        for name, since in ledger.pending.items():
            if world.now - max(since, blocked) > self._patience_ms:
                self.broken(f"{name} of {ledger.resources[name].owner} has been pending since {since} ms")


class L3(Check):
    """A crash is healed within session timeout plus a heartbeat.

    After it (and an allowance for requests still on their way when the process died, and for the reply that brings the news)
    nothing is on record for any member of that process, but for its rejoin grace. Trouble with Redis, and recovery, start the
    count again.
    """

    promise = "L3"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        it = world.settings
        self._patience_ms = 2 * it.session_timeout_ms // 3 + it.session_timeout_ms + it.heartbeat_interval_ms + 1_000
        self._blocked_at = 0
        self._crashed: dict[str, int] = {}

    def died(self, process: Process) -> None:
        """A process was killed."""
        self._crashed[process.name] = self.world.now

    def second(self) -> None:
        """Looks at those killed a while ago."""
        world, ledger = self.world, self.world.redis.ledger
        if ledger.recovering or not world.redis.up or world.now - world.redis.heard_at > 1_000:
            self._blocked_at = world.now
        blocked = max(self._blocked_at, world.redis.disturbed_at)
        for name, at in list(self._crashed.items()):
            if world.now - max(at, blocked) > self._patience_ms:
                self._check(name, at)
                if at >= blocked:
                    del self._crashed[name]

    def _check(self, name: str, at: int) -> None:
        ledger = self.world.redis.ledger
        owners = {*ledger.kept, *(ledger.resources[resource].owner for resource in ledger.pending)}
        for owner in owners:
            if owner.rpartition(".")[0] == name and ledger.members.get(owner) != "graced":
                self.broken(f"{name} was killed at {at} ms and {owner} still holds something")

    def journal(self, entry: JournalEntry) -> None:
        """A member buried is a crash healed, unless its process had another one since."""
        if entry.kind != "expired_member" or not entry.member:
            return
        name = entry.member.rpartition(".")[0]
        others = self.world.redis.ledger.members.keys() - {entry.member}
        if name not in {other.rpartition(".")[0] for other in others}:
            self._crashed.pop(name, None)
