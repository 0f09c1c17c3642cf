"""A consumer group in this process, and the messages it received: the subject of the tests of faults."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import pika
from tests.faults.eventually import WITHIN_S, eventually

from cobalance import ConsumerGroup, Delivery, Publisher, Topic
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.rabbitmq import create_topic, delete_topic
from cobalance.settings import GroupSettings, MemberSettings

SETTINGS = GroupSettings(
    session_timeout_ms=3_000, heartbeat_interval_ms=200, revocation_timeout_ms=5_000, gather_ms=0, rejoin_grace_ms=0
)


class Received:
    """What handlers received, in order."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self._news = anyio.Event()

    async def handle(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        self._news.set()
        self._news = anyio.Event()

    @property
    def bodies(self) -> list[str]:
        return [it.body.decode() for it in self.deliveries]

    @property
    def tokens(self) -> dict[str, set[int]]:
        """Tokens by partition."""
        found: dict[str, set[int]] = {}
        for it in self.deliveries:
            found.setdefault(it.queue, set()).add(it.token)
        return found

    async def wait(self, *bodies: str) -> None:
        """Waits until all of these have come."""
        with anyio.fail_after(WITHIN_S):
            while not set(bodies) <= set(self.bodies):
                await self._news.wait()


@contextmanager
def a_topic(amqp_url: str, partitions: int = 4, **options: Any) -> Iterator[Topic]:
    """A new topic, deleted afterwards."""
    topic = Topic(f"faults-{uuid.uuid4().hex[:8]}", partitions, **options)
    create_topic(amqp_url, topic)
    yield topic
    delete_topic(amqp_url, topic.name, force=True)


def create_group(redis_url: str, settings: GroupSettings = SETTINGS) -> str:
    """Creates a group known to be new, so that no member waits for claims; returns its name."""
    name = f"faults-{uuid.uuid4().hex[:8]}"
    transport = open_transport(redis_url)
    Coordinator(transport, name).create(settings)
    transport.close()
    return name


@asynccontextmanager
async def consuming(
    name: str,
    topic: Topic,
    amqp_url: str,
    redis_url: str,
    received: Received,
    *,
    holds: int | None = None,
    **options: Any,
) -> AsyncIterator[ConsumerGroup]:
    """A member that holds this many partitions of the topic, or all."""
    member = MemberSettings(drain_timeout_ms=2_000)
    group = ConsumerGroup(
        name,
        topic,
        received.handle,
        amqp_url=amqp_url,
        redis_url=redis_url,
        settings=SETTINGS,
        member=member,
        **options,
    )
    async with group:
        await eventually(lambda: len(group.tenures) == (holds or topic.partitions))
        yield group


def publish(amqp_url: str, topic: Topic, *bodies: str) -> None:
    """Publishes, with confirms, to the partition that each body's hash selects."""
    with Publisher(amqp_url, topic) as publisher:
        for body in bodies:
            publisher.publish(body, body.encode())


def consumers(amqp_url: str, queue: str) -> int:
    """How many consumers RabbitMQ has on a queue."""
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    try:
        return connection.channel().queue_declare(queue, passive=True).method.consumer_count or 0
    finally:
        connection.close()
