"""Consumers of a topic that grows: they begin with what old layouts hold, and look for more as rarely as they can."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.to_thread
import pika
import pytest
from tests.consumers import Place, channel, new_topic, note_looks, place, until
from tests.faults.proxy import proxy_to
from tests.names import unique

from cobalance.backoff import Backoff
from cobalance.coordinator.client import ResourceRow
from cobalance.rabbitmq import Delivery, Topic, grow_topic
from cobalance.rabbitmq.topics import layouts
from cobalance.rabbitmq.topics.admin import Admin, connected
from cobalance.rabbitmq.topics.layouts import LayoutSource
from cobalance.rabbitmq.topics.own_queues import own_numbers
from cobalance.servers import OwnRabbitMQ

pytestmark = pytest.mark.anyio


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...] | None]:
    """The queues found by each look of the coordinator."""
    return note_looks(monkeypatch, LayoutSource)


def test_a_layout_that_does_not_empty_is_looked_at_ever_more_rarely(topic: Topic, amqp_url: str) -> None:
    """A halted partition may stay so for days. When something has changed there, it goes on quickly."""
    first, _ = topic.queue_names
    with channel(amqp_url) as it:
        it.basic_publish("", first, b"1", mandatory=True)
        source = LayoutSource(grow_topic(amqp_url, topic.name, 3), amqp_url)
        pauses = [source.look({}).again_in_ms for _ in range(7)]
        assert pauses == [200, 400, 800, 1_600, 3_200, 5_000, 5_000]
        it.basic_publish("", first, b"2", mandatory=True)
        assert source.look({}).again_in_ms == 200


def test_the_queues_of_a_closed_layout_are_counted_once(
    topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find out that there are no more takes errors in RabbitMQ's log. What was deleted is noticed all the same."""
    counted: list[Topic] = []

    def noted(admin: Admin, layout: Topic) -> list[int]:
        counted.append(layout)
        return own_numbers(admin, layout)

    monkeypatch.setattr(layouts, "own_numbers", noted)
    source = LayoutSource(grow_topic(amqp_url, topic.name, 3), amqp_url)
    for expected in (1, 2):
        for _ in range(3):
            source.look({})
        assert len(counted) == expected
        with connected(amqp_url) as admin:
            admin.delete(topic.queue_names[0])
            source.look({})


def test_that_messages_came_late_is_said_once(topic: Topic, amqp_url: str, caplog: Any) -> None:
    """Their partition may be halted, and they stay there."""
    source = LayoutSource(grown := grow_topic(amqp_url, topic.name, 3), amqp_url)
    listed = {name: ResourceRow(name, "held", "m", 1, 0, 0, "2", False, "-", None) for name in grown.queue_names}
    with channel(amqp_url) as it:
        it.basic_publish("", topic.queue_names[0], b"late", mandatory=True)
    for _ in range(3):
        assert source.look(listed).resources == tuple(sorted((*grown.queue_names, topic.queue_names[0])))
    assert caplog.text.count("whose layout is closed") == 1


