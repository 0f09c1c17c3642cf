"""What it costs to be watched: the same messages with metrics or traces, and without.

The handler does nothing, so this is the most that watching can cost. CPU time is counted, since a busy machine takes that
from nobody: messages a second of CPU, of the whole process.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pika
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from prometheus_client import CollectorRegistry

from cobalance.operate import ProcessMetrics, Telemetry
from cobalance.rabbitmq.publish.publisher import Publisher
from cobalance.rabbitmq.topics.broker import create_topic
from cobalance.rabbitmq.topics.deletion import delete_topic
from proof.bench.consume import BODY_BYTES, Consuming
from proof.bench.figures import Figure, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

OFF, ON = 0.99, 0.9
"""The goals."""

SAMPLED = 0.01


class Nowhere(SpanExporter):
    """Takes spans, and drops them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        del spans
        return SpanExportResult.SUCCESS


class Unwatched(Publisher):
    """A publisher without the question whether it is watched."""

    def publish(self, key: Any, body: Any, headers: Any = None, *, wait: bool = True, **_: Any) -> Any:
        """As the real one does once it knows that it is not."""
        return self._publish(key, body, headers, {}, partition=None, persistent=True, wait=wait)


class Watched(Consuming):
    """One queue, as for the peers."""

    clock = staticmethod(time.process_time)

    def figures(self, rounds: int) -> list[Figure]:
        """On and off, consuming and publishing."""
        create_topic(self._amqp_url, self._topic)
        spans, sampled = _tracers(1.0), _tracers(SAMPLED)
        meters = MeterProvider([InMemoryMetricReader()])
        telemetry = {
            "API without an SDK": Telemetry(),
            "SDK, 1 of 100 traces": Telemetry(tracer_provider=sampled, meter_provider=meters),
            "SDK, all": Telemetry(tracer_provider=spans, meter_provider=meters),
        }
        compared = partial(self._compared, rounds)
        try:
            return [
                compared(
                    "published, off ÷ without the hook", self.published, partial(self.published, kind=Unwatched), OFF
                ),
                compared(
                    "consumed, metrics ÷ off", self._with(metrics=ProcessMetrics(CollectorRegistry())), self.ours, ON
                ),
                *(
                    compared(f"consumed, traced ({name}) ÷ off", self._with(telemetry=it), self.ours, ON)
                    for name, it in telemetry.items()
                ),
                *(
                    compared(
                        f"published, traced ({name}) ÷ off", partial(self.published, telemetry=it), self.published, ON
                    )
                    for name, it in telemetry.items()
                ),
            ]
        finally:
            for provider in (spans, sampled, meters):
                provider.shutdown()
            delete_topic(self._amqp_url, self._topic.name, force=True)

    def _compared(
        self, rounds: int, name: str, mine: Callable[[], float], other: Callable[[], float], least: float
    ) -> Figure:
        detail = f"{self._messages} x {BODY_BYTES} B, of CPU time"
        return compare(name, "messages/CPU s", mine, other, rounds=rounds, least=least, detail=detail)

    def _with(self, **options: Any) -> Callable[[], float]:
        return partial(self.ours, **options)

    def published(self, kind: type[Publisher] = Publisher, **options: Any) -> float:
        """Messages that are under way together."""
        with kind(self._amqp_url, self._topic, **options) as publisher:
            publisher.publish("key", b"the first connects")
            began = self.clock()
            for _ in range(self._messages):
                publisher.publish("key", b"x" * BODY_BYTES, wait=False)
            publisher.flush()
            rate = self._messages / (self.clock() - began)
        connection = pika.BlockingConnection(pika.URLParameters(self._amqp_url))
        connection.channel().queue_purge(self._topic.queue_names[0])
        connection.close()
        return rate


def _tracers(ratio: float) -> TracerProvider:
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(ratio)), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    return provider
