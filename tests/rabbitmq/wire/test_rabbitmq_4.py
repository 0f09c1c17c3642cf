"""Changes in RabbitMQ 4: a default delivery limit, another metadata store, features that it may refuse.

Older versions are tested the same way, as far as they support it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import anyio
import pytest
from tests.consumers import Place, Seen, channel, new_topic, place, take_in_vain, until
from tests.names import unique
from tests.streams import connected

from cobalance import servers
from cobalance.rabbitmq import Delivery, Queue
from cobalance.rabbitmq.consume.last_tries import LIMIT_SINCE_4, delivery_limit

pytestmark = pytest.mark.anyio

QUORUM: dict[str, str | int | bool] = {"x-queue-type": "quorum", "x-single-active-consumer": True}


def version(url: str) -> int:
    """The major version of the RabbitMQ at this URL."""
    with connected(url) as it:
        return int(it.server_version.partition(".")[0])


@pytest.mark.parametrize(
    ("arguments", "rabbitmq", "limit"),
    [
        (QUORUM, "3.10.8", None),
        (QUORUM, "3.13.7", None),
        (QUORUM, "4.0.5", 20),
        (QUORUM, "10.1", 20),
        (QUORUM, "", None),
        (QUORUM | {"x-delivery-limit": 7}, "3.10.8", 7),
        (QUORUM | {"x-delivery-limit": 7}, "4.0.5", 7),
        (QUORUM | {"x-delivery-limit": -1}, "4.0.5", None),
        ({}, "4.0.5", None),
        ({"x-queue-type": "stream"}, "4.0.5", None),
    ],
    ids=str,
)
def test_the_delivery_limit_of_a_queue(
    arguments: dict[str, str | int | bool], rabbitmq: str, limit: int | None
) -> None:
    """Its own, or the default of every quorum queue since RabbitMQ 4; a negative one means none."""
    assert delivery_limit(Queue("q", arguments), rabbitmq) == limit


def ready_in(url: str, queue: str) -> int | None:
    """Number of ready messages."""
    with channel(url) as it:
        return it.queue_declare(queue, passive=True).method.message_count


async def test_the_last_delivery_by_the_limit_that_rabbitmq_sets_is_told(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Since RabbitMQ 4, a quorum queue without a limit of its own drops messages after 20 failed deliveries."""
    name, seen = unique("limited"), Seen()
    limited = version(here.amqp_url) >= 4

    async def handle(delivery: Delivery) -> None:
        seen.note(delivery)

    with channel(here.amqp_url) as it, caplog.at_level(logging.WARNING):
        it.queue_declare(name, durable=True, arguments=QUORUM)
        here.publish(name, "poison")
        for _ in range(LIMIT_SINCE_4):
            take_in_vain(here.amqp_url, name)
        async with here.member([Queue(name, QUORUM)], handle):
            assert await seen.wait(1) == ["poison"]
        here.publish(name, "poison")
        for _ in range(LIMIT_SINCE_4 + 1):
            take_in_vain(here.amqp_url, name)
        await until(lambda: ready_in(here.amqp_url, name) == (0 if limited else 1))
        it.queue_delete(name)
    assert ("for the last time (try 21): unless it is finished now, RabbitMQ drops it" in caplog.text) is limited


ON_THEIR_WAY_OUT = ("global_qos", "queue_master_locator", "ram_node_type", "transient_nonexcl_queues")


@pytest.fixture(scope="module")
def strict_rabbitmq(amqp_url: str) -> Iterator[servers.OwnRabbitMQ]:
    """A server that keeps its metadata in Khepri and refuses deprecated features, as far as it knows either."""
    is_4 = version(amqp_url) >= 4
    settings = {f"deprecated_features.permit.{it}": "false" for it in ON_THEIR_WAY_OUT} if is_4 else {}
    server = servers.private_rabbitmq(settings=settings)
    if is_4:
        server.control("enable_feature_flag", "--opt-in", "khepri_db")
    yield server
    server.close()


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
async def test_a_group_on_khepri_without_anything_deprecated(
    strict_rabbitmq: servers.OwnRabbitMQ, queue_type: str
) -> None:
    """A handover keeps order; a restart of the node may repeat messages, but loses or reorders none."""
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        seen.note(delivery)

    with place(strict_rabbitmq.url) as here, new_topic(here.amqp_url, 2, queue_type) as topic:
        async with here.member(topic, handle):
            here.publish(topic, *range(5))
            await seen.wait(5)
            async with here.member(topic, handle) as second:
                await until(lambda: len(second.tenures) == 1)
                here.publish(topic, *range(5, 10))
                await seen.wait(10)
                await anyio.to_thread.run_sync(strict_rabbitmq.restart)
                here.publish(topic, *range(10, 15))
                await until(lambda: "14" in seen.bodies)
        assert list(dict.fromkeys(seen.bodies)) == [str(number) for number in range(15)]
        assert here.journal("forced", "abandoned") == []
