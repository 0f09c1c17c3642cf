"""S6 again: a resource that was given up, kept for a member's return, or listed again goes where it should."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.coordinator.requests import SetResources
from cobalance_sims.simulate.checks.base import Check
from cobalance_sims.simulate.checks.in_a_row import AVOIDED_SESSIONS, SOMEBODY_ELSES, InARow
from cobalance_sims.simulate.checks.lists import could_work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.coordinator.requests import Request
    from cobalance.journal import JournalEntry
    from cobalance.member import actions as act
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.world import World

_MOVED = frozenset({"revoking", "removing", "cancelled", "granted", "forced"})


class S6Returns(Check):
    """Nothing else is interrupted.

    A leaving member starts nothing, goes on with nothing, has stopped everything first, and hands it over unless it is
    kept for the rejoin grace. A member with an instance id that falls silent is kept for the rejoin grace, and on its
    return it inherits everything that was kept; in eager mode that is dealt with the rest.

    A resource given up unfinished does not return to the member that gave it up while others could have it. From the
    second time in a row nothing moves for it (unless that member lacked RabbitMQ, or gave up a role). A lower version
    of the resource list changes nothing. Nothing is granted to a leaving member, nor behind an eager barrier before
    everything has stopped. After a loss of data nothing moves until every member had time to claim what it holds; and
    that begins once per loss.

    A member that drains a resource it may keep, or that lost one to a better claim, knows this as soon as a request it
    sent a session timeout later is answered.
    """

    promise = "S6"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._givers: dict[str, tuple[str | None, int]] = {}
        self._in_a_row = InARow(world.settings.session_timeout_ms, SOMEBODY_ELSES)
        self._list_versions: dict[str, tuple[int, str, int]] = {}
        """Subscription → version begun, member that sent it, version completed."""
        self._losers: dict[tuple[str, str, int], int] = {}
        """Process, resource and token that lost to a better claim → since when."""
        self._is_unaware = self._is_lost = self._is_stopping = False
        """Whether data was lost and nobody has noticed although it shows; whether it was lost since every member
        claimed what it holds; whether an eager barrier stands.
        """
        self._asked: dict[str, Process] = {}
        """Processes that were asked for a resource back and may still drain it."""
        self._draining: dict[tuple[str, int], int] = {}
        """Since when a resource is drained although it is held again."""

    def data_lost(self, known_from: int) -> None:
        """None of this is known any more."""
        del known_from
        self._givers.clear()
        self._in_a_row.clear()
        self._draining.clear()
        self._list_versions.clear()
        self._is_unaware, self._is_stopping, self._is_lost = not self.world.redis.may_be_unnoticed, False, True

    def journal(self, entry: JournalEntry) -> None:
        """Checks ends of members and tenures, and what must not happen at certain times."""
        self._check_time(entry)
        self._in_a_row.journal(entry)
        if entry.kind == "expired_member":
            self._check_grace(entry)
        elif entry.kind in ("left", "graced") and entry.reason == "left":
            self._check_leave(entry.member or "", keeps=entry.kind == "graced")
        elif entry.kind == "left" and entry.reason == "inherited":
            self._check_inheritance(entry.member or "")
        elif entry.kind == "abandoned" and entry.reason != "fenced":
            self._note_giver(entry)
        # Paused, it goes to any member with room afterwards, so nothing moves for it; and a script that died may not have noted the giver.
        elif entry.kind in ("halted", "repaired"):
            self._givers.pop(entry.resource or "", None)
        elif entry.kind in ("removed", "claimed"):
            self._givers.pop(entry.resource or "", None)
            self._note_loser(entry.resource or "", entry.member or "")
        elif entry.kind == "granted":
            self._check_giver(entry)
            self._check_taker(entry)

    def _check_time(self, entry: JournalEntry) -> None:
        if entry.kind == "incarnation" and entry.reason != "seen":
            self._check_loss(entry)
            self._is_unaware = self._is_lost = False
        elif entry.kind == "barrier":
            self._is_stopping = True
        elif entry.kind in _MOVED and (self._is_unaware or self.world.redis.ledger.recovering):
            self.broken(
                f"{entry.kind} {entry.resource} although data was lost and not everybody has claimed what it holds"
            )

    def _check_loss(self, entry: JournalEntry) -> None:
        """If the clock of Redis was set back, an incarnation from before the loss may have the higher number."""
        if entry.reason == "recovering" and not self._is_lost and self.world.redis.skew_ms >= 0:
            self.broken("everybody has to claim what it holds once more, although nothing was lost since the last time")

    def _note_loser(self, resource: str, claimer: str) -> None:
        it = self.world.redis.ledger.resources.get(resource)
        loser = self._process(it.owner) if it is not None else None
        if it is not None and loser is not None and loser is not self._process(claimer):
            self._losers[loser.name, resource, it.token] = self.world.now

    def _check_losers(self) -> None:
        for (name, resource, token), since in list(self._losers.items()):
            process = self.world.living.get(name)
            held = {} if process is None else process.session.holdings.snapshot()
            if held.get(resource) != (token, "held"):
                del self._losers[name, resource, token]
            elif process is not None and self._has_heard(process, since):
                self.broken(
                    f"{name} still believes to hold {resource}, which a better claim took from it at {since} ms"
                )

    def _check_taker(self, entry: JournalEntry) -> None:
        ledger = self.world.redis.ledger
        status = ledger.members.get(entry.member or "")
        if status != "active":
            self.broken(f"{entry.resource} is granted to {entry.member}, which is {status}")
        held = {name for name, it in ledger.resources.items() if it.owner and ledger.members.get(it.owner) != "graced"}
        owned = sorted(held) if self._is_stopping else []
        if owned:
            self.broken(f"{entry.resource} is dealt while {owned[0]} has not stopped")
        self._is_stopping = False

    def _check_grace(self, entry: JournalEntry) -> None:
        process = self._process(entry.member or "")
        kept_for = process.member_settings.instance_id if process is not None else None
        is_active = self.world.redis.ledger.members.get(entry.member or "") == "active"
        if kept_for is not None and is_active and self.world.settings.rejoin_grace_ms > 0:
            self.broken(f"{entry.member} is ended although {kept_for} has a grace of its own")

    def _check_leave(self, member: str, *, keeps: bool) -> None:
        for name, it in self.world.redis.ledger.resources.items():
            if it.owner == member and not keeps:
                self.broken(f"{member} has left, and {name} was not handed over")
        process = self._process(member)
        for tenure in () if process is None else process.work.tenures.values():
            if tenure.state != "stopping":
                self.broken(f"{member} has left, and {tenure.resource} is still worked")

    def _check_inheritance(self, member: str) -> None:
        ledger, gone = self.world.redis.ledger, self._process(member)
        if gone is None or not ledger.kept[member]:
            return
        for heir in ledger.members:
            process = self._process(heir)
            is_heir = process is not None and process.member_settings == gone.member_settings
            if heir != member and is_heir and ledger.members[heir] == "active":
                self.broken(
                    f"{heir} has come for {ledger.kept[member]} resources of {member}, and does not inherit them"
                )

    def _note_giver(self, entry: JournalEntry) -> None:
        if self._in_a_row.count(entry.resource) > 1:  # it goes to any member with room
            self._givers.pop(entry.resource or "", None)
            return
        avoided_ms = AVOIDED_SESSIONS * self.world.settings.session_timeout_ms
        self._givers[entry.resource or ""] = (entry.member, entry.at_ms + avoided_ms)

    def _check_giver(self, entry: JournalEntry) -> None:
        giver, until = self._givers.get(entry.resource or "", (None, 0))
        is_early = giver == entry.member and entry.at_ms < until
        others = (
            [it for it in self.world.redis.ledger.members if it != giver and self._could_work(it, entry.resource or "")]
            if is_early
            else []
        )
        if others:
            self.broken(f"{entry.resource} goes back to {giver}, who gave it up, although {others[0]} is there")
        if giver == entry.member:  # no other member was there: this is another tenure, which it may finish in order
            self._givers.pop(entry.resource or "", None)

    def _could_work(self, member: str, resource: str) -> bool:
        process = self._process(member)
        if process is None or self.world.redis.ledger.members[member] != "active":
            return False
        return process.member_settings.capacity > 0 and could_work(process, resource)

    def _process(self, member: str) -> Process | None:
        return self.world.of_member(member)

    def executed(self, process: Process, request: Request, reply: CoordinatorReply) -> None:
        if isinstance(request.payload, SetResources):
            self._check_version(process, request.header.member, request.payload.version, reply.results[0])

    def _check_version(self, process: Process, member: str, version: int, result: str) -> None:
        """A lower version is taken only if no member finished the higher one and the member that began it has ended."""
        begun, by, complete = self._list_versions.get(process.subscription, (0, "", 0))
        is_walked = self.world.redis.ledger.members.get(by) == "active"
        newest = max(begun, complete) if is_walked else complete
        if version < newest and result not in ("IGNORED", "WAIT"):
            self.broken(f"list {version} of {process.name} is taken after list {newest}")
        if result in ("DONE", "CURRENT"):
            complete = max(complete, version)
        if result == "NEXT":
            begun, by = version, member
        self._list_versions[process.subscription] = (begun, by, complete)

    def started(self, process: Process, action: act.Start) -> None:
        if process.session.leaving.asked_at is not None:
            self.broken(f"{process.name} is leaving, and begins to work {action.resource}")

    def kept(self, process: Process, action: act.Keep) -> None:
        if process.session.leaving.asked_at is not None:
            self.broken(f"{process.name} is leaving, and goes on with {action.resource}")

    def asked_back(self, process: Process, action: act.Drain) -> None:
        del action
        self._asked[process.name] = process

    def second(self) -> None:
        """Finds members that have not heard of a cancellation or of a better claim."""
        self._check_losers()
        found = {key: process for process in list(self._asked.values()) for key in self._unheard(process)}
        self._draining = {key: self._draining.get(key, self.world.now) for key in found}
        for key, since in self._draining.items():
            if self._has_heard(found[key], since):
                self.broken(f"{key[0]} is held again, and its holder drains it since {since} ms")

    def _has_heard(self, process: Process, since: int) -> bool:
        """Whether a request it sent a session timeout after ``since`` has been answered."""
        lease, session_ms = process.session.lease, self.world.settings.session_timeout_ms
        if lease.until is None:
            return False
        asked_at = lease.until - process.offset_ms - (session_ms - session_ms // 10)
        return asked_at > since + session_ms

    def _unheard(self, process: Process) -> Iterator[tuple[str, int]]:
        if process.paused:
            return
        draining = [it for it in process.work.tenures.values() if it.state == "draining"]
        if not (process.alive and draining) or process.session.leaving.asked_at is not None:
            del self._asked[process.name]
            return
        for tenure in draining:
            if process.session.holdings.snapshot().get(tenure.resource) == (tenure.token, "held"):
                self.broken(f"{process.name} was told that it may keep {tenure.resource}, and goes on draining it")
            it = self.world.redis.ledger.resources.get(tenure.resource)
            is_held = it is not None and (it.owner, it.token) == (process.session.member, tenure.token)
            if is_held and tenure.resource not in self.world.redis.ledger.pending:
                yield tenure.resource, tenure.token
