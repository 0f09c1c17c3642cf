"""What a group has in flight, for ``describe``: as its members say, or else RabbitMQ's management API."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from cobalance.cli.ends import TIMEOUT_MS, End
from cobalance.cli.output import remark
from cobalance.cli.snapshot import Snapshot
from cobalance.coordinator.client import ResourceRow
from cobalance.coordinator.in_flight import InFlightReport
from cobalance.errors import CobalanceError
from cobalance.rabbitmq.management import unacknowledged_counts


@attrs.frozen
class SentAhead:
    """Of one resource; None is "not known"."""

    messages: int | None = None
    oldest_ms: int | None = None
    """How long ago the oldest came; None as well when there is none."""


def read_in_flight(
    snapshot: Snapshot,
    told: Mapping[str, InFlightReport],
    ends: Mapping[str, End],
    amqp_url: str,
    management_url: str | None = None,
) -> dict[str, SentAhead]:
    """Every resource's; stderr says of how many it is not known, and why."""
    found = {row.name: _as_told(row, told.get(row.owner or ""), ends[row.name]) for row in snapshot.resources}
    unknown = [name for name, it in found.items() if it.messages is None and ends[name].ready is not None]
    if not unknown:
        return found
    try:
        counts = unacknowledged_counts(amqp_url, management_url, timeout_ms=TIMEOUT_MS)
    except CobalanceError as error:
        remark(
            f"warning: IN-FLIGHT and LAG of {len(unknown)} queues are unknown, since no member that works them has answered, or others "
            f"consume them, too. {error}"
        )
        return found
    return found | {name: SentAhead(counts.get(name)) for name in unknown}


def _as_told(row: ResourceRow, report: InFlightReport | None, end: End) -> SentAhead:
    """Its holder knows, unless others consume the queue besides."""
    if end.consumers == 0:
        return SentAhead(0)
    told = None if report is None or row.since_ms > report.at_ms else report.of(row.name)
    if told is None or (end.consumers or 0) > 1:
        return SentAhead()
    return SentAhead(told.messages, told.oldest_ms if told.messages else None)
