"""Spans and metrics by OpenTelemetry's conventions, recorded by its SDK. Nearly all on a broker in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, cast

import anyio
import anyio.to_thread
import attrs
import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from pika.exchange_type import ExchangeType
from pika.spec import BasicProperties
from prometheus_client import CollectorRegistry
from tests.consumers import Place, channel, new_topic, place, until
from tests.names import unique
from tests.rabbitmq.dropin.parts import Broker as RealBroker
from tests.rabbitmq.dropin.parts import connect, consume

from cobalance import (
    AsyncPublisher,
    Batch,
    BlockingConsumerGroup,
    ConsumerGroup,
    Delivery,
    Publisher,
    Retries,
    Topic,
)
from cobalance.errors import PublishFailed, UsageError
from cobalance.operate import ProcessMetrics, Telemetry
from cobalance.rabbitmq.consume.metering import Metering
from cobalance.rabbitmq.topics.broker import ready_messages
from cobalance.rabbitmq.wire.address import single_urls
from cobalance.settings import MemberSettings
from cobalance.testing import Broker

pytestmark = pytest.mark.anyio

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


class Recorded:
    """What the SDK has exported."""

    def __init__(self) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers, self._meters = TracerProvider(shutdown_on_exit=False), MeterProvider([self._reader])
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))

    def telemetry(self, **options: Any) -> Telemetry:
        return Telemetry(tracer_provider=self.tracers, meter_provider=self._meters, **options)

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Those whose name begins so."""
        return [it for it in self._spans.get_finished_spans() if it.name.startswith(name)]

    async def wait(self, name: str, count: int = 1) -> list[ReadableSpan]:
        await until(lambda: len(self.spans(name)) >= count)
        found = self.spans(name)
        assert len(found) == count
        return found

    def points(self, name: str) -> list[tuple[dict[str, Any], float]]:
        """The attributes of each series, and its sum or count."""
        data: Any = self._reader.get_metrics_data()
        metrics = (
            [] if data is None else [it for scope in data.resource_metrics[0].scope_metrics for it in scope.metrics]
        )
        points = [point for it in metrics if it.name == name for point in it.data.data_points]
        return [(dict(it.attributes), it.value if hasattr(it, "value") else it.count) for it in points]

    def close(self) -> None:
        self.tracers.shutdown()
        self._meters.shutdown()


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    it = Recorded()
    yield it
    it.close()


@pytest.fixture
def here() -> Iterator[Place]:
    with place(f"memory://{unique('telemetry')}") as it:
        yield it


def broker_of(here: Place) -> Broker:
    return Broker(here.amqp_url.removeprefix("memory://"))


@pytest.fixture
def topic(here: Place) -> Topic:
    return broker_of(here).create_topic(unique("orders"), 2)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@attrs.frozen
class Ids:
    """Which span it is, wherever that was read."""

    trace_id: int
    span_id: int

    @classmethod
    def of(cls, it: trace.SpanContext | None) -> Ids:
        assert it is not None
        return cls(it.trace_id, it.span_id)


def of(span: ReadableSpan) -> Ids:
    return Ids.of(span.context)


def in_order(spans: list[ReadableSpan]) -> list[ReadableSpan]:
    return sorted(spans, key=lambda it: it.start_time or 0)


def parent(span: ReadableSpan) -> Ids | None:
    return Ids.of(span.parent) if span.parent is not None else None


def linked(span: ReadableSpan) -> list[Ids]:
    return [Ids.of(it.context) for it in span.links]


