"""A snapshot of a group, as ``describe`` shows it: the one value that commands, metrics and programs read.

Redis fills it here; what the queues and streams hold, and the verdicts, are added by :mod:`cobalance.operate`.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import attrs

from cobalance.coordinator.client import settings_of
from cobalance.coordinator.keys import DEFAULT_PREFIX
from cobalance.coordinator.requests import GROUPS_OWN
from cobalance.limits import STARTING
from cobalance.settings import GroupSettings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cobalance.coordinator.client import Coordinator, KeptOffset, MemberRow, ResourceRow, SubscriptionRow

FORMAT = 1
"""Rises when a field of a description changes its meaning or goes. New fields do not change it."""

GroupState = Literal["Empty", "Assigning", "Reconciling", "Stable", "Recovering"]
"""Kafka's group states. Recovering: after a loss of data, or in a new group, members are still reporting what they
hold.
"""

Verdict = Literal["OK", "WARN", "STALL", "STOP"]
"""How work goes, from a short history. OK: done, or getting done. WARN: worked, but falling behind; or about to be moved
or retried. STALL: held, but nothing of it gets done. STOP: nobody works it.
"""


@attrs.frozen(kw_only=True)
class ServerDescription:
    """A server that was asked."""

    kind: Literal["Redis", "RabbitMQ"]
    place: str
    """Host and port, without user and password."""
    version: str | None = None
    problem: str | None = None
    """Why it could not tell what it was asked; None if it did."""


@attrs.frozen(kw_only=True)
class Backlog:
    """The remaining work of one resource. None means unknown."""

    lag: int | None = None
    """Of a queue, its unacknowledged messages; of a stream, those after the committed offset."""
    in_flight: int | None = None
    """Of a queue, messages delivered to a consumer and not acknowledged."""
    oldest_ms: int | None = None
    """Age of the oldest message in flight; None as well if there is none."""
    log_end_offset: int | None = None
    """Offset of a stream's last message; -1 if it is empty."""
    consumers: int | None = None
    """Of a queue, its consumers as RabbitMQ counts them, also those that are no member's."""

    @property
    def is_at_rabbitmq(self) -> bool:
        """Whether RabbitMQ has told anything of it: how much is with its consumer, and so the lag, may be unknown for a
        moment, as when its holder is about to consume it.
        """
        return self.consumers is not None or self.log_end_offset is not None


UNKNOWN_BACKLOG = Backlog()


@attrs.frozen(kw_only=True)
class SubscriptionDescription:
    """Members that declared the same resource list."""

    id: str
    members: int
    """How many members currently have this subscription."""
    resources: tuple[str, ...]
    """The resources it names, sorted. Members that name none use the list declared for the whole group."""
    is_known: bool
    """Whether the coordinator has received the complete list."""
    is_left_to_others: bool
    """It names no resources: these members work whatever no other member names."""


@attrs.frozen(kw_only=True)
class MemberDescription:
    """One member of the group."""

    id: str
    instance_id: str | None
    label: str
    """Host and process id, for display."""
    state: str
    """One of active, leaving, graced (its resources are kept for its return), dead (its resources are being freed), or
    silent: its session has expired, but no live member has prompted the coordinator to act on it.
    """
    capacity: int
    resources: tuple[str, ...]
    """What it holds, sorted."""
    kept: int
    """How many of them are held and not asked back."""
    pending: int
    """How many of them it must hand over."""
    quota: tuple[int, int]
    """The floor and the ceiling of its share."""
    expires_in_ms: int | None
    """Time left in its session, or in its rejoin grace period."""
    subscription: str
    """The id of a :class:`SubscriptionDescription`."""
    handled: int | None = None
    """How many messages it has acknowledged so far, dead-lettered ones included. None if it has not said so; always to
    ``describe``, which asks Redis only.
    """
    occupied_ms: int | None = None
    """For how long, altogether, it could not have done more: 1,000 a second is all that it can do, and handlers that run in
    half of the places that there are take 500. None if it does not say so, as for messages that are acknowledged by hand;
    and as for `handled`.
    """
    last_ack_ago_ms: int | None = None
    """How long ago it last acknowledged a message. None if it has not yet, or has not said so."""
    library_version: str | None = None
    """The version of Cobalance that it runs. None if it has not said so."""

    @property
    def host(self) -> str:
        """Host name."""
        return self.label.partition("/")[0]

    @property
    def pid(self) -> int | None:
        """Process id; None if the label has none."""
        number = self.label.rpartition("/")[2]
        return int(number) if number.isdecimal() else None


