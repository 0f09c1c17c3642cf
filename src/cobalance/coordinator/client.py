"""The coordinator of one group: requests in, replies out, over any transport. No retries: those are the session's."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs

from cobalance.coordinator.in_flight import InFlightReport
from cobalance.coordinator.keys import DEFAULT_PREFIX, group_keys, hint_channel
from cobalance.coordinator.replies import CoordinatorReply, decode
from cobalance.coordinator.requests import (
    Configure,
    Delete,
    Describe,
    Header,
    Repair,
    Report,
    Request,
    ResetOffsets,
    Resume,
    Section,
    Tick,
)
from cobalance.coordinator.scripts import load
from cobalance.errors import GroupActive, GroupExists, InvalidSettings, ScriptFailed, UnknownGroup
from cobalance.limits import check_integer
from cobalance.names import validate_name
from cobalance.settings import STORED_NAMES, GroupSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cobalance.coordinator.transport import Transport

NAMES_A_CALL = 200

_TOTALS = ("classes", "total", "graced_kept", "members", "owned", "free", "coordinator")
"""What a repair can make out otherwise than it was."""

_NOBODY = Header(member="-", number=0)


class Coordinator:
    """Runs the verbs of one group."""

    def __init__(self, transport: Transport, group: str, *, key_prefix: str = DEFAULT_PREFIX) -> None:
        self.group = validate_name("group", group)
        self.transport = transport
        self.key_prefix = validate_name("key prefix", key_prefix)
        self._keys = group_keys(group, key_prefix)

    def channel(self, member: str) -> str:
        """Where a member hears of changes, and listens for them."""
        return hint_channel(self.group, member, self.key_prefix)

    def execute(self, request: Request) -> CoordinatorReply:
        """Sends one request, once; while the group is being repaired, each call only brings that forward.

        Raises:
            Unreachable: it may or may not have run (``outcome``); the same request may be sent again.
        """
        reply = self._run(request)
        if reply.status == "REPAIRING" and isinstance(request.payload, Repair):
            request = attrs.evolve(request, payload=Tick())
        while reply.status == "REPAIRING":
            reply = self._run(request)
        return reply

    def _run(self, request: Request) -> CoordinatorReply:
        script = load(request.payload.verb)
        return decode(self.transport.call(script, self._keys, request.args()))

    def create(self, settings: GroupSettings) -> None:
        """Creates a group that is known to be new, so that its first members need not wait for claims. Never for one that Redis has
        lost while members work: nobody would be asked what it holds.

        Raises:
            GroupExists: it is there already.
            GroupActive: processes listen for it, so it is not new.
        """
        values = tuple((stored, str(getattr(settings, name))) for name, stored in STORED_NAMES.items())
        outcome = self._configure(Configure(create=True, values=values))
        if outcome == "EXISTS":
            raise GroupExists(f"group {self.group!r} exists already: use it, or `cobalance group configure` it")
        if outcome == "HEARD":
            raise GroupActive(
                f"group {self.group!r} is not new, since processes listen for it: Redis may have lost it. Its members recover it by "
                f"themselves; to create it all the same, stop them first"
            )

    def configure(self, **changes: int | str) -> GroupSettings:
        """Changes settings for all members. Names and units are those of :class:`GroupSettings`.

        Raises:
            UnknownGroup: there is no such group.
            InvalidSettings: a value is out of range, or contradicts another.
        """
        for name in changes:
            if name not in STORED_NAMES:
                raise InvalidSettings(f"there is no group setting {name!r}; there are {', '.join(STORED_NAMES)}")
        settings = attrs.evolve(self.settings(), **changes)  # type: ignore[arg-type]  # validates the whole before anything is sent
        values = tuple((STORED_NAMES[name], str(getattr(settings, name))) for name in changes)
        self._configure(Configure(create=False, values=values))
        return settings

    def _configure(self, payload: Configure) -> str:
        reply = self._admin(payload)
        if reply.results[0] == "INVALID":
            raise InvalidSettings(f"{reply.results[1]}: refused by the coordinator; see GroupSettings for the ranges")
        return reply.results[0]

    def _admin(
        self, payload: Configure | Delete | Describe | Repair | Report | ResetOffsets | Resume | Tick
    ) -> CoordinatorReply:
        reply = self.execute(Request(_NOBODY, payload))
        if reply.status == "UNKNOWN":
            raise UnknownGroup(
                f"group {self.group!r} does not exist in this Redis: "
                f"check the name and the URL, or start a member, which creates it"
            )
        return reply

    def trust_offsets(self) -> None:
        """An administrator's word that no committed offset was lost with Redis's data, or that those lost were set again: where there is
        none, there never was one.

        Raises:
            UnknownGroup: there is no such group.
        """
        self._configure(Configure(create=False, values=(("offsets_known", "1"),)))

    def settings(self) -> GroupSettings:
        """The settings in force."""
        state = self.state()
        return GroupSettings(
            **{name: state[stored] if name == "mode" else int(state[stored]) for name, stored in STORED_NAMES.items()}  # type: ignore[arg-type]
        )

    def tick(self) -> CoordinatorReply:
        """Settles what is due, as nobody in particular."""
        return self._admin(Tick())

    def resume(self, *resources: str) -> dict[str, str]:
        """Has halted resources worked again, in as many calls as that needs. Resource → ``OK``, ``NOT_HALTED`` or ``UNKNOWN``.

        Raises:
            UnknownGroup: there is no such group.
        """
        answers: dict[str, str] = {}
        done = 0
        while True:
            page = resources[done : done + NAMES_A_CALL]
            results = [it for it in self._admin(Resume(page)).results if it != "NEXT"]
            answers.update(zip(page, results, strict=False))
            done += len(results)
            if done == len(resources):
                return answers

    def repair(self) -> Repaired:
        """Has everything that is derived made anew from the records: indices, totals, timers. Journalled.

        Raises:
            UnknownGroup: there is no such group.
        """
        before: dict[str, str] = {}
        with suppress(ScriptFailed):
            before = self.state()
        self._admin(Repair())
        after = self.state()
        changed = {name: (before.get(name, "-"), after[name]) for name in _TOTALS if before.get(name) != after[name]}
        return Repaired(torn=before.get("repaired") == "1", changed=changed)

    def reset_offsets(self, offsets: Mapping[str, int]) -> None:
        """Sets committed offsets, lower ones than before included; -1 is before the first. Journalled. Done in parts of
        NAMES_A_CALL resources: a member that joins in between leaves the rest as it was, which repeating it sets right.

        Raises:
            UnknownGroup: there is no such group.
            GroupActive: somebody is a member, or may be.
            UsageError: an offset is no number that can be stored.
        """
        for offset in offsets.values():
            check_integer("the offset to commit", offset, least=-1)
        items = list(offsets.items())
        for start in range(0, len(items), NAMES_A_CALL):
            reply = self._admin(ResetOffsets(tuple(items[start : start + NAMES_A_CALL])))
            self._raise_active(reply)

    def delete(self, *, force: bool = False) -> None:
        """Has Redis forget the group, its committed offsets and its journal.

        Args:
            force: whoever is a member. To members it is a loss of data: each joins again with what it holds and the offsets of that,
                and the group recovers. So nobody works what somebody else does, and what nobody holds has lost its offset.

        Raises:
            UnknownGroup: there is no such group.
            GroupActive: somebody is a member, or may be.
        """
        self._raise_active(self._admin(Delete(force)))

    def _raise_active(self, reply: CoordinatorReply) -> None:
        if reply.results[0] == "ACTIVE":
            raise GroupActive(
                f"group {self.group!r} has members, or keeps resources for some that left: stop them all, wait until their "
                f"sessions and the rejoin grace are over, and try again"
            )
        if reply.results[0] == "RECOVERING":
            raise GroupActive(
                f"group {self.group!r} is finding out who holds what, for another {reply.recovering_ms} ms: try again then"
            )
        if reply.results[0] == "HEARD":
            raise GroupActive(
                f"group {self.group!r} has no members now, but processes listen that were, or want to be: stop them and try again"
            )

    def state(self) -> dict[str, str]:
        """The group's scalars by name."""
        words = self._admin(Describe("state")).results[1:]
        return dict(zip(words[::2], words[1::2], strict=True))

    def ask_in_flight(self, *, patience_ms: int = 500) -> dict[str, InFlightReport]:
        """Asks all members what they have in flight: member → its answer. Who has not answered by then, being frozen, cut off or of an
        older version, is not in it.
        """
        asked_ms, give_up_at = self._admin(Report()).now_ms, time.monotonic() + patience_ms / 1000
        while True:
            live = [row for row in self.members() if row.status in {"active", "leaving"} and row.expires_ms >= asked_ms]
            told = {
                row.id: row.in_flight for row in live if row.in_flight is not None and row.in_flight.at_ms >= asked_ms
            }
            if len(told) == len(live) or time.monotonic() > give_up_at:
                return told
            time.sleep(0.01)

    def members(self) -> Iterator[MemberRow]:
        """All members, page by page."""
        for row in self._rows("members"):
            yield MemberRow.read(row)

    def resources(self) -> Iterator[ResourceRow]:
        """All resources in order of their names, page by page."""
        for row in self._rows("resources"):
            yield ResourceRow.read(row)

    def subscriptions(self) -> list[SubscriptionRow]:
        """What members have declared, in the order it came."""
        return [SubscriptionRow.read(row) for row in self._rows("subscriptions")]

    def declared(self, subscription: str) -> Iterator[str]:
        """What is on the list of a subscription, page by page."""
        for (name,) in self._rows("declared", subscription):
            yield name

    def kept_offsets(self) -> Iterator[KeptOffset]:
        """The offsets of what the group has let go of, those first that are forgotten first."""
        for name, committed, until in self._rows("offsets"):
            yield KeptOffset(name, int(committed), int(float(until)))

    def _rows(self, section: Section, cursor: str = "") -> Iterator[tuple[str, ...]]:
        while True:
            reply = self._admin(Describe(section, cursor))
            yield from reply.rows
            cursor = reply.results[0]
            if not cursor:
                return


