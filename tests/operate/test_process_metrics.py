"""Metrics of a member's process: what its handlers do, on a real RabbitMQ."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import anyio
import anyio.to_thread
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.consumers import Place, new_topic, place, until
from tests.streams import cut

from cobalance import Batch, BlockingConsumerGroup, ConsumerGroup, Delivery, Group, Retries, Tenure, Topic
from cobalance.errors import UsageError
from cobalance.operate import ProcessMetrics, process_metrics
from cobalance.settings import MemberSettings

pytestmark = pytest.mark.anyio


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def here(amqp_url: str) -> Any:
    """Metrics are about RabbitMQ; the group may be in this process."""
    with place(amqp_url) as it:
        yield it


class Samples:
    """The values of a registry, by the end of their names."""

    def __init__(self, registry: CollectorRegistry, group: str, topic: str) -> None:
        self._registry, self._labels = registry, {"group": group, "topic": topic}

    def of(self, name: str, **labels: str) -> float | None:
        return self._registry.get_sample_value(f"cobalance_{name}", self._labels | labels)

    @property
    def processed(self) -> dict[str, float | None]:
        statuses = ("acked", "rejected", "error")
        return {it: self.of("received_processed_messages_total", status=it) for it in statuses}


async def test_what_handlers_do_is_counted(here: Place, topic: Topic, registry: CollectorRegistry) -> None:
    """Received, in process, processed with the time it took; and nothing by member."""
    gate, found = anyio.Event(), Samples(registry, here.group, topic.name)

    async def handle(_: Delivery) -> None:
        await gate.wait()

    async with here.member(topic, handle, metrics=ProcessMetrics(registry)) as group:
        await group.wait_held(*topic.queue_names)
        here.publish(topic, 1, 2)
        here.publish(topic, 3, partition=1)
        await until(lambda: found.of("received_messages_in_process") == 2)
        assert found.processed == {
            "acked": 0,
            "rejected": 0,
            "error": 0,
        }  # Prometheus sees no increase of what begins at 1
        assert found.of("received_messages_total") == 2
        gate.set()
        await until(lambda: found.processed["acked"] == 3)
        assert found.of("received_messages_in_process") == 0
        assert found.of("received_processed_messages_duration_seconds_count") == 3
        own = {"group": here.group}
        assert registry.get_sample_value("cobalance_assigned_partitions", own) == 2
        assert registry.get_sample_value("cobalance_last_heartbeat_timestamp_seconds", own) == group.health.heard_at
    names = {label for metric in registry.collect() for it in metric.samples for label in it.labels}
    assert names == {"group", "topic", "status", "le"}


def test_of_queues_that_come_and_go_the_last_ones_are_shown(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is worked always is; a topic, as long as one of its partitions."""
    monkeypatch.setattr(process_metrics, "MOST_ENDED", 2)
    metrics = ProcessMetrics(registry)

    def work(topic: Topic, partition: int = 0) -> str:
        queue = topic.queue_names[partition]
        metrics.moved("g", queue, 1, "granted")
        deliveries = (Delivery.fake(key=str(number), topic=topic) for number in range(100))
        metrics.settled("g", next(it for it in deliveries if it.queue == queue), "acked")
        return queue

    topics = [Topic(f"job{number}", 2) for number in range(5)]
    work(topics[0])
    for topic in topics:
        metrics.moved("g", work(topic, 1), 1, "ended")
    shown = {it.labels["topic"] for metric in registry.collect() for it in metric.samples if "topic" in it.labels}
    assert shown == {"job0", "job3", "job4"}
    assert Samples(registry, "g", "job0").processed["acked"] == 2


async def test_each_failure_counts_and_so_does_the_dead_letter(here: Place, registry: CollectorRegistry) -> None:
    """Two tries fail; then RabbitMQ has it as a dead letter."""
    found: Samples

    def handle(_: Delivery) -> None:
        raise ValueError

    with new_topic(here.amqp_url, dead_letter=True) as topic:
        found = Samples(registry, here.group, topic.name)
        retries = Retries(1, first_ms=1)
        metrics = ProcessMetrics(registry)
        async with here.member(topic, handle, metrics=metrics, retries=retries, on_error="dead_letter") as group:
            await group.wait_held()
            here.publish(topic, 1)
            await until(lambda: found.processed["rejected"] == 1)
    assert found.processed == {"acked": 0, "rejected": 1, "error": 2}
    assert found.of("received_messages_total") == 2