def current() -> Ids:
    return Ids.of(trace.get_current_span().get_span_context())


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_message_from_its_publisher_to_its_handler(here: Place, topic: Topic, recorded: Recorded) -> None:
    """A producer's span, whose context the message carries; a consumer's, which is linked to it and current meanwhile."""
    seen, telemetry = list[Ids](), recorded.telemetry()

    async def handle(_: Delivery) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append(current())

    async with here.member(topic, handle, telemetry=telemetry) as group:
        (tenure, _) = sorted(
            await group.wait_held(*topic.queue_names), key=lambda it: it.resource != topic.queue_names[1]
        )
        async with AsyncPublisher(here.amqp_url, topic, telemetry=telemetry) as publisher:
            await publisher.publish("k", b"x", partition=1, message_id="order-7", correlation_id="talk-1")
        (processed,) = await recorded.wait("process")
    (published,) = recorded.spans("publish")
    common = {
        "messaging.system": "rabbitmq",
        "messaging.destination.template": topic.name,
        "messaging.rabbitmq.destination.routing_key": "1/2",
        "server.address": "127.0.0.1",
    }
    assert (published.name, published.kind) == (f"publish {topic.name}", SpanKind.PRODUCER)
    assert attributes(published) == common | {
        "messaging.client.id": "publisher",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": f"{topic.name}:1/2",
        "messaging.destination.partition.id": "1",
        "messaging.message.id": "order-7",
    }
    assert (processed.name, processed.kind) == (f"process {topic.name}", SpanKind.CONSUMER)
    assert attributes(processed) == common | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.client.id": group.partitions.connection.name,
        "messaging.destination.name": f"{topic.name}:1/2:{topic.queue_names[1]}",
        "messaging.destination.partition.id": "1",
        "messaging.consumer.group.name": here.group,
        "messaging.message.id": "order-7",
        "messaging.message.conversation_id": "talk-1",
        "messaging.rabbitmq.message.delivery_tag": 1,
        "cobalance.token": tenure.token,
        "cobalance.outcome": "acked",
    }
    assert parent(processed) is None
    assert linked(processed)[0] == of(published)
    assert seen == [of(processed)]


async def test_the_handover_to_a_member_and_from_it(here: Place, topic: Topic, recorded: Recorded) -> None:
    """At the next holder from the grant to the subscription, then the first message; at the former until the release."""
    release, telemetry = anyio.Event(), recorded.telemetry()

    async def handle(_: Delivery) -> None:
        await release.wait()

    async with here.member(topic, handle, telemetry=telemetry) as first:
        tenures = {it.resource: it.token for it in await first.wait_held(*topic.queue_names)}
        assigned = await recorded.wait("assign", 2)
        assert {attributes(it)["cobalance.token"] for it in assigned} == set(tenures.values())
        broker_of(here).publish(topic, "a", b"1", b"2")
        release.set()
        processed = await recorded.wait("process", 2)
        token = attributes(processed[0])["cobalance.token"]
        (mine,) = [it for it in assigned if attributes(it)["cobalance.token"] == token]
        assert linked(processed[0]) == [of(mine)]  # the message has no context of its own
        assert linked(processed[1]) == []
        assert mine.end_time is not None
        assert processed[0].start_time is not None
        assert mine.end_time <= processed[0].start_time
        assert not recorded.spans("revoke")
        async with here.member(topic, handle, telemetry=telemetry) as second:
            (tenure,) = await second.wait_held()
            (revoked,) = await recorded.wait("revoke")
            assert attributes(revoked) == {
                "messaging.system": "rabbitmq",
                "messaging.destination.template": topic.name,
                "messaging.destination.partition.id": tenure.resource.rpartition("-")[2],
                "messaging.consumer.group.name": here.group,
                "messaging.client.id": first.partitions.connection.name,
                "server.address": "127.0.0.1",
                "cobalance.token": tenures[tenure.resource],
            }
            (_, _, again) = await recorded.wait("assign", 3)
            assert attributes(again)["cobalance.token"] == tenure.token
        await recorded.wait("assign", 4)  # the first has it back
    assert len(recorded.spans("revoke")) == 4  # by leaving, too


async def test_a_trace_may_go_on_in_the_handler(here: Place, topic: Topic, recorded: Recorded) -> None:
    """One trace, if that is asked for. What the handler publishes is part of its own span in either case."""
    telemetry = recorded.telemetry(join_traces=True)
    publisher = Publisher(here.amqp_url, topic, telemetry=telemetry)

    def handle(delivery: Delivery) -> None:
        if delivery.body == b"1":
            publisher.publish("k", b"2")

    with publisher:
        async with here.member(topic, handle, telemetry=telemetry) as group:
            await group.wait_held(*topic.queue_names)
            await anyio.to_thread.run_sync(publisher.publish, "k", b"1")
            first_one, second_one = in_order(await recorded.wait("process", 2))
    first, second = in_order(recorded.spans("publish"))
    assert parent(first_one) == of(first)
    assert parent(second) == of(first_one)
    assert parent(second_one) == of(second)
    assert len({of(it).trace_id for it in recorded.spans("p")}) == 1


