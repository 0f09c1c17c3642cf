"""The coordinator of one group: requests in, replies out, over any transport. Retries are left to the session."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import attrs

from cobalance.backoff import Backoff
from cobalance.coordinator.in_flight import InFlightReport
from cobalance.coordinator.keys import DEFAULT_PREFIX, group_keys, hint_channel, scope, tuned_key
from cobalance.coordinator.replies import CoordinatorReply, decode
from cobalance.coordinator.requests import (
    NOBODY,
    Configure,
    Delete,
    Describe,
    Header,
    Payload,
    Repair,
    Report,
    Request,
    ResetOffsets,
    Resume,
    Section,
    StepDown,
    Suspect,
    Tick,
)
from cobalance.coordinator.scripts import load
from cobalance.coordinator.transport import CALL_TIMEOUT_MS
from cobalance.errors import GroupActive, GroupExists, InvalidSettings, ScriptFailed, UnknownGroup, Unreachable
from cobalance.limits import check_integer
from cobalance.names import validate_name
from cobalance.settings import STORED_NAMES, GroupSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cobalance.coordinator.transport import Transport

NAMES_A_CALL = 200

MEMBERS_A_CALL = 200
_PAGES: dict[Section, int] = {"resources": 500, "declared": 2_000}
"""Rows of a call, so that none keeps Redis busy for more than a few milliseconds."""

_LIVES = 20
"""More than a process may have at a time: the member that it is, and one before that is kept for a grace."""

LOOK_AGAIN_S = Backoff(0.01, 0.1)
"""A member answers within a few milliseconds, or not at all: then nobody's looks should keep Redis busy."""

_TOTALS = ("classes", "total", "graced_kept", "members", "owned", "free", "coordinator")
"""What a repair may change."""

_NOBODY = Header(member="-", number=0)


