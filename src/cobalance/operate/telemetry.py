"""Spans and metrics by OpenTelemetry's conventions for messaging. Needs the extra ``otel``.

A message's publishing is a span whose context travels in its headers. Each call of a handler is another one, from the
moment that the handler is called: what waits in the prefetched buffer is not being processed. A handover shows as two
spans: *revoke* at the former holder, from being asked back to the release, and *assign* at the next one, from the grant
until RabbitMQ has its subscription. The span of the first message that is processed there has a link to the latter.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import attrs
from opentelemetry import context, propagate, trace
from opentelemetry.metrics import get_meter
from opentelemetry.trace import Link, SpanKind, StatusCode

from cobalance.names import split_resource
from cobalance.operate.telemetry_context import Current, context_in, extracted, span_in, without_span
from cobalance.operate.telemetry_metrics import MessagingMetrics, Series
from cobalance.rabbitmq.partition.delivery import EXCHANGE, ROUTING_KEY
from cobalance.redact import printable

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanContext, TracerProvider

    from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
    from cobalance.rabbitmq.consume.metering import Call, Meter, Status, Step
    from cobalance.rabbitmq.partition.delivery import Delivery
    from cobalance.rabbitmq.publish.confirms import UnconfirmedMessage
    from cobalance.rabbitmq.wire.connection import BrokerConnection

    Attributes = dict[str, str | int]

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""The conventions for messaging are still in development: these names are theirs of that version."""

SYSTEM = {"messaging.system": "rabbitmq"}
PUBLISH = {**SYSTEM, "messaging.operation.name": "publish", "messaging.operation.type": "send"}
PROCESS = {**SYSTEM, "messaging.operation.name": "process", "messaging.operation.type": "process"}
NAMES = {EXCHANGE, ROUTING_KEY}
"""Headers that say where a message was published before it came here."""
MOST_ENDED = 100
"""So many topics and queues are still counted that this process does not work any more."""
MOST_KNOWN = 10_000
"""Routing keys may be many."""