@attrs.frozen(kw_only=True)
class ResourceDescription:
    """One resource of the group."""

    name: str
    state: str
    """One of free, granted (not yet confirmed by its holder), held, pending (being handed over), graced (kept for its
    holder's return), or halted.
    """
    owner: str | None
    """The holder's member id."""
    token: int | None
    """The fencing token of the current tenure, or of the last one."""
    committed: int | None
    age_ms: int | None
    """Time in this state. None if that is unknown, as for a graced one whose grace has been put off or set."""
    deadline_in_ms: int | None
    """For a pending resource, the time until it is moved by force."""
    is_removing: bool
    """It is being removed: no list names it any more, and no new holder gets it."""
    is_named: bool
    """Whether any member names it. True as well when the group is empty, since everything is kept then."""
    halted: str | None
    """Why it is halted, that is, not worked until ``cobalance group resume`` or the next automatic retry."""
    tried_in_ms: int | None
    """For a halted resource, the time until it is retried automatically."""
    backlog: Backlog = UNKNOWN_BACKLOG
    """What is left to do. Unknown to ``describe`` of a group or an admin, which ask Redis only."""
    verdict: Verdict | None = None
    """How work on it goes. None if that is not known, or not known yet."""


@attrs.frozen(kw_only=True)
class LetGo:
    """A resource that left the group because no member named it. Its offset is kept for its return."""

    name: str
    committed: int
    forgotten_in_ms: int
    """Time until the offset is dropped."""


@attrs.frozen(kw_only=True)
class GroupDescription:
    """Settings, members and resources of a group.

    They are read one after the other, so a group that is rebalancing may have changed in between.
    """

    name: str
    state: GroupState
    settings: GroupSettings
    coordinator: str | None
    """Member id of the elected coordinator."""
    offsets_known: bool
    """Whether no committed offset can have been lost; see ``cobalance group trust-offsets``."""
    expires_at: datetime | None
    """When Redis drops the group unless a member joins; see ``GroupSettings.idle_expiry_ms``."""
    members: tuple[MemberDescription, ...]
    resources: tuple[ResourceDescription, ...]
    subscriptions: tuple[SubscriptionDescription, ...]
    let_go: tuple[LetGo, ...]
    at_ms: int
    """When it was read, in group time: milliseconds since 1970, by Redis's clock, kept from running backwards."""
    servers: tuple[ServerDescription, ...] = ()
    """The servers that were asked, if they say who they are."""
    verdict: Verdict | None = None
    """The worst verdict of any resource; None if none is known."""
    version: int = FORMAT
    key_prefix: str = DEFAULT_PREFIX
    """Of its keys in Redis."""

    @property
    def are_alike(self) -> bool:
        """Whether all present members name the same resources."""
        return sum(it.members > 0 for it in self.subscriptions) < 2

    @classmethod
    def read(cls, coordinator: Coordinator, state: Mapping[str, str] | None = None) -> GroupDescription:
        """Reads the group from the coordinator; its state, too, unless that was read just now. Of a group that has
        nothing of a kind, that is not asked for: there may be a thousand such groups.

        Raises:
            UnknownGroup: there is no such group.
        """
        scalars = coordinator.state() if state is None else state
        now_ms = int(scalars["heard"])
        subscriptions = tuple(_subscription(coordinator, row) for row in coordinator.subscriptions())
        rows = tuple(coordinator.members()) if scalars["members"] != "0" else ()
        named, graced = _named(subscriptions), _graced(rows, scalars)
        described, held, statuses = list[ResourceDescription](), defaultdict[str, list[str]](list), set[str]()
        for it in coordinator.resources() if scalars["names"] != "0" else ():  # Redis looks up the next page meanwhile
            described.append(_resource(it, named, graced, now_ms))
            statuses.add(it.status)
            if it.owner is not None:
                held[it.owner].append(it.name)
        let_go = tuple(coordinator.kept_offsets()) if scalars["timers"] != "0" else ()
        members = tuple(_member(row, held[row.id], now_ms) for row in rows)
        expires_ms = int(scalars["expires"])
        return cls(
            name=coordinator.group,
            key_prefix=coordinator.key_prefix,
            state="Recovering" if int(scalars["recovering"]) > now_ms else _state(members, statuses),
            settings=settings_of(scalars),
            coordinator=scalars["coordinator"] or None,
            offsets_known=scalars["offsets_known"] == "1",
            expires_at=datetime.fromtimestamp(expires_ms / 1000, UTC) if expires_ms else None,
            members=members,
            resources=tuple(described),
            subscriptions=subscriptions,
            let_go=tuple(_let_go(row, now_ms) for row in let_go if row.committed != STARTING),
            at_ms=now_ms,
        )


