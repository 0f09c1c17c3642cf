"""``cobalance group describe``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import attrs
from cyclopts import Parameter

from cobalance.admin import GroupDescription, LetGo, MemberDescription, ResourceDescription
from cobalance.cli.options import THIS_REDIS, AmqpUrl, Json, ManagementUrl, Name, RedisOptions
from cobalance.cli.output import Cell, seconds
from cobalance.cli.watching import Page, Watching
from cobalance.cli.watching import watch as watch_pages
from cobalance.errors import UsageError, counted
from cobalance.names import in_order, split_resource
from cobalance.operate.wording import of_group
from cobalance.rabbitmq.wire.address import DEFAULT_AMQP_URL

Row = dict[str, Any]

LINE = 80
"""Width of a line without --wide."""

PARTITION_COLUMNS = {
    "GROUP": "group",
    "TOPIC": "topic",
    "PARTITION": "partition",
    "CURRENT-OFFSET": "current_offset",
    "LOG-END-OFFSET": "log_end_offset",
    "LAG": "lag",
    "IN-FLIGHT": "in_flight",
    "OLDEST": "oldest_ms",
    "CONSUMER-ID": "consumer_id",
    "HOST": "host",
    "CLIENT-ID": "client_id",
    "STATE": "state",
    "AGE": "age_ms",
    "TOKEN": "token",
    "DEADLINE-IN": "deadline_in_ms",
    "VERDICT": "verdict",
    "RESOURCE": "resource",
}
MEMBER_COLUMNS = {
    "GROUP": "group",
    "CONSUMER-ID": "consumer_id",
    "GROUP-INSTANCE-ID": "group_instance_id",
    "HOST": "host",
    "CLIENT-ID": "client_id",
    "#PARTITIONS": "partitions",
    "STATE": "state",
    "SUBSCRIPTION": "subscription",
}
VERBOSE_COLUMNS = {
    "CAPACITY": "capacity",
    "KEPT": "kept",
    "QUOTA": "quota",
    "PENDING": "pending",
    "EXPIRES-IN": "expires_in_ms",
    "LAST-ACK": "last_ack_ago_ms",
    "VERSION": "library_version",
    "CURRENT-ASSIGNMENT": "current_assignment",
}
STATE_COLUMNS = {
    "GROUP": "group",
    "COORDINATOR (ID)": "coordinator",
    "ASSIGNMENT-STRATEGY": "assignment_strategy",
    "STATE": "state",
    "#MEMBERS": "members",
}

NARROW_PARTITIONS = ("RESOURCE", "STATE", "AGE", "CURRENT-OFFSET", "LAG", "IN-FLIGHT", "OLDEST", "VERDICT", "CLIENT-ID")
NARROW_MEMBERS = ("CLIENT-ID", "STATE", "GROUP-INSTANCE-ID", "#PARTITIONS", "SUBSCRIPTION")
NARROW_VERBOSE = ("CLIENT-ID", "STATE", "CAPACITY", "QUOTA", "PENDING", "CURRENT-ASSIGNMENT", "SUBSCRIPTION")
IF_ANY = {"group_instance_id", "subscription", "current_offset", "verdict"}
"""Columns left out of a narrow table in which they are empty."""


def describe(
    name: Name,
    /,
    *,
    partitions: Annotated[bool, Parameter(negative="", help="Show the partitions (the default).")] = False,
    members: Annotated[bool, Parameter(negative="", help="Show the members.")] = False,
    state: Annotated[bool, Parameter(negative="", help="Show the group as a whole.")] = False,
    verbose: Annotated[
        bool, Parameter(negative="", help="With --members: what each one holds, and its quota.")
    ] = False,
    wide: Annotated[
        bool, Parameter(negative="", help="Show all columns, without limiting lines to 80 characters.")
    ] = False,
    watch: Watching = False,
    json: Json = False,
    redis: RedisOptions = THIS_REDIS,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
    management_url: ManagementUrl = None,
) -> None:
    """Show a group's partitions, members or state, with Kafka's column names.

    LAG is the number of messages ready in RabbitMQ plus those IN-FLIGHT: delivered to a consumer and not acknowledged,
    the OLDEST of them this long ago. IN-FLIGHT comes from the members or, if one does not answer, from the management
    API (without the age). For streams, LAG is the distance from CURRENT-OFFSET, the last processed message, to
    LOG-END-OFFSET, the last message. AGE is the time a partition has been in its STATE; a pending one is being drained,
    and is moved by force after DEADLINE-IN. A partition that was let go of is on no list any more; its offset is kept
    for its return. SUBSCRIPTION is a member's list of resources, if the lists differ. LAST-ACK, how long ago a member last
    acknowledged a message, and VERSION, that of Cobalance, are what it says itself. VERDICT is OK, WARN (worked, but
    falling behind, or about to be moved), STALL (held, but nothing gets done) or STOP (nobody works it); most verdicts
    take a while of --watch. Unknown values are shown as "-".
    """
    if partitions + members + state > 1:
        raise UsageError("Give one of --partitions, --members and --state.")
    page = _state_page if state else partial(_member_page, verbose=verbose) if members else _partition_page
    unknown: dict[str, None] = {}
    with redis.admin("none" if members else amqp_url, management_url) as admin:
        if state or (members and not verbose):
            read: Callable[[], GroupDescription] = partial(admin.describe, name)
        elif watch:
            read = admin.watch(name, on_unknown=unknown.setdefault).snapshot
        else:
            read = partial(admin.snapshot, name, on_unknown=unknown.setdefault)

        def look() -> Page:
            unknown.clear()
            group = read()
            remarks = [*(f"warning: {why}" for why in unknown), *_remarks(group)]
            return attrs.evolve(page(group, wide=wide), remarks=remarks)

        if watch:
            watch_pages(look, json=json)
        look().print(json=json)


def _state_page(group: GroupDescription, *, wide: bool) -> Page:
    return _page(STATE_COLUMNS, [_state_row(group)], None if wide else tuple(STATE_COLUMNS))


def _member_page(group: GroupDescription, *, wide: bool, verbose: bool) -> Page:
    columns = MEMBER_COLUMNS | (VERBOSE_COLUMNS if verbose else {})
    narrow = NARROW_VERBOSE if verbose else NARROW_MEMBERS
    return _page(columns, list(_member_rows(group)), None if wide else narrow)


def _partition_page(group: GroupDescription, *, wide: bool) -> Page:
    return _page(PARTITION_COLUMNS, list(_partition_rows(group)), None if wide else NARROW_PARTITIONS)


def _page(columns: Mapping[str, str], rows: Sequence[Row], narrow: Sequence[str] | None) -> Page:
    shown = columns if narrow is None else {name: columns[name] for name in narrow if _is_shown(columns[name], rows)}
    return Page(
        columns=list(shown),
        rows=[[_cell(key, row[key]) for key in shown.values()] for row in rows],
        json=[{key: row[key] for key in columns.values()} for row in rows],
        within=None if narrow is None else LINE,
    )


def _is_shown(key: str, rows: Sequence[Row]) -> bool:
    return key not in IF_ANY or any(row[key] is not None for row in rows)


def _cell(key: str, value: Any) -> Cell:
    if key.endswith("_ms"):
        return seconds(value)
    return ";".join(value) if isinstance(value, list) else value


# -- remarks -----------------------------------------------------------------------------------------------------------


def _remarks(group: GroupDescription) -> Iterator[str]:
    if group.state in {"Assigning", "Reconciling", "Recovering"}:
        yield f"warning: group {group.name!r} is rebalancing ({group.state})."
    elif group.state == "Empty":
        silent = f" but {len(group.members)} that went silent without leaving" if group.members else ""
        yield f"warning: group {group.name!r} has no members{silent}."
    graced = sum(member.state == "graced" for member in group.members)
    if graced:
        yield f"warning: group {group.name!r} keeps the places of {counted(graced, 'member that is', 'members that are')} gone."
    paused = [resource.name for resource in group.resources if resource.tried_in_ms is not None]
    if paused:
        yield (
            f"warning: nobody could work {', '.join(paused)}: tried again in growing pauses. At once, when the cause is removed: "
            f"{of_group(group, 'resume', *paused)}"
        )
    halted = [resource.name for resource in group.resources if resource.halted and resource.tried_in_ms is None]
    if halted:
        yield (
            f"warning: nobody works {', '.join(halted)}: halted, since a member could not get on. Once the cause is removed: "
            f"{of_group(group, 'resume', *halted)}"
        )


# -- rows --------------------------------------------------------------------------------------------------------------


def _partition_rows(group: GroupDescription) -> Iterator[Row]:
    members = {member.id: member for member in group.members}
    for resource in sorted(group.resources, key=lambda it: in_order(it.name)):
        owner, backlog = members.get(resource.owner or ""), resource.backlog
        yield _partition_row(group.name, resource.name) | {
            "current_offset": resource.committed,
            "log_end_offset": backlog.log_end_offset,
            "lag": backlog.lag,
            "in_flight": backlog.in_flight,
            "oldest_ms": backlog.oldest_ms,
            "verdict": resource.verdict,
            "consumer_id": resource.owner,
            "host": owner.host if owner else None,
            "client_id": owner.label if owner else None,
            "state": _status(resource),
            "age_ms": resource.age_ms,
            "token": resource.token,
            "deadline_in_ms": resource.deadline_in_ms,
        }
    for it in group.let_go:
        yield _partition_row(group.name, it.name) | {"current_offset": it.committed, "state": _kept(it)}


def _partition_row(group: str, name: str) -> Row:
    topic, partition = split_resource(name)
    known = {"group": group, "topic": topic, "partition": partition, "resource": name}
    return dict.fromkeys(PARTITION_COLUMNS.values()) | known


def _status(resource: ResourceDescription) -> str:
    if resource.tried_in_ms is not None:
        return f"{resource.state}: {resource.halted}, tried in {seconds(resource.tried_in_ms)}"
    if resource.halted:
        return f"{resource.state}: {resource.halted}"
    if resource.is_removing:
        return f"{resource.state}, removing"
    return resource.state if resource.is_named else f"{resource.state}, named by nobody present"


def _kept(it: LetGo) -> str:
    days = it.forgotten_in_ms / 86_400_000
    return f"let go, offset kept for {days:.1f} days"


def _member_rows(group: GroupDescription) -> Iterator[Row]:
    lists = {it.id: _subscription(it.resources) for it in group.subscriptions}
    for member in group.members:
        yield _member_row(group, member) | {"subscription": None if group.are_alike else lists[member.subscription]}


def _member_row(group: GroupDescription, member: MemberDescription) -> Row:
    low, high = member.quota
    return {
        "group": group.name,
        "consumer_id": member.id,
        "group_instance_id": member.instance_id,
        "host": member.host,
        "client_id": member.label,
        "partitions": len(member.resources),
        "state": member.state,
        "capacity": member.capacity,
        "kept": member.kept,
        "quota": str(low) if low == high else f"{low}-{high}",
        "pending": member.pending,
        "expires_in_ms": member.expires_in_ms,
        "last_ack_ago_ms": member.last_ack_ago_ms,
        "library_version": member.library_version,
        "current_assignment": list(_by_topic(member.resources)) or None,
    }


def _subscription(resources: Sequence[str]) -> list[str]:
    """Members that name nothing work what no other member names."""
    return list(_by_topic(resources)) or ["*"]


def _by_topic(names: Sequence[str]) -> Iterator[str]:
    """``orders:0,3`` for each topic."""
    topics: defaultdict[str | None, list[str]] = defaultdict(list)
    for name in sorted(names, key=in_order):
        topic, partition = split_resource(name)
        topics[topic].append(partition)
    for topic, numbers in topics.items():
        listed = ",".join(numbers)
        yield listed if topic is None else f"{topic}:{listed}"


def _state_row(group: GroupDescription) -> Row:
    elected = next((member for member in group.members if member.id == group.coordinator), None)
    return {
        "group": group.name,
        "coordinator": f"{elected.label} ({elected.id})" if elected else None,
        "assignment_strategy": group.settings.mode,
        "state": group.state,
        "members": len(group.members),
    }
