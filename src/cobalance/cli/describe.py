"""``cobalance group describe``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from cyclopts import Parameter

from cobalance.cli.ends import End, read_ends
from cobalance.cli.group import connected
from cobalance.cli.in_flight import SentAhead, read_in_flight
from cobalance.cli.options import DEFAULT_AMQP_URL, DEFAULT_REDIS_URL, AmqpUrl, Json, ManagementUrl, Name, RedisUrl
from cobalance.cli.output import Cell, print_json, print_table, remark, seconds, split_resource
from cobalance.cli.snapshot import Snapshot, host_of
from cobalance.coordinator.client import Coordinator, MemberRow, ResourceRow
from cobalance.errors import UsageError
from cobalance.names import validate_name

Row = dict[str, Any]

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
}
MEMBER_COLUMNS = {
    "GROUP": "group",
    "CONSUMER-ID": "consumer_id",
    "GROUP-INSTANCE-ID": "group_instance_id",
    "HOST": "host",
    "CLIENT-ID": "client_id",
    "#PARTITIONS": "partitions",
}
VERBOSE_COLUMNS = {
    "STATE": "state",
    "CAPACITY": "capacity",
    "KEPT": "kept",
    "QUOTA": "quota",
    "PENDING": "pending",
    "EXPIRES-IN": "expires_in_ms",
    "CURRENT-ASSIGNMENT": "current_assignment",
}
STATE_COLUMNS = {
    "GROUP": "group",
    "COORDINATOR (ID)": "coordinator",
    "ASSIGNMENT-STRATEGY": "assignment_strategy",
    "STATE": "state",
    "#MEMBERS": "members",
}


def describe(
    name: Name,
    /,
    *,
    partitions: Annotated[bool, Parameter(negative="", help="Who works what (the default).")] = False,
    members: Annotated[bool, Parameter(negative="", help="Who is there.")] = False,
    state: Annotated[bool, Parameter(negative="", help="The group as a whole.")] = False,
    verbose: Annotated[bool, Parameter(negative="", help="With --members: what each has, and its quota.")] = False,
    json: Json = False,
    redis_url: RedisUrl = DEFAULT_REDIS_URL,
    amqp_url: AmqpUrl = DEFAULT_AMQP_URL,
    management_url: ManagementUrl = None,
) -> None:
    """Show a group: its partitions, members or state, under Kafka's column names.

    LAG is what RabbitMQ has ready, and what is IN-FLIGHT: sent ahead to a consumer and not acknowledged, the OLDEST since so long. The
    members tell that, or, where one does not answer, the management API (without the age). In streams it is the distance from CURRENT-OFFSET,
    the last message processed, to LOG-END-OFFSET, the last there is. AGE is how long the partition has been in its
    STATE; a pending one is being drained, and is moved by force when DEADLINE-IN has passed. Unknown is "-".
    """
    if partitions + members + state > 1:
        raise UsageError("Give one of --partitions, --members and --state.")
    validate_name("group", name)
    with connected(redis_url) as transport:
        coordinator = Coordinator(transport, name)
        told = {} if state or members else coordinator.ask_in_flight()
        snapshot = Snapshot.take(coordinator)
    if state:
        columns, rows = STATE_COLUMNS, [_state_row(snapshot)]
    elif members:
        columns = MEMBER_COLUMNS | (VERBOSE_COLUMNS if verbose else {})
        rows = [_member_row(snapshot, member) for member in snapshot.members]
    else:
        ends = read_ends(snapshot, amqp_url)
        in_flight = read_in_flight(snapshot, told, ends, amqp_url, management_url)
        columns, rows = PARTITION_COLUMNS, list(_partition_rows(snapshot, ends, in_flight))
    _remark_on(snapshot)
    _show(columns, rows, json=json)


def _show(columns: Mapping[str, str], rows: Sequence[Row], *, json: bool) -> None:
    if json:
        print_json([{name: row[name] for name in columns.values()} for row in rows])
    else:
        print_table(list(columns), ([_cell(name, row[name]) for name in columns.values()] for row in rows))


def _cell(name: str, value: Any) -> Cell:
    if name.endswith("_ms"):
        return seconds(value)
    return ";".join(value) if isinstance(value, list) else value


def _remark_on(snapshot: Snapshot) -> None:
    if snapshot.state in {"Assigning", "Reconciling", "Recovering"}:
        remark(f"warning: group {snapshot.group!r} is rebalancing ({snapshot.state}).")
    elif snapshot.state == "Empty":
        silent = f" but {len(snapshot.members)} that went silent without leaving" if snapshot.members else ""
        remark(f"warning: group {snapshot.group!r} has no members{silent}.")
    paused = [resource.name for resource in snapshot.resources if resource.paused_until_ms]
    if paused:
        remark(
            f"warning: nobody could work {', '.join(paused)}: tried again in growing pauses. At once, when the cause is removed: "
            f"cobalance group resume {snapshot.group} {' '.join(paused)}"
        )
    halted = [resource.name for resource in snapshot.resources if resource.halted and not resource.paused_until_ms]
    if halted:
        remark(
            f"warning: nobody works {', '.join(halted)}: halted, since a member could not get on. Once the cause is removed: "
            f"cobalance group resume {snapshot.group} {' '.join(halted)}"
        )


# -- rows --------------------------------------------------------------------------------------------------------------


def _partition_rows(snapshot: Snapshot, ends: Mapping[str, End], in_flight: Mapping[str, SentAhead]) -> Iterator[Row]:
    by_id = snapshot.by_id
    for resource in snapshot.resources:
        topic, partition = split_resource(resource.name)
        owner = by_id.get(resource.owner or "")
        yield {
            "group": snapshot.group,
            "topic": topic,
            "partition": partition,
            "current_offset": resource.committed,
            "log_end_offset": ends[resource.name].offset,
            "lag": ends[resource.name].lag(resource.committed, in_flight[resource.name].messages),
            "in_flight": in_flight[resource.name].messages,
            "oldest_ms": in_flight[resource.name].oldest_ms,
            "consumer_id": resource.owner,
            "host": host_of(owner.label) if owner else None,
            "client_id": owner.label if owner else None,
            "state": _status(resource, owner, snapshot.now_ms),
            "age_ms": max(0, snapshot.now_ms - resource.since_ms),
            "token": resource.token or None,
            "deadline_in_ms": max(0, resource.deadline_ms - snapshot.now_ms) if resource.deadline_ms else None,
        }


def _status(resource: ResourceRow, owner: MemberRow | None, now_ms: int) -> str:
    status = "graced" if owner is not None and owner.status == "graced" else resource.status
    if resource.paused_until_ms:
        return f"{status}: {resource.halted}, tried in {seconds(max(0, resource.paused_until_ms - now_ms))}"
    if resource.halted:
        return f"{status}: {resource.halted}"
    return f"{status}, removing" if resource.removing else status


def _member_row(snapshot: Snapshot, member: MemberRow) -> Row:
    held = snapshot.held_by(member.id)
    low, high = member.quota_floor, member.quota_ceil
    return {
        "group": snapshot.group,
        "consumer_id": member.id,
        "group_instance_id": member.instance_id,
        "host": host_of(member.label),
        "client_id": member.label,
        "partitions": len(held),
        "state": "silent" if snapshot.is_silent(member) else member.status,
        "capacity": member.capacity,
        "kept": member.kept,
        "quota": str(low) if low == high else f"{low}-{high}",
        "pending": member.pending,
        "expires_in_ms": max(0, member.expires_ms - snapshot.now_ms) if member.expires_ms else None,
        "current_assignment": list(_assignment(held)) or None,
    }


def _assignment(held: Sequence[str]) -> Iterator[str]:
    """``orders:0,3`` a topic."""
    topics: defaultdict[str | None, list[str]] = defaultdict(list)
    for name in held:
        topic, partition = split_resource(name)
        topics[topic].append(partition)
    for topic, numbers in topics.items():
        in_order = ",".join(sorted(numbers, key=lambda number: (len(number), number)))
        yield in_order if topic is None else f"{topic}:{in_order}"


def _state_row(snapshot: Snapshot) -> Row:
    elected = snapshot.coordinator
    return {
        "group": snapshot.group,
        "coordinator": f"{elected.label} ({elected.id})" if elected else None,
        "assignment_strategy": snapshot.scalars["mode"],
        "state": snapshot.state,
        "members": len(snapshot.members),
    }
