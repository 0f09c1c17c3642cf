"""Requests to the coordinator as values, and their encoding as script arguments."""

from __future__ import annotations

from typing import ClassVar, Literal

import attrs

from cobalance.settings import STORED_NAMES, GroupSettings

PROTOCOL = 2
"""The form of arguments and answers; also in ``90_request.lua`` and ``heartbeat.lua``, which refuse any other. Each
release brings its own scripts, so what two of them cannot share in Redis is for ``keys.SCHEMA``.
"""

NOBODY = "-"
"""By whom a change is, in the journal, if nobody says so."""

GROUPS_OWN = "-"
"""The subscription of members that leave it to others to declare the list."""

LOOKED_FOR = "~"
"""How the subscriptions begin of which one member, the head, is elected to look for what is on the list."""

TOKEN_SUMS = 2**52
"""Sums of tokens are taken modulo this, as in the scripts."""


def _digits(value: int | None) -> str:
    return "" if value is None else str(value)


@attrs.frozen
class Header:
    """Who asks, and what it knows. A repeated request has the same number and changes nothing twice."""

    member: str
    number: int
    """An administrator's call (member "-") has none: it says until when, in group time, somebody waits for the answer, and
    is refused later. 0 is for ever.
    """
    incarnation: int = 0
    """Highest incarnation in any reply so far: a group with a lower one has lost data."""
    seen: int = 0
    """Highest version in any reply so far: a group of the same incarnation with a lower one has lost data."""
    cursor: int = 0
    """How far the member has received its changes."""
    held: tuple[int, ...] | None = None
    """The tokens of everything it holds, or their sum: a group that has others on record has lost data. ``None`` if not
    stated.
    """

    def args(self) -> list[str]:
        """The arguments common to all verbs, after the server identity that the transport adds."""
        held = "" if self.held is None else str(sum(self.held) % TOKEN_SUMS)
        numbers = (self.number, self.incarnation, self.seen, self.cursor)
        return [str(PROTOCOL), self.member, *map(str, numbers), held]


@attrs.frozen
class Claim:
    """A tenure from before: from a lost state, or of a previous member of this process."""

    resource: str
    token: int
    committed: int | None = None


@attrs.frozen(kw_only=True)
class Join:
    """Become a member, or add a page of claims."""

    verb: ClassVar[str] = "join"
    settings: GroupSettings
    capacity: int = 1
    instance_id: str | None = None
    previous: str | None = None
    """The previous member id of this process."""
    label: str = "-"
    floor_token: int = 0
    """The highest token the process has ever seen: new ones must be above it."""
    claims: tuple[Claim, ...] = ()
    last_page: bool = True
    subscription: str = GROUPS_OWN
    """Which list of resources the member can work. Members with the same subscription declare the same list."""

    def args(self) -> list[str]:
        out = [str(self.floor_token), str(self.capacity), self.instance_id or "-", self.previous or "-", self.label]
        out.append("last" if self.last_page else "more")
        out += [str(getattr(self.settings, name)) for name in STORED_NAMES]
        out.append(self.subscription)
        for claim in self.claims:
            out += [claim.resource, str(claim.token), _digits(claim.committed)]
        return out


@attrs.frozen
class Heartbeat:
    """Renew the session, and report which tenures turned busy or idle since the last heartbeat."""

    verb: ClassVar[str] = "heartbeat"
    progress: tuple[tuple[str, int, bool], ...] = ()

    def args(self) -> list[str]:
        return [word for name, token, busy in self.progress for word in (name, str(token), "1" if busy else "0")]


@attrs.frozen
class Tick:
    """Settle what is due."""

    verb: ClassVar[str] = "tick"

    def args(self) -> list[str]:
        return []


@attrs.frozen
class Effort:
    """How much a holder worked during a tenure; recorded in the journal, for tuning timeouts."""

    handled: int
    """How often its handler ran."""
    busy_ms: int
    """How long at least one handler was running, in total."""
    late_ms: int = 0
    """The longest silence of the holder beyond a heartbeat interval, as seen by the coordinator since the holder's last
    report.
    """

    def __str__(self) -> str:
        return f"{self.handled}/{self.busy_ms}/{self.late_ms}"


@attrs.frozen(kw_only=True)
class ReleaseItem:
    """A resource to be released. Without a reason its drain has finished; with one it is abandoned."""

    resource: str
    token: int
    delivered: int = 0
    committed: int = 0
    offset: int | None = None
    """Stored in the same step; ``None`` keeps the stored one."""
    reason: str = ""
    effort: Effort | None = None


