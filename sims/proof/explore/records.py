"""A group's data as records, and whether its indices and counters agree with them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import attrs

from cobalance.coordinator.requests import GROUPS_OWN, TOKEN_SUMS
from cobalance.coordinator.state import State
from proof.explore.codec import HIGHEST_TOKEN

SCALE, TOP = 2**35, 2**53


@attrs.frozen
class Resource:
    """A packed record of ``resources``, as far as it is checked."""

    status: str
    owner: str
    token: int
    since: int
    deadline: int
    rank: str
    removing: bool
    avoid: str

    @property
    def is_kept(self) -> bool:
        """Held, or about to be."""
        return self.status in ("granted", "held")


@attrs.frozen
class Member:
    """A packed record of ``members``, as far as it is checked."""

    status: str
    capacity: int
    instance: str
    incarnation: int
    subscription: str

    @property
    def is_live(self) -> bool:
        """It has a session."""
        return self.status in ("active", "leaving")

    @property
    def is_counted(self) -> bool:
        """It has a share, or keeps one."""
        return self.is_live or self.status == "graced"

    @property
    def share_class(self) -> int:
        """The class its share is counted in."""
        if self.status == "leaving":
            return 0
        return -self.capacity if self.status == "graced" else self.capacity


@attrs.frozen
class Records:
    """All records of a group."""

    scalars: dict[str, str]
    members: dict[str, Member]
    resources: dict[str, Resource]
    zsets: dict[str, dict[str, int]]
    offsets: dict[str, int]
    feed: tuple[tuple[str, int, str], ...]

    @classmethod
    def read(cls, state: State) -> Records:
        """Parses a dump."""
        parts = {key.key.decode().rsplit(":", 1)[1]: _pairs(key.contents) for key in state if key.kind != "stream"}
        feed = [entry.split(" ") for entry in parts.get("feed", {})]
        return cls(
            scalars=parts.get("state", {}),
            members={name: _member(text) for name, text in parts.get("members", {}).items() if name[0] != "="},
            resources={name: _resource(text) for name, text in parts.get("resources", {}).items()},
            zsets={name: {entry: int(at) for entry, at in parts.get(name, {}).items()} for name in _ZSETS}
            | {"more": _ranks(parts.get("more", {}))},
            offsets={name: int(text) for name, text in parts.get("offsets", {}).items()},
            feed=tuple((member, int(version), name) for member, version, name in feed),
        )

    def number(self, scalar: str) -> int:
        """A scalar of the group."""
        return int(self.scalars.get(scalar, "0"))

    @property
    def is_torn(self) -> bool:
        """A script died between its writes."""
        return self.scalars.get("pulse", "").startswith("torn ")

    def last_request(self, member: str) -> int:
        """The number of the last request that a member got an answer to."""
        return int(self.scalars.get(f"r:{member}", "-1").split(" ")[0])

    @property
    def is_mixed(self) -> bool:
        """Whether its members can work different resources."""
        return len({it.subscription for it in self.members.values() if it.is_counted}) > 1

    def can_work(self, member: str, resource: str) -> bool:
        """Whether the group knows a list of the member that names the resource; in no scope does the group's own list
        name fewer resources than there are.
        """
        subscription = self.members[member].subscription
        return subscription == GROUPS_OWN or f"{subscription} {resource}" in self.zsets["declared"]

    def kept_by(self, member: str) -> int:
        """How many resources a member keeps."""
        return sum(it.is_kept for it in self.resources.values() if it.owner == member)


_ZSETS = ("names", "owned", "load", "more", "less", "loose", "revoking", "free", "timers", "deadlines", "declared")


def _ranks(entries: Iterable[str]) -> dict[str, int]:
    """Member → load, from entries ``subscription load member``."""
    return {member: int(load) for _, load, member in (entry.split(" ") for entry in entries)}


def _pairs(flat: tuple[bytes, ...]) -> dict[str, str]:
    return {flat[i].decode(): flat[i + 1].decode() for i in range(0, len(flat), 2)}


def _member(packed: str) -> Member:
    status, capacity, instance, _, incarnation, *_rest, subscription = packed.split(" ")
    return Member(status, int(capacity), instance, int(incarnation), subscription)


def _resource(packed: str) -> Resource:
    status, owner, token, since, deadline, rank, removing, avoid, _ = packed.split(" ")
    return Resource(status, owner, int(token), int(since), abs(int(deadline)), rank, removing == "1", avoid)


def inconsistency(records: Records) -> str:
    """Returns the first rule that is broken; empty if there is none."""
    for says, rule in _RULES:
        if not rule(records):
            return f"inconsistent data: {says}"
    return ""


def _owned(records: Records) -> bool:
    expected = set()
    for name, it in records.resources.items():
        if it.status == "pending":
            expected.add(f"{it.owner} {'r' if it.removing else 'p'}{it.since:016} {name}")
        elif it.status not in ("free", "halted"):
            expected.add(f"{it.owner} k{it.rank}{it.token:016} {name}")
    return {_timeless(entry) for entry in records.zsets["owned"]} == {_timeless(entry) for entry in expected}


def _timeless(entry: str) -> str:
    """Canonical data keeps only the order of a pending entry's time."""
    member, rank, name = entry.split(" ")
    return f"{member} {rank if rank[0] == 'k' else rank[0]} {name}"


def _owners(records: Records) -> bool:
    for it in records.resources.values():
        if (it.owner == "-") != (it.status in ("free", "halted")):
            return False
        owner = records.members.get(it.owner)
        if it.owner != "-" and (owner is None or owner.status == "ended"):
            return False
        if it.removing and it.is_kept and owner is not None and owner.status != "dead":
            return False
    return True


