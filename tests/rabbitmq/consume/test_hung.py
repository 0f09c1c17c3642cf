"""Handlers that run past ``max_processing_ms`` fail their message, however they react to being cancelled."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import anyio
import attrs
import pytest
import sniffio
from tests.consumers import Place, Seen, bodies_in, new_topic, until

from cobalance.errors import HandlerHung
from cobalance.rabbitmq import Delivery
from cobalance.rabbitmq.model.batches import Batch
from cobalance.rabbitmq.model.retries import Retries
from cobalance.settings import MemberSettings

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

SOON = Retries(1, first_ms=5, last_ms=10)
OWN = MemberSettings(max_processing_ms=200, drain_timeout_ms=1_000)
PATIENT = attrs.evolve(OWN, max_processing_ms=1_000)
"""Where something else than the hanging handler must be done in time: a busy machine holds it up for 200 ms."""


class Hanging:
    """A handler that hangs in message 2."""

    def __init__(self) -> None:
        self.seen = Seen()

    async def handle(self, delivery: Delivery) -> None:
        if self.seen.note(delivery) == "2":
            await anyio.sleep_forever()


async def test_a_message_whose_handler_hangs_is_tried_again_and_given_up(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Like a message whose handler raises, it is retried in place, and no partition moves."""
    hanging = Hanging()
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2, 3)
        async with here.member(topic, hanging.handle, member=OWN, retries=SOON, on_error="dead_letter"):
            assert await hanging.seen.wait(4) == ["1", "2", "2", "3"]
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["2"]
    assert here.journal("abandoned") == []
    assert "message m2 of" in caplog.text
    assert "HandlerHung" in caplog.text


async def test_a_hung_handler_ends_the_membership_that_asked_for_that(here: Place) -> None:
    """The error says which limit was exceeded."""
    hanging = Hanging()
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 2)
        with pytest.raises(HandlerHung, match="max_processing_ms"):
            async with here.member(topic, hanging.handle, member=OWN, retries=0, on_error="raise") as member:
                await member.wait_left()
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == ["2"]


async def test_a_batch_that_hangs_is_opened_to_find_the_message(here: Place) -> None:
    """Only the hanging message is given up."""
    done: list[str] = []

    async def handle(deliveries: list[Delivery]) -> None:
        bodies = [delivery.body.decode() for delivery in deliveries]
        if "2" in bodies:
            await anyio.sleep_forever()
        done.extend(bodies)

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2, 3)
        batch = Batch(3, within_ms=50)
        async with here.member(topic, handle, batch=batch, member=OWN, retries=0, on_error="dead_letter"):
            await until(lambda: done == ["1", "3"])
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["2"]


@pytest.mark.parametrize("order", ["partition", "key"])
async def test_a_batch_that_hangs_in_a_thread_is_opened_by_the_next_holder(here: Place, order: str) -> None:
    """Only the message that hangs is given up."""
    done: list[str] = []
    hung: list[str] = []
    let_go = threading.Event()

    def handle(deliveries: list[Delivery]) -> None:
        bodies = " ".join(delivery.body.decode() for delivery in deliveries)
        if "2" in bodies:
            hung.append(bodies)
            let_go.wait()
        else:
            done.append(bodies)

    own = attrs.evolve(OWN, max_processing_ms=1_500, drain_timeout_ms=200)
    options: dict[str, Any] = {"batch": Batch(3, within_ms=20_000), "prefetch": 3, "member": own, "order": order}
    options |= {"retries": 0, "on_error": "dead_letter"}
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2, 3)
        (queue,) = topic.queue_names
        async with here.member(topic, handle, **options), here.member(topic, handle, **options):
            try:
                await until(lambda: here.resources()[queue].halted)  # it waits, having been given up twice
            finally:
                let_go.set()
            here.publish(topic, 4, 5)
            here.coordinator.resume(queue)
            await until(lambda: " ".join(done) == "1 3 4 5")
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["2"]
    assert hung == ["1 2 3", "2"]
    assert done[0] == "1"


async def test_a_handler_that_returns_because_it_was_told_to_stop_has_not_finished(here: Place) -> None:
    """It caught its cancellation; its message is not acknowledged for that."""
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        if seen.note(delivery) == "2":
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                return

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 2, 3)
        async with here.member(topic, handle, member=OWN, retries=0, on_error="dead_letter"):
            await seen.wait(2)
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["2"]


class Deaf:
    """An async handler that ignores its cancellation."""

    def __init__(self) -> None:
        self.cancellations = 0
        self.let_go = anyio.Event()

    async def handle(self, _: Delivery) -> None:
        cancelled = (
            asyncio.CancelledError if sniffio.current_async_library() == "asyncio" else anyio.get_cancelled_exc_class()
        )
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except cancelled:
                self.cancellations += 1


async def test_a_handler_that_does_not_stop_is_not_told_so_in_a_loop(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """It is cancelled a few times a second at most, so the event loop stays free; its message is given up."""
    deaf, other = Deaf(), Seen()

    async def note(delivery: Delivery) -> None:
        other.note(delivery)

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2)
        options: Any = {"retries": 9, "on_error": "dead_letter"}
        async with here.member(topic, deaf.handle, member=PATIENT, **options):
            try:
                await until(lambda: deaf.cancellations)
                async with here.member(topic, note, **options):
                    assert await other.wait(1) == ["2"]
            finally:
                deaf.let_go.set()
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["1"]
    assert deaf.cancellations < 100
    assert [entry.reason for entry in here.journal("abandoned")] == ["overlap"]
    assert "has not" in caplog.text


