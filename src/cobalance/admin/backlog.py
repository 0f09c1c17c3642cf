"""The remaining work of a group: messages that its servers have ready, and messages that its members have in flight,
according to the members themselves or to RabbitMQ's management API.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.in_flight import InFlight, InFlightReport
from cobalance.description import GroupDescription, ResourceDescription
from cobalance.errors import CobalanceError
from cobalance.rabbitmq.streams.extent import read_ends as read_stream_ends
from cobalance.rabbitmq.streams.extent import streams_among
from cobalance.rabbitmq.topics.broker import queue_states
from cobalance.rabbitmq.topics.management import unacknowledged_counts

TIMEOUT_MS = 3_000


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


def read_backlogs(
    group: GroupDescription,
    coordinator: Coordinator,
    amqp_url: str,
    management_url: str | None,
    on_unknown: Callable[[str], object],
) -> dict[str, Backlog]:
    """The backlog of every resource.

    Raises:
        CobalanceError: RabbitMQ cannot be queried.
    """
    if not group.resources:
        return {}
    told = _ask_members(group, coordinator)
    ends = _read_ends(group.resources, amqp_url, on_unknown)
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
    """Resource → its holder's report. Resources that moved since are left out: their former holder would report
    nothing.
    """
    told, now = coordinator.ask_in_flight(), {row.name: row.token for row in coordinator.resources()}
    unmoved = (row for row in group.resources if row.owner in told and row.token == now.get(row.name))
    return {row.name: told[row.owner or ""] for row in unmoved}


def _as_told(name: str, report: InFlightReport | None, end: End) -> InFlight | None:
    """The holder knows, unless the queue has other consumers too."""
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


# -- the ends of queues and streams --------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class End:
    """The end of one resource. None means unknown."""

    ready: int | None = None
    """Messages in a queue that are ready for the next consumer."""
    consumers: int | None = None
    """Consumers of a queue."""
    offset: int | None = None
    """Offset of a stream's last message; -1 if it is empty."""

    def lag(self, committed: int | None, in_flight: int | None) -> int | None:
        """The remaining work. Unknown for a stream without a committed offset, and for a queue whose messages in flight
        are unknown.
        """
        if self.offset is None:
            return None if self.ready is None or in_flight is None else self.ready + in_flight
        return None if committed is None else max(0, self.offset - committed)


def _read_ends(
    resources: Sequence[ResourceDescription], amqp_url: str, on_unknown: Callable[[str], object]
) -> dict[str, End]:
    """The end of every resource; unknown for what is not a queue.

    Raises:
        CobalanceError: RabbitMQ cannot be queried.
    """
    unknown = {resource.name: End() for resource in resources}
    return unknown | (_ask_broker(resources, amqp_url, on_unknown) if unknown else {})


def _ask_broker(
    resources: Sequence[ResourceDescription], amqp_url: str, on_unknown: Callable[[str], object]
) -> dict[str, End]:
    """Distinguishes streams from queues only where there is a committed offset, since that requires the permission to
    configure.
    """
    committed = [resource.name for resource in resources if resource.committed is not None]
    kinds = streams_among(amqp_url, committed, timeout_ms=TIMEOUT_MS) if committed else {}
    streams = [name for name, is_stream in kinds.items() if is_stream]
    others = [resource.name for resource in resources if resource.name not in streams]
    states = queue_states(amqp_url, others, timeout_ms=TIMEOUT_MS)
    last = read_stream_ends(amqp_url, streams) if streams else {}
    silent = [name for name in streams if name not in last]
    if silent:
        on_unknown(
            f"LAG of {', '.join(silent)} is unknown: RabbitMQ delivers nothing of it, though it counts messages. It is slow, or clients have "
            "stored their offsets there, and nobody has published yet."
        )
    queues = {name: End(ready=it.ready, consumers=it.consumers) if it else End() for name, it in states.items()}
    return queues | {name: End(offset=-1 if offset is None else offset) for name, offset in last.items()}
