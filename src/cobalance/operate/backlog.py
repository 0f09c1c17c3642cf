"""The remaining work of a group: messages that its servers have ready, and messages that its members have in flight,
according to the members themselves or to RabbitMQ's management API.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from cobalance.coordinator.advice import from_earliest
from cobalance.coordinator.in_flight import InFlight, InFlightReport
from cobalance.description import Backlog, GroupDescription, ResourceDescription, ServerDescription
from cobalance.errors import CobalanceError, counted
from cobalance.group.clock import monotonic_ms
from cobalance.rabbitmq.streams.extent import read_ends as read_stream_ends
from cobalance.rabbitmq.streams.extent import streams_among
from cobalance.rabbitmq.topics.broker import QueueStates, queue_states
from cobalance.rabbitmq.topics.management import unacknowledged_counts

TIMEOUT_MS = 3_000
"""For each answer of RabbitMQ."""

MOST_NAMED = 5

WITHIN_MS = 20_000
"""For all queues of a group, unless there is less time."""

OnUnknown = Callable[[str], object]

ENDS_BEFORE = (
    "ends before its committed offset: it was deleted and created again, or RabbitMQ lost its end, or an offset behind its "
    "end was committed"
)


def ends_before(committed: int | None, offset: int | None) -> bool:
    """Whether a stream's last message, at `offset`, is older than the last one processed. That one was not of this stream,
    so nothing is known of what is left of it. Of one that is empty, nothing is.
    """
    return committed is not None and offset is not None and 0 <= offset < committed


@attrs.frozen(kw_only=True)
class Backlogs:
    """What is left to do, and who told."""

    by_resource: Mapping[str, Backlog]
    server: ServerDescription | None = None
    """None if there was nothing to ask it for."""


@attrs.frozen(kw_only=True)
class Broker:
    """The RabbitMQ of a group's queues."""

    amqp_url: str = attrs.field(repr=False)
    management_url: str | None = attrs.field(default=None, repr=False)

    def read_backlogs(
        self,
        group: GroupDescription,
        reports: Mapping[str, InFlightReport],
        on_unknown: OnUnknown,
        *,
        within_ms: int = WITHIN_MS,
        silent: set[str] | None = None,
    ) -> Backlogs:
        """The backlog of every resource.

        Args:
            group: read after the reports.
            reports: member → its report.
            on_unknown: called with an explanation of what could not be found out.
            within_ms: how long it may take. What RabbitMQ has not told by then is unknown.
            silent: queues of which RabbitMQ told nothing the last time. They are asked last; then, those of this time.

        Raises:
            CobalanceError: RabbitMQ cannot be queried.
        """
        if not group.resources:
            return Backlogs(by_resource={})
        give_up_at = monotonic_ms() + within_ms
        silent = set() if silent is None else silent
        resources = sorted(group.resources, key=lambda it: it.name in silent)
        ends = _read_ends(resources, self.amqp_url, on_unknown, give_up_at)
        silent |= ends.silent
        silent -= {name for name, it in ends.by_resource.items() if it.ready is not None}
        sent = {row.name: _reported(row, group.at_ms, reports, ends.of(row.name)) for row in group.resources}
        unknown = [name for name, it in sent.items() if it is None and ends.of(name).ready is not None]
        _say_who_waits(group, reports, unknown, on_unknown)
        left_ms = min(TIMEOUT_MS, give_up_at - monotonic_ms())
        counts = self._ask_management(unknown, on_unknown, left_ms) if unknown and left_ms > 0 else {}
        found = {
            row.name: _backlog(row, ends.of(row.name), sent[row.name], counts.get(row.name)) for row in group.resources
        }
        _say_what_ends_before(group, found, on_unknown)
        return Backlogs(by_resource=found, server=ends.server)

    def _ask_management(self, unknown: list[str], on_unknown: OnUnknown, timeout_ms: int) -> Mapping[str, int]:
        try:
            return unacknowledged_counts(self.amqp_url, self.management_url, timeout_ms=timeout_ms)
        except CobalanceError as error:
            on_unknown(
                f"IN-FLIGHT and LAG of {counted(len(unknown), 'queue')} are unknown, since no member that works them has answered, or others "
                f"consume them, too, or instead. {error}"
            )
            return {}


def _backlog(row: ResourceDescription, end: End, sent: InFlight | None, counted: int | None) -> Backlog:
    messages = counted if sent is None else sent.messages
    return Backlog(
        lag=end.lag(row.committed, messages),
        in_flight=messages,
        oldest_ms=sent.oldest_ms if sent is not None and sent.messages else None,
        log_end_offset=end.offset,
        consumers=end.consumers,
    )