class Stuck:
    """A plain handler that blocks in message 1 until it is released, and then fails if asked to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun: list[str] = []
        self.go_on = threading.Event()
        self.error = error

    def handle(self, delivery: Delivery) -> None:
        self.begun.append(delivery.body.decode())
        if len(self.begun) == 1:
            self.go_on.wait()
            if self.error is not None:
                raise self.error


async def test_a_handler_that_blocks_the_event_loop_for_too_long_is_logged(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing could stop it meanwhile, so its work counts, as that of a thread does."""
    seen = Seen()

    async def block(delivery: Delivery) -> None:
        if seen.note(delivery) == "1":
            threading.Event().wait(2 * OWN.max_processing_ms / 1000)

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2)
        async with here.member(topic, block, member=OWN):
            assert await seen.wait(2) == ["1", "2"]
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == []
    (warning,) = [it.getMessage() for it in caplog.records if "blocked the event loop" in it.getMessage()]
    assert "message m1 of" in warning


async def test_a_thread_that_comes_back_late_has_finished(here: Place, caplog: pytest.LogCaptureFixture) -> None:
    """It could not be stopped, so its work counts; the error is logged, and no partition moves."""
    stuck = Stuck()
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2)
        async with here.member(topic, stuck.handle, member=MemberSettings(max_processing_ms=200)):
            try:
                await until(lambda: "message m1 of" in caplog.text)
            finally:
                stuck.go_on.set()
            await until(lambda: stuck.begun == ["1", "2"])
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == []
    assert here.journal("abandoned") == []
    assert "ERROR" in {record.levelname for record in caplog.records}


async def test_a_message_that_a_thread_never_finishes_is_given_up(here: Place) -> None:
    """It cannot be retried while the thread runs: ``on_error`` applies, and the next holder continues after it."""
    stuck, other = Stuck(), Seen()

    async def note(delivery: Delivery) -> None:
        other.note(delivery)

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2)
        options: Any = {"retries": 9, "on_error": "dead_letter"}
        async with here.member(topic, stuck.handle, member=PATIENT, **options):
            try:
                await until(lambda: stuck.begun)
                async with here.member(topic, note, **options):
                    assert await other.wait(1) == ["2"]
            finally:
                stuck.go_on.set()
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["1"]
    assert [entry.reason for entry in here.journal("abandoned")] == ["overlap"]


async def test_a_partition_that_a_thread_never_finishes_is_halted(here: Place) -> None:
    """If so configured, no other member hangs in the same message."""
    stuck = Stuck()
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2)
        async with here.member(topic, stuck.handle, member=OWN, on_error="halt"):
            try:
                await until(lambda: here.resources()[topic.queue_names[0]].halted)
                assert here.resources()[topic.queue_names[0]].halted == "HandlerHung"
            finally:
                stuck.go_on.set()


async def test_a_thread_that_never_ends_ends_the_membership_that_asked_for_that(here: Place) -> None:
    """The membership does not wait for the thread."""
    stuck = Stuck()
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2)
        try:
            with pytest.raises(HandlerHung):
                async with here.member(topic, stuck.handle, member=OWN, on_error="raise") as member:
                    await member.wait_left()
        finally:
            stuck.go_on.set()


async def test_a_hung_handler_s_cleanup_ends_before_its_message_is_begun_again(here: Place) -> None:
    """It is cancelled, and its cleanup ends before any other handler begins."""
    seen, cleans, done = Seen(), anyio.Event(), anyio.Event()

    async def hang(delivery: Delivery) -> None:
        seen.note(delivery)
        if len(seen.bodies) > 1:
            return
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                cleans.set()
                await done.wait()

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1)
        async with here.member(topic, hang, member=MemberSettings(max_processing_ms=200), retries=SOON):
            try:
                await cleans.wait()
                assert seen.bodies == ["1"]
            finally:
                done.set()
            assert await seen.wait(2) == ["1", "1"]
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == []
    assert here.journal("abandoned") == []


@pytest.mark.parametrize("queue_type", ["quorum", "stream"])
async def test_every_kind_of_queue_goes_on_with_the_message_that_hung(here: Place, queue_type: str) -> None:
    """The partition waits, and nothing in it is skipped or repeated once the cause is removed."""
    seen, hangs = Seen(), True

    async def handle(delivery: Delivery) -> None:
        if seen.note(delivery) == "2" and hangs:
            await anyio.sleep_forever()

    with new_topic(here.amqp_url, 1, queue_type) as topic:
        (queue,) = topic.queue_names
        here.publish(topic, 1, 2, 3)
        async with here.member(topic, handle, member=OWN, retries=0):
            await until(lambda: here.resources()[queue].paused_until_ms)
            assert here.resources()[queue].halted == "given up again and again (failed:HandlerHung)"
            hangs = False
            assert here.coordinator.resume(queue) == {queue: "OK"}
            assert await seen.wait(5) == ["1", "2", "2", "2", "3"]
    assert [entry.reason for entry in here.journal("abandoned")] == ["failed:HandlerHung"] * 2
