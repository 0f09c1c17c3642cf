"""Prometheus metrics of a member's process, in FastStream's vocabulary. Needs the extra ``metrics``."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING, Literal, get_args
from weakref import WeakKeyDictionary

import attrs
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from cobalance.errors import UsageError
from cobalance.names import split_resource

if TYPE_CHECKING:
    from cobalance.group.health import Health
    from cobalance.operate.probes import Probed
    from cobalance.rabbitmq.consume.metering import Call
    from cobalance.rabbitmq.partition.delivery import Delivery

LABELS = ("group", "topic")

Settled = Literal["acked", "rejected", "error"]

BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""From a look-up to the longest handler that is not considered hung, in seconds."""


ENDED = ("left", "failed")

MOST_ENDED = 100
"""So many queues are still shown that this process does not work any more: where queues come and go, they never end."""


class ProcessMetrics(Collector):
    """Counts what the handlers of this process do: ``ConsumerGroup(..., metrics=ProcessMetrics())``. One is enough for
    all groups of a process; other groups are added with :meth:`attach`.

    Of queues that this process works no more, the last 100 are shown. One that comes back later is counted from 0.

    Args:
        registry: where the metrics are registered.

    Raises:
        UsageError: there is one in this registry already.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._groups: WeakKeyDictionary[Probed, None] = WeakKeyDictionary()
        """In the order in which they were added."""
        self._lock = Lock()
        self._by_labels: dict[tuple[str, str], _Counts] = {}
        self._by_queue: dict[tuple[str, str], _Counts] = {}
        self._running: dict[Call, _Counts] = {}
        self._ended: dict[tuple[str, str], None] = {}
        try:
            registry.register(self)
        except ValueError:
            raise UsageError("this registry has a ProcessMetrics already: give that one to each group") from None

    def attach(self, group: Probed) -> None:
        """Shows what a group of any kind holds, and when it was last heard."""
        self._groups[group] = None

    def begun(self, call: Call) -> None:
        """Called by the group: a handler is called."""
        self._running[call] = self._of(call.group, call.tenure.queue)

    def ended(self, call: Call, scope: None) -> None:
        """Called by the group: it has returned, or raised."""
        del scope
        seconds, status = call.seconds, call.status
        with self._lock:
            counts = self._running.pop(call)
            counts.ended += len(call.deliveries)
            counts.seconds += seconds
            counts.buckets[bisect_left(BUCKETS, seconds)] += 1
            if status is not None:
                counts.processed[status] += call.settled

    def settled(self, group: str, delivery: Delivery, status: Settled) -> None:
        """Called by the group: what became of a message apart from that."""
        counts = self._of(group, delivery.queue)
        with self._lock:
            counts.processed[status] += 1

    def moved(self, group: str, queue: str, token: int, step: object) -> None:
        """Called by the group; partitions are counted at each scrape."""
        del token
        if step not in {"granted", "ended"}:
            return
        with self._lock:
            self._ended.pop((group, queue), None)
            if step == "ended":
                self._ended[group, queue] = None
            if len(self._ended) > MOST_ENDED:
                self._forget(next(iter(self._ended)))

    def _forget(self, queue: tuple[str, str]) -> None:
        """Its topic, too, if that was the last queue of it. Not while a handler still runs, which will be counted."""
        del self._ended[queue]
        counts = self._by_queue.get(queue)
        if counts is None:
            return
        if counts in list(self._running.values()):
            self._ended[queue] = None
            return
        del self._by_queue[queue]
        if not any(it is counts for it in self._by_queue.values()):
            del self._by_labels[_labels(*queue)]

    def _of(self, group: str, queue: str) -> _Counts:
        found = self._by_queue.get((group, queue))
        if found is None:
            with self._lock:
                found = self._by_labels.setdefault(_labels(group, queue), _Counts())
                self._by_queue[group, queue] = found
        return found

    def describe(self) -> Iterator[Metric]:
        """Called by the registry, which has each name once."""
        return iter(_Families())

    def collect(self) -> Iterator[Metric]:
        """Called at each scrape: what is there now. A group that has ended holds nothing."""
        families = _Families()
        with self._lock:
            in_process = Counter[_Counts]()
            for call, counts in list(self._running.items()):
                in_process[counts] += len(call.deliveries)
            for labels, counts in self._by_labels.items():
                families.add(labels, counts, in_process[counts])
        for group, found in self._healths().items():
            families.assigned.add_metric([group], sum(it.held for it in found))
            heard = [it.heard_at for it in found if it.heard_at is not None and it.state != "left"]
            if heard:
                families.heard.add_metric([group], min(heard))
        yield from families

    def _healths(self) -> Mapping[str, Sequence[Health]]:
        """Group → its members here. One that has ended counts until the program has made another."""
        found: dict[str, list[Health]] = {}
        for health in [it.health for it in list(self._groups)]:
            found[health.group] = [*(it for it in found.get(health.group, ()) if it.state not in ENDED), health]
        return found


def _labels(group: str, queue: str) -> tuple[str, str]:
    return group, split_resource(queue)[0] or queue


@attrs.define(eq=False)
class _Counts:
    """Of one topic. Counters of Prometheus's client take more than twice as long: a lock for each.

    Each is there from the first message on, 0 or not: Prometheus sees no increase of what begins at 1.
    """

    ended: int = 0
    """Messages of calls that have ended."""
    processed: dict[Settled, int] = attrs.field(factory=lambda: dict.fromkeys(get_args(Settled), 0))
    seconds: float = 0.0
    buckets: list[int] = attrs.field(factory=lambda: [0] * (len(BUCKETS) + 1))


class _Families:
    """The metrics of one scrape."""

    def __init__(self) -> None:
        self.received = CounterMetricFamily(
            "cobalance_received_messages", "Messages that handlers were called with.", labels=LABELS
        )
        self.in_process = GaugeMetricFamily(
            "cobalance_received_messages_in_process", "Messages that handlers work now.", labels=LABELS
        )
        self.processed = CounterMetricFamily(
            "cobalance_received_processed_messages",
            "What became of messages: acked, rejected (dead-lettered), or error, which may be tried again.",
            labels=(*LABELS, "status"),
        )
        self.duration = HistogramMetricFamily(
            "cobalance_received_processed_messages_duration_seconds",
            "How long a call of a handler took.",
            labels=LABELS,
        )
        self.assigned = GaugeMetricFamily(
            "cobalance_assigned_partitions", "Partitions that this process holds.", labels=["group"]
        )
        self.heard = GaugeMetricFamily(
            "cobalance_last_heartbeat_timestamp_seconds", "When the coordinator last answered.", labels=["group"]
        )

    def add(self, labels: tuple[str, str], counts: _Counts, in_process: int) -> None:
        self.received.add_metric(labels, counts.ended + in_process)
        self.in_process.add_metric(labels, in_process)
        for status, count in counts.processed.items():
            self.processed.add_metric((*labels, status), count)
        edges = [*map(floatToGoString, BUCKETS), "+Inf"]
        counted = [(edge, float(up_to)) for edge, up_to in zip(edges, accumulate(counts.buckets), strict=True)]
        self.duration.add_metric(labels, counted, counts.seconds)

    def __iter__(self) -> Iterator[Metric]:
        return iter((self.received, self.in_process, self.processed, self.duration, self.assigned, self.heard))
