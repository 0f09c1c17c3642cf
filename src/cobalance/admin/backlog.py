"""What a group has still to do: what its servers keep ready, and what its members have in flight, as they say themselves, or else
RabbitMQ's management API.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from cobalance.admin.ends import TIMEOUT_MS, End, read_ends
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.in_flight import InFlight, InFlightReport
from cobalance.description import GroupDescription, ResourceDescription
from cobalance.errors import CobalanceError
from cobalance.rabbitmq.topics.management import unacknowledged_counts


@attrs.frozen(kw_only=True)
class Backlog:
    """What is still to be done of one resource. None is "not known"."""

    lag: int | None = None
    """A queue's messages that are not acknowledged; a stream's behind the committed offset."""
    in_flight: int | None = None
    """How many of a queue's were sent to a consumer and are not acknowledged."""
    oldest_ms: int | None = None
    """How long ago the oldest of those came; None as well when there is none."""
    log_end_offset: int | None = None
    """Of a stream's last message; -1 when it has none."""


def read_backlogs(
    group: GroupDescription,
    coordinator: Coordinator,
    amqp_url: str,
    management_url: str | None,
    on_unknown: Callable[[str], object],
) -> dict[str, Backlog]:
    """Every resource's.

    Raises:
        CobalanceError: RabbitMQ cannot be asked.
    """
    if not group.resources:
        return {}
    told = _ask_members(group, coordinator)
    ends = read_ends(group.resources, amqp_url)
    sent = {row.name: _as_told(row.name, told.get(row.name), ends[row.name]) for row in group.resources}
    unknown = [name for name, it in sent.items() if it is None and ends[name].ready is not None]
    counts = _ask_management(unknown, amqp_url, management_url, on_unknown) if unknown else {}
    return {row.name: _backlog(row, ends[row.name], sent[row.name], counts.get(row.name)) for row in group.resources}


def _backlog(row: ResourceDescription, end: End, sent: InFlight | None, counted: int | None) -> Backlog:
    messages = counted if sent is None else sent.messages
    return Backlog(
        lag=end.lag(row.committed, messages),
        in_flight=messages,
        oldest_ms=sent.oldest_ms if sent is not None and sent.messages else None,
        log_end_offset=end.offset,
    )


def _ask_members(group: GroupDescription, coordinator: Coordinator) -> Mapping[str, InFlightReport]:
    """Resource → what its holder says. Who held what has moved since would say that it has nothing of it."""
    told, now = coordinator.ask_in_flight(), {row.name: row.token for row in coordinator.resources()}
    unmoved = (row for row in group.resources if row.owner in told and row.token == now.get(row.name))
    return {row.name: told[row.owner or ""] for row in unmoved}


def _as_told(name: str, report: InFlightReport | None, end: End) -> InFlight | None:
    """Its holder knows, unless others consume the queue besides."""
    if end.consumers == 0:
        return InFlight(0, 0)
    return None if report is None or (end.consumers or 0) > 1 else report.of(name)


def _ask_management(
    unknown: list[str], amqp_url: str, management_url: str | None, on_unknown: Callable[[str], object]
) -> Mapping[str, int]:
    try:
        return unacknowledged_counts(amqp_url, management_url, timeout_ms=TIMEOUT_MS)
    except CobalanceError as error:
        on_unknown(
            f"IN-FLIGHT and LAG of {len(unknown)} queues are unknown, since no member that works them has answered, or others "
            f"consume them, too. {error}"
        )
        return {}
