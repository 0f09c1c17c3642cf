"""Spans and metrics by OpenTelemetry's conventions for messaging. Needs the extra ``otel``.

A message's publishing is a span whose context travels in its headers. Each call of a handler is another one, from the
moment that the handler is called: what waits in the prefetched buffer is not being processed. A handover shows as two
spans: *revoke* at the former holder, from being asked back to the release, and *assign* at the next one, from the grant
until RabbitMQ has its subscription. The span of the first message that is processed there has a link to the latter.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
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
MOST_KNOWN = 10_000
"""Routing keys may be many."""

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
        self._known: dict[tuple[str, str, str, str], _Place] = {}
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
        came_with = [_extracted(it.properties.headers, outside) for it in call.deliveries]
        links = [Link(found) for it in came_with if it is not outside and (found := _span_in(it)) is not None]
        moves = self._moves.get((call.group, call.queue, one.tenure.token))
        if moves is not None and moves.assigned is not None:
            links.append(Link(moves.assigned))
            moves.assigned = None
        place, single = self._place(call.group, one), outside if call.is_batch else came_with[0]
        span = self._tracer.start_span(
            f"process {place.topic}", single if self._join else outside, SpanKind.CONSUMER, place.processing, links
        )
        if span.is_recording():
            span.set_attributes(_of_messages(call))
        self._metrics.consumed(call.group, place.topic, len(call.deliveries))
        return _Current(span, single, place.topic)

    def ended(self, call: Call, scope: _Current) -> None:
        """Called by the group: it has returned, or raised."""
        span = scope.span
        if span.is_recording():
            if call.error is not None:
                _fail(span, call.error)
            if call.status is not None and call.settled:
                span.set_attribute("cobalance.outcome", call.status)
        span.end()
        self._metrics.processed(call.group, scope.topic, call.error, call.seconds)

    def settled(self, group: str, delivery: Delivery, status: Status) -> None:
        """Called by the group: what became of a message apart from its handler's return."""
        place, name = self._place(group, delivery), SETTLED[status]
        made_in = _context_in(delivery.properties.headers)
        self._tracer.start_span(
            f"{name} {place.topic}",
            kind=SpanKind.CLIENT,
            attributes={
                **place.common,
                "messaging.operation.name": name,
                "messaging.operation.type": "settle",
                "cobalance.outcome": status,
                **_of_message(delivery),
            },
            links=None if made_in is None else [Link(made_in)],
        ).end()

    def _place(self, group: str, delivery: Delivery) -> _Place:
        """Made once for each place where messages come from, and forgotten when there are very many."""
        key = (group, delivery.tenure.queue, delivery.exchange, delivery.routing_key)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found = self._known[key] = _Place.of(*key)
        return found

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
        topic, common = _of_queue(group, queue)
        span = self._tracer.start_span(
            f"{name} {topic}",
            _without_span(),
            attributes={**common, "cobalance.token": token},
            start_time=since,
        )
        span.end()
        return span.get_span_context()


@attrs.frozen
class _Place:
    """Where messages of a group come from, as attributes of spans."""

    topic: str
    common: Attributes
    processing: Attributes
    """What samplers may look at, when a handler is about to be called."""

    @classmethod
    def of(cls, group: str, queue: str, exchange: str, routing_key: str) -> _Place:
        topic, common = _of_queue(group, queue)
        common["messaging.destination.name"] = ":".join(
            dict.fromkeys(it for it in (exchange, routing_key, queue) if it)
        )
        if routing_key:
            common["messaging.rabbitmq.destination.routing_key"] = routing_key
        return cls(topic, common, {**PROCESS, **common})


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

    __slots__ = ("_inside", "_token", "span", "topic")

    def __init__(self, span: Span, came_with: Context, topic: str) -> None:
        self.span, self._inside, self.topic = span, trace.set_span_in_context(span, came_with), topic

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
    here = context.get_current()
    is_free = trace.get_current_span(here) is trace.INVALID_SPAN
    return here if is_free else trace.set_span_in_context(trace.INVALID_SPAN, here)


def _extracted(headers: Mapping[str, Any] | None, outside: Context) -> Context:
    """With what the producer has put into the headers; most other programs put nothing there."""
    if not headers:
        return outside
    propagator = propagate.get_global_textmap()
    return outside if propagator.fields.isdisjoint(headers) else propagator.extract(headers, outside, _GETTER)


def _context_in(headers: object) -> SpanContext | None:
    """The context that a message was created in, if its headers have it."""
    return _span_in(_extracted(headers, _without_span())) if isinstance(headers, Mapping) else None


def _span_in(extracted: Context) -> SpanContext | None:
    found = trace.get_current_span(extracted).get_span_context()
    return found if found.is_valid else None


def _of_queue(group: str, queue: str) -> tuple[str, Attributes]:
    """The topic, or the queue by itself; and what spans say of it."""
    topic, number = split_resource(queue)
    common: Attributes = {
        **SYSTEM,
        "messaging.destination.template": topic or queue,
        "messaging.consumer.group.name": group,
    }
    if topic is not None:
        common["messaging.destination.partition.id"] = number
    return topic or queue, common


def _of_messages(call: Call) -> Attributes:
    if not call.is_batch:
        return _of_message(call.deliveries[0])
    return {"messaging.batch.message_count": len(call.deliveries), "cobalance.token": call.deliveries[0].token}


def _of_message(delivery: Delivery) -> Attributes:
    properties = delivery.properties
    found: Attributes = {
        "messaging.rabbitmq.message.delivery_tag": delivery.delivery_tag,
        "cobalance.token": delivery.token,
    }
    if properties.message_id:
        found["messaging.message.id"] = properties.message_id
    if properties.correlation_id:
        found["messaging.message.conversation_id"] = properties.correlation_id
    return found


def _fail(span: Span, kind: str) -> None:
    """Without the exception's message, which may quote anything."""
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)