PRODUCER, CONSUMER = SpanKind.PRODUCER, SpanKind.CONSUMER
"""Python 3.11 takes its time to find a member of an enumeration."""

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
        self._known: dict[tuple[Client | None, str, str, str | None, str | None], _Place] = {}
        self._publishing: dict[tuple[str, str, str], _Topic] = {}
        self._moves: dict[tuple[str, str, int], _Moves] = {}
        self._assigned: dict[tuple[str, str, int], SpanContext] = {}
        """The span that ended when a tenure began to consume, until its first message."""
        self._lock = threading.Lock()
        self._held: Counter[tuple[str, str]] = Counter()
        """Tenures, by group and topic."""
        self._ended: dict[tuple[str, str], None] = {}

    # -- publishing ----------------------------------------------------------------------------------------------------

    def publishing(self, topic: str, headers: Mapping[str, Any] | None, connection: BrokerConnection) -> _Sent:
        """Called by a publisher: a message is about to be published. Its headers get the span's context, unless the
        program has given them one.
        """
        at = topic, connection.name, connection.host
        place, here = self._publishing.get(at), context.get_current()
        if place is None:
            if len(self._publishing) >= MOST_KNOWN:
                self._publishing.clear()
            client = Client.of(connection)
            place = self._publishing[at] = _Topic.of(topic, client, self._metrics.series(None, topic))
        given = context_in(headers, here) if headers else None
        if given is not None:
            span = self._tracer.start_span(place.publish, here, SpanKind.CLIENT, place.publishing, [Link(given)])
            return _Sent(self._metrics, place.series, headers, span)
        span = self._tracer.start_span(place.publish, here, PRODUCER, place.publishing)
        if (here or span is not trace.INVALID_SPAN) and (headers is None or isinstance(headers, Mapping)):
            headers = dict(headers or {})
            propagate.inject(headers, trace.set_span_in_context(span, here))
        return _Sent(self._metrics, place.series, headers, span)

    # -- processing ----------------------------------------------------------------------------------------------------

    def attach(self, group: ConsumerGroup) -> Meter:
        """Called by a group, which tells what is returned, so that spans have who it is."""
        return OfMember(self, group)

    def begun(self, call: Call, client: Client | None = None) -> Current:
        """Called by the group: a handler is about to be called."""
        here = context.get_current()
        outside = without_span(here)
        came_with, links = self._origins(call, outside)
        place = self._place(call.group, call.deliveries[0], client)
        span = self._tracer.start_span(
            place.process, came_with if self._join else outside, CONSUMER, place.processing, links
        )
        self._metrics.begun(place.series, len(call.deliveries))
        if span is trace.INVALID_SPAN and came_with is here:
            return place.nothing
        return Current(span, trace.set_span_in_context(span, came_with), place.series)

    def _origins(self, call: Call, outside: Context) -> tuple[Context, list[Link]]:
        """What a single message came with, and what its span is linked to; of a batch, only the latter."""
        single = outside
        links: list[Link] = []
        for it in call.deliveries:
            came_with = extracted(it.properties.headers, outside)
            if came_with is not outside:
                if (made_in := span_in(came_with)) is not None:
                    links.append(Link(made_in))
                if not call.is_batch:
                    single = came_with
        if self._assigned:
            assigned = self._assigned.pop((call.group, call.tenure.queue, call.tenure.token), None)
            if assigned is not None:
                links.append(Link(assigned))
        return single, links

    def ended(self, call: Call, scope: Current) -> None:
        """Called by the group: it has returned, or raised."""
        span = scope.span
        if span is not trace.INVALID_SPAN and span.is_recording():
            of_messages = _of_messages(call)  # all at once, since each call takes its time
            if call.status is not None and call.settled:
                of_messages["cobalance.outcome"] = call.status
            span.set_attributes(of_messages)
            if call.error is not None:
                _fail(span, call.error)
        span.end()
        self._metrics.ended(scope.series, call.error, call.seconds)

    def settled(self, group: str, delivery: Delivery, status: Status, client: Client | None = None) -> None:
        """Called by the group: what became of a message apart from its handler's return."""
        place, name = self._place(group, delivery, client), SETTLED[status]
        made_in = context_in(delivery.properties.headers, context.get_current())
        self._tracer.start_span(
            f"{name} {place.series.topic}",
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

    def _place(self, group: str, delivery: Delivery, client: Client | None) -> _Place:
        """Made once for each place where messages come from, and forgotten when there are very many."""
        method, queue = delivery.method, delivery.tenure.queue
        exchange, routing_key = method.exchange, method.routing_key
        headers = delivery.properties.headers
        if headers and not NAMES.isdisjoint(headers):
            exchange, routing_key = delivery.exchange, delivery.routing_key
        found = self._known.get((client, group, queue, exchange, routing_key))
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            series = self._metrics.series(group, split_resource(queue)[0] or queue)
            found = _Place.of(series, _of_queue(group, queue, client), queue, delivery)
            self._known[client, group, queue, exchange, routing_key] = found
        return found

    # -- handovers -----------------------------------------------------------------------------------------------------

    def moved(self, group: str, queue: str, token: int, step: Step, client: Client | None = None) -> None:
        """Called by the group: what becomes of a tenure."""
        key, now = (group, queue, token), time.time_ns()
        moves = self._moves.get(key)
        if step == "granted":
            self._moves[key] = _Moves(now)
            self._holds(group, queue, 1)
        elif moves is None:
            return
        elif step == "consuming":
            self._assigned[key] = self._moving("assign", key, moves.granted_at, client)
        elif step == "ended":
            del self._moves[key]
            self._assigned.pop(key, None)
            self._holds(group, queue, -1)
            if moves.asked_at is not None:
                self._moving("revoke", key, moves.asked_at, client)
        else:
            moves.asked_at = now if step == "asked_back" else None

    def _holds(self, group: str, queue: str, tenures: int) -> None:
        """Queues may come and go without end; what is worked is always counted, and of the others the last."""
        key = group, split_resource(queue)[0] or queue
        with self._lock:
            self._held[key] += tenures
            self._ended.pop(key, None)
            if not self._held[key]:
                del self._held[key]
                self._ended[key] = None
            if len(self._ended) > MOST_ENDED:
                oldest = next(iter(self._ended))
                del self._ended[oldest]
                forgotten = self._metrics.forget(*oldest)
                for place, found in list(self._known.items()):
                    if found.series is forgotten:
                        self._known.pop(place, None)

    def _moving(self, name: str, tenure: tuple[str, str, int], since: int, client: Client | None) -> SpanContext:
        group, queue, token = tenure
        topic, common = _of_queue(group, queue, client)
        span = self._tracer.start_span(
            f"{name} {topic}",
            without_span(context.get_current()),
            attributes={**common, "cobalance.token": token},
            start_time=since,
        )
        span.end()
        return span.get_span_context()


@attrs.frozen(eq=False)
class Client:
    """One connection to RabbitMQ, as spans name it. Its name is the one that RabbitMQ shows."""

    name: str
    host: str
    attributes: Attributes

    @classmethod
    def of(cls, connection: BrokerConnection) -> Client:
        name, host = connection.name, connection.host
        found: Attributes = {"messaging.client.id": name}
        return cls(name, host, found | {"server.address": host} if host else found)


class OfMember:
    """A group's telemetry, with the connection that the group has at the time."""

    def __init__(self, telemetry: Telemetry, group: ConsumerGroup) -> None:
        self._telemetry, self._group = telemetry, group
        self._client: Client | None = None
        self.ended = telemetry.ended

    def attach(self, group: ConsumerGroup) -> Meter:
        """Of another group."""
        return self._telemetry.attach(group)

    def begun(self, call: Call) -> Current:
        """See :class:`Telemetry`, as for the others."""
        return self._telemetry.begun(call, self._here())

    def settled(self, group: str, delivery: Delivery, status: Status) -> None:
        self._telemetry.settled(group, delivery, status, self._here())

    def moved(self, group: str, queue: str, token: int, step: Step) -> None:
        self._telemetry.moved(group, queue, token, step, self._here())

    def _here(self) -> Client | None:
        connection, client = getattr(self._group.partitions, "connection", None), self._client
        if connection is not None and (client is None or client.host != connection.host):
            client = self._client = Client.of(connection)
        return client


@attrs.frozen(eq=False)
class _Topic:
    """Where messages are published, and what spans say of it."""

    publish: str
    """The name of a span."""
    publishing: Attributes
    series: Series

    @classmethod
    def of(cls, topic: str, client: Client, series: Series) -> _Topic:
        names = {"messaging.destination.template": topic, "messaging.destination.name": topic}
        return cls(f"publish {topic}", {**PUBLISH, **names, **client.attributes}, series)


@attrs.frozen(eq=False)
class _Place:
    """Where messages of a group come from, as attributes of spans."""

    process: str
    """The name of a span."""
    common: Attributes
    processing: Attributes
    """What samplers may look at, when a handler is about to be called."""
    series: Series
    nothing: Current
    """Where nothing is traced, and the context is as it is outside."""

    @classmethod
    def of(cls, series: Series, of_queue: tuple[str, Attributes], queue: str, delivery: Delivery) -> _Place:
        (topic, common), exchange, routing_key = of_queue, delivery.exchange, delivery.routing_key
        common["messaging.destination.name"] = ":".join(
            dict.fromkeys(printable(it) for it in (exchange, routing_key, queue) if it)
        )
        if routing_key:
            common["messaging.rabbitmq.destination.routing_key"] = printable(routing_key)
        nothing = Current(trace.INVALID_SPAN, None, series)
        return cls(f"process {topic}", common, {**PROCESS, **common}, series, nothing)


@attrs.define
class _Moves:
    """When a tenure was granted, and when it was asked back (ns since 1970)."""

    granted_at: int
    asked_at: int | None = None


class _Sent:
    """One message, from its publishing to its outcome."""

    def __init__(self, counts: MessagingMetrics, series: Series, headers: Mapping[str, Any] | None, span: Span) -> None:
        self._metrics, self._series, self._span, self.headers = counts, series, span, headers
        self._since = time.perf_counter()

    def ended(self, message: UnconfirmedMessage | None, error: BaseException | None) -> None:
        """Called by the publisher: its outcome is known."""
        span, failure = self._span, None if error is None else type(error).__qualname__
        if span.is_recording():
            if message is not None:
                span.set_attribute("messaging.message.id", message.id)
                span.set_attribute("messaging.destination.partition.id", str(message.partition))
                if key := message.routing_key:
                    span.set_attribute("messaging.destination.name", f"{self._series.topic}:{key}")
                    span.set_attribute("messaging.rabbitmq.destination.routing_key", key)
            if failure is not None:
                _fail(span, failure)
        span.end()
        if message is not None:
            self._metrics.sent(self._series, failure, time.perf_counter() - self._since)


def _of_queue(group: str, queue: str, client: Client | None) -> tuple[str, Attributes]:
    """The topic, or the queue by itself; and what spans say of it."""
    topic, number = split_resource(queue)
    common: Attributes = {
        **SYSTEM,
        **({} if client is None else client.attributes),
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
        found["messaging.message.id"] = printable(properties.message_id)
    if properties.correlation_id:
        found["messaging.message.conversation_id"] = printable(properties.correlation_id)
    return found


def _fail(span: Span, kind: str) -> None:
    """Without the exception's message, which may quote anything."""
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)