@attrs.frozen(kw_only=True)
class Repaired:
    """What a repair mended."""

    torn: bool
    """A script had died between its writes, and nobody had called since."""
    changed: dict[str, tuple[str, str]]
    """Totals that came out otherwise than they were, before and after; "-" for what could not be read. In a group that is at work some
    of it changes by itself."""


@attrs.frozen
class MemberRow:
    """A member as ``describe`` shows it."""

    id: str
    status: str
    capacity: int
    instance_id: str | None
    label: str
    subscription: str
    joined_ms: int
    last_request: int
    expires_ms: int
    kept: int
    pending: int
    quota_floor: int
    quota_ceil: int
    in_flight: InFlightReport | None = attrs.field(default=None, kw_only=True)
    """What it told when it was last asked, by :meth:`Coordinator.ask_in_flight`; None when it has not answered yet."""

    @classmethod
    def read(cls, row: tuple[str, ...]) -> MemberRow:
        """From a row of ``describe``."""
        id_, status, capacity, instance, label, *numbers, subscription, in_flight = row
        known = None if instance == "-" else instance
        read = cls(id_, status, int(capacity), known, label, subscription, *map(int, numbers))
        return attrs.evolve(read, in_flight=InFlightReport.read(in_flight))


@attrs.frozen
class SubscriptionRow:
    """What members with one declaration can work."""

    id: str
    members: int
    version: int
    """Of its list."""
    digest: str
    known: bool
    """All of its list is."""
    resources: int
    """How many it names."""

    @classmethod
    def read(cls, row: tuple[str, ...]) -> SubscriptionRow:
        """From a row of ``describe``."""
        id_, members, version, digest, done, resources = row
        return cls(id_, int(members), int(version), digest, done == "1", int(resources))