@attrs.frozen
class Release:
    verb: ClassVar[str] = "release"
    items: tuple[ReleaseItem, ...]

    def args(self) -> list[str]:
        out: list[str] = []
        for it in self.items:
            out += [it.resource, str(it.token), str(it.delivered), str(it.committed), _digits(it.offset), it.reason]
            out.append("" if it.effort is None else str(it.effort))
        return out


@attrs.frozen
class CommitItem:
    resource: str
    token: int
    offset: int


@attrs.frozen
class Commit:
    verb: ClassVar[str] = "commit"
    items: tuple[CommitItem, ...]

    def args(self) -> list[str]:
        return [word for it in self.items for word in (it.resource, str(it.token), str(it.offset))]


@attrs.frozen
class Leave:
    """Leave gracefully. ``remain`` keeps everything for the rejoin grace period of an instance id."""

    verb: ClassVar[str] = "leave"
    remain: bool = False

    def args(self) -> list[str]:
        return ["remain" if self.remain else "leave"]


@attrs.frozen(kw_only=True)
class SetResources:
    """One page of a sorted resource list. It is complete for the names in (after, to]."""

    verb: ClassVar[str] = "set_resources"
    version: int
    digest: str
    after: str = ""
    to: str = ""
    names: tuple[str, ...] = ()

    def args(self) -> list[str]:
        return [str(self.version), self.digest, self.after, self.to, *self.names]


@attrs.frozen
class Configure:
    """An administrator changes settings, or creates a group known to be new."""

    verb: ClassVar[str] = "configure"
    create: bool
    values: tuple[tuple[str, str], ...]
    by: str = NOBODY

    def args(self) -> list[str]:
        return ["create" if self.create else "update", self.by, *(word for pair in self.values for word in pair)]


@attrs.frozen
class Resume:
    """An administrator resumes halted resources."""

    verb: ClassVar[str] = "resume"
    resources: tuple[str, ...]
    by: str = NOBODY

    def args(self) -> list[str]:
        return [self.by, *self.resources]


@attrs.frozen
class ResetOffsets:
    """An administrator sets committed offsets of a group without members, even to lower values."""

    verb: ClassVar[str] = "reset_offsets"
    offsets: tuple[tuple[str, int], ...]
    by: str = NOBODY

    def args(self) -> list[str]:
        return [self.by, *(word for name, offset in self.offsets for word in (name, str(offset)))]


@attrs.frozen
class Repair:
    """An administrator has all derived data rebuilt from the records."""

    verb: ClassVar[str] = "repair"

    def args(self) -> list[str]:
        return []


@attrs.frozen
class Delete:
    """An administrator deletes the group."""

    verb: ClassVar[str] = "delete"
    by_force: bool = False
    """Even if it has members."""

    def args(self) -> list[str]:
        return ["by_force" if self.by_force else "gently"]


@attrs.frozen
class Report:
    """What a member has in flight; without ``report``, the question to all members."""

    verb: ClassVar[str] = "report"
    report: str | None = None

    def args(self) -> list[str]:
        return ["ask", ""] if self.report is None else ["tell", self.report]


@attrs.frozen
class StepDown:
    """The head of a subscription cannot look for what is on its list, and another member may be able to."""

    verb: ClassVar[str] = "step_down"

    def args(self) -> list[str]:
        return []


@attrs.frozen
class Vouch:
    """A member says whether a broker guards whatever it holds, so that its session may end early once it is seen to be
    dead.
    """

    verb: ClassVar[str] = "vouch"
    connection: str | None
    """For as long as which connection it does."""

    def args(self) -> list[str]:
        return [self.connection or "-"]


@attrs.frozen(kw_only=True)
class Suspect:
    """One look at a member whose process may be dead; see ``suspect.lua``."""

    verb: ClassVar[str] = "suspect"
    member: str
    connection: str
    """Which of its connections was seen to be gone."""
    seen: str = ""
    """What the first look of the row saw; empty begins one."""
    last_look_ms: int = 0
    """When the last look was, in group time."""
    within_ms: int = 0
    """How long ago that may be for this look to end the session. 0 only looks."""

    def args(self) -> list[str]:
        return [self.member, self.connection, self.seen, str(self.last_look_ms), str(self.within_ms)]


Section = Literal["state", "members", "resources", "subscriptions", "declared", "offsets"]


@attrs.frozen
class Describe:
    """One page of a group's description."""

    verb: ClassVar[str] = "describe"
    section: Section
    cursor: str = ""
    page: int = 200

    def args(self) -> list[str]:
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
    | Vouch
    | StepDown
    | Suspect
)


@attrs.frozen
class Request:
    header: Header
    payload: Payload

    def args(self) -> list[str]:
        """All script arguments, except the server identity."""
        return self.header.args() + self.payload.args()