@pytest.mark.parametrize("kind", ["thread", "awaitable", "blocking"])
async def test_the_span_is_current_wherever_the_handler_runs(
    here: Place, topic: Topic, recorded: Recorded, kind: str
) -> None:
    """In its thread, and on the event loop where its result is awaited; with the baggage that came with the message."""
    seen = list[tuple[int, object]]()

    def note() -> None:
        seen.append((current().span_id, baggage.get_baggage("shop")))

    async def later() -> None:
        await anyio.lowlevel.checkpoint()
        note()

    def handle(_: Delivery) -> Any:
        note()
        return later() if kind == "awaitable" else None

    telemetry = recorded.telemetry()
    outside = context.attach(baggage.set_baggage("shop", "berlin"))
    try:
        async with AsyncPublisher(here.amqp_url, topic, telemetry=telemetry) as publisher:
            await publisher.publish("k", b"x")
    finally:
        context.detach(outside)
    if kind == "blocking":
        with BlockingConsumerGroup(
            here.group, topic, handle, amqp_url=here.amqp_url, redis_url=here.redis_url, telemetry=telemetry
        ):
            (span,) = await recorded.wait("process")
    else:
        async with here.member(topic, handle, telemetry=telemetry):
            (span,) = await recorded.wait("process")
    assert seen == [(of(span).span_id, "berlin")] * (2 if kind == "awaitable" else 1)
    assert attributes(span)["cobalance.outcome"] == "acked"


async def test_what_was_current_outside_is_no_parent(here: Place, topic: Topic, recorded: Recorded) -> None:
    """A program that enters its group within a span, as at its start, has no trace that never ends."""
    telemetry, tracer = recorded.telemetry(), recorded.tracers.get_tracer("program")
    with tracer.start_as_current_span("start of the program") as outer:
        async with here.member(topic, lambda _: None, telemetry=telemetry):
            broker_of(here).publish(topic, "k", b"x")
            (processed,) = await recorded.wait("process")
            assert trace.get_current_span() is outer
    assert {parent(it) for it in [processed, *recorded.spans("assign"), *recorded.spans("revoke")]} == {None}


async def test_without_an_sdk_contexts_still_pass(here: Place, topic: Topic, recorded: Recorded) -> None:
    """What was current at the publisher is in the headers, baggage is in the handler, and nothing of the group's place."""
    telemetry, tracer = Telemetry(), recorded.tracers.get_tracer("program")
    seen = list[tuple[Any, object, bool]]()

    def handle(delivery: Delivery) -> None:
        is_free = not trace.get_current_span().get_span_context().is_valid
        seen.append((delivery.headers.get("traceparent"), baggage.get_baggage("shop"), is_free))

    with tracer.start_as_current_span("start of the program"):
        async with (
            here.member(topic, handle, telemetry=telemetry) as group,
            AsyncPublisher(here.amqp_url, topic, telemetry=telemetry) as publisher,
        ):
            await group.wait_held(*topic.queue_names)
            outside = context.attach(baggage.set_baggage("shop", "berlin", context.Context()))
            try:
                await publisher.publish("k", b"x")
            finally:
                context.detach(outside)
            with tracer.start_as_current_span("request") as request:
                await publisher.publish("k", b"x")
            outside = context.attach(context.Context())
            try:
                await publisher.publish("k", b"x")
            finally:
                context.detach(outside)
            await until(lambda: len(seen) == 3)
    flags = request.get_span_context().trace_flags
    of_request = f"00-{Ids.of(request.get_span_context()).trace_id:032x}-{Ids.of(request.get_span_context()).span_id:016x}-{flags:02x}"
    assert seen == [
        (None, "berlin", True),
        (of_request, None, True),
        (None, None, True),
    ]


async def test_a_batch_has_a_link_for_each_message(here: Place, topic: Topic, recorded: Recorded) -> None:
    """And a number instead of what only single messages have."""
    telemetry = recorded.telemetry(join_traces=True)
    with Publisher(here.amqp_url, topic, telemetry=telemetry) as publisher:
        for body in (b"1", b"2"):
            publisher.publish("k", body, partition=0)

    async def handle(_: list[Delivery]) -> None: ...

    async with here.member(topic, handle, batch=Batch(2, within_ms=5_000), telemetry=telemetry):
        (span,) = await recorded.wait("process")
    assert linked(span)[:2] == [of(it) for it in recorded.spans("publish")]
    assert parent(span) is None
    found = attributes(span)
    assert found["messaging.batch.message_count"] == 2
    assert not {"messaging.message.id", "messaging.rabbitmq.message.delivery_tag"} & found.keys()
    assert recorded.points("messaging.client.consumed.messages")[0][1] == 2
    assert recorded.points("messaging.process.duration")[0][1] == 1


