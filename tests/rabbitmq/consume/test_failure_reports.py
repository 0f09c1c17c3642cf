"""``on_failure`` has as long as a handler. One that hangs is reported, and costs its partition and no more than one thread."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import anyio
import attrs
import pytest
import sniffio
from tests.consumers import Place, Seen, bodies_in, new_topic, until

from cobalance.rabbitmq import Delivery
from cobalance.rabbitmq.model.retries import Retries
from cobalance.settings import MemberSettings

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

SOON = Retries(9, first_ms=5, last_ms=10)
OWN = MemberSettings(max_processing_ms=200, drain_timeout_ms=1_000)


class Stuck:
    """An ``on_failure`` that does not return, and cannot be made to, before it is let go."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._go_on, self._go_on_here = threading.Event(), anyio.Event()

    def let_go(self) -> None:
        self._go_on.set()
        self._go_on_here.set()

    def plain(self, delivery: Delivery, _: Exception) -> None:
        self.calls.append(delivery.body.decode())
        self._go_on.wait()

    async def deaf(self, delivery: Delivery, _: Exception) -> None:
        self.calls.append(delivery.body.decode())
        cancelled = (
            asyncio.CancelledError if sniffio.current_async_library() == "asyncio" else anyio.get_cancelled_exc_class()
        )
        while not self._go_on_here.is_set():
            with suppress(cancelled):
                await self._go_on_here.wait()


async def fail(_: Delivery) -> None:
    raise ValueError


def told(caplog: pytest.LogCaptureFixture, words: str = "on_failure has run for longer than") -> list[str]:
    return [it.getMessage() for it in caplog.records if words in it.getMessage()]


@pytest.mark.parametrize("kind", ["plain", "deaf"])
@pytest.mark.parametrize("order", ["partition", "key"])
async def test_one_that_never_returns_costs_its_partition(
    here: Place, kind: str, order: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As a handler that hangs does: it is not called again beside itself, and the next holder gets the message that has
    tries left.
    """
    stuck, other = Stuck(), Seen()

    async def note(delivery: Delivery) -> None:
        other.note(delivery)

    with new_topic(here.amqp_url) as topic:
        options: dict[str, Any] = {"retries": SOON, "on_error": "dead_letter", "order": order}
        async with here.member(topic, fail, member=OWN, on_failure=getattr(stuck, kind), **options) as member:
            await member.wait_held(*topic.queue_names)
            try:
                async with here.member(topic, note, **options):
                    here.publish(topic, 1, 2)
                    assert await other.wait(2) == ["1", "2"]
                    assert stuck.calls == ["1"]
            finally:
                stuck.let_go()
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == []
    assert [entry.reason for entry in here.journal("abandoned")] == ["overlap"]
    (line,) = told(caplog)
    assert f"message m1 of {topic.queue_names[0]}" in line


@pytest.mark.parametrize("on_error", ["dead_letter", "halt"])
async def test_a_message_without_tries_left_is_given_up_though_it_never_returns(here: Place, on_error: Any) -> None:
    """As is done where it raises."""
    stuck, other = Stuck(), Seen()

    async def note(delivery: Delivery) -> None:
        other.note(delivery)

    with new_topic(here.amqp_url) as topic:
        (queue,) = topic.queue_names
        here.publish(topic, 1, 2)
        options: dict[str, Any] = {"retries": 0, "on_error": on_error}
        async with here.member(topic, fail, member=OWN, on_failure=stuck.plain, **options):
            try:
                await until(lambda: stuck.calls)
                async with here.member(topic, note, **options):
                    if on_error == "dead_letter":
                        assert await other.wait(1) == ["2"]
                    else:
                        await until(lambda: here.resources()[queue].halted)
                        assert here.resources()[queue].halted == "ValueError"
            finally:
                stuck.let_go()
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == (["1"] if on_error == "dead_letter" else [])


async def test_one_that_hangs_and_can_be_cancelled_changes_nothing_else(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """It is cancelled, which is logged; then the message is tried again in place, and given up."""
    seen, ended = Seen(), 0

    async def handle(delivery: Delivery) -> None:
        if seen.note(delivery) == "1":
            raise ValueError

    async def hang(_: Delivery, __: Exception) -> None:
        nonlocal ended
        try:
            await anyio.sleep_forever()
        finally:
            ended += 1

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2)
        own = attrs.evolve(OWN, drain_timeout_ms=30_000)
        options: dict[str, Any] = {"retries": Retries(1, first_ms=5), "on_error": "dead_letter"}
        async with here.member(topic, handle, member=own, on_failure=hang, **options):
            assert await seen.wait(3) == ["1", "1", "2"]
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["1"]
    assert ended == len(told(caplog)) == 2
    assert here.journal("abandoned") == []


async def test_a_thread_of_it_that_comes_back_late_changes_nothing_else(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """The message is tried again in place, and what it raised is logged."""
    seen, go_on = Seen(), threading.Event()

    async def handle(delivery: Delivery) -> None:
        if seen.note(delivery) == "1" and len(seen.bodies) == 1:
            raise ValueError

    def report(*_: object) -> None:
        go_on.wait()
        raise RuntimeError("the pager is off")

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1, 2)
        own = attrs.evolve(OWN, drain_timeout_ms=30_000)
        async with here.member(topic, handle, member=own, on_failure=report, retries=SOON):
            try:
                await until(lambda: told(caplog))
                assert seen.bodies == ["1"]
            finally:
                go_on.set()
            assert await seen.wait(3) == ["1", "1", "2"]
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == []
    assert told(caplog, "on_failure failed")
    assert here.journal("abandoned") == []


async def test_a_message_whose_partition_is_lost_meanwhile_is_not_given_up(here: Place) -> None:
    """It is back in its queue by the time the thread has returned, and the next holder decides."""
    seen, stuck = Seen(), Stuck()

    async def handle(delivery: Delivery) -> None:
        if seen.note(delivery) and len(seen.bodies) == 1:
            raise ValueError

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1)
        options: dict[str, Any] = {"retries": 0, "on_error": "dead_letter"}
        async with here.member(topic, handle, on_failure=stuck.plain, **options) as member:
            try:
                await until(lambda: stuck.calls)
                member.tenures[topic.queue_names[0]].scope.cancel()
            finally:
                stuck.let_go()
            assert await seen.wait(2) == ["1", "1"]
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == []
    assert [entry.reason for entry in here.journal("abandoned")] == ["cancelled"]


@pytest.mark.parametrize("kind", ["plain", "deaf"])
async def test_one_that_is_told_of_a_hung_handler_keeps_no_member_from_leaving(
    here: Place, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is called beside the handler, and has a limit of its own."""
    stuck, go_on = Stuck(), threading.Event()
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1)
        own = attrs.evolve(OWN, drain_timeout_ms=200)
        try:
            async with here.member(
                topic, lambda _: go_on.wait() and None, member=own, on_failure=getattr(stuck, kind), on_error="halt"
            ):
                await until(lambda: told(caplog))
        finally:
            go_on.set()
            stuck.let_go()
    assert stuck.calls == ["1"]
    assert len(told(caplog)) == 1
