"""Prometheus metrics of groups, for one exporter beside them. Needs the extra ``metrics``.

They are made at each scrape from the snapshot that everything shows, so nothing of what is gone stays. No label names
a member, since member ids are never used again. What is unknown is left out, or counted as such.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, get_args

import attrs
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from cobalance.coordinator.transport import Listing
from cobalance.description import GroupDescription, GroupState, ResourceDescription, Verdict
from cobalance.errors import CobalanceError, ServerError, UnknownGroup
from cobalance.group.clock import monotonic_ms
from cobalance.names import split_resource, validate_name
from cobalance.operate.tally import FENCED_VERBS, OUTCOMES, REASONS, Tally
from cobalance.operate.watch import LOOK_MS, Looks
from cobalance.threads.forks import ForkSafe

if TYPE_CHECKING:
    from cobalance.operate.watch import Watch


REMEMBERED_MS = 900_000
"""For so long the counts of a group are kept that is not there: its members bring it back after a loss of its data, which is to be
counted.
"""


@attrs.frozen
class Observed:
    """One group at a scrape."""

    snapshot: GroupDescription
    tally: Tally


class GroupMetrics(ForkSafe, Collector):
    """Collects metrics of groups: ``registry.register(GroupMetrics(...))``. Made by :meth:`GroupAdmin.metrics`.

    Args:
        names: which groups there are, asked at each scrape.
        watch: makes a watch of one.
        tally: makes a tally of one.
        partitions: also show the lag of each partition, which may be many series.
        within_ms: how long RabbitMQ may take in a scrape. What it has not told by then is unknown.
    """

    def __init__(
        self,
        names: Callable[[], Collection[str]],
        watch: Callable[[str], Watch],
        tally: Callable[[str], Tally],
        *,
        partitions: bool = False,
        within_ms: int = LOOK_MS,
    ) -> None:
        self._names, self._watch, self._tally, self._partitions = names, watch, tally, partitions
        self._known: dict[str, tuple[Watch, Tally]] = {}
        self._gone: dict[str, tuple[Tally, int]] = {}
        """Since when."""
        self._knows_all = False
        """Whether they have all been listed once."""
        self._looks = Looks(within_ms)
        super().__init__()

    def describe(self) -> list[Metric]:
        """Nothing, so that registering needs no server."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Called at each scrape."""
        with self._lock:
            try:
                observed = self._observe()
            except ServerError:
                observed = None
        is_up = GaugeMetricFamily("cobalance_up", "Whether Redis could be asked at this scrape which groups there are.")
        is_up.add_metric([], 0 if observed is None or not self._knows_all else 1)
        yield is_up
        if observed is not None:
            groups, unreadable = observed
            yield _readable_family(groups, unreadable)
            yield from _group_families(groups)
            yield from _lag_families(groups, partitions=self._partitions)
            yield from _journal_families(groups)

    def snapshot(self, group: str) -> GroupDescription:
        """One of these groups as a scrape shows it: read a second ago at most.

        Raises:
            UnknownGroup: it is none of these groups.
            ServerError: Redis cannot be queried.
        """
        known = self._known.get(group)
        if known is None:
            known = self._first_look(validate_name("group", group))
        return known[0].snapshot()

    def _first_look(self, group: str) -> tuple[Watch, Tally]:
        with self._lock:  # so that a group has one watch
            listing = Listing.of(self._names)
            if group in listing.names:
                return self._open(group)
        listing.check_complete()
        raise UnknownGroup(f"There is no group {group!r}, or this exporter is about other groups.")

    def _open(self, group: str) -> tuple[Watch, Tally]:
        if group not in self._known:
            watch, gone = self._watch(group), self._gone.pop(group, None)
            self._known[group] = (watch, self._tally(group) if gone is None else gone[0])
        return self._known[group]

    def _observe(self) -> tuple[list[Observed], list[str]]:
        """The groups, and the names of those that cannot be read."""
        listing = Listing.of(self._names)
        self._knows_all |= listing.problem is None
        unreadable = set(listing.hidden(self._known))
        self._forget_others({*listing.names, *unreadable})

        def observe(name: str, within_ms: int) -> Observed | None:
            try:
                watch, tally = self._open(name)
                snapshot = watch.snapshot(within_ms=within_ms)
                tally.read()
            except UnknownGroup:  # it was deleted meanwhile
                return None
            except CobalanceError:  # it hides no other
                unreadable.add(name)
                return None
            return Observed(snapshot, tally)

        found = [it for it in self._looks.read(listing.names, observe) if it is not None]
        return found, sorted(unreadable)

    def _forget_others(self, names: Collection[str]) -> None:
        now = monotonic_ms()
        gone = {name: (tally, now) for name, (_, tally) in self._known.items() if name not in names}
        self._gone = {name: it for name, it in (self._gone | gone).items() if now - it[1] < REMEMBERED_MS}
        self._known = {name: known for name, known in self._known.items() if name in names}


