"""Reads a group from its servers, as one value: the coordinator's record, what is left to do, and how work goes.

Everything that shows a group shows this value: the commands, the metrics, a dashboard. Each call is bounded: a script
returns a page, members have half a second to report, and RabbitMQ a few seconds for each answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.in_flight import InFlightReport
from cobalance.coordinator.keys import DEFAULT_PREFIX
from cobalance.coordinator.open import DEFAULT_REDIS_URL, check_redis_url, open_transport
from cobalance.description import (
    UNKNOWN_BACKLOG,
    Backlog,
    GroupDescription,
    MemberDescription,
    ResourceDescription,
    ServerDescription,
    Verdict,
)
from cobalance.errors import CobalanceError
from cobalance.group.clock import monotonic_ms
from cobalance.operate.backlog import WITHIN_MS, Backlogs, Broker, OnUnknown
from cobalance.operate.verdict import judge, sample, worst
from cobalance.rabbitmq.wire.address import DEFAULT_AMQP_URL, check_amqp_url, check_management_url, place

Judge = Callable[[GroupDescription, ResourceDescription], Verdict | None]


def judge_once(group: GroupDescription, resource: ResourceDescription) -> Verdict | None:
    """The verdict that needs no history. Most are unknown without a lag, which is quick to say of thousands."""
    is_unknown = resource.backlog.lag is None and resource.halted is None
    return None if is_unknown else judge([sample(group, resource)])


def say_nothing(_: str) -> None:
    """Nobody is interested in what is unknown."""


def snapshot(
    group: str,
    *,
    redis_url: str = DEFAULT_REDIS_URL,
    amqp_url: str | None = DEFAULT_AMQP_URL,
    management_url: str | None = None,
    key_prefix: str = DEFAULT_PREFIX,
    on_unknown: OnUnknown = say_nothing,
) -> GroupDescription:
    """Reads a group once, with connections of its own. For more than once, see :meth:`GroupAdmin.watch`, which also has
    the verdicts that need a history.

    Args:
        group: its name.
        redis_url: as for :class:`cobalance.Group`.
        amqp_url: where its queues are. None if they are no queues: nothing is known of what is left to do then.
        management_url: RabbitMQ's management API, asked for messages in flight if a member does not answer.
        key_prefix: the groups' key prefix.
        on_unknown: called with an explanation of what could not be found out. RabbitMQ being unreachable is such a
            thing, and no error.

    Raises:
        UnknownGroup: there is no such group.
        ServerError: Redis cannot be queried.
    """
    check_redis_url("redis_url", redis_url)
    check_amqp_url("amqp_url", amqp_url or "amqp://")
    check_management_url("management_url", management_url)
    transport = open_transport(redis_url)
    try:
        broker = Broker(amqp_url=amqp_url, management_url=management_url) if amqp_url else None
        return read_snapshot(Coordinator(transport, group, key_prefix=key_prefix), broker, on_unknown=on_unknown)
    finally:
        transport.close()


def read_snapshot(
    coordinator: Coordinator,
    broker: Broker | None,
    *,
    on_unknown: OnUnknown = say_nothing,
    judged: Judge = judge_once,
    within_ms: int = WITHIN_MS,
    silent: set[str] | None = None,
) -> GroupDescription:
    """The same over given connections; `judged` gives the verdict on each resource, and the rest is as for
    :meth:`Broker.read_backlogs`.
    """
    give_up_at = monotonic_ms() + within_ms
    state = coordinator.state()
    can_ask = within_ms > 0 and state["members"] != "0"
    reports = coordinator.ask_in_flight() if can_ask else {}
    group = GroupDescription.read(coordinator, None if can_ask else state)
    found, left_ms = Backlogs(by_resource={}), give_up_at - monotonic_ms()
    if broker is not None and left_ms <= 0:
        on_unknown(f"LAG of group {group.name} is unknown: there was no time left to ask RabbitMQ for it.")
    elif broker is not None:
        try:
            found = broker.read_backlogs(group, reports, on_unknown, within_ms=left_ms, silent=silent)
        except CobalanceError as error:
            on_unknown(f"LAG is unknown. {error}")
            found = Backlogs(by_resource={}, server=_silent(broker, error))
    members = tuple(_with_report(it, reports.get(it.id)) for it in group.members)
    servers = tuple(it for it in (_redis(coordinator), found.server) if it is not None)
    return _completed(attrs.evolve(group, members=members, servers=servers), found.by_resource, judged)


def _completed(group: GroupDescription, backlogs: Mapping[str, Backlog], judged: Judge) -> GroupDescription:
    resources = tuple(_with_backlog(it, backlogs.get(it.name, UNKNOWN_BACKLOG)) for it in group.resources)
    verdicts = [judged(group, it) for it in resources]
    rows = tuple(
        it if verdict is None else attrs.evolve(it, verdict=verdict)
        for it, verdict in zip(resources, verdicts, strict=True)
    )
    return attrs.evolve(group, resources=rows, verdict=worst(verdicts))


def _with_backlog(resource: ResourceDescription, backlog: Backlog) -> ResourceDescription:
    return resource if backlog is UNKNOWN_BACKLOG else attrs.evolve(resource, backlog=backlog)


def _with_report(member: MemberDescription, report: InFlightReport | None) -> MemberDescription:
    if report is None:
        return member
    return attrs.evolve(
        member,
        handled=report.handled,
        occupied_ms=report.occupied_ms,
        last_ack_ago_ms=report.last_ack_ago_ms,
        library_version=report.library_version,
    )


def _redis(coordinator: Coordinator) -> ServerDescription | None:
    """None if the group is in this process."""
    greeted = getattr(coordinator.transport, "server", None)
    if greeted is None:
        return None
    where, version = greeted(coordinator.state_key)
    return ServerDescription(kind="Redis", place=where, version=version)


def _silent(broker: Broker, error: CobalanceError) -> ServerDescription:
    return ServerDescription(kind="RabbitMQ", place=place(broker.amqp_url), problem=str(error))
