"""Spans and metrics by OpenTelemetry's conventions for messaging. Needs the extra ``otel``.

A message's publishing is a span whose context travels in its headers. Each call of a handler is another one, from the
moment that the handler is called: what waits in the prefetched buffer is not being processed. A handover shows as two
spans: *revoke* at the former holder, from being asked back to the release, and *assign* at the next one, from the grant
until RabbitMQ has its subscription. The span of the first message that is processed there has a link to the latter.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import attrs
from opentelemetry import context, propagate, trace
from opentelemetry.metrics import get_meter
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import Link, SpanKind, StatusCode

from cobalance.names import split_resource
from cobalance.operate.telemetry_metrics import MessagingMetrics

if TYPE_CHECKING:
    from types import TracebackType

    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanContext, TracerProvider

    from cobalance.group.group import Group
    from cobalance.rabbitmq.consume.metering import Call, Status, Step
    from cobalance.rabbitmq.partition.delivery import Delivery
    from cobalance.rabbitmq.publish.confirms import UnconfirmedMessage

    Attributes = dict[str, str | int]

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""The conventions for messaging are still in development: these names are theirs of that version."""

SYSTEM = {"messaging.system": "rabbitmq"}
PUBLISH = {**SYSTEM, "messaging.operation.name": "publish", "messaging.operation.type": "send"}
PROCESS = {**SYSTEM, "messaging.operation.name": "process", "messaging.operation.type": "process"}
SETTLED: Mapping[Status, str] = {"acked": "ack", "rejected": "reject", "error": "nack"}


class Telemetry:
    """Traces and counts what is published and processed: ``ConsumerGroup(..., telemetry=Telemetry())``, and the same
    with publishers. One is enough for a process. Bodies, keys and the messages of exceptions are not recorded.

    Args:
        tracer_provider, meter_provider: where spans and metrics go; by default the process's own.
        join_traces: a handler's span is a child of the producer's, so that both are one trace, instead of the beginning
            of another trace that has a link to it. Batches have links in either case.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        join_traces: bool = False,
    ) -> None:
        made_by = ("cobalance", version("cobalance"))
        self._tracer = trace.get_tracer(*made_by, tracer_provider, SCHEMA_URL)
        self._metrics = MessagingMetrics(get_meter(*made_by, meter_provider, SCHEMA_URL))
        self._join = join_traces
        self._moves: dict[tuple[str, str, int], _Moves] = {}

    # -- publishing ----------------------------------------------------------------------------------------------------

    def publishing(self, topic: str, headers: Mapping[str, Any] | None) -> _Sent:
        """Called by a publisher: a message is about to be published. Its headers get the span's context, unless the
        program has given them one.
        """
        given = _context_in(headers)
        span = self._tracer.start_span(
            f"publish {topic}",
            kind=SpanKind.PRODUCER if given is None else SpanKind.CLIENT,
            attributes={**PUBLISH, "messaging.destination.template": topic},
            links=None if given is None else [Link(given)],
        )
        if given is None and (headers is None or isinstance(headers, Mapping)):
            headers = dict(headers or {})
            propagate.inject(headers, trace.set_span_in_context(span))
        return _Sent(self._metrics, topic, headers, span)

    # -- processing ----------------------------------------------------------------------------------------------------

    def attach(self, group: Group) -> None:
        """Called by a group; there is nothing to be asked of it."""

    def begun(self, call: Call) -> _Current:
        """Called by the group: a handler is about to be called."""
        one, outside = call.deliveries[0], _without_span()
        came_with = [propagate.extract(_headers_of(it), outside, _GETTER) for it in call.deliveries]
        links = [Link(it) for it in map(_span_in, came_with) if it is not None]
        moves = self._moves.get((call.group, one.queue, one.token))
        if moves is not None and moves.assigned is not None:
            links.append(Link(moves.assigned))
            moves.assigned = None
        single = came_with[0] if not call.is_batch else outside
        topic, partition = _place(one.queue)
        span = self._tracer.start_span(
            f"process {topic}",
            single if self._join else outside,
            SpanKind.CONSUMER,
            {**PROCESS, **_of_queue(call.group, topic, partition), **_of_messages(call.deliveries, call.is_batch)},
            links,
        )
        self._metrics.consumed(call.group, topic, len(call.deliveries))
        return _Current(span, single)

    def ended(self, call: Call, scope: _Current) -> None:
        """Called by the group: it has returned, or raised."""
        span = scope.span
        if span.is_recording():
            if call.error is not None:
                _fail(span, call.error)
            if call.status is not None and call.settled:
                span.set_attribute("cobalance.outcome", call.status)
        span.end()
        self._metrics.processed(call.group, _place(call.queue)[0], call.error, call.seconds)

    def settled(self, group: str, delivery: Delivery, status: Status) -> None:
        """Called by the group: what became of a message apart from its handler's return."""
        topic, partition = _place(delivery.queue)
        made_in = _context_in(_headers_of(delivery))
        name = SETTLED[status]
        self._tracer.start_span(
            f"{name} {topic}",
            kind=SpanKind.CLIENT,
            attributes={
                **SYSTEM,
                "messaging.operation.name": name,
                "messaging.operation.type": "settle",
                "cobalance.outcome": status,
                **_of_queue(group, topic, partition),
                **_of_messages([delivery], False),
            },
            links=None if made_in is None else [Link(made_in)],
        ).end()

    # -- handovers -----------------------------------------------------------------------------------------------------

    def moved(self, group: str, queue: str, token: int, step: Step) -> None:
        """Called by the group: what becomes of a tenure."""
        key, now = (group, queue, token), time.time_ns()
        moves = self._moves.get(key)
        if step == "granted":
            self._moves[key] = _Moves(now)
        elif moves is None:
            return
        elif step == "consuming":
            moves.assigned = self._moving("assign", group, queue, token, moves.granted_at)
        elif step == "ended":
            del self._moves[key]
            if moves.asked_at is not None:
                self._moving("revoke", group, queue, token, moves.asked_at)
        else:
            moves.asked_at = now if step == "asked_back" else None

    def _moving(self, name: str, group: str, queue: str, token: int, since: int) -> SpanContext:
        topic, partition = _place(queue)
        span = self._tracer.start_span(
            f"{name} {topic}",
            _without_span(),
            attributes={**SYSTEM, **_of_queue(group, topic, partition), "cobalance.token": token},
            start_time=since,
        )
        span.end()
        return span.get_span_context()