async def test_failures_have_a_type_and_no_words(here: Place, topic: Topic, recorded: Recorded) -> None:
    """Each try is a span of its own; so is the dead letter. Nothing says what the message or the exception does."""

    def handle(delivery: Delivery) -> None:
        raise ValueError(delivery.body.decode())

    telemetry = recorded.telemetry()
    with Publisher(here.amqp_url, topic, telemetry=telemetry) as publisher:
        publisher.publish("a-secret", b"a-secret", {"password": "a-secret"}, partition=0)
    async with here.member(topic, handle, telemetry=telemetry, retries=Retries(1, first_ms=1), on_error="dead_letter"):
        tries = await recorded.wait("process", 2)
        (rejected,) = await recorded.wait("reject")
    (published,) = recorded.spans("publish")
    for it in tries:
        assert (it.status.status_code, it.status.description) == (StatusCode.ERROR, None)
        assert attributes(it)["error.type"] == "ValueError"
        assert attributes(it)["cobalance.outcome"] == "error"
        assert linked(it)[0] == of(published)
        assert not it.events
    assert attributes(rejected)["messaging.operation.type"] == "settle"
    assert linked(rejected) == [of(published)]
    assert not [it for it in recorded.spans() if "a-secret" in it.to_json()]
    ((labels, count),) = recorded.points("messaging.process.duration")
    assert (labels["error.type"], count) == ("ValueError", 2)


async def test_a_result_that_is_refused_is_a_failure(here: Place, topic: Topic, recorded: Recorded) -> None:
    """As it is for the group."""
    broker_of(here).publish(topic, "k", b"x")
    async with here.member(topic, lambda _: 5, telemetry=recorded.telemetry()):
        (span,) = await recorded.wait("process")
    assert attributes(span)["error.type"] == "UnexpectedResult"


async def test_a_handler_that_hangs_ends_its_span(here: Place, topic: Topic, recorded: Recorded) -> None:
    """It is cancelled, and the span says so."""

    async def handle(_: Delivery) -> None:
        await anyio.sleep_forever()

    broker_of(here).publish(topic, "k", b"x")
    hurried = MemberSettings(max_processing_ms=50, drain_timeout_ms=5_000)
    async with here.member(topic, handle, telemetry=recorded.telemetry(), member=hurried, retries=0):
        (span, *_) = await until(lambda: recorded.spans("process"))
    assert attributes(span)["error.type"] == "HandlerHung"
    assert attributes(span)["cobalance.outcome"] == "error"
    assert span.status.status_code == StatusCode.ERROR


async def test_a_handler_whose_partition_is_taken_away_has_not_failed(
    here: Place, topic: Topic, recorded: Recorded
) -> None:
    """It is cancelled as well, but its span has neither an error nor an outcome."""
    begun = anyio.Event()

    async def handle(_: Delivery) -> None:
        begun.set()
        await anyio.sleep_forever()

    broker_of(here).publish(topic, "k", b"x")
    hurried = MemberSettings(drain_timeout_ms=50)
    async with here.member(topic, handle, telemetry=recorded.telemetry(), member=hurried):
        await begun.wait()
    (span,) = recorded.spans("process")
    assert span.status.status_code == StatusCode.UNSET
    assert attributes(span).keys().isdisjoint({"error.type", "cobalance.outcome"})


async def test_what_the_program_acknowledges_itself(here: Place, topic: Topic, recorded: Recorded) -> None:
    """A span of its own, when it does."""
    held = list[Delivery]()
    broker = broker_of(here)
    broker.publish(topic, "k", b"1", b"2", headers=TRACEPARENT)
    async with here.member(topic, held.append, ack="manual", telemetry=recorded.telemetry()) as group:
        processed = await recorded.wait("process", 2)
        assert not [it for it in processed if "cobalance.outcome" in attributes(it)]
        group.ack(held[0])
        await anyio.to_thread.run_sync(group.reject, held[1])
        (acked,) = await recorded.wait("ack")
        (rejected,) = await recorded.wait("reject")
    for it, outcome in ((acked, "acked"), (rejected, "rejected")):
        assert it.kind is SpanKind.CLIENT
        assert attributes(it)["cobalance.outcome"] == outcome
        assert [f"{link.trace_id:032x}" for link in linked(it)] == [TRACE]