@pytest.mark.parametrize("end", ["cancelled", "returns", "cancelled inside"])
async def test_a_handler_that_is_stopped_or_awaits_what_was_is_an_error(
    here: Place, topic: Topic, registry: CollectorRegistry, end: str
) -> None:
    """It counts as its message does for the group, which has failed."""

    async def handle(_: Delivery) -> None:
        if end == "cancelled inside":
            raise asyncio.CancelledError
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            if end == "cancelled":
                raise

    found = Samples(registry, here.group, topic.name)
    hurried = MemberSettings(max_processing_ms=50, drain_timeout_ms=5_000)
    options: dict[str, Any] = {"member": hurried, "retries": Retries(1, first_ms=1), "on_error": "pause"}
    async with here.member(topic, handle, metrics=ProcessMetrics(registry), **options) as group:
        await group.wait_held(*topic.queue_names)
        here.publish(topic, 1)
        await until(lambda: (found.of("received_processed_messages_duration_seconds_count") or 0) >= 2)
        assert (found.processed["error"] or 0) >= 2
        assert found.processed["acked"] == found.processed["rejected"] == 0


async def test_a_handler_whose_partition_is_taken_away_counts_in_no_status(
    here: Place, topic: Topic, registry: CollectorRegistry
) -> None:
    """It is cancelled as well, but its message comes again elsewhere."""
    begun, found = anyio.Event(), Samples(registry, here.group, topic.name)

    async def handle(_: Delivery) -> None:
        begun.set()
        await anyio.sleep_forever()

    hurried = MemberSettings(drain_timeout_ms=50)
    async with here.member(topic, handle, metrics=ProcessMetrics(registry), member=hurried) as group:
        await group.wait_held(*topic.queue_names)
        here.publish(topic, 1)
        await begun.wait()
    assert found.of("received_processed_messages_duration_seconds_count") == 1
    assert found.processed == {"acked": 0, "rejected": 0, "error": 0}


async def test_what_the_program_acknowledges_itself(here: Place, registry: CollectorRegistry) -> None:
    """It counts when it is, not when the handler returns."""
    held: list[Delivery] = []
    with new_topic(here.amqp_url, dead_letter=True) as topic:
        found = Samples(registry, here.group, topic.name)
        async with here.member(topic, held.append, ack="manual", metrics=ProcessMetrics(registry)) as group:
            await group.wait_held()
            here.publish(topic, 1, 2)
            await until(lambda: len(held) == 2)
            await until(lambda: found.of("received_processed_messages_duration_seconds_count") == 2)
            assert found.processed == {"acked": 0, "rejected": 0, "error": 0}
            group.ack(held[0])
            await anyio.to_thread.run_sync(group.reject, held[1])
            await until(lambda: found.processed == {"acked": 1, "rejected": 1, "error": 0})


async def test_an_ack_that_comes_too_late_is_none(here: Place, topic: Topic, registry: CollectorRegistry) -> None:
    """Its channel is gone: the message comes again, and counts when it is acknowledged then."""
    held, found = list[Delivery](), Samples(registry, here.group, topic.name)
    async with here.member(topic, held.append, ack="manual", metrics=ProcessMetrics(registry)) as group:
        await group.wait_held(*topic.queue_names)
        here.publish(topic, 1)
        await until(lambda: len(held) == 1)
        cut(group.partitions.connection)
        await until(lambda: len(held) == 2)
        group.ack(held[0])
        assert found.processed["acked"] == 0
        group.ack(held[1])
        assert found.processed["acked"] == 1


async def test_a_handler_that_returns_too_late_has_acknowledged_nothing(
    here: Place, topic: Topic, registry: CollectorRegistry
) -> None:
    """The connection was lost meanwhile. The message comes again, and counts once."""
    begun, gate, found = list[Delivery](), anyio.Event(), Samples(registry, here.group, topic.name)

    async def handle(delivery: Delivery) -> None:
        begun.append(delivery)
        await gate.wait()

    async with here.member(topic, handle, metrics=ProcessMetrics(registry)) as group:
        await group.wait_held(*topic.queue_names)
        here.publish(topic, 1)
        await until(lambda: len(begun) == 1)
        await until(cut(group.partitions.connection).is_set)
        gate.set()
        await until(lambda: len(begun) == 2)
        await until(lambda: found.of("received_processed_messages_duration_seconds_count") == 2)
        assert found.processed == {"acked": 1, "rejected": 0, "error": 0}