def _free(records: Records) -> bool:
    free = {name: it.removing for name, it in records.resources.items() if it.status == "free"}
    return free == {name: score == 0 for name, score in records.zsets["free"].items()}


def _score(kept: int, share_class: int) -> int:
    return int(f"{kept * SCALE / share_class - (share_class < 0):.0f}")


def _load(records: Records) -> bool:
    load, more, less = {}, {}, {}
    for name, member in records.members.items():
        kept, share = records.kept_by(name), member.share_class
        if member.is_counted:
            load[name] = _score(kept, share) if share else TOP + 2 * kept
        if member.is_counted and kept:
            less[name] = _score(kept - 1, share) if share else TOP
        if member.is_counted and share > 0:
            more[name] = _score(kept + 1, share)
    loose = {name: load[name] for name in less.keys() & more.keys()}
    same = (records.zsets["load"], records.zsets["more"]) == (load, more)
    return same and _has_movable(records, "less", less) and _has_movable(records, "loose", loose)


def _has_movable(records: Records, key: str, expected: dict[str, int]) -> bool:
    """A member that keeps only pinned resources may be missing."""
    movable = {it.owner for it in records.resources.values() if it.is_kept and it.rank != "0"}
    found = records.zsets[key]
    return found.items() <= expected.items() and not (expected.keys() - found.keys()) & movable


def _revoking(records: Records) -> bool:
    pending = {it.owner for it in records.resources.values() if it.status == "pending" and not it.removing}
    active = [name for name, it in records.members.items() if it.status == "active" and name in pending]
    expected = {name: records.zsets["load"][name] for name in active if name in records.zsets["more"]}
    return records.zsets["revoking"] == expected | {f"+{name}": -records.zsets["more"][name] for name in expected}


def _deadlines(records: Records) -> bool:
    armed = {name: it for name, it in records.resources.items() if it.deadline > 0}
    same = records.zsets["deadlines"] == {name: it.deadline for name, it in armed.items()}
    return same and all(it.status == "pending" for it in armed.values())


def _counters(records: Records) -> bool:
    classes = Counter(it.share_class for it in records.members.values() if it.is_counted)
    written = " ".join(f"{share}={classes[share]}" for share in sorted(classes))
    graced = [name for name, it in records.members.items() if it.is_counted and it.share_class < 0]
    return (
        records.scalars.get("classes", "") == written
        and records.number("total")
        == sum(not it.removing and it.status != "halted" for it in records.resources.values())
        and records.number("live") == sum(share * count for share, count in classes.items() if share > 0)
        and records.number("graced") == -sum(share * count for share, count in classes.items() if share < 0)
        and records.number("graced_kept") == sum(records.kept_by(name) for name in graced)
        and _is_highest(records)
    )


def _is_highest(records: Records) -> bool:
    highest = records.number("token")
    return highest == HIGHEST_TOKEN or highest >= max((it.token for it in records.resources.values()), default=0)


_NEEDED = {"active": "s", "leaving": "s", "graced": "g", "dead": "e", "ended": "t"}


def _timers(records: Records) -> bool:
    timers = records.zsets["timers"]
    return (
        all(f"{_NEEDED[it.status]}:{name}" in timers for name, it in records.members.items())
        and all(it.avoid == "-" or f"a:{name}" in timers for name, it in records.resources.items())
        and (records.number("recovering") == 0 or "r" in timers)
    )


def _sums(records: Records) -> bool:
    live = [name for name, it in records.members.items() if it.is_live]
    for name in live:
        tokens = [it.token for it in records.resources.values() if it.owner == name]
        if records.number(f"k:{name}") != sum(tokens) % TOKEN_SUMS:
            return False
    return {field[2:] for field in records.scalars if field[:2] == "k:"} <= set(live)


def _sessions(records: Records) -> bool:
    live = {name for name, it in records.members.items() if it.is_live}
    known = {field[2:] for field in records.scalars if field[:2] == "r:"}
    kept = {name for name, it in records.members.items() if it.status == "graced"}
    ending = {field[2:] for field in records.scalars if field[:2] == "g:"}
    return (known, ending) == (live, kept) and records.scalars.get("coordinator", "") in {"", *live}


def _subscriptions(records: Records) -> bool:
    counted = Counter(it.subscription for it in records.members.values() if it.is_counted)
    written = dict(pair.rsplit("=", 1) for pair in records.scalars.get("subscriptions", "").split())
    known = {entry.split(" ")[0] for entry in records.zsets["declared"]}
    return {name: int(count) for name, count in written.items() if count != "0"} == counted and known <= written.keys()


_RULES: tuple[tuple[str, Callable[[Records], bool]], ...] = (
    ("names are not the resources", lambda it: set(it.zsets["names"]) == set(it.resources)),
    ("owned does not agree with the records", _owned),
    ("a resource has no owner, or one that has ended", _owners),
    ("free does not agree with the records", _free),
    ("load does not agree with what is kept", _load),
    ("revoking does not agree with what could be cancelled", _revoking),
    ("deadlines do not agree with the records", _deadlines),
    ("a counter is wrong", _counters),
    ("a sum of tokens is not that of what is held", _sums),
    ("something that must end has no timer", _timers),
    ("sessions are not those of the living", _sessions),
    ("subscriptions are miscounted, or a list is nobody's", _subscriptions),
)
