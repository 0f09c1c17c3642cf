"""Prometheus metrics of a member's process, in FastStream's vocabulary. Needs the extra ``metrics``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal, get_args
from weakref import WeakSet

import attrs
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cobalance.errors import UsageError
from cobalance.names import split_resource

if TYPE_CHECKING:
    from cobalance.operate.probes import Probed
    from cobalance.rabbitmq.consume.metering import Call
    from cobalance.rabbitmq.partition.delivery import Delivery

LABELS = ("group", "topic")

Settled = Literal["acked", "rejected", "error"]

BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""From a look-up to the longest handler that is not considered hung, in seconds."""


@attrs.frozen
class _Children:
    """The counters of one queue; those of a topic's queues are the same."""

    received: Counter
    in_process: Gauge
    duration: Histogram
    processed: Mapping[Settled, Counter]


class ProcessMetrics(Collector):
    """Counts what the handlers of this process do: ``ConsumerGroup(..., metrics=ProcessMetrics())``. One is enough for
    all groups of a process; other groups are added with :meth:`attach`.

    Args:
        registry: where the metrics are registered.

    Raises:
        UsageError: there is one in this registry already.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._groups: WeakSet[Probed] = WeakSet()
        self._children: dict[tuple[str, str], _Children] = {}
        try:
            self._received = Counter(
                "cobalance_received_messages", "Messages that handlers were called with.", LABELS, registry=registry
            )
            self._in_process = Gauge(
                "cobalance_received_messages_in_process", "Messages that handlers work now.", LABELS, registry=registry
            )
            self._processed = Counter(
                "cobalance_received_processed_messages",
                "What became of messages: acked, rejected (dead-lettered), or error, which may be tried again.",
                (*LABELS, "status"),
                registry=registry,
            )
            self._duration = Histogram(
                "cobalance_received_processed_messages_duration_seconds",
                "How long a call of a handler took.",
                LABELS,
                buckets=BUCKETS,
                registry=registry,
            )
            registry.register(self)
        except ValueError:
            raise UsageError("this registry has a ProcessMetrics already: give that one to each group") from None

    def attach(self, group: Probed) -> None:
        """Shows what a group of any kind holds, and when it was last heard."""
        self._groups.add(group)

    def begun(self, call: Call) -> None:
        """Called by the group: a handler is called."""
        children, messages = self._of(call.group, call.queue), len(call.deliveries)
        children.received.inc(messages)
        children.in_process.inc(messages)

    def ended(self, call: Call, scope: None) -> None:
        """Called by the group: it has returned, or raised."""
        del scope
        children = self._of(call.group, call.queue)
        children.in_process.dec(len(call.deliveries))
        children.duration.observe(call.seconds)
        if call.status is not None:
            children.processed[call.status].inc(call.settled)

    def settled(self, group: str, delivery: Delivery, status: Settled) -> None:
        """Called by the group: what became of a message apart from that."""
        self._of(group, delivery.queue).processed[status].inc()

    def moved(self, group: str, queue: str, token: int, step: object) -> None:
        """Called by the group; partitions are counted at each scrape."""

    def _of(self, group: str, queue: str) -> _Children:
        """Each counter is there from the first message on: Prometheus sees no increase of what begins at 1."""
        found = self._children.get((group, queue))
        if found is None:
            labels = (group, split_resource(queue)[0] or queue)
            found = self._children[group, queue] = _Children(
                self._received.labels(*labels),
                self._in_process.labels(*labels),
                self._duration.labels(*labels),
                {status: self._processed.labels(*labels, status) for status in get_args(Settled)},
            )
        return found

    def collect(self) -> Iterator[Metric]:
        """Called at each scrape: what is there now, and nothing of groups that are gone."""
        assigned = GaugeMetricFamily(
            "cobalance_assigned_partitions", "Partitions that this process holds.", labels=["group"]
        )
        heard = GaugeMetricFamily(
            "cobalance_last_heartbeat_timestamp_seconds", "When the coordinator last answered.", labels=["group"]
        )
        for health in [it.health for it in list(self._groups)]:
            assigned.add_metric([health.group], health.held)
            if health.heard_at is not None:
                heard.add_metric([health.group], health.heard_at)
        yield assigned
        yield heard