async def test_a_context_that_the_program_gives_is_kept(here: Place, topic: Topic, recorded: Recorded) -> None:
    """The message carries it on as it is, and both ends are linked to it."""
    telemetry = recorded.telemetry()
    with Publisher(here.amqp_url, topic, telemetry=telemetry) as publisher:
        publisher.publish("k", b"x", TRACEPARENT)
    seen = list[Any]()
    async with here.member(topic, lambda it: seen.append(it.headers["traceparent"]), telemetry=telemetry):
        (processed,) = await recorded.wait("process")
    (published,) = recorded.spans("publish")
    assert seen == [TRACEPARENT["traceparent"]]
    assert published.kind is SpanKind.CLIENT
    assert {f"{linked(it)[0].span_id:016x}" for it in (published, processed)} == {PARENT}


@pytest.mark.parametrize("value", ["no context", 7, b"\xff", ["00", 1], datetime(2026, 1, 1, tzinfo=UTC), None])
async def test_any_header_of_that_name(here: Place, topic: Topic, recorded: Recorded, value: object) -> None:
    """Any publisher may have set it, to anything. The message is handled all the same."""
    broker_of(here).publish(topic, "k", b"x", headers={"traceparent": value, "baggage": value})
    async with here.member(topic, lambda _: None, telemetry=recorded.telemetry()):
        (span,) = await recorded.wait("process")
    assert attributes(span)["cobalance.outcome"] == "acked"
    assert len(linked(span)) == 1  # how the partition came here


def test_what_is_not_published(here: Place, topic: Topic, recorded: Recorded) -> None:
    """The span says why; what RabbitMQ was never asked to take does not count as sent."""
    telemetry = recorded.telemetry()
    with Publisher(here.amqp_url, topic, telemetry=telemetry, unseen_failures="log") as publisher:
        with pytest.raises(UsageError, match="headers"):
            publisher.publish("k", b"x", {"it": object()})
        with pytest.raises(UsageError, match="headers are an object of type int"):
            publisher.publish("k", b"x", 5)  # type: ignore[arg-type]
        assert recorded.points("messaging.client.sent.messages") == []
        broker_of(here)._server.call(lambda it: it.queues.clear())
        publisher.publish("k", b"x", wait=False)
        assert publisher.flush() is True  # nobody has looked at the failure: it is logged
    errors = [attributes(it)["error.type"] for it in recorded.spans("publish")]
    assert errors == ["UsageError", "UsageError", "PublishFailed"]
    ((labels, count),) = recorded.points("messaging.client.sent.messages")
    assert (labels["error.type"], count) == ("PublishFailed", 1)


def test_a_failure_that_a_span_tells_is_still_unseen(here: Place, topic: Topic, recorded: Recorded) -> None:
    """The program is to hear of it: following a message is no look at its outcome."""
    with Publisher(here.amqp_url, topic, telemetry=recorded.telemetry()) as publisher:
        broker_of(here)._server.call(lambda it: it.queues.clear())
        publisher.publish("k", b"x", wait=False)
        with pytest.raises(PublishFailed):
            publisher.flush()
    assert len(recorded.spans("publish")) == 1


async def test_metrics_have_few_labels(here: Place, topic: Topic, recorded: Recorded) -> None:
    """By topic and group, of which there are few; in the conventions' names, units and buckets."""
    telemetry = recorded.telemetry()
    with Publisher(here.amqp_url, topic, telemetry=telemetry) as publisher:
        for partition in (0, 1, 1):
            publisher.publish(None, b"x", partition=partition)
    async with here.member(topic, lambda _: None, telemetry=telemetry):
        await recorded.wait("process", 3)
    sent = {
        "messaging.system": "rabbitmq",
        "messaging.operation.name": "publish",
        "messaging.destination.template": topic.name,
    }
    processed = sent | {"messaging.operation.name": "process", "messaging.consumer.group.name": here.group}
    for name, labels in (
        ("messaging.client.sent.messages", sent),
        ("messaging.client.operation.duration", sent),
        ("messaging.client.consumed.messages", processed),
        ("messaging.process.duration", processed),
    ):
        assert recorded.points(name) == [(labels, 3)], name


