"""What a member asks of the coordinator, as values, and how each is written as script arguments."""

from __future__ import annotations

from typing import ClassVar, Literal

import attrs

from cobalance.settings import STORED_NAMES, GroupSettings

PROTOCOL = 2

GROUPS_OWN = "-"
"""The subscription of members that leave the list to somebody else."""

TOKEN_SUMS = 2**52
"""Sums of tokens are taken modulo this, as in the scripts."""


def _digits(value: int | None) -> str:
    return "" if value is None else str(value)


@attrs.frozen
class Header:
    """Who asks, and what it knows. A repeat carries the same number and changes nothing twice."""

    member: str
    number: int
    incarnation: int = 0
    """Highest incarnation the process has heard of in any reply: a group whose own is lower has lost data."""
    seen: int = 0
    """Highest version it has seen in any reply: a group of the same incarnation whose version is lower has lost data."""
    cursor: int = 0
    """How far the member has heard its changes."""
    held: tuple[int, ...] | None = None
    """The tokens of all that it holds by then, or their sum: a group that has others on record has lost data. ``None`` does not
    say.
    """

    def args(self) -> list[str]:
        """The arguments common to every verb, after the server identity that the transport puts first."""
        held = "" if self.held is None else str(sum(self.held) % TOKEN_SUMS)
        numbers = (self.number, self.incarnation, self.seen, self.cursor)
        return [str(PROTOCOL), self.member, *map(str, numbers), held]


@attrs.frozen
class Claim:
    """A tenure the member has from before: of a lost state, or of its former self."""

    resource: str
    token: int
    committed: int | None = None


@attrs.frozen(kw_only=True)
class Join:
    """Become a member, or (with more claims) add a page to it."""

    verb: ClassVar[str] = "join"
    settings: GroupSettings
    capacity: int = 1
    instance_id: str | None = None
    previous: str | None = None
    """The member id this very process had before."""
    label: str = "-"
    floor_token: int = 0
    """The highest token the process has ever seen: new ones lie above it."""
    claims: tuple[Claim, ...] = ()
    last_page: bool = True
    subscription: str = GROUPS_OWN
    """Which list of resources the member can work; members with one subscription declare the same."""

    def args(self) -> list[str]:
        """Script arguments after the header."""
        out = [str(self.floor_token), str(self.capacity), self.instance_id or "-", self.previous or "-", self.label]
        out.append("last" if self.last_page else "more")
        out += [str(getattr(self.settings, name)) for name in STORED_NAMES]
        out.append(self.subscription)
        for claim in self.claims:
            out += [claim.resource, str(claim.token), _digits(claim.committed)]
        return out


@attrs.frozen
class Heartbeat:
    """Renew the session; tell which tenures turned busy or idle since the last one."""

    verb: ClassVar[str] = "heartbeat"
    progress: tuple[tuple[str, int, bool], ...] = ()

    def args(self) -> list[str]:
        """Script arguments after the header."""
        return [word for name, token, busy in self.progress for word in (name, str(token), "1" if busy else "0")]


@attrs.frozen
class Tick:
    """Settle what is due."""

    verb: ClassVar[str] = "tick"

    def args(self) -> list[str]:
        """Script arguments after the header."""
        return []


@attrs.frozen
class Effort:
    """What a tenure took its holder, for the journal: timeouts are tuned by it."""

    handled: int
    """How often its handler has run."""
    busy_ms: int
    """How long it ran in all; at least one run at a time."""
    late_ms: int = 0
    """How much longer than a heartbeat interval the coordinator was once without an answered call of the holder, at most since
    the holder's last report."""

    def __str__(self) -> str:
        return f"{self.handled}/{self.busy_ms}/{self.late_ms}"


@attrs.frozen(kw_only=True)
class ReleaseItem:
    """One resource given back. Without a reason its drain has finished; with one it is abandoned."""

    resource: str
    token: int
    delivered: int = 0
    committed: int = 0
    offset: int | None = None
    """Committed for good in the same step; ``None`` keeps the stored one."""
    reason: str = ""
    effort: Effort | None = None


