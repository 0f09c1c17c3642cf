"""A group as driven by tests: members that speak the protocol by hand, with a check of the data after every call."""

from __future__ import annotations

from typing import Any

import attrs
from tests.coordinator.backends import Backend

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.dump import State
from cobalance.coordinator.keys import hint_channel
from cobalance.coordinator.replies import Change, CoordinatorReply
from cobalance.coordinator.requests import (
    Claim,
    Commit,
    CommitItem,
    Header,
    Heartbeat,
    Join,
    Leave,
    Payload,
    Release,
    ReleaseItem,
    Request,
    SetResources,
    Tick,
)
from cobalance.settings import GroupSettings
from proof.consistency import check
from proof.records import Records

SETTINGS = GroupSettings(
    session_timeout_ms=3000,
    heartbeat_interval_ms=1000,
    revocation_timeout_ms=5000,
    rejoin_grace_ms=20_000,
    gather_ms=0,
    moves_per_call=100,
)


def names(count: int, prefix: str = "r") -> tuple[str, ...]:
    """Sorted resource names."""
    return tuple(f"{prefix}{number:03}" for number in range(count))


class Group:
    """One group, created without recovery unless requested."""

    def __init__(self, backend: Backend, settings: GroupSettings = SETTINGS, *, create: bool = True) -> None:
        self.backend = backend
        self.settings = settings
        self._coordinator = Coordinator(backend, "g")
        self._records: Records | None = None
        self.members: dict[str, Member] = {}
        self.clock_offset_ms = 0
        self._list_version = 0
        self._highest_tokens: dict[str, int] = {}
        if create:
            self.coordinator.create(settings)

    @property
    def coordinator(self) -> Coordinator:
        """The client, for administrative calls."""
        self._records = None
        return self._coordinator

    # -- what happens to it ------------------------------------------------------------------------------------------

    def join(self, member: str, **join: Any) -> Member:
        """A new member, joined."""
        it = Member(self, member)
        self.members[member] = it
        it.join(**join)
        return it

    def joined(self, ids: str, **join: Any) -> list[Member]:
        """Several members, one per letter."""
        return [self.join(member, **join) for member in ids]

    def set_resources(self, member: Member, wanted: tuple[str, ...], version: int | None = None) -> str:
        """Declares a list page by page, as long as the coordinator asks for more, and returns the last result."""
        self._list_version = self._list_version + 1 if version is None else version
        after = ""
        while True:
            rest = tuple(name for name in sorted(wanted) if name > after)
            reply = member.ask(
                SetResources(version=self._list_version, digest=str(hash(wanted)), after=after, names=rest)
            )
            if reply.status != "OK" or reply.results[0] != "NEXT":
                return reply.results[0] if reply.results else reply.status
            after = reply.results[1]

    @property
    def local_ms(self) -> int:
        """The time that really passed, as measured by members, however the server's clock was set."""
        return self.backend.now_ms - self.clock_offset_ms

    def step_clock(self, ms: int) -> None:
        """Sets the server's clock forward or back; no time passes."""
        self.backend.now_ms += ms
        self.clock_offset_ms += ms

    def tick(self) -> CoordinatorReply:
        """Settles until nothing is due, and returns the last reply."""
        for _ in range(10_000):
            reply = self.execute(Request(Header(member="-", number=0), Tick()))
            if not reply.more:
                return reply
        raise AssertionError("the group never comes to rest")

    def beat(self, *members: Member) -> None:
        """Heartbeats of each member (of all, if none is named), until none has more to receive."""
        for member in members or tuple(self.members.values()):
            if not member.silent and not member.is_over:
                member.hear()

    def run(self, ms: int, *members: Member) -> None:
        """Lets time pass, with regular heartbeats."""
        end = self.backend.now_ms + ms
        while self.backend.now_ms < end:
            self.backend.now_ms = min(end, self.backend.now_ms + self.settings.heartbeat_interval_ms)
            self.beat(*members)

    def drain(self, *members: Member) -> None:
        """All members finish what is being revoked, repeatedly, until nothing is."""
        for _ in range(200):
            self.beat(*members)
            if not sum(member.release_pending() for member in members or tuple(self.members.values())):
                return
        raise AssertionError("the group never comes to rest")

    def until_left(self, member: Member) -> None:
        """Drains a member and repeats its leave until it succeeds."""
        for _ in range(100):
            if member.is_over or member.leave() == "LEFT" or member.is_over:
                return
            member.hear()
            member.release_pending()
        raise AssertionError(f"{member.id} cannot leave")

    # -- requests ----------------------------------------------------------------------------------------------------

    def execute(self, request: Request) -> CoordinatorReply:
        """Sends a request and checks the resulting data."""
        reply = self.coordinator.execute(request)
        self.check()
        return reply

    def check(self) -> None:
        """Checks that the records are consistent, with each other and with earlier ones."""
        records = self.records()
        check(records)
        for name, resource in records.resources.items():
            if resource.owner == "-":
                continue
            assert resource.token >= self._highest_tokens.get(name, 0), f"the token of {name} fell"
            self._highest_tokens[name] = resource.token

    def records(self) -> Records:
        if self._records is None:
            self._records = Records.read(self.backend.dump())
        return self._records

    def loads(self) -> dict[str, int]:
        """How many resources each member keeps (without pending ones)."""
        return {member.id: member.kept for member in self.coordinator.members()}

    def holders(self) -> dict[str, str | None]:
        """The holder of each resource, pending or not."""
        return {resource.name: resource.owner for resource in self.coordinator.resources()}

    def journal(self, *kinds: str) -> list[dict[str, str]]:
        """The journal's entries, or only those of these kinds."""
        return [entry for entry in self.records().journal if not kinds or entry["kind"] in kinds]

    def poke(self, field: str, value: int | str) -> None:
        """Changes one scalar of the stored group."""
        self.restore(self.records().with_scalar(field, str(value)))

    def forget_tokens(self) -> None:
        """Stored tokens may be lower from now on, as after a loss of data."""
        self._highest_tokens.clear()

    def lose_data(self) -> None:
        """Redis returns empty, a moment later."""
        self.backend.flush()
        self.backend.now_ms += 10
        self._records = None
        self._highest_tokens.clear()

    def restore(self, state: State) -> None:
        self._records = None
        self.backend.restore(state)