def test_of_queues_that_come_and_go_the_last_ones_are_counted(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is worked always is; a topic, as long as one of its partitions."""
    monkeypatch.setattr("cobalance.operate.telemetry.MOST_ENDED", 2)
    telemetry = recorded.telemetry()
    metering = Metering([telemetry], ConsumerGroup("g", ["a"], print), lambda _: True, manual=False)

    def work(topic: Topic, partition: int = 0) -> str:
        queue = topic.queue_names[partition]
        metering.moved(queue, 1, "granted")
        deliveries = (Delivery.fake(key=str(number), topic=topic) for number in range(100))
        with metering.calling(next(it for it in deliveries if it.queue == queue)):
            pass
        return queue

    topics = [Topic(f"job{number}", 2) for number in range(5)]
    work(topics[0])
    for topic in [*topics, topics[1]]:
        metering.moved(work(topic, 1), 1, "ended")
    points = recorded.points("messaging.client.consumed.messages")
    found = {labels["messaging.destination.template"]: count for labels, count in points}
    assert found == {"job0": 2, "job4": 1, "job1": 1}


async def test_beside_prometheus_on_a_real_broker(amqp_url: str, recorded: Recorded) -> None:
    """Both hear of the same messages, and the context comes through RabbitMQ."""
    registry, telemetry = CollectorRegistry(), recorded.telemetry()
    with place(amqp_url) as real, new_topic(amqp_url, queue_type="quorum") as orders:
        with Publisher(amqp_url, orders, telemetry=telemetry) as publisher:
            publisher.publish("k", b"x")
        async with real.member(orders, lambda _: None, telemetry=telemetry, metrics=ProcessMetrics(registry)):
            (processed,) = await recorded.wait("process")
        labels = {"group": real.group, "topic": orders.name, "status": "acked"}
        assert registry.get_sample_value("cobalance_received_processed_messages_total", labels) == 1
    (published,) = recorded.spans("publish")
    assert linked(processed)[0] == of(published)


def test_a_program_for_pika_is_traced(amqp_url: str, recorded: Recorded) -> None:
    """Its callback runs within the span, on its own thread; what it settles are spans of their own within that."""
    broker, seen = RealBroker(amqp_url), list[int]()
    (name,) = broker.declare(1)
    broker.publish(name, "again", "done")

    def on_message(channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        seen.append(current().span_id)
        if body == b"again" and not method.redelivered:
            channel.basic_nack(method.delivery_tag)
        else:
            channel.basic_ack(method.delivery_tag)
        if len(seen) == 3:
            channel.stop_consuming()

    with connect(broker, unique("dropin"), telemetry=recorded.telemetry()) as connection:
        consume(connection, [name], on_message).start_consuming()
    broker.close()
    assert [of(it).span_id for it in recorded.spans("process")] == seen
    settled = recorded.spans("ack") + recorded.spans("nack")
    assert sorted(it.name for it in settled) == [f"ack {name}", f"ack {name}", f"nack {name}"]
    assert {found.span_id for it in settled if (found := parent(it))} == set(seen)
    assert not trace.get_current_span().get_span_context().is_valid


def test_what_is_no_telemetry_is_refused(topic: Topic) -> None:
    """Before anything is connected."""
    for make in (
        lambda: ConsumerGroup("g", topic, lambda _: None, telemetry=5),  # type: ignore[call-overload]
        lambda: Publisher("memory://nowhere", topic, telemetry=ProcessMetrics(CollectorRegistry())),  # type: ignore[arg-type]
    ):
        with pytest.raises(UsageError, match="give a Telemetry"):
            make()


async def test_a_meter_that_fails_costs_no_membership(
    here: Place, topic: Topic, recorded: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    """Handovers are reported on the threads that keep a member going: they go on, and the log says so."""

    class Broken(Telemetry):
        def moved(self, *_: Any) -> None:
            raise RuntimeError

    async with here.member(topic, lambda _: None, telemetry=Broken(tracer_provider=recorded.tracers)) as group:
        await group.wait_held(*topic.queue_names)
        assert "a meter has failed" in caplog.text
    assert group.failed is None


class Broken(SpanProcessor):
    """As one whose exporter fails when a span begins, or ends."""

    def __init__(self, step: str) -> None:
        self.step = step

    def on_start(self, *_: Any, **__: Any) -> None:
        if self.step == "on_start":
            raise OSError("no space left")

    def on_end(self, _: ReadableSpan) -> None:
        if self.step == "on_end":
            raise OSError("no space left")


@pytest.mark.parametrize("step", ["on_start", "on_end"])
@pytest.mark.parametrize("ack", ["auto", "manual"])
async def test_a_span_processor_that_fails_costs_no_message(
    here: Place, topic: Topic, caplog: pytest.LogCaptureFixture, step: str, ack: Any
) -> None:
    """Each is published and handled once; the log says so, but not with every message."""
    tracers, seen = TracerProvider(shutdown_on_exit=False), list[bytes]()
    tracers.add_span_processor(Broken(step))

    def handle(delivery: Delivery) -> None:
        seen.append(delivery.body)
        if ack == "manual":
            group.ack(delivery)

    telemetry = Telemetry(tracer_provider=tracers)
    with Publisher(here.amqp_url, topic, telemetry=telemetry) as publisher:
        for number in range(3):
            publisher.publish("k", str(number))
    group = here.member(topic, handle, ack=ack, retries=1, on_error="dead_letter", telemetry=telemetry)
    async with group:
        await until(lambda: len(seen) >= 3)
    assert seen == [b"0", b"1", b"2"]
    assert set(ready_messages(here.amqp_url, [*topic.queue_names, f"{topic.name}.dead"]).values()) == {0}
    said = [it.getMessage().split(":")[0] for it in caplog.records if "a meter has failed" in it.getMessage()]
    assert said == [f"publisher to {topic.name}", f"group {here.group}"]


@pytest.mark.parametrize("step", ["__enter__", "__exit__"])
async def test_a_scope_that_fails_costs_no_message(
    here: Place, topic: Topic, recorded: Recorded, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    """What a meter has around a handler, that is."""

    class Scope:
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(name)

        def __enter__(self) -> None:
            assert step != "__enter__"

        def __exit__(self, *_: object) -> None:
            assert step != "__exit__"

    class Scoped(Telemetry):
        def begun(self, call: Any, client: Any = None) -> Any:
            del call, client
            return Scope()

        def ended(self, *_: Any) -> None:
            pass

    seen: list[bytes] = []
    broker_of(here).publish(topic, "k", b"1", b"2")
    telemetry = Scoped(tracer_provider=recorded.tracers)
    async with here.member(topic, lambda it: seen.append(it.body), retries=1, telemetry=telemetry):
        await until(lambda: len(seen) >= 2)
    assert seen == [b"1", b"2"]
    assert caplog.text.count("a meter has failed") == caplog.text.count("AssertionError") == 1


async def test_a_message_whose_names_are_not_utf_8_is_traced(here: Place, recorded: Recorded) -> None:
    """Any publisher may set them so. The span shows what is not UTF-8 with a backslash."""
    name, odd = unique("queue"), cast("str", b"caf\xe9")
    with channel(single_urls(here.amqp_url)[0]) as it:
        it.queue_declare(name, durable=True)
        it.exchange_declare(name, ExchangeType("fanout"))
        it.queue_bind(name, name)
        properties = BasicProperties(message_id=odd, correlation_id=odd, headers={odd: 1, "traceparent": "00"})
        it.basic_publish(name, odd, b"x", properties, mandatory=True)
    async with here.member([name], lambda _: None, telemetry=recorded.telemetry()):
        (span,) = await recorded.wait("process")
    found = attributes(span)
    assert found["cobalance.outcome"] == "acked"
    assert found["messaging.destination.name"] == rf"{name}:caf\xe9"
    assert found["messaging.rabbitmq.destination.routing_key"] == r"caf\xe9"
    assert (found["messaging.message.id"], found["messaging.message.conversation_id"]) == (r"caf\xe9", r"caf\xe9")


async def test_many_threads_are_counted_once(here: Place, topic: Topic, recorded: Recorded) -> None:
    """No message is lost or counted twice where handlers run side by side."""
    telemetry, ready = recorded.telemetry(), threading.Barrier(4, timeout=60)

    def handle(_: Delivery) -> None:
        ready.wait()

    broker = broker_of(here)
    for number in range(8):
        broker.publish(topic, f"key-{number}", b"x")
    async with here.member(topic, handle, order="key", concurrency=4, telemetry=telemetry):
        await recorded.wait("process", 8)
    assert recorded.points("messaging.client.consumed.messages")[0][1] == 8