async def test_batches_count_their_messages(here: Place, topic: Topic, registry: CollectorRegistry) -> None:
    """One call with three messages."""
    found = Samples(registry, here.group, topic.name)
    here.publish(topic, 1, 2, 3)

    async def handle(_: list[Delivery]) -> None: ...

    metrics = ProcessMetrics(registry)
    async with here.member(topic, handle, batch=Batch(3, within_ms=5_000), metrics=metrics) as group:
        await group.wait_held(*topic.queue_names)
        await until(lambda: found.processed["acked"] == 3)
    assert found.of("received_processed_messages_duration_seconds_count") == 1


async def test_every_kind_of_handler_works_as_without(here: Place, topic: Topic, registry: CollectorRegistry) -> None:
    """Plain, async, partial, and plain ones with an awaitable result; a wrong result is an error."""
    found, seen = Samples(registry, here.group, topic.name), list[str]()

    class Shop:
        async def __call__(self, delivery: Delivery) -> None:
            seen.append(delivery.body.decode())

    def returns_awaitable(delivery: Delivery) -> Any:
        return Shop()(delivery)

    def plain(number: int, delivery: Delivery) -> None:
        seen.append(delivery.body.decode() * number)

    metrics = ProcessMetrics(registry)
    for number, handler in enumerate([Shop(), returns_awaitable, functools.partial(plain, 1)], 1):
        async with here.member(topic, handler, metrics=metrics) as group:
            await group.wait_held(*topic.queue_names)
            here.publish(topic, number)
            await until(lambda wanted=number: found.processed["acked"] == wanted)
    assert seen == ["1", "2", "3"]
    async with here.member(topic, lambda _: 5, metrics=metrics) as group:
        await group.wait_held(*topic.queue_names)
        here.publish(topic, 4)
        await until(lambda: found.processed["error"] == 1)
    assert found.of("received_messages_in_process") == 0


def test_a_handler_that_cannot_be_one_is_refused_all_the_same(registry: CollectorRegistry) -> None:
    """Measuring hides nothing of it."""
    with pytest.raises(UsageError, match="the handler is"):
        ConsumerGroup("g", "t", 5, metrics=ProcessMetrics(registry))  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="has a ProcessMetrics already"):
        ProcessMetrics(registry)


async def test_other_groups_are_added(registry: CollectorRegistry) -> None:
    """A group of folders has no messages. One that is gone is not shown any more."""
    metrics = ProcessMetrics(registry)
    group = Group("films", ["a", "b"], redis_url="memory://process-metrics")
    metrics.attach(group)
    own = {"group": "films"}
    async with group:
        await group.wait_held("a", "b")
        assert registry.get_sample_value("cobalance_assigned_partitions", own) == 2
    assert registry.get_sample_value("cobalance_assigned_partitions", own) == 0


async def test_the_next_group_of_a_name_stands_for_the_one_that_has_ended(registry: CollectorRegistry) -> None:
    """A program that makes another group after a failure is one member, and has one heartbeat."""
    metrics, own = ProcessMetrics(registry), {"group": "films"}

    def heartbeat() -> float | None:
        return registry.get_sample_value("cobalance_last_heartbeat_timestamp_seconds", own)

    async def fail(_: Tenure) -> None:
        raise ValueError("not today")

    failing = Group("films", ["a"], redis_url="memory://next-of-a-name", work=fail)
    metrics.attach(failing)
    with pytest.raises(ValueError, match="not today"):
        async with failing:
            await failing.wait_left()
    assert heartbeat() == failing.health.heard_at  # for an alert
    group = Group("films", ["a"], redis_url="memory://next-of-a-name")
    metrics.attach(group)
    async with group:
        await group.wait_held("a")
        assert [
            line for line in generate_latest(registry).decode().splitlines() if line.startswith("cobalance_assigned")
        ] == ['cobalance_assigned_partitions{group="films"} 1.0']
        assert heartbeat() == group.health.heard_at
    assert (registry.get_sample_value("cobalance_assigned_partitions", own), heartbeat()) == (0, None)


def test_threads_are_measured_too(here: Place, topic: Topic, registry: CollectorRegistry) -> None:
    """BlockingConsumerGroup has the same option."""
    found = Samples(registry, here.group, topic.name)
    with BlockingConsumerGroup(
        here.group,
        topic,
        lambda _: None,
        amqp_url=here.amqp_url,
        redis_url=here.redis_url,
        metrics=ProcessMetrics(registry),
    ) as group:
        group.wait_held(*topic.queue_names)
        here.publish(topic, 1)
        anyio.run(until, lambda: found.processed["acked"] == 1)
