"""What it costs to be watched: the same messages with metrics or traces, and without.

A handler that does nothing shows the most that watching can cost; others keep the processor busy, or wait. Of the former,
CPU time is counted, since a busy machine takes that from nobody: messages a second of CPU, of the whole process. Of those
that wait, it is the time that passes.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import attrs
import pika
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind
from prometheus_client import CollectorRegistry

from cobalance.operate import ProcessMetrics, Telemetry
from cobalance.rabbitmq.publish.publisher import Publisher
from cobalance.rabbitmq.topics.broker import create_topic
from cobalance.rabbitmq.topics.deletion import delete_topic
from proof.bench.consume import BODY_BYTES, Consuming, Rate
from proof.bench.figures import Figure, compare, compare_each

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Span

    from cobalance.rabbitmq.consume.metering import Call

OFF, ON = 0.99, 0.9
"""The goals."""

SAMPLED = (0.01, 0.1)


@attrs.frozen
class Handler:
    """What a handler does with each message."""

    ms: float = 0.0
    waits: bool = False
    """It sleeps on the event loop; others keep the processor busy."""

    def __str__(self) -> str:
        return f"{self.ms:g} ms of {'waiting' if self.waits else 'CPU'}" if self.ms else "nothing"

    def messages(self, most: int) -> int:
        """Enough for half a second at least."""
        return min(most, max(500, int(600 / self.ms))) if self.ms else most

    def rate(self, most: int) -> Rate:
        return Rate(self.messages(most), time.perf_counter if self.waits else time.process_time)

    async def work(self) -> None:
        if self.waits:
            await anyio.sleep(self.ms / 1000)
        else:
            until = time.thread_time() + self.ms / 1000
            while time.thread_time() < until:
                pass


HANDLERS = (
    Handler(),
    *(Handler(ms) for ms in (0.2, 1.0, 2.0)),
    *(Handler(ms, waits=True) for ms in (1.0, 2.0)),  # asyncio waits no shorter
)


class Nowhere(SpanExporter):
    """Takes spans, and drops them."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        del spans
        return SpanExportResult.SUCCESS


class Bare:
    """A meter that does nothing but what OpenTelemetry has to: a span with as many attributes as ours, and a duration.
    Nothing can trace each message for less.
    """

    def __init__(self, tracer_provider: TracerProvider, meter_provider: MeterProvider) -> None:
        self._start = tracer_provider.get_tracer("bare").start_span
        self._record = meter_provider.get_meter("bare").create_histogram("bare").record
        self._at_first = {f"bare.place.{number}": "value" for number in range(10)}
        self._at_last = {f"bare.message.{number}": "value" for number in range(4)}
        self._labels = dict.fromkeys("abcd", "value")

    def attach(self, *_: object) -> None:
        """Nor is it interested in anything else."""

    settled = moved = attach

    def begun(self, call: Call) -> nullcontext[Span]:
        del call
        return nullcontext(self._start("bare", None, SpanKind.CONSUMER, self._at_first))

    def ended(self, call: Call, scope: nullcontext[Span]) -> None:
        span = scope.enter_result
        span.set_attributes(self._at_last)
        span.end()
        self._record(call.seconds, self._labels)


class Unwatched(Publisher):
    """A publisher without the question whether it is watched."""

    def publish(self, key: Any, body: Any, headers: Any = None, *, wait: bool = True, **_: Any) -> Any:
        """As the real one does once it knows that it is not."""
        return self._publish(key, body, headers, {}, partition=None, persistent=True, wait=wait)


class Watched(Consuming):
    """One queue, as for the peers. The ways of being watched are measured beside each other, in each round."""

    clock = staticmethod(time.process_time)

    def figures(self, rounds: int, handlers: Sequence[Handler] = HANDLERS) -> Iterator[Figure]:
        """On and off, consuming and publishing."""
        create_topic(self._amqp_url, self._topic)
        spans, sampled = _tracers(1.0), {ratio: _tracers(ratio) for ratio in SAMPLED}
        meters = MeterProvider([InMemoryMetricReader()])
        telemetry = {
            "API without an SDK": Telemetry(),
            **{
                f"SDK, 1 of {1 / ratio:g} traces": Telemetry(tracer_provider=it, meter_provider=meters)
                for ratio, it in sampled.items()
            },
            "SDK, all": Telemetry(tracer_provider=spans, meter_provider=meters),
        }
        ways: dict[str, dict[str, Any]] = {"metrics": {"metrics": ProcessMetrics(CollectorRegistry())}}
        ways["OpenTelemetry by itself"] = {"metrics": Bare(spans, meters)}
        ways |= {f"traced ({name})": {"telemetry": it} for name, it in telemetry.items()}
        compared = partial(self._compared, rounds)
        try:
            yield compared(
                "published, off ÷ without the hook", self.published, partial(self.published, kind=Unwatched), OFF
            )
            for handler in handlers:
                yield from self._consumed(rounds, handler, ways)
            for name, it in telemetry.items():
                traced = partial(self.published, telemetry=it)
                yield compared(f"published, traced ({name}) ÷ off", traced, self.published, ON)
        finally:
            for provider in (spans, *sampled.values()):
                provider.shutdown()
            meters.shutdown()
            delete_topic(self._amqp_url, self._topic.name, force=True)

    def _consumed(self, rounds: int, handler: Handler, ways: Mapping[str, dict[str, Any]]) -> list[Figure]:
        def consumed(**options: Any) -> float:
            work = handler.work if handler.ms else None
            return self.consumed(handler.rate(self._messages), work, **options)

        return compare_each(
            "messages/s" if handler.waits else "messages/CPU s",
            {f"consumed, {way} ÷ off, handler: {handler}": partial(consumed, **it) for way, it in ways.items()},
            consumed,
            rounds=rounds,
            least=ON,
            detail=f"{handler.messages(self._messages)} x {BODY_BYTES} B",
        )

    def _compared(
        self, rounds: int, name: str, mine: Callable[[], float], other: Callable[[], float], least: float
    ) -> Figure:
        detail = f"{self._messages} x {BODY_BYTES} B, of CPU time"
        return compare(name, "messages/CPU s", mine, other, rounds=rounds, least=least, detail=detail)

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
