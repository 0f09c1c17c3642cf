"""Prometheus metrics of a member's process, in FastStream's vocabulary. Needs the extra ``metrics``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, get_args
from weakref import WeakSet

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cobalance.errors import UsageError
from cobalance.names import split_resource

if TYPE_CHECKING:
    from cobalance.operate.probes import Probed

LABELS = ("group", "topic")

Settled = Literal["acked", "rejected", "error"]

BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""From a look-up to the longest handler that is not considered hung, in seconds."""


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
        self._begun: set[tuple[str, str]] = set()
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

    def begun(self, group: str, queue: str, messages: int) -> None:
        """Called by the group: a handler is called with these messages."""
        labels = _labels(group, queue)
        if labels not in self._begun:
            self._begin(labels)
        self._received.labels(*labels).inc(messages)
        self._in_process.labels(*labels).inc(messages)

    def _begin(self, labels: tuple[str, str]) -> None:
        """Each counter is there from the first message on: Prometheus sees no increase of what begins at 1."""
        self._begun.add(labels)
        for status in get_args(Settled):
            self._processed.labels(*labels, status)

    def ended(self, group: str, queue: str, messages: int, seconds: float) -> None:
        """Called by the group: it has returned, or raised."""
        labels = _labels(group, queue)
        self._in_process.labels(*labels).dec(messages)
        self._duration.labels(*labels).observe(seconds)

    def settled(self, group: str, queue: str, messages: int, status: Settled) -> None:
        """Called by the group: what became of them."""
        self._processed.labels(*_labels(group, queue), status).inc(messages)

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


def _labels(group: str, queue: str) -> tuple[str, str]:
    return group, split_resource(queue)[0] or queue