class Coordinator:
    """Runs the verbs of one group. An administrator's changes are journalled with `by`, as long as somebody says who."""

    def __init__(self, transport: Transport, group: str, *, key_prefix: str = DEFAULT_PREFIX, by: str = NOBODY) -> None:
        self.group = validate_name("group", group)
        self.transport, self._by = transport, by
        self.key_prefix = validate_name("key prefix", key_prefix)
        self._keys = group_keys(group, key_prefix)
        self.tuned_key = tuned_key(group, key_prefix)

    @property
    def scope(self) -> str:
        """What the group's queues and exchanges at RabbitMQ are named after. Known without asking Redis."""
        return scope(self.group, self.key_prefix, getattr(self.transport, "database", ""))

    @property
    def state_key(self) -> str:
        """The key of the group's state, beside which all others are."""
        return self._keys[0]

    def channel(self, member: str) -> str:
        return hint_channel(self.group, member, self.key_prefix)

    def execute(self, request: Request) -> CoordinatorReply:
        """Sends one request, once. While the group is being repaired, each call only advances the repair.

        Raises:
            Unreachable: it may or may not have run (see ``outcome``); the same request may be sent again.
        """
        reply = self._run(request)
        if reply.status == "REPAIRING" and isinstance(request.payload, Repair):
            request = attrs.evolve(request, payload=Tick())
        while reply.status == "REPAIRING":
            reply = self._run(request)
        return reply

    def _run(self, request: Request) -> CoordinatorReply:
        script = load(request.payload.verb)
        beside = (self.tuned_key,) if isinstance(request.payload, Configure | Delete) else ()
        return decode(self.transport.call(script, (*self._keys, *beside), request.args()))

    def create(self, settings: GroupSettings) -> None:
        """Creates a group that is known to be new, so that its first members need not wait for claims. Never use it for
        a group that Redis lost while members work: nobody would ask what they hold.

        Raises:
            GroupExists: it exists already.
            GroupActive: processes listen for it, so it is not new.
        """
        values = tuple((stored, str(getattr(settings, name))) for name, stored in STORED_NAMES.items())
        outcome = self._configure(Configure(create=True, values=values, by=self._by))
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
            InvalidSettings: a value is out of range or contradicts another one.
        """
        for name in changes:
            if name not in STORED_NAMES:
                raise InvalidSettings(f"there is no group setting {name!r}; there are {', '.join(STORED_NAMES)}")
        settings = GroupSettings(**{**_values(self.state()), **changes})  # type: ignore[arg-type]  # validates the whole
        values = tuple((STORED_NAMES[name], str(getattr(settings, name))) for name in changes)
        self._configure(Configure(create=False, values=values, by=self._by))
        return settings

    def _configure(self, payload: Configure) -> str:
        reply = self._admin(payload)
        if reply.results[0] == "INVALID":
            raise InvalidSettings(
                f"{reply.results[1]}: refused by the coordinator. Another change came between, or another version of cobalance runs "
                "elsewhere: look at the settings in force, and try again"
            )
        return reply.results[0]

    def _admin(
        self, payload: Configure | Delete | Describe | Repair | Report | ResetOffsets | Resume | Suspect | Tick
    ) -> CoordinatorReply:
        reply = self.execute(Request(self._administrator(payload), payload))
        if reply.status == "LATE":
            raise Unreachable(
                f"group {self.group!r} was not changed: the answer of Redis would have come after more than {CALL_TIMEOUT_MS} ms. Try again.",
                outcome="not_executed",
            )
        if reply.status == "UNKNOWN":
            raise UnknownGroup(
                f"group {self.group!r} does not exist in this Redis: "
                f"check the name and the URL, or start a member, which creates it"
            )
        return reply

    def _administrator(self, payload: Payload) -> Header:
        """A change is refused once nobody waits for its answer any more: it would undo what was done since."""
        is_change = isinstance(payload, Delete | ResetOffsets | Resume) or (
            isinstance(payload, Configure) and not payload.create
        )
        return attrs.evolve(_NOBODY, number=self.tick().now_ms + CALL_TIMEOUT_MS) if is_change else _NOBODY

    def trust_offsets(self) -> None:
        """Declares that no committed offset was lost with Redis's data, or that lost ones were set again: a resource
        without an offset never had one.

        Raises:
            UnknownGroup: there is no such group.
        """
        self._configure(Configure(create=False, values=(("offsets_known", "1"),), by=self._by))

    def settings(self) -> GroupSettings:
        """The settings in force."""
        return settings_of(self.state())

    def tick(self) -> CoordinatorReply:
        """Settles what is due, without being a member."""
        return self._admin(Tick())

    def resume(self, *resources: str) -> dict[str, str]:
        """Resumes halted resources, in as many calls as needed. Returns resource → ``OK``, ``NOT_HALTED`` or
        ``UNKNOWN``.

        Raises:
            UnknownGroup: there is no such group.
        """
        answers: dict[str, str] = {}
        done = 0
        while True:
            page = resources[done : done + NAMES_A_CALL]
            results = [it for it in self._admin(Resume(page, self._by)).results if it != "NEXT"]
            answers.update(zip(page, results, strict=False))
            done += len(results)
            if done == len(resources):
                return answers

    def repair(self) -> Repaired:
        """Rebuilds all derived data (indices, totals, timers) from the records. Journalled.

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

    def reset_offsets(self, offsets: Mapping[str, int]) -> list[str]:
        """Sets committed offsets, even to lower values; -1 is before the first. Journalled. Done in batches of
        NAMES_A_CALL resources: if a member joins in between, the rest stays unchanged, and repeating the call completes
        it. Returns which of them were halted, and are resumed.

        Raises:
            UnknownGroup: there is no such group.
            GroupActive: the group has members, or may have.
            UsageError: an offset cannot be stored.
        """
        for offset in offsets.values():
            check_integer("the offset to commit", offset, least=-1)
        items = list(offsets.items())
        resumed: list[str] = []
        for start in range(0, len(items), NAMES_A_CALL):
            page = tuple(items[start : start + NAMES_A_CALL])
            reply = self._admin(ResetOffsets(page, self._by))
            self._raise_active(reply, "; what is halted can be reset before that, without the others")
            resumed += [name for (name, _), result in zip(page, reply.results, strict=True) if result == "RESUMED"]
        return resumed

    def delete(self, *, force: bool = False) -> None:
        """Deletes the group, its committed offsets and its journal from Redis.

        Args:
            force: delete it even if it has members. To them it is a loss of data: each rejoins with what it holds and
                the offsets of that, and the group recovers. So no resource is worked twice, but those held by nobody
                lose their offsets.

        Raises:
            UnknownGroup: there is no such group.
            GroupActive: the group has members, or may have.
        """
        self._raise_active(self._admin(Delete(force)))

    def _raise_active(self, reply: CoordinatorReply, or_else: str = "") -> None:
        if reply.results[0] == "ACTIVE":
            raise GroupActive(
                f"group {self.group!r} has members, or keeps resources for some that left: stop them all, wait until their "
                f"sessions and the rejoin grace are over, and try again{or_else}"
            )
        if reply.results[0] == "RECOVERING":
            raise GroupActive(
                f"group {self.group!r} is finding out who holds what, for another {reply.recovering_ms} ms: try again then"
            )
        if reply.results[0] == "HEARD":
            raise GroupActive(
                f"group {self.group!r} has no members now, but processes that were members, or want to be, still listen: "
                "stop them and try again"
            )

    def step_down(self, member: str) -> None:
        """The member is not the head of its subscription any more, if it was, until it is elected again."""
        self.execute(Request(Header(member, 0), StepDown()))

    def suspect(self, look: Suspect) -> Sight:
        """Looks once whether a member shows a sign of life, and ends its session if this is the last look of a row.

        Raises:
            UnknownGroup: there is no such group.
        """
        reply = self._admin(look)
        while reply.more and reply.results[0] == "ENDED":
            more = self.tick().more
            reply = attrs.evolve(reply, more=more)
        verdict, *seen = reply.results
        return Sight(verdict, "".join(seen), reply.now_ms)

    def state(self) -> dict[str, str]:
        words = self._admin(Describe("state")).results[1:]
        return dict(zip(words[::2], words[1::2], strict=True))

    def ask_in_flight(self, *, patience_ms: int = 500) -> dict[str, InFlightReport]:
        """Asks all members what they have in flight, and returns member → its report. Members that do not answer in
        time, because they are frozen, cut off or of an older version, are missing.
        """
        asked_ms, give_up_at = self._admin(Report()).now_ms, time.monotonic() + patience_ms / 1000
        looks = 0
        while True:
            live = [row for row in self.members() if row.is_live(asked_ms)]
            answers = {
                row.id: row.in_flight for row in live if row.in_flight is not None and row.in_flight.at_ms >= asked_ms
            }
            if len(answers) == len(live) or time.monotonic() > give_up_at:
                return answers
            looks += 1
            time.sleep(LOOK_AGAIN_S.pause(looks))

    def members(self) -> Iterator[MemberRow]:
        """All members, page by page."""
        for row in self._rows("members"):
            yield MemberRow.read(row)

    def members_of(self, process: str) -> list[MemberRow]:
        """The members of one process, by one call: their ids are its name and a count."""
        reply = self._admin(Describe("members", f"{process}.", page=_LIVES))
        return [row for row in map(MemberRow.read, reply.rows) if row.id.startswith(f"{process}.")]

    def sample_members(self, most: int) -> list[MemberRow]:
        """Some live members, by one call."""
        reply = self._admin(Describe("members", page=most))
        return [row for row in map(MemberRow.read, reply.rows) if row.is_live(reply.now_ms)]

    def resources(self) -> Iterator[ResourceRow]:
        """All resources, sorted by name, page by page."""
        for line in self._lines("resources"):
            yield ResourceRow.read(line)

    def subscriptions(self) -> list[SubscriptionRow]:
        """All declared lists, in the order in which they arrived."""
        return [SubscriptionRow.read(row) for row in self._rows("subscriptions")]

    def declared(self, subscription: str) -> Iterator[str]:
        """The names on the list of a subscription, page by page."""
        return self._lines("declared", subscription)

    def kept_offsets(self) -> Iterator[KeptOffset]:
        """The kept offsets of resources that left the group, the first to expire first."""
        found = {row[0]: row for row in self._rows("offsets")}  # one that was taken up and left again is listed twice
        for name, committed, until in found.values():
            yield KeptOffset(name, int(committed), int(float(until)))

    def _lines(self, section: Section, cursor: str = "") -> Iterator[str]:
        for (text,) in self._rows(section, cursor):
            yield from text.split("\n") if text else ()

    def _rows(self, section: Section, cursor: str = "") -> Iterator[tuple[str, ...]]:
        page = _PAGES.get(section, MEMBERS_A_CALL)
        reply = self._admin(Describe(section, cursor, page))
        while cursor := reply.results[0]:
            following = self._ahead(Describe(section, cursor, page))
            yield from reply.rows
            reply = following()
        yield from reply.rows

    def _ahead(self, payload: Describe) -> Callable[[], CoordinatorReply]:
        """Asks for what is read next, so that Redis looks it up while what came before is parsed."""
        post = getattr(self.transport, "post", None)
        if post is None:
            return partial(self._admin, payload)
        answer = post(load(payload.verb), self._keys, Request(_NOBODY, payload).args())

        def read() -> CoordinatorReply:
            raw = answer()
            reply = None if raw is None else decode(raw)
            return reply if reply is not None and reply.status == "OK" else self._admin(payload)

        return read