@attrs.frozen
class KeptOffset:
    """What is left of a resource that nobody named any more."""

    name: str
    committed: int
    until_ms: int
    """When it is forgotten, on the group's clock."""


@attrs.frozen
class ResourceRow:
    """A resource as ``describe`` shows it."""

    name: str
    status: str
    owner: str | None
    token: int
    since_ms: int
    deadline_ms: int
    rank: str
    removing: bool
    avoid: str
    committed: int | None

    @property
    def halted(self) -> str | None:
        """Why nobody works it before an operator resumes it, or before ``paused_until_ms``; ``None`` unless that is so."""
        if self.status != "halted":
            return None
        why = self.avoid.partition(":")[2]
        if not self.paused_until_ms:
            return why
        reason = why.partition("=")[2].partition("@")[0]
        return f"given up again and again ({reason})" if reason else "given up again and again"

    @property
    def paused_until_ms(self) -> int:
        """When a halted resource that nobody could work is tried again by itself; 0 for never, or for one that is not halted."""
        words = self.avoid.split("@")
        return int(words[-2]) if self.status == "halted" and len(words) > 2 else 0

    @classmethod
    def read(cls, row: tuple[str, ...]) -> ResourceRow:
        """From a row of ``describe``."""
        name, status, owner, token, since, deadline, rank, removing, avoid, committed = row
        return cls(
            name,
            status,
            None if owner == "-" else owner,
            int(token),
            int(since),
            int(deadline),
            rank,
            removing == "1",
            avoid,
            int(committed) if committed else None,
        )