def _state(members: Sequence[MemberDescription], statuses: set[str]) -> GroupState:
    if all(member.state == "silent" for member in members):
        return "Empty"
    if "free" in statuses:
        return "Assigning"
    return "Reconciling" if statuses - {"held", "halted"} else "Stable"


def _subscription(coordinator: Coordinator, row: SubscriptionRow) -> SubscriptionDescription:
    return SubscriptionDescription(
        id=row.id,
        members=row.members,
        resources=tuple(coordinator.declared(row.id)) if row.resources else (),
        is_known=row.known,
        is_left_to_others=row.id == GROUPS_OWN and row.version == 0,
    )


def _named(subscriptions: Sequence[SubscriptionDescription]) -> Collection[str] | None:
    """The resources that present members name; None means all of them."""
    present = [it for it in subscriptions if it.members]
    if not present or any(it.is_left_to_others for it in present):
        return None
    return {name for it in present for name in it.resources}


def _member(row: MemberRow, held: Sequence[str], now_ms: int) -> MemberDescription:
    is_silent = row.status in {"active", "leaving"} and row.expires_ms < now_ms
    return MemberDescription(
        id=row.id,
        instance_id=row.instance_id,
        label=row.label,
        state="silent" if is_silent else row.status,
        capacity=row.capacity,
        resources=tuple(held),
        kept=row.kept,
        pending=row.pending,
        quota=(row.quota_floor, row.quota_ceil),
        expires_in_ms=max(0, row.expires_ms - now_ms) if row.expires_ms else None,
        subscription=row.subscription,
    )


def _graced(rows: Sequence[MemberRow], state: Mapping[str, str]) -> Mapping[str | None, int | None]:
    """The graced members, and since when they are: a grace before its end. None if that end has been put off."""
    heirs = {row.instance_id for row in rows if row.status == "active"}
    put_off = {int(state["recovering"]), int(state["gap_at"]) + int(state["session_ms"]) // 2}

    def since(row: MemberRow) -> int | None:
        is_put_off = row.expires_ms in put_off or row.instance_id in heirs
        return None if is_put_off else row.expires_ms - int(state["grace_ms"])

    return {row.id: since(row) for row in rows if row.status == "graced"}


def _age(row: ResourceRow, graced: Mapping[str | None, int | None], now_ms: int) -> int | None:
    if row.owner not in graced:
        return max(0, now_ms - row.since_ms)
    since_ms = graced[row.owner]  # the rejoin grace may have been set to another since it began
    return now_ms - since_ms if since_ms is not None and row.since_ms <= since_ms <= now_ms else None


def _resource(
    row: ResourceRow, named: Collection[str] | None, graced: Mapping[str | None, int | None], now_ms: int
) -> ResourceDescription:
    is_halted = row.status == "halted"  # there may be ten thousand others, so no more is asked of them than needed
    tried_ms = row.paused_until_ms if is_halted else 0
    return ResourceDescription(
        name=row.name,
        state="graced" if row.owner in graced else row.status,
        owner=row.owner,
        token=row.token or None,
        committed=None if row.committed == STARTING else row.committed,
        age_ms=_age(row, graced, now_ms),
        deadline_in_ms=max(0, row.deadline_ms - now_ms) if row.deadline_ms else None,
        is_removing=row.removing,
        is_named=named is None or row.name in named,
        halted=row.halted if is_halted else None,
        tried_in_ms=max(0, tried_ms - now_ms) if tried_ms else None,
    )


def _let_go(row: KeptOffset, now_ms: int) -> LetGo:
    return LetGo(name=row.name, committed=row.committed, forgotten_in_ms=max(0, row.until_ms - now_ms))