def settings_of(state: Mapping[str, str]) -> GroupSettings:
    """The settings in a group's state."""
    return GroupSettings(**_values(state))  # type: ignore[arg-type]


def _values(state: Mapping[str, str]) -> dict[str, int | str]:
    return {name: state[stored] if name == "mode" else int(state[stored]) for name, stored in STORED_NAMES.items()}


@attrs.frozen
class Sight:
    """What a look at a suspected member found."""

    verdict: str
    """``SILENT``, ``ALIVE``, ``ENDED`` (its session, by this look), ``GONE``, ``UNVOUCHED`` or ``RECOVERING``."""
    seen: str
    """For the later looks of the row, if it was silent."""
    now_ms: int
    """When it was, in group time."""


@attrs.frozen(kw_only=True)
class Repaired:
    """The outcome of a repair."""

    torn: bool
    """Whether a script had died between its writes, without any call since."""
    changed: dict[str, tuple[str, str]]
    """Totals that changed, with their values before and after; "-" for unreadable ones. In a working group some of them
    change anyway.
    """


@attrs.frozen
class MemberRow:
    """A member, as listed by ``describe``."""

    id: str
    status: str
    capacity: int
    instance_id: str | None
    label: str
    joined_ms: int
    last_request: int
    expires_ms: int
    kept: int
    pending: int
    quota_floor: int
    quota_ceil: int
    subscription: str = attrs.field(kw_only=True)
    in_flight: InFlightReport | None = attrs.field(default=None, kw_only=True)
    """Its answer to the last :meth:`Coordinator.ask_in_flight`; None until it has answered."""

    def is_live(self, at_ms: int) -> bool:
        """Whether its session lasts, in group time."""
        return self.status in {"active", "leaving"} and self.expires_ms >= at_ms

    @classmethod
    def read(cls, row: tuple[str, ...]) -> MemberRow:
        id_, status, capacity, instance, label, *numbers, subscription, in_flight = row
        known = None if instance == "-" else instance
        report = InFlightReport.read(in_flight)
        return cls(
            id_, status, int(capacity), known, label, *map(int, numbers), subscription=subscription, in_flight=report
        )