@attrs.define
class _Moves:
    """When a tenure was granted, and when it was asked back (ns since 1970)."""

    granted_at: int
    asked_at: int | None = None
    assigned: SpanContext | None = None
    """The span that ended when it began to consume, until its first message."""


class _Sent:
    """One message, from its publishing to its outcome."""

    def __init__(self, counts: MessagingMetrics, topic: str, headers: Mapping[str, Any] | None, span: Span) -> None:
        self._metrics, self._topic, self._span, self.headers = counts, topic, span, headers
        self._since = time.perf_counter()

    def ended(self, message: UnconfirmedMessage | None, error: BaseException | None) -> None:
        """Called by the publisher: its outcome is known."""
        span, failure = self._span, None if error is None else type(error).__qualname__
        if span.is_recording():
            if message is not None:
                span.set_attribute("messaging.message.id", message.id)
                span.set_attribute("messaging.destination.partition.id", str(message.partition))
            if failure is not None:
                _fail(span, failure)
        span.end()
        if message is not None:
            self._metrics.sent(self._topic, failure, time.perf_counter() - self._since)


class _Current:
    """Makes a span the current one where a handler runs, beside the baggage that came with its message."""

    __slots__ = ("_inside", "_token", "span")

    def __init__(self, span: Span, came_with: Context) -> None:
        self.span, self._inside = span, trace.set_span_in_context(span, came_with)

    def __enter__(self) -> None:
        self._token = context.attach(self._inside)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, GeneratorExit):  # the handler is closed, perhaps in another context than its own
            context.detach(self._token)


class _HeaderGetter(Getter[Mapping[str, Any]]):
    """Any publisher may have set headers, to anything that AMQP holds."""

    def get(self, carrier: Mapping[str, Any], key: str) -> list[str] | None:
        value = carrier.get(key)
        return [value] if isinstance(value, str) else None

    def keys(self, carrier: Mapping[str, Any]) -> list[str]:
        return list(carrier)


_GETTER = _HeaderGetter()


def _without_span() -> Context:
    """The current context, but no span. In the group's tasks, the span in which it was entered is still current."""
    return trace.set_span_in_context(trace.INVALID_SPAN)


def _headers_of(delivery: Delivery) -> Mapping[str, Any]:
    return delivery.properties.headers or {}


def _context_in(headers: object) -> SpanContext | None:
    """The context that a message was created in, if its headers have it."""
    if not isinstance(headers, Mapping) or not headers:
        return None
    return _span_in(propagate.extract(headers, _without_span(), _GETTER))


def _span_in(extracted: Context) -> SpanContext | None:
    found = trace.get_current_span(extracted).get_span_context()
    return found if found.is_valid else None


def _place(queue: str) -> tuple[str, str | None]:
    """The topic and the partition's number, or the queue by itself."""
    topic, number = split_resource(queue)
    return (queue, None) if topic is None else (topic, number)


def _of_queue(group: str, topic: str, partition: str | None) -> Attributes:
    found: Attributes = {"messaging.destination.template": topic, "messaging.consumer.group.name": group}
    if partition is not None:
        found["messaging.destination.partition.id"] = partition
    return found


def _of_messages(deliveries: Sequence[Delivery], is_batch: bool) -> Attributes:
    one = deliveries[0]
    exchange, key = one.exchange, one.routing_key
    found: Attributes = {
        "messaging.destination.name": ":".join(dict.fromkeys(it for it in (exchange, key, one.queue) if it)),
        "cobalance.token": one.token,
    }
    if is_batch:
        return {**found, "messaging.batch.message_count": len(deliveries)}
    found["messaging.rabbitmq.message.delivery_tag"] = one.delivery_tag
    if key:
        found["messaging.rabbitmq.destination.routing_key"] = key
    if one.properties.message_id:
        found["messaging.message.id"] = one.properties.message_id
    if one.properties.correlation_id:
        found["messaging.message.conversation_id"] = one.properties.correlation_id
    return found


def _fail(span: Span, kind: str) -> None:
    """Without the exception's message, which may quote anything."""
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)
