"""Pausing and resuming held resources: plain groups, threads, and partitions of a consumer group."""

from __future__ import annotations

import threading

import anyio
import pytest
from pika.frame import Method
from pika.spec import Basic
from tests.consumers import Place, Seen, bodies_in, new_topic, until
from tests.names import unique

from cobalance import BlockingGroup, BlockingTenure, Group, Tenure
from cobalance.errors import NotHeld, UsageError
from cobalance.rabbitmq import Delivery
from cobalance.rabbitmq.model.batches import Batch

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


async def test_a_work_function_sees_that_it_is_paused() -> None:
    """It can wait until it is resumed or asked back."""
    steps: list[str] = []
    paused, waits, ended = anyio.Event(), anyio.Event(), anyio.Event()

    async def work(tenure: Tenure) -> None:
        await paused.wait()
        assert tenure.paused
        waits.set()
        await tenure.wait_resumed()
        steps.append("resumed")
        await tenure.wait_draining()
        ended.set()

    async with Group("g", ["r"], redis_url=f"memory://{unique('pausing')}", work=work) as group:
        await group.wait_held("r")
        group.pause("r")
        assert group.paused == {"r"}
        paused.set()
        await waits.wait()
        assert steps == []
        group.resume("r")
        with anyio.fail_after(60):
            while not steps:
                await anyio.lowlevel.checkpoint()
        assert group.paused == frozenset()
        with pytest.raises(NotHeld, match="'other'"):
            group.pause("r", "other")
        assert group.paused == frozenset()
    assert ended.is_set()


async def test_everything_is_resumed_but_never_paused_by_accident() -> None:
    """A list that happens to be empty pauses nothing, and it is said."""
    async with Group("g", ["a", "b"], redis_url=f"memory://{unique('pausing')}") as group:
        await group.wait_held("a", "b")
        with pytest.raises(UsageError, match="name what to pause"):
            group.pause()
        group.pause(*group.tenures)
        assert group.paused == {"a", "b"}
        group.resume("a")
        assert group.paused == {"b"}
        group.resume()
        assert group.paused == frozenset()
        group.resume()


def test_threads_resume_everything() -> None:
    with BlockingGroup("g", ["a", "b"], redis_url=f"memory://{unique('pausing')}") as group:
        group.wait_held("a", "b")
        group.pause(*group.tenures)
        assert all(it.paused for it in group.tenures.values())
        group.resume()
        assert not any(it.paused for it in group.tenures.values())


async def test_being_asked_back_ends_the_wait() -> None:
    """A paused tenure does not delay its handover."""

    async def work(tenure: Tenure) -> None:
        await tenure.wait_resumed()
        await tenure.wait_draining()

    with anyio.fail_after(60):
        async with Group("g", ["r"], redis_url=f"memory://{unique('pausing')}", work=work) as group:
            await group.wait_held("r")
            group.pause("r")


def test_threads_pause_too() -> None:
    """Through the same methods."""
    seen: list[bool] = []
    go_on = threading.Event()

    def work(tenure: BlockingTenure) -> None:
        go_on.wait(60)
        seen.append(tenure.paused)
        tenure.wait_draining()

    with BlockingGroup("g", ["r"], redis_url=f"memory://{unique('pausing')}", work=work) as group:
        group.wait_held("r", timeout=60)
        group.pause("r")
        go_on.set()
    assert seen == [True]


@pytest.mark.parametrize("batch", [None, Batch(3, within_ms=5)], ids=["single", "batch"])
async def test_a_paused_partition_stops_after_the_running_message(here: Place, batch: Batch | None) -> None:
    """Others go on. When resumed, it continues with the very next message."""
    seen = Seen()

    async def handle(what: Delivery | list[Delivery]) -> None:
        for delivery in what if isinstance(what, list) else [what]:
            if seen.note(delivery) == "2":
                group.pause(delivery.queue)

    with new_topic(here.amqp_url, 2) as topic:
        first, second = topic.queue_names
        here.publish(topic, *range(9))
        group = here.member(topic, handle, batch=batch)
        async with group:
            await seen.wait(3)
            here.publish(topic, "other", partition=1)
            assert await seen.wait(4) == ["0", "1", "2", "other"]
            assert group.paused == {first}
            group.resume(first)
            assert (await seen.wait(10))[4:] == [str(n) for n in range(3, 9)]
        assert bodies_in(here.amqp_url, first) == []
        assert bodies_in(here.amqp_url, second) == []


async def test_a_pause_outlives_a_rebalance_that_leaves_the_partition_here(here: Place) -> None:
    """The pause ends with the tenure: the next holder is not paused, nor is this one when the partition comes back."""
    mine, theirs = Seen(), Seen()

    async def handle(delivery: Delivery) -> None:
        mine.note(delivery)

    async def handle_there(delivery: Delivery) -> None:
        theirs.note(delivery)

    with new_topic(here.amqp_url, 2) as topic:
        async with here.member(topic, handle) as group:
            await group.wait_held(*topic.queue_names)
            group.pause(*topic.queue_names)
            here.publish(topic, "a")
            here.publish(topic, "b", partition=1)
            async with here.member(topic, handle_there) as other:
                await other.wait_held()
                (moved,) = other.tenures
                (kept,) = set(topic.queue_names) - {moved}
                body = {topic.queue_names[0]: "a", topic.queue_names[1]: "b"}
                assert await theirs.wait(1) == [body[moved]]
                assert group.paused == {kept}
                assert mine.bodies == []
            await group.wait_held(*topic.queue_names)
            assert group.paused == {kept}
            group.resume(kept)
            assert await mine.wait(1) == [body[kept]]
    assert here.journal("forced", "abandoned") == []


async def test_a_paused_partition_whose_channel_is_lost_subscribes_when_it_is_resumed(here: Place) -> None:
    """Messages prefetched by a paused partition would time out, and count as failed deliveries, again and again."""
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        seen.note(delivery)

    with new_topic(here.amqp_url) as topic:
        (name,) = topic.queue_names
        async with here.member(topic, handle) as group:
            await group.wait_held(name)
            here.publish(topic, 1)
            await seen.wait(1)
            worker = group.partitions.workers[name]
            consumer = worker._consumer
            assert consumer is not None
            await until(lambda: consumer.progress.committed == 1)
            group.pause(name)
            here.publish(topic, 2)
            cancel = Method(1, Basic.Cancel("a-tag"))  # type: ignore[arg-type]  # a string, whatever the stubs say
            group.partitions.connection.submit(lambda: consumer._cancelled(cancel))
            await until(lambda: worker._consumer is None)
            assert seen.bodies == ["1"]
            group.resume(name)
            assert await seen.wait(2) == ["1", "2"]
