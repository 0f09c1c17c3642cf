"""S1 to S4, and S7: who may hold, work and store what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.coordinator.requests import Commit, Release
from cobalance.ownership import ENDINGS
from cobalance_sims.simulate.checks.base import Check

if TYPE_CHECKING:
    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.coordinator.requests import Request
    from cobalance.journal import JournalEntry
    from cobalance.member import actions as act
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.work import SimulatedTenure
    from cobalance_sims.simulate.world import World


class S1(Check):
    """A (resource, token) has at most one holder; tokens only rise, even across data loss.

    The token of every grant is above every token ever granted or started for that resource, whatever Redis has
    forgotten since; and so is that of every start above those of all starts before. No exemptions.
    """

    promise = "S1"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._highest: dict[str, int] = {}
        self._started: dict[str, tuple[int, str]] = {}
        """Resource → token and holder of its last start."""

    def journal(self, entry: JournalEntry) -> None:
        """Grants rise; no claim lowers the recorded token."""
        on_record = self.world.redis.ledger.resources.get(entry.resource or "")
        if entry.kind == "claimed" and on_record is not None and (entry.token or 0) < on_record.token:
            self.broken(
                f"{entry.member} claims {entry.resource} under {entry.token}, below {on_record.token} on record"
            )
        if entry.kind != "granted":
            return
        name, token = entry.resource or "", entry.token or 0
        if token <= self._highest.get(name, 0):
            self.broken(
                f"{name} is granted to {entry.member} under token {token}, which is not above {self._highest[name]}"
            )
        self._highest[name] = token

    def started(self, process: Process, action: act.Start) -> None:
        """Each token has one holder, and none after a higher one."""
        last, holder = self._started.get(action.resource, (0, ""))
        if action.token <= last:
            self.broken(f"{process.name} starts {action.resource} under token {action.token}; {holder} has had {last}")
        self._started[action.resource] = action.token, process.name
        self._highest[action.resource] = max(action.token, self._highest.get(action.resource, 0))


class S2(Check):
    """While clocks are sound, no two members actively work one resource.

    Actively means that the member's code runs and may touch the resource. Exempt are frozen processes, which execute
    nothing (on resuming, their clock is checked before anything else); work that was asked to stop and is a blocking
    call that cannot be cancelled; where there is a broker, members that hold a partition but are refused by its guard;
    and a rollback that no identity reveals, until it must have been noticed (:attr:`RedisServer.unnoticed_until`).
    Nothing is released before its work has stopped, unless it is named as an overlap.
    """

    promise = "S2"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._active: dict[str, list[str]] = {}

    def active(self, process: Process, tenure: SimulatedTenure) -> None:
        """No other process may be active on it."""
        names = self._active.setdefault(tenure.resource, [])
        others = [name for name in names if name != process.name]
        if others and not self.world.redis.may_be_unnoticed:
            self.broken(f"{others[0]} and {process.name} both work {tenure.resource}")
        names.append(process.name)

    def second(self) -> None:
        """Overlaps that were excused have ended by then."""
        if self.world.redis.unnoticed_until < 0 or self.world.redis.may_be_unnoticed:
            return
        for resource, names in self._active.items():
            if len(set(names)) > 1:
                self.broken(f"{names[0]} and {names[1]} still both work {resource} long after a rollback")

    def idle(self, process: Process, tenure: SimulatedTenure) -> None:
        names = self._active.get(tenure.resource, [])
        if process.name in names:
            names.remove(process.name)

    def executed(self, process: Process, request: Request, reply: CoordinatorReply) -> None:
        """What is released is no longer touched; what never stops is named as an overlap."""
        if not isinstance(request.payload, Release):
            return
        for item, result in zip(request.payload.items, reply.results, strict=True):
            it = process.work.tenures.get(item.resource)
            if result == "OK" and item.reason != "overlap" and it is not None and it.token == item.token:
                self.broken(f"{process.name} releases {item.resource}, and its work is still {it.state}")


class S3(Check):
    """Commit and release are accepted only from the current token and member.

    Each end of a tenure in the journal names the owner and token of that moment; each accepted release ends exactly the
    tenure it names; each accepted commit comes from the owner under its token. A repeated request gets the same answer
    as the first time, whatever has happened since.
    """

    promise = "S3"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._ended: dict[tuple[str, int], tuple[str | None, int]] = {}

    def journal(self, entry: JournalEntry) -> None:
        if entry.kind not in ENDINGS:
            return
        standing = self.world.redis.ledger.resources.get(entry.resource or "")
        if standing is None or (standing.owner, standing.token) != (entry.member, entry.token):
            self.broken(
                f"{entry.kind} {entry.resource} of {entry.member} under {entry.token}, but on record is {standing}"
            )
        self._ended[entry.resource or "", entry.token or 0] = (entry.member, self.world.now)

    def executed(self, process: Process, request: Request, reply: CoordinatorReply) -> None:
        payload, member = request.payload, request.header.member
        if not isinstance(payload, Commit | Release):
            return
        tenures = [(item.resource, item.token) for item in payload.items]
        for (resource, token), result in zip(tenures, reply.results, strict=True):
            if result == "OK":
                self._check(process, payload.verb, member, resource, token)

    def _check(self, process: Process, verb: str, member: str, resource: str, token: int) -> None:
        if self._ended.get((resource, token)) == (member, self.world.now):
            return  # the tenure of a commit may end in the same call
        standing = self.world.redis.ledger.resources.get(resource)
        owns = standing is not None and (standing.owner, standing.token) == (member, token)
        if verb == "release" or not owns:
            self.broken(f"a {verb} of {process.name} for {resource} under {token} is accepted, on record is {standing}")


class S4(Check):
    """A committed offset never falls.

    Every accepted offset is there when the tenure ends and when the next one starts. After Redis lost data, only what
    it still knows, or what a claim restores, is demanded; of starts, from two session timeouts later on.
    """

    promise = "S4"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._accepted: dict[str, list[tuple[int, int]]] = {}
        self._unsure_until = 0

    def _floor(self, resource: str) -> int:
        accepted = self._accepted.get(resource)
        return max(offset for _, offset in accepted) if accepted else -1

    def _accept(self, resource: str, offset: int) -> None:
        if offset > self._floor(resource):
            self._accepted.setdefault(resource, []).append((self.world.now, offset))

    def data_lost(self, known_from: int) -> None:
        """Offsets accepted since then are gone; those of the very moment of the snapshot are uncertain."""
        self._unsure_until = self.world.now + 2 * self.world.settings.session_timeout_ms
        for resource, accepted in self._accepted.items():
            self._accepted[resource] = [(at, offset) for at, offset in accepted if at < known_from]

    def executed(self, process: Process, request: Request, reply: CoordinatorReply) -> None:
        del process
        if not isinstance(request.payload, Commit | Release):
            return
        for (resource, offset), result in zip(_offsets(request.payload), reply.results, strict=True):
            if result == "OK" and offset is not None:
                if offset < self._floor(resource):
                    self.broken(f"{offset} is accepted for {resource}, below {self._floor(resource)}")
                self._accept(resource, offset)

    def journal(self, entry: JournalEntry) -> None:
        """Claims restore offsets; ends of tenures show them."""
        if entry.kind == "claimed" and entry.committed is not None:
            self._accept(entry.resource or "", entry.committed)
        elif entry.kind in ENDINGS and (entry.committed if entry.committed is not None else -1) < self._floor(
            entry.resource or ""
        ):
            self.broken(f"{entry.resource} ends at {entry.committed}, below {self._floor(entry.resource or '')}")

    def started(self, process: Process, action: act.Start) -> None:
        """Checks the offset from which the next tenure starts."""
        del process
        if self.world.now < self._unsure_until:
            return  # the reply may be older than the loss, or than the claims that repair it
        committed = -1 if action.committed is None else action.committed
        if committed < self._floor(action.resource):
            self.broken(f"{action.resource} starts from {action.committed}, below {self._floor(action.resource)}")


class S7(Check):
    """Identity reuse is harmless.

    A member id joins once, unless Redis forgot the first time; and no two processes with the same instance id are
    members at the same time, each within its lease. Exempt are frozen processes, those that were taken for dead and have
    not heard of it (see `S2Crashed`), and two session timeouts after a loss of data (after Redis can be reached again,
    if that is later): during the first, another process may join first, and a member that was joining may learn of it
    during the second.
    """

    promise = "S7"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._joined: dict[str, int] = {}
        self._unsure_until = 0

    def data_lost(self, known_from: int) -> None:
        del known_from
        self._be_unsure()

    def second(self) -> None:
        """While Redis cannot be reached, nobody can find out."""
        if self.world.now < self._unsure_until and not self.world.redis.up:
            self._be_unsure()

    def _be_unsure(self) -> None:
        self._unsure_until = self.world.now + 2 * self.world.settings.session_timeout_ms

    def journal(self, entry: JournalEntry) -> None:
        if entry.kind == "repaired" and entry.resource is None and entry.reason == "gone":
            self._joined.pop(entry.member or "", None)  # the script that made it a member died before it was one
        if entry.kind != "joined" or entry.member is None:
            return
        losses = self.world.redis.lost_data
        if self._joined.get(entry.member) == losses:
            self.broken(f"{entry.member} joins twice")
        self._joined[entry.member] = losses

    def joined(self, process: Process) -> None:
        instance = process.member_settings.instance_id
        if instance is None or self.world.now < self._unsure_until:
            return
        for other in self.world.running():
            if other is not process and other.member_settings.instance_id == instance and _is_member(other):
                self.broken(f"{other.name} and {process.name} are both members as {instance}")


def _offsets(payload: Commit | Release) -> list[tuple[str, int | None]]:
    if isinstance(payload, Commit):
        return [(item.resource, item.offset) for item in payload.items]
    return [(item.resource, item.offset) for item in payload.items]


def _is_member(process: Process) -> bool:
    session = process.session
    if process.witness is not None and process.witness.taken_for_dead == session.member:
        return False
    return session.phase.value == "active" and not session.lease.over(process.world.now + process.offset_ms)