@attrs.frozen
class SubscriptionRow:
    """A subscription, as listed by ``describe``: members that declared the same list."""

    id: str
    members: int
    version: int
    """The version of its list."""
    digest: str
    known: bool
    """Whether its list is complete."""
    resources: int
    """The length of its list."""

    @classmethod
    def read(cls, row: tuple[str, ...]) -> SubscriptionRow:
        id_, members, version, digest, done, resources = row
        return cls(id_, int(members), int(version), digest, done == "1", int(resources))


@attrs.frozen
class KeptOffset:
    """The offset of a resource that left the group because no member named it."""

    name: str
    committed: int
    until_ms: int
    """When it is dropped, in group time."""


@attrs.define
class ResourceRow:
    """A resource, as listed by ``describe``. Not frozen, since there are thousands, and that takes twice as long."""

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
        """Why it is not worked until an operator resumes it, or until ``paused_until_ms``; ``None`` if it is not
        halted.
        """
        if self.status != "halted":
            return None
        why = self.avoid.partition(":")[2]
        if not self.paused_until_ms:
            return why
        reason = self.paused_for
        return f"given up again and again ({reason})" if reason else "given up again and again"

    @property
    def paused_for(self) -> str:
        """The reason of its last giver, if it is retried automatically and one is known; otherwise ""."""
        return self.avoid.partition("=")[2].partition("@")[0] if self.paused_until_ms else ""

    @property
    def paused_until_ms(self) -> int:
        """When a halted resource that no member could work is retried automatically; 0 if never, or if it is not
        halted.
        """
        until = re.search(r"@([0-9]{1,17})@[0-9]+$", self.avoid) if self.status == "halted" else None
        return int(until[1]) if until else 0

    @classmethod
    def read(cls, line: str) -> ResourceRow:
        name, status, owner, token, since, deadline, rank, removing, avoid, _, committed = line.split(" ")
        return cls(
            name,
            status,
            None if owner == "-" else owner,
            int(token),
            int(since),
            abs(int(deadline)),
            rank,
            removing == "1",
            avoid,
            int(committed) if committed else None,
        )