@attrs.frozen
class Release:
    """Give resources back."""

    verb: ClassVar[str] = "release"
    items: tuple[ReleaseItem, ...]

    def args(self) -> list[str]:
        """Script arguments after the header."""
        out: list[str] = []
        for it in self.items:
            out += [it.resource, str(it.token), str(it.delivered), str(it.committed), _digits(it.offset), it.reason]
            out.append("" if it.effort is None else str(it.effort))
        return out


@attrs.frozen
class CommitItem:
    """An offset that outlives its tenure."""

    resource: str
    token: int
    offset: int


@attrs.frozen
class Commit:
    """Store offsets."""

    verb: ClassVar[str] = "commit"
    items: tuple[CommitItem, ...]

    def args(self) -> list[str]:
        """Script arguments after the header."""
        return [word for it in self.items for word in (it.resource, str(it.token), str(it.offset))]


@attrs.frozen
class Leave:
    """Stop gracefully; ``remain`` keeps everything for the rejoin grace of an instance id."""

    verb: ClassVar[str] = "leave"
    remain: bool = False

    def args(self) -> list[str]:
        """Script arguments after the header."""
        return ["remain" if self.remain else "leave"]


@attrs.frozen(kw_only=True)
class SetResources:
    """One page of a sorted resource list, which speaks for the names in (after, to]."""

    verb: ClassVar[str] = "set_resources"
    version: int
    digest: str
    after: str = ""
    to: str = ""
    names: tuple[str, ...] = ()

    def args(self) -> list[str]:
        """Script arguments after the header."""
        return [str(self.version), self.digest, self.after, self.to, *self.names]


@attrs.frozen
class Configure:
    """An administrator's change of settings, or the creation of a group known to be new."""

    verb: ClassVar[str] = "configure"
    create: bool
    values: tuple[tuple[str, str], ...]

    def args(self) -> list[str]:
        """Script arguments after the header."""
        return ["create" if self.create else "update", *(word for pair in self.values for word in pair)]


@attrs.frozen
class Resume:
    """An administrator's word that halted resources can be worked again."""

    verb: ClassVar[str] = "resume"
    resources: tuple[str, ...]

    def args(self) -> list[str]:
        """Script arguments after the header."""
        return list(self.resources)


@attrs.frozen
class ResetOffsets:
    """An administrator's committed offsets, for a group without members. Lower ones than before are taken, too."""

    verb: ClassVar[str] = "reset_offsets"
    offsets: tuple[tuple[str, int], ...]

    def args(self) -> list[str]:
        """Script arguments after the header."""
        return [word for name, offset in self.offsets for word in (name, str(offset))]


@attrs.frozen
class Repair:
    """An administrator's wish to have everything derived made anew from the records."""

    verb: ClassVar[str] = "repair"

    def args(self) -> list[str]:
        """Script arguments after the header."""
        return []


@attrs.frozen
class Delete:
    """An administrator's wish to have the group forgotten."""

    verb: ClassVar[str] = "delete"
    by_force: bool = False
    """Whoever is a member or not."""

    def args(self) -> list[str]:
        """Script arguments after the header."""
        return ["by_force" if self.by_force else "gently"]


@attrs.frozen
class Report:
    """What a member has in flight; without any words, the question to all of them."""

    verb: ClassVar[str] = "report"
    told: str | None = None

    def args(self) -> list[str]:
        """Script arguments after the header."""
        return ["ask", ""] if self.told is None else ["tell", self.told]


Section = Literal["state", "members", "resources", "subscriptions", "declared", "offsets"]


@attrs.frozen
class Describe:
    """One page of what the group looks like."""

    verb: ClassVar[str] = "describe"
    section: Section
    cursor: str = ""
    page: int = 200

    def args(self) -> list[str]:
        """Script arguments after the header."""
        return [self.section, self.cursor, str(self.page)]


Payload = (
    Join
    | Heartbeat
    | Tick
    | Release
    | Commit
    | Leave
    | SetResources
    | Configure
    | Resume
    | ResetOffsets
    | Describe
    | Repair
    | Delete
    | Report
)


@attrs.frozen
class Request:
    """A header and what it asks for."""

    header: Header
    payload: Payload

    def args(self) -> list[str]:
        """All script arguments, but for the server identity."""
        return self.header.args() + self.payload.args()