def test_a_queue_of_a_closed_layout_that_is_made_again_is_found(
    topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator restores what was deleted by mistake, or the whole topic is created again: its messages are not left."""
    now = [0.0]
    monkeypatch.setattr(layouts, "time", SimpleNamespace(monotonic=lambda: now[0]))
    first, second = topic.queue_names
    source = LayoutSource(grow_topic(amqp_url, topic.name, 3), amqp_url)
    source.look({})
    with connected(amqp_url) as admin, channel(amqp_url) as it:
        for lost in ([second], [first, second]):
            for name in lost:
                admin.delete(name)
            for _ in range(3):
                source.look({})
            for queue in topic.queues:
                admin.declare(queue)
            it.basic_publish("", second, b"1", mandatory=True)
            now[0] += 60
            assert second in (source.look({}).resources or ())


@pytest.mark.thorough
async def test_a_group_at_rest_costs_rabbitmq_no_connection_and_no_error(
    private_rabbitmq: OwnRabbitMQ, looks: list[tuple[str, ...] | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it looks whether its topic has grown, before as after that. Growth is noticed all the same."""
    url = private_rabbitmq.url
    monkeypatch.setattr(layouts, "REST_S", Backoff(600.0, 600.0))
    seen: list[Delivery] = []

    def written() -> str:
        """The log until now, which is when a connection is made for the purpose."""
        parameters, now = pika.URLParameters(url), unique("now")
        parameters.client_properties = {"connection_name": now}
        pika.BlockingConnection(parameters).close()
        while now not in (log := private_rabbitmq.log()):  # the timeout of the test is the limit
            time.sleep(0.01)
        return log

    async def noise_of_looks() -> list[str]:
        before, done = await anyio.to_thread.run_sync(written), len(looks)
        await until(lambda: len(looks) >= done + 10)
        since = (await anyio.to_thread.run_sync(written)).removeprefix(before).splitlines()
        return [it for it in since if "cobalance set-up" in it or "caused a channel exception" in it]

    with new_topic(url, 2) as topic, place(url) as here:
        async with here.member(topic, seen.append, refresh_ms=50, crash_detection=False):
            await until(lambda: topic.queue_names in looks)
            assert await noise_of_looks() == []
            grown = await anyio.to_thread.run_sync(grow_topic, url, topic.name, 3)
            for partition in range(3):
                here.publish(grown, partition, partition=partition)
            await until(lambda: len(seen) == 3)  # to begin with a queue takes connections of its own
            await until(lambda: looks[-2:] == 2 * [grown.queue_names])
            assert await noise_of_looks() == []


@pytest.mark.thorough
async def test_the_new_layout_waits_for_what_is_still_being_processed(
    here: Place, topic: Topic, looks: list[tuple[str, ...] | None]
) -> None:
    """The queue looks empty, but its last message is in a handler: the new layout waits for that, and so does one that
    is closed already, as the topic was grown again.
    """
    log: list[str] = []
    begun, finish = anyio.Event(), anyio.Event()

    async def handle(delivery: Delivery) -> None:
        body = delivery.body.decode()
        if body == "old":
            begun.set()
            await finish.wait()
        log.append(body)

    here.publish(topic, "old")
    async with here.member(topic, handle, refresh_ms=100):
        with anyio.fail_after(60):
            await begun.wait()
        grown = await anyio.to_thread.run_sync(grow_topic, here.amqp_url, topic.name, 3)
        here.publish(grown, "newer")
        again = await anyio.to_thread.run_sync(grow_topic, here.amqp_url, topic.name, 4)
        here.publish(again, "newest")
        await until(lambda: sum(it is not None for it in looks) > 5)  # for longer than it takes to settle
        assert {name for it in looks for name in it or ()} <= set(topic.queue_names)
        assert log == []
        finish.set()
        await until(lambda: len(log) == 3)
    assert log == ["old", "newer", "newest"]


@pytest.mark.thorough
async def test_another_member_looks_if_the_head_is_cut_off_from_rabbitmq(here: Place, topic: Topic) -> None:
    """What is published to the new layout does not wait until that process ends or is connected again."""
    processed: list[str] = []

    async def handle(delivery: Delivery) -> None:
        processed.append(delivery.body.decode())

    with proxy_to(here.amqp_url) as proxy:
        url = proxy.through(here.amqp_url)
        async with here.member(topic, handle, amqp_url=url, refresh_ms=100, unconnected_ms=500) as head:
            await until(lambda: set(here.resources()) == set(topic.queue_names))
            assert head.membership.engine.session.is_head
            async with here.member(topic, handle, refresh_ms=100):
                proxy.refuse()
                proxy.reset()
                grown = await anyio.to_thread.run_sync(grow_topic, here.amqp_url, topic.name, 3)
                here.publish(grown, "new")
                await until(lambda: processed == ["new"])
                proxy.heal()


@pytest.mark.thorough
async def test_a_message_that_comes_late_is_not_lost(here: Place, topic: Topic, caplog: Any) -> None:
    """If RabbitMQ or another program puts one into a closed layout after the switch, it is processed and reported."""
    processed: list[str] = []

    async def handle(delivery: Delivery) -> None:
        processed.append(delivery.body.decode())

    async with here.member(topic, handle, refresh_ms=100):
        grown = await anyio.to_thread.run_sync(grow_topic, here.amqp_url, topic.name, 3)
        await until(lambda: set(here.resources()) == set(grown.queue_names))
        here.publish(topic, "late")
        await until(lambda: processed == ["late"])
        await until(lambda: set(here.resources()) == set(grown.queue_names))
    assert "late" in caplog.text


async def test_a_new_group_begins_with_what_old_layouts_hold(here: Place, topic: Topic) -> None:
    """It has never consumed them, and does so first, one after the other."""
    processed: list[str] = []

    async def handle(delivery: Delivery) -> None:
        processed.append(delivery.body.decode())

    here.publish(topic, "old")
    grown = await anyio.to_thread.run_sync(grow_topic, here.amqp_url, topic.name, 3)
    here.publish(grown, "newer")
    again = await anyio.to_thread.run_sync(grow_topic, here.amqp_url, topic.name, 4)
    here.publish(again, "newest")
    async with here.member(topic, handle, refresh_ms=100):
        await until(lambda: len(processed) == 3)
    assert processed == ["old", "newer", "newest"]
