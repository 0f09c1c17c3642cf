"""A group's data in Redis as records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import attrs

from cobalance.coordinator.dump import KeyState, State
from cobalance.coordinator.keys import group_keys
from cobalance.coordinator.requests import GROUPS_OWN

_KEYS = tuple(key.rsplit(":", 1)[1] for key in group_keys("g"))


@attrs.frozen
class ResourceRecord:
    """A packed record of ``resources``."""

    status: str
    owner: str
    token: int
    since: int
    deadline: int
    rank: str
    removing: bool
    avoid: str
    ended: int

    @classmethod
    def unpack(cls, packed: str) -> ResourceRecord:
        status, owner, token, since, deadline, rank, removing, avoid, ended = packed.split(" ")
        return cls(status, owner, int(token), int(since), abs(int(deadline)), rank, removing == "1", avoid, int(ended))

    @property
    def is_counted(self) -> bool:
        """Whether it is part of a member's share."""
        return not self.removing and self.status != "halted"

    @property
    def is_kept(self) -> bool:
        """Held, or about to be."""
        return self.status in ("granted", "held")


@attrs.frozen
class MemberRecord:
    """A packed record of ``members``."""

    status: str
    capacity: int
    instance: str
    joined: int
    incarnation: int
    request: int
    reason: str
    label: str
    subscription: str

    @classmethod
    def unpack(cls, packed: str) -> MemberRecord:
        status, capacity, instance, joined, incarnation, request, *words = packed.split(" ")
        return cls(status, int(capacity), instance, int(joined), int(incarnation), int(request), *words)

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
        """The class in which its share is counted."""
        if self.status == "leaving":
            return 0
        return -self.capacity if self.status == "graced" else self.capacity


@attrs.frozen
class Records:
    """All records of a group."""

    raw: State
    scalars: dict[str, str]
    members: dict[str, MemberRecord]
    instances: dict[str, str]
    resources: dict[str, ResourceRecord]
    zsets: dict[str, dict[str, float]]
    offsets: dict[str, int]
    journal: list[dict[str, str]]

    @classmethod
    def read(cls, state: State) -> Records:
        """Parses a dump.

        Raises:
            KeyError: it has a key that no script knows.
        """
        part: dict[str, Any] = dict.fromkeys(_KEYS, ())
        for key in state:
            name = key.key.decode().rsplit(":", 1)[1]
            if name not in part:
                raise KeyError(f"no script knows the key {key.key!r}")
            part[name] = key.contents
        members = _pairs(part["members"])
        return cls(
            raw=state,
            scalars=_pairs(part["state"]),
            members={id_: MemberRecord.unpack(text) for id_, text in members.items() if id_[0] != "="},
            instances={id_[1:]: text for id_, text in members.items() if id_[0] == "="},
            resources={name: ResourceRecord.unpack(text) for name, text in _pairs(part["resources"]).items()},
            zsets={name: _scores(part[name]) for name in _ZSETS} | {"more": _ranks(part["more"])},
            offsets={name: int(text) for name, text in _pairs(part["offsets"]).items()},
            journal=[_pairs(fields) for fields in part["journal"][2::2]],
        )

    @property
    def feed(self) -> Iterator[tuple[str, int, str]]:
        """The news that members have not confirmed: member, version, resource."""
        for entry in self.zsets["feed"]:
            member, version, name = entry.split(" ")
            yield member, int(version), name

    @property
    def is_torn(self) -> bool:
        """A script died between its writes."""
        return self.scalars.get("pulse", "").startswith("torn ")

    @property
    def is_under_repair(self) -> bool:
        """A repair has begun, or is due: the next call goes on with it."""
        return re.match(r"[a-z]+ \d \d+", self.scalars.get("pulse", "")) is not None

    @property
    def is_mixed(self) -> bool:
        """Whether its members can work different resources."""
        return len({it.subscription for it in self.members.values() if it.is_counted}) > 1

    def can_work(self, member: str, resource: str) -> bool:
        """Whether the group knows a list of the member that names the resource; the group's own is taken to name all."""
        subscription = self.members[member].subscription
        return subscription == GROUPS_OWN or f"{subscription} {resource}" in self.zsets["declared"]

    def last_request(self, member: str) -> int:
        """The number of the last request that a member got an answer to."""
        return int(self.scalars.get(f"r:{member}", "-1").split(" ")[0])

    def number(self, scalar: str) -> int:
        """A scalar of the group."""
        return int(self.scalars.get(scalar, "0"))

    def owned_by(self, member: str) -> dict[str, ResourceRecord]:
        """What a member holds, pending or not."""
        return {name: record for name, record in self.resources.items() if record.owner == member}

    def kept_by(self, member: str) -> int:
        """How many a member keeps."""
        return sum(record.is_kept for record in self.resources.values() if record.owner == member)

    def with_scalar(self, field: str, value: str) -> State:
        """The same data with one scalar changed."""
        return tuple(_changed(key, field, value) if key.key.endswith(b":state") else key for key in self.raw)


_ZSETS = (
    "names",
    "owned",
    "feed",
    "load",
    "more",
    "less",
    "loose",
    "revoking",
    "free",
    "timers",
    "deadlines",
    "declared",
    "ids",
)


def _pairs(flat: Any) -> dict[str, str]:
    return {flat[i].decode(): flat[i + 1].decode() for i in range(0, len(flat), 2)}


def _scores(flat: Any) -> dict[str, float]:
    return {flat[i].decode(): float(flat[i + 1]) for i in range(0, len(flat), 2)}


def _ranks(flat: Any) -> dict[str, float]:
    """The member's load in the entries ``subscription load member``."""
    entries = [entry.decode().split(" ") for entry in flat[::2]]
    return {member: float(load) for _, load, member in entries}


def _changed(key: KeyState, field: str, value: str) -> KeyState:
    fields = _pairs(key.contents) | {field: value}
    contents = [part.encode() for pair in sorted(fields.items()) for part in pair]
    return attrs.evolve(key, contents=tuple(contents))