@attrs.define
class Tenure:
    """What a member believes about one resource."""

    token: int
    pending: bool = False
    deadline_ms: int = 0
    committed: int | None = None
    local_deadline_ms: int = 0
    aborted: bool = False


class Member:
    """A member that does exactly what a test tells it."""

    def __init__(self, group: Group, member: str) -> None:
        self.group, self.id = group, member
        self.number = self.incarnation = self.seen = self.cursor = 0
        self.holds: dict[str, Tenure] = {}
        self.heard: list[Change] = []
        self.lost: list[Change] = []
        self.last: CoordinatorReply = CoordinatorReply(status="OK")
        self.silent = self.is_over = False
        self.lease_ms = 0
        self._last_request: Request | None = None

    def ask(self, payload: Payload, *, lose_reply: bool = False) -> CoordinatorReply:
        """Sends the next request. Its reply can be lost on the way."""
        self._fence()
        self.number += 1
        held = tuple(it.token for it in self.holds.values()) if isinstance(payload, Heartbeat) else None
        header = Header(self.id, self.number, self.incarnation, self.seen, self.cursor, held)
        self._last_request = Request(header, payload)
        reply = self.group.execute(self._last_request)
        if not lose_reply:
            self._take(reply)
        return reply

    def repeat(self) -> CoordinatorReply:
        """Sends the last request again."""
        assert self._last_request is not None
        reply, payload = self.group.execute(self._last_request), self._last_request.payload
        self._take(reply)
        if isinstance(payload, Release) and reply.status == "OK":
            self._released(payload.items, reply.results)
        return reply

    def _take(self, reply: CoordinatorReply) -> None:
        self.last = reply
        self.seen = max(self.seen, reply.version)
        self.incarnation = max(self.incarnation, reply.incarnation)
        if reply.status != "OK":
            self.is_over = reply.status in ("ENDED", "UNKNOWN", "REJOIN")
            return
        self.lease_ms = self.group.local_ms + self.group.settings.session_timeout_ms
        self.cursor = reply.cursor
        self.is_over = reply.results[:1] == ("LEFT",)
        self.heard += reply.changes
        for change in reply.changes:
            self._apply(change)

    def _apply(self, change: Change) -> None:
        if change.kind == "lost":
            self.holds.pop(change.resource, None)
            self.lost.append(change)
        else:
            is_pending, deadline = change.kind == "revoke", change.deadline_ms
            local_deadline = self.group.local_ms + deadline - self.last.now_ms
            known = self.holds.get(change.resource)
            aborted = known is not None and known.token == change.token and known.aborted
            self.holds[change.resource] = Tenure(
                change.token, is_pending, deadline, change.committed, local_deadline, aborted
            )

    def _fence(self) -> None:
        """Gives up by its own clock: everything if its lease is over, otherwise what is past its deadline."""
        now = self.group.local_ms
        for tenure in self.holds.values():
            if now >= self.lease_ms or (tenure.pending and now >= tenure.local_deadline_ms):
                tenure.aborted = True

    def works_on(self, name: str) -> bool:
        """Whether, by its own clock, it may work on a resource now."""
        self._fence()
        return not self.is_over and name in self.holds and not self.holds[name].aborted

    @property
    def pending(self) -> list[str]:
        """The resources it was asked to give back."""
        return sorted(name for name, tenure in self.holds.items() if tenure.pending)

    def join(self, *, lose_reply: bool = False, **join: Any) -> CoordinatorReply:
        """Joins, with the group's settings unless others are given."""
        join.setdefault("settings", self.group.settings)
        claims = join.pop("claims", ())
        return self.ask(Join(claims=tuple(claims), **join), lose_reply=lose_reply)

    def claims(self) -> tuple[Claim, ...]:
        """What it would claim after a loss: no tenure it has aborted."""
        self._fence()
        holds = sorted((name, tenure) for name, tenure in self.holds.items() if not tenure.aborted)
        return tuple(Claim(name, tenure.token, tenure.committed) for name, tenure in holds)

    def rejoin(self, member: str, *, claims: tuple[Claim, ...] | None = None, **join: Any) -> Member:
        """The same process under its next id, with all its claims."""
        it = Member(self.group, member)
        it.seen, it.incarnation = self.seen, self.incarnation
        it.holds = {name: tenure for name, tenure in self.holds.items() if not tenure.aborted}
        it.lease_ms = self.lease_ms
        del self.group.members[self.id]
        self.group.members[member] = it
        claims = self.claims() if claims is None else claims
        reply = it.join(previous=self.id, claims=claims, **join)
        for claim, result in zip(claims, reply.results, strict=True) if reply.status == "OK" else ():
            if result == "LOST" and it.holds[claim.resource].token == claim.token:
                del it.holds[claim.resource]
        return it

    def heartbeat(self, *progress: tuple[str, int, bool], lose_reply: bool = False) -> CoordinatorReply:
        return self.ask(Heartbeat(progress), lose_reply=lose_reply)

    def hear(self) -> None:
        """Heartbeats until there is nothing more to receive."""
        while self.heartbeat().more and self.last.status == "OK":
            pass

    def busy(self, name: str, *, busy: bool = True) -> None:
        """Reports that a resource is busy (or idle)."""
        self.heartbeat((name, self.holds[name].token, busy))

    def release(self, *released: str, delivered: int = 0, committed: int = 0, **item: Any) -> tuple[str, ...]:
        """Releases resources; returns one result each."""
        items = tuple(
            ReleaseItem(resource=name, token=self.holds[name].token, delivered=delivered, committed=committed, **item)
            for name in released
        )
        reply = self.ask(Release(items))
        if reply.status != "OK":
            return (reply.status,)
        self._released(items, reply.results)
        return reply.results

    def _released(self, items: tuple[ReleaseItem, ...], results: tuple[str, ...]) -> None:
        for item, result in zip(items, results, strict=True):
            held = self.holds.get(item.resource)
            if result in ("OK", "FENCED") and held is not None and held.token == item.token:
                del self.holds[item.resource]

    def release_pending(self) -> int:
        """Finishes everything it was asked to give back, and returns how many that were."""
        if self.is_over or self.silent:
            return 0
        self._fence()
        aborted = sorted(name for name, tenure in self.holds.items() if tenure.aborted)
        if aborted:
            self.release(*aborted, reason="aborted")
        pending = self.pending if self.last.status == "OK" else []
        if pending:
            self.release(*pending)
        return len(pending) + len(aborted)

    def commit(self, name: str, offset: int, token: int | None = None) -> str:
        token = self.holds[name].token if token is None else token
        reply = self.ask(Commit((CommitItem(name, token, offset),)))
        if reply.status != "OK":
            return reply.status
        if reply.results[0] == "OK" and name in self.holds:
            self.holds[name].committed = offset
        return reply.results[0]

    def leave(self, *, remain: bool = False) -> str:
        reply = self.ask(Leave(remain))
        return reply.results[0] if reply.results else reply.status

    def watch(self) -> None:
        """Records the hints it gets."""
        self.group.backend.watch(hint_channel("g", self.id))


def working_group(group: Group, count: int = 6) -> tuple[Member, Member]:
    """Two members with everything assigned and an offset committed each."""
    a, b = group.joined("ab")
    group.set_resources(a, names(count))
    group.drain()
    for member in (a, b):
        for name in member.holds:
            member.commit(name, 10)
            member.holds[name].committed = 10
    return a, b


def moved(group: Group, member: Member, again: str) -> Member:
    """The server changed, and one member is back already."""
    group.backend.identity += "'"
    assert member.heartbeat().status == "REJOIN"
    return member.rejoin(again)
