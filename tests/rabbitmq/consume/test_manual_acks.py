"""``ack="manual"``: what is redelivered when a member leaves, and handlers that settle messages and fail all the same."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import attrs
import pytest
from tests.consumers import SETTINGS, WITHIN_S, Place, Seen, bodies_in, new_topic, until
from tests.rabbitmq.wire.test_containment import publish_unreadable

from cobalance.group.group import Group
from cobalance.rabbitmq import Delivery, Topic
from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.rabbitmq.model.batches import Batch
from cobalance.rabbitmq.model.retries import Retries
from cobalance.rabbitmq.topics.broker import ready_messages
from cobalance.settings import MemberSettings

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
async def test_what_was_acknowledged_does_not_come_again(here: Place, queue_type: str) -> None:
    """Only the older, unacknowledged messages are redelivered, in order."""
    seen, again = Seen(), Seen()
    deliveries: list[Delivery] = []

    async def handle(delivery: Delivery) -> None:
        deliveries.append(delivery)
        seen.note(delivery)

    async def handle_again(delivery: Delivery) -> None:
        again.note(delivery)

    with new_topic(here.amqp_url, 1, queue_type) as topic:
        here.publish(topic, *range(10))
        leaving = MemberSettings(drain_timeout_ms=200)
        async with here.member(topic, handle, ack="manual", member=leaving, settings=SETTINGS) as member:
            await seen.wait(10)
            for number in (9, 4, 5, 8, 1, 6):
                member.ack(deliveries[number])
        await until(lambda: ready_messages(here.amqp_url, topic.queue_names) == {topic.queue_names[0]: 4})
        async with here.member(topic, handle_again):
            await until(lambda: not any(ready_messages(here.amqp_url, topic.queue_names).values()))
            assert await again.wait(4) == ["0", "2", "3", "7"]


async def test_nothing_is_left_of_a_tenure_that_is_over(here: Place) -> None:
    """A member that works queues which come and go must not grow."""
    seen, others = Seen(), Seen()

    async def handle(delivery: Delivery) -> None:
        seen.note(delivery)

    async def handle_elsewhere(delivery: Delivery) -> None:
        others.note(delivery)

    def alive() -> list[str]:
        gc.collect()
        return [name for name, worker in workers.items() if worker() is not None]

    with new_topic(here.amqp_url, 2) as topic:
        for partition in (0, 1):
            here.publish(topic, partition, partition=partition)
        async with here.member(topic, handle) as member:
            await seen.wait(2)
            workers = {name: weakref.ref(worker) for name, worker in member.partitions.workers.items()}
            async with here.member(topic, handle_elsewhere) as other:
                await until(lambda: (len(member.tenures), len(other.tenures)) == (1, 1))
                await until(lambda: alive() == list(member.tenures))


async def test_what_is_settled_after_its_tenure_comes_again(here: Place) -> None:
    """Too late is no mistake of the program's: it cannot know that the partition has moved."""
    deliveries: list[Delivery] = []

    async def handle(delivery: Delivery) -> None:
        deliveries.append(delivery)

    brief = attrs.evolve(SETTINGS, session_timeout_ms=3_000, revocation_timeout_ms=3_000)
    with new_topic(here.amqp_url, 2) as topic:
        async with here.member(topic, handle, ack="manual", settings=brief) as member:
            await member.wait_held(*topic.queue_names)
            for partition in (0, 1):
                here.publish(topic, partition, partition=partition)
            await until(lambda: len(deliveries) == 2)
            async with here.member(topic, handle, ack="manual", settings=brief) as other:
                await until(lambda: len(deliveries) == 3)
                late = next(it for it in deliveries[:2] if it.queue == deliveries[2].queue)
                await until(lambda: late.queue not in member.partitions.workers)
                member.ack(late)
                member.reject(late)
                other.ack(deliveries[2])


async def test_a_message_that_is_not_acknowledged_may_be_being_worked(here: Place) -> None:
    """By code that blocks the event loop. What this process has no messages of goes to another one; as long as there is
    none, it comes back now and then, and is not taken for poison.
    """
    own = MemberSettings(max_processing_ms=300, drain_timeout_ms=300)
    patient = attrs.evolve(SETTINGS, revocation_timeout_ms=60_000)
    computes, goes_on = threading.Event(), threading.Event()

    async def blocked(topic: Topic) -> None:
        send, receive = anyio.create_memory_object_stream[Delivery](1)
        async with send, receive, here.member(topic, send.send, ack="manual", settings=patient, member=own) as member:
            await member.wait_held(*topic.queue_names)
            here.publish(topic, 1)
            delivery = await receive.receive()
            computes.set()
            goes_on.wait(WITHIN_S)
            assert topic.queue_names[0] in member.tenures
            member.ack(delivery)

    with new_topic(here.amqp_url, 3) as topic:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, lambda: anyio.run(blocked, topic))
            await anyio.to_thread.run_sync(computes.wait)
            names = topic.queue_names[1:]
            try:
                await until(lambda: len(here.journal("abandoned")) >= 2 * len(names))
                with anyio.fail_after(WITHIN_S):
                    async with Group(here.group, names, redis_url=here.redis_url, settings=patient) as other:
                        await other.wait_held(*names)
            finally:
                goes_on.set()
        assert here.journal("halted") == []
        assert min(held_ms(here, "blocked")) > own.max_processing_ms