# -- families ----------------------------------------------------------------------------------------------------------


def _gauge(name: str, words: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"cobalance_{name}", words, labels=["group", *labels])


def _counter(name: str, words: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"cobalance_{name}", words, labels=["group", *labels])


def _readable_family(groups: Sequence[Observed], unreadable: Sequence[str]) -> Metric:
    readable = _gauge("group_readable", "0 for a group that cannot be read: `cobalance doctor` says why.")
    for name in (it.snapshot.name for it in groups):
        readable.add_metric([name], 1)
    for name in unreadable:
        readable.add_metric([name], 0)
    return readable


def _group_families(groups: Sequence[Observed]) -> Iterator[Metric]:
    members = _gauge("group_members", "Members of the group, those included that are gone and whose places are kept.")
    idle = _gauge("group_idle_members", "Members that hold nothing.")
    state = _gauge("group_state", "1 for the state that the group is in.", "state")
    partitions = _gauge("group_partitions", "Partitions by status.", "status")
    verdicts = _gauge("group_verdict_partitions", "Partitions by verdict; none is 0 while some are unknown.", "verdict")
    for group in (it.snapshot for it in groups):
        members.add_metric([group.name], len(group.members))
        idle.add_metric([group.name], sum(not it.resources for it in group.members))
        for name in get_args(GroupState):
            state.add_metric([group.name, name], float(group.state == name))
        for status, count in sorted(Counter(it.state for it in group.resources).items()):
            partitions.add_metric([group.name, status], count)
        judged = Counter(it.verdict or "unknown" for it in group.resources)
        for verdict in (*get_args(Verdict), "unknown"):
            if judged[verdict] or verdict == "unknown" or not judged["unknown"]:
                verdicts.add_metric([group.name, verdict], judged[verdict])
    yield from (members, idle, state, partitions, verdicts)


def _lag_families(groups: Sequence[Observed], *, partitions: bool) -> Iterator[Metric]:
    lag = _gauge("group_lag_messages", "Messages left to do; missing while a partition's is unknown.", "topic")
    most = _gauge("group_max_partition_lag_messages", "The same of the partition with the most.", "topic")
    unknown = _gauge("group_unknown_lag_partitions", "Partitions whose lag is unknown.", "topic")
    oldest = _gauge(
        "group_oldest_message_age_seconds",
        "Since when the oldest message that is not acknowledged has been with a member; missing if none is.",
        "topic",
    )
    each = _gauge("partition_lag_messages", "Messages left to do.", "topic", "partition")
    for group in (it.snapshot for it in groups):
        for topic, resources in _by_topic(group).items():
            labels = [group.name, topic]
            known = [it.backlog.lag for it in resources if it.backlog.lag is not None]
            unknown.add_metric(labels, len(resources) - len(known))
            if len(known) == len(resources):
                lag.add_metric(labels, sum(known))
                most.add_metric(labels, max(known))
            ages = [it.backlog.oldest_ms for it in resources if it.backlog.oldest_ms is not None]
            if ages:
                oldest.add_metric(labels, max(ages) / 1000)
            for it in resources if partitions else ():
                if it.backlog.lag is not None:
                    each.add_metric([*labels, split_resource(it.name)[1]], it.backlog.lag)
    yield from (lag, most, unknown, oldest, *([each] if partitions else []))


def _by_topic(group: GroupDescription) -> dict[str, list[ResourceDescription]]:
    found: defaultdict[str, list[ResourceDescription]] = defaultdict(list)
    for resource in group.resources:
        found[split_resource(resource.name)[0] or ""].append(resource)
    return found


def _journal_families(groups: Sequence[Observed]) -> Iterator[Metric]:
    rebalances = _counter("rebalances", "Changes after which partitions were assigned again.", "reason")
    handovers = _counter("handovers", "Ends of a holder's time with a partition, and revocations cancelled.", "outcome")
    fenced = _counter("fenced", "Calls that were refused, since another member holds the partition.", "verb")
    duration = HistogramMetricFamily(
        "cobalance_handover_duration_seconds", "From a revocation to its end.", labels=["group"]
    )
    last = _gauge(
        "last_rebalance_timestamp_seconds", "When partitions were last assigned again; missing before the first."
    )
    for name, tally in ((it.snapshot.name, it.tally) for it in groups):
        for family, counts, values in (
            (rebalances, tally.rebalances, REASONS),
            (handovers, tally.handovers, OUTCOMES),
            (fenced, tally.fenced, FENCED_VERBS),
        ):
            for value in values:  # also those that never were: Prometheus sees no increase of what begins at 1
                family.add_metric([name, value], counts[value])
        duration.add_metric([name], tally.durations.buckets(), tally.durations.sum)
        if tally.last_rebalance_ms is not None:
            last.add_metric([name], tally.last_rebalance_ms / 1000)
    yield from (rebalances, handovers, fenced, duration, last)