def _reported(row: ResourceDescription, at_ms: int, reports: Mapping[str, InFlightReport], end: End) -> InFlight | None:
    """The holder knows, unless the queue has other consumers, too, or instead, or the resource has moved since the report.
    What nobody consumes is not in flight.
    """
    if end.consumers == 0:
        return InFlight(0, 0)
    report = reports.get(row.owner or "")
    if report is None or (end.consumers or 0) > 1:
        return None
    if (
        row.state in {"granted", "graced"} or at_ms - (row.age_ms or 0) > report.at_ms
    ):  # it has not said what it has of this one
        return None
    return report.of(row.name)


WAITS_MS = 2_000
"""A member that was granted a queue this long ago, and does not consume it, is not just about to."""


def _say_who_waits(
    group: GroupDescription, reports: Mapping[str, InFlightReport], unknown: Sequence[str], on_unknown: OnUnknown
) -> None:
    """Of queues that their holders do not consume, though RabbitMQ counts somebody who does."""
    rows = [
        it for it in group.resources if it.name in set(unknown) and it.state == "held" and (it.age_ms or 0) > WAITS_MS
    ]
    waits = [it.name for it in rows if (report := reports.get(it.owner or "")) and report.is_kept_waiting(it.name)]
    if waits:
        on_unknown(
            f"{', '.join(waits[:MOST_NAMED])}{' …' if len(waits) > MOST_NAMED else ''}: another connection consumes what the member that "
            "holds it waits for. It has lost Redis and goes on, or is no member of the group: rabbitmqctl list_consumers"
        )


def _say_what_ends_before(group: GroupDescription, found: Mapping[str, Backlog], on_unknown: OnUnknown) -> None:
    names = [it.name for it in group.resources if ends_before(it.committed, found[it.name].log_end_offset)]
    for name in names[:MOST_NAMED]:
        on_unknown(f"LAG of {name} is unknown: it {ENDS_BEFORE}. Say where to go on: {go_on_at(group, name)}")


def go_on_at(group: GroupDescription, stream: str) -> str:
    """The command that says where to go on in a stream that is not the one that was read."""
    return from_earliest(group.name, stream, group.key_prefix)


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
        """The remaining work. Unknown for a stream without a committed offset, or with one that is not of this stream,
        and for a queue whose messages in flight are unknown.
        """
        if self.offset is None:
            return None if self.ready is None or in_flight is None else self.ready + in_flight
        return None if committed is None or ends_before(committed, self.offset) else max(0, self.offset - committed)


_UNKNOWN = End()


@attrs.frozen(kw_only=True)
class _Ends:
    by_resource: Mapping[str, End]
    server: ServerDescription
    silent: frozenset[str]

    def of(self, name: str) -> End:
        return self.by_resource.get(name, _UNKNOWN)


def _read_ends(
    resources: Sequence[ResourceDescription], amqp_url: str, on_unknown: OnUnknown, give_up_at: int
) -> _Ends:
    """Distinguishes streams from queues only where there is a committed offset, since that requires the permission to
    configure.
    """
    committed = [resource.name for resource in resources if resource.committed is not None]
    kinds = _kinds(committed, amqp_url, give_up_at) if committed else {}
    streams = {name for name, is_stream in kinds.items() if is_stream}
    others = [resource.name for resource in resources if resource.name not in streams]
    within_ms = max(1, give_up_at - monotonic_ms())
    states = queue_states(amqp_url, others, timeout_ms=TIMEOUT_MS, within_ms=within_ms)
    found = dict(_queue_ends(states, others, on_unknown, within_ms)) | dict(
        _stream_ends(sorted(streams), amqp_url, on_unknown)
    )
    server = ServerDescription(kind="RabbitMQ", place=states.place, version=states.version)
    return _Ends(by_resource=found, server=server, silent=states.silent)


def _kinds(committed: Sequence[str], amqp_url: str, give_up_at: int) -> Mapping[str, bool]:
    within_ms = max(1, give_up_at - monotonic_ms())
    return streams_among(amqp_url, committed, timeout_ms=TIMEOUT_MS, within_ms=within_ms)


def _queue_ends(states: QueueStates, asked: Sequence[str], on_unknown: OnUnknown, within_ms: int) -> Mapping[str, End]:
    if len(states.by_queue) < len(asked):
        on_unknown(
            f"LAG of {counted(len(asked) - len(states.by_queue), 'queue')} is unknown: RabbitMQ did not tell it within {within_ms / 1000:.0f} s, or does "
            "not know it, since the node or the leader of a queue does not answer."
        )
    return {name: End(ready=it.ready, consumers=it.consumers) for name, it in states.by_queue.items() if it}


def _stream_ends(streams: Sequence[str], amqp_url: str, on_unknown: OnUnknown) -> Mapping[str, End]:
    last = read_stream_ends(amqp_url, streams) if streams else {}
    silent = [name for name in streams if name not in last]
    if silent:
        on_unknown(
            f"LAG of {', '.join(silent)} is unknown: RabbitMQ delivers nothing of it, though it counts messages. It is slow, or clients have "
            "stored their offsets there, and nobody has published yet."
        )
    return {name: End(offset=-1 if offset is None else offset) for name, offset in last.items()}