def held_ms(here: Place, reason: str) -> list[int]:
    """How long what was given up for this reason had been held."""
    granted = {it.token: it.at_ms for it in here.journal("granted")}
    return [it.at_ms - granted[it.token] for it in here.journal("abandoned") if it.reason == reason]


# -- handlers that settle messages and fail all the same ---------------------------------------------------------------

BY_BODY = Retries(3, first_ms=5, mode="park", key=lambda it: it.body)
POLICIES: dict[str, dict[str, Any]] = {
    "pause": {"retries": 0, "on_error": "pause"},
    "halt": {"retries": 0, "on_error": "halt"},
    "raise": {"retries": 0, "on_error": "raise"},
    "dead_letter": {"retries": 0, "on_error": "dead_letter"},
    "retries": {"retries": Retries(2, first_ms=5), "on_error": "halt"},
    "park": {"retries": BY_BODY, "on_error": "halt"},
}


class Settling:
    """A manual member, and what its handler was given."""

    def __init__(self, here: Place, source: Topic, fail: Callable[[Settling, Delivery], None], **options: Any) -> None:
        self.seen, self.failures, self.deliveries = Seen(), list[str](), dict[str, Delivery]()
        self._fail = fail
        self.on_failure: Callable[[Delivery], object] = lambda _: None
        options = {"ack": "manual", "on_failure": self._failed, **options}
        self.member: ConsumerGroup = here.member(source, self._handle, **options)

    async def _handle(self, delivery: Delivery) -> None:
        self.seen.note(delivery)
        self.deliveries[delivery.body.decode()] = delivery
        self._fail(self, delivery)
        self.member.ack(delivery)

    async def _failed(self, delivery: Delivery, error: Exception) -> None:
        assert str(error) == "after all", error
        self.failures.append(delivery.body.decode())
        self.on_failure(delivery)


def fail_at_2(_: Settling, delivery: Delivery) -> None:
    if delivery.body == b"2":
        raise RuntimeError("after all")


def settle_and_fail_at_2(how: str) -> Callable[[Settling, Delivery], None]:
    def settle(it: Settling, delivery: Delivery) -> None:
        if delivery.body == b"2":
            getattr(it.member, how)(delivery)
            fail_at_2(it, delivery)

    return settle


@pytest.mark.parametrize("how", ["ack", "reject"])
@pytest.mark.parametrize("policy", POLICIES)
async def test_what_a_handler_has_settled_it_may_fail_over(
    here: Place, policy: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """There is nothing to try again or to give up. The failure is logged and reported, and the next message begins."""
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, *range(5))
        it = Settling(here, topic, settle_and_fail_at_2(how), **POLICIES[policy])
        with caplog.at_level(logging.WARNING):
            async with it.member:
                assert await it.seen.wait(5) == ["0", "1", "2", "3", "4"]
        assert it.member.failed is None
        assert it.failures == ["2"]
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == []
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == (["2"] if how == "reject" else [])
    assert "failed (RuntimeError: after all): it is settled, so it is not tried again" in caplog.text


async def test_a_message_of_a_stream_may_be_settled_by_a_handler_that_fails(here: Place) -> None:
    """Its offset counts as processed."""
    with new_topic(here.amqp_url, queue_type="stream") as topic:
        here.publish(topic, *range(5))
        it = Settling(here, topic, settle_and_fail_at_2("ack"), retries=0)
        async with it.member:
            assert await it.seen.wait(5) == ["0", "1", "2", "3", "4"]
        assert it.failures == ["2"]
        assert here.resources()[topic.queue_names[0]].committed == 4


async def test_what_is_settled_while_it_waits_for_a_retry_is_not_tried_again(here: Place) -> None:
    """The pause is cut short by leaving, which returns what is behind it to the queue, and not the message."""
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, *range(5))
        it = Settling(here, topic, fail_at_2, retries=Retries(3, first_ms=600_000, last_ms=600_000))
        async with it.member:
            await until(lambda: it.failures)
            it.member.ack(it.deliveries["2"])
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == ["3", "4"]


async def test_on_failure_may_settle_what_has_failed(here: Place) -> None:
    """The policy then has nothing to do."""
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, *range(5))
        it = Settling(here, topic, fail_at_2, retries=0, on_error="halt")
        it.on_failure = it.member.ack
        async with it.member:
            assert await it.seen.wait(5) == ["0", "1", "2", "3", "4"]
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == []


@pytest.mark.parametrize("first_ms", [5, 600_000], ids=["due", "waiting"])
async def test_a_parked_message_may_be_settled(here: Place, first_ms: int) -> None:
    """It is neither tried again nor returned to its queue, and what waits behind it is tried."""
    even = Retries(3, first_ms=first_ms, last_ms=600_000, mode="park", key=lambda it: int(it.body) % 2)

    def settle_2_at_3(it: Settling, delivery: Delivery) -> None:
        if delivery.body == b"3":
            it.member.ack(it.deliveries["2"])
        fail_at_2(it, delivery)

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, *range(5))
        it = Settling(here, topic, settle_2_at_3, retries=even)
        async with it.member:
            await it.seen.wait(4 if first_ms > 5 else 5)
        assert "2" not in it.seen.bodies[it.seen.bodies.index("3") :]
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == (["4"] if first_ms > 5 else [])


class Batches:
    """A manual member with batches, whose handler settles some messages of each and fails over message 2."""

    def __init__(self, here: Place, topic: Topic, **options: Any) -> None:
        self.calls = list[list[str]]()
        self.called = anyio.Event()
        self.member: ConsumerGroup = here.member(
            topic, self._handle, ack="manual", batch=Batch(6, within_ms=60_000), **options
        )

    async def _handle(self, deliveries: list[Delivery]) -> None:
        first = not self.calls
        self.calls.append([it.body.decode() for it in deliveries])
        for it in deliveries:
            if it.body in {b"0", b"1", b"4"} or not first:
                if it.body == b"2":
                    raise RuntimeError("after all")
                self.member.ack(it)
        if first:
            raise RuntimeError("after all")


async def test_a_batch_is_tried_again_without_what_is_settled(here: Place) -> None:
    """Then its messages are tried one by one, and the one that fails is given up."""
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, *range(6))
        it = Batches(here, topic, retries=Retries(1, first_ms=5), on_error="dead_letter")
        async with it.member:
            await until(lambda: len(it.calls) == 5)
        assert it.calls == [["0", "1", "2", "3", "4", "5"], ["2", "3", "5"], ["2"], ["3"], ["5"]]
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == []
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["2"]


@pytest.mark.parametrize("in_thread", [False, True], ids=["loop", "thread"])
async def test_what_is_settled_while_a_failed_batch_is_tried_one_by_one_is_left_out(
    here: Place, in_thread: bool
) -> None:
    """The handler of one message settles another one of the same batch."""
    calls: list[list[str]] = []
    batch: list[Delivery] = []

    def handle(deliveries: list[Delivery]) -> None:
        calls.append([it.body.decode() for it in deliveries])
        if len(deliveries) > 1:
            batch.extend(deliveries)
            raise RuntimeError("not as a batch")
        for it in (batch[0], batch[2]) if deliveries[0] is batch[0] else deliveries:
            member.ack(it)

    async def handle_on_loop(deliveries: list[Delivery]) -> None:
        handle(deliveries)

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, *range(4))
        member = here.member(
            topic, handle if in_thread else handle_on_loop, ack="manual", batch=Batch(4, within_ms=60_000), retries=0
        )
        async with member:
            await until(lambda: not any(ready_messages(here.amqp_url, topic.queue_names).values()) and len(calls) == 4)
        assert calls == [["0", "1", "2", "3"], ["0"], ["1"], ["3"]]
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == []


async def test_a_batch_that_is_given_up_leaves_what_is_not_settled(here: Place) -> None:
    """The next holder gets exactly that, in order."""
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, *range(6))
        it = Batches(here, topic, retries=0, on_error="halt")
        async with it.member:
            await until(lambda: here.journal("abandoned"))
        assert it.calls == [["0", "1", "2", "3", "4", "5"], ["2"]]
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == ["2", "3", "5"]


async def test_what_a_handler_has_settled_before_it_returned_something_is_not_given_up(here: Place) -> None:
    """Of a batch whose handler returns something, only the other messages are dead letters."""
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, *range(3))

        async def handle(deliveries: list[Delivery]) -> Any:
            member.ack(deliveries[1])
            return len(deliveries)

        member = here.member(
            topic, handle, ack="manual", batch=Batch(3, within_ms=60_000), retries=0, on_error="dead_letter"
        )
        async with member:
            await until(lambda: ready_messages(here.amqp_url, [f"{topic.name}.dead"])[f"{topic.name}.dead"] == 2)
        assert member.failed is None
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == []
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["0", "2"]


async def test_an_unreadable_message_behind_unacknowledged_ones_is_said(
    here: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that acknowledges ten at a time would wait for the tenth for ever."""
    monkeypatch.setattr("cobalance.rabbitmq.partition.core.UNSETTLED_MS", 100)
    seen, deliveries = Seen(), list[Delivery]()

    async def handle(delivery: Delivery) -> None:
        deliveries.append(delivery)
        seen.note(delivery)

    with new_topic(here.amqp_url, 1) as topic:
        here.publish(topic, 1, 2, 3)
        publish_unreadable(here.amqp_url, topic.queue_names[0])
        async with here.member(topic, handle, ack="manual") as member:
            await seen.wait(3)
            await until(lambda: "stops as soon as 3 older messages are acknowledged" in caplog.text)
            for delivery in deliveries:
                member.ack(delivery)
            assert (await until(lambda: here.journal("halted")))[0].reason == "halted:MessageUnreadable"
    assert caplog.text.count("stops as soon as") == 1
