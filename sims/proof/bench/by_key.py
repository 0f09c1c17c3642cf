"""Order by key: what it costs a message beside order by partition, and what it gains where handlers wait."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio

from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.publish.publisher import Publisher
from cobalance.rabbitmq.topics.broker import create_topic
from cobalance.rabbitmq.topics.deletion import delete_topic
from cobalance.settings import GroupSettings
from proof.bench.consume import PREFETCH, Rate
from proof.bench.figures import Figure, compare

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from cobalance.rabbitmq.partition.delivery import Delivery

KEYS = 1_000
CONCURRENCY = 64
HANDLER_S = 0.05
PARTITIONS = 12
BODY = b"x" * 1_024


class ByKey:
    """Topics that are filled before each run, and consumed by a group of one member on asyncio."""

    def __init__(self, redis_url: str, amqp_url: str, messages: int) -> None:
        self._redis_url, self._amqp_url, self._messages = redis_url, amqp_url, messages

    def figures(self, rounds: int) -> Iterator[Figure]:
        """Overhead first, then throughput with handlers that wait."""
        with self._topic(1) as topic:
            yield compare(
                "by key ÷ in order, handlers that do nothing",
                "messages/s",
                lambda: self._consume(topic, self._messages, _nothing, order="key"),
                lambda: self._consume(topic, self._messages, _nothing),
                rounds=rounds,
                least=1 / 1.2,
                detail=f"{self._messages} messages, {KEYS} keys, 1 partition, prefetch {PREFETCH}",
            )
        with self._topic(PARTITIONS) as topic:
            count = min(self._messages, 6_000)
            most = min(CONCURRENCY, KEYS) / HANDLER_S
            yield compare(
                f"by key ÷ {CONCURRENCY} handlers of {HANDLER_S * 1000:.0f} ms that never wait",
                "messages/s",
                lambda: self._consume(topic, count, _wait, order="key", concurrency=CONCURRENCY),
                lambda: most,
                rounds=rounds,
                least=0.9,
                detail=f"{count} messages, {KEYS} keys, {PARTITIONS} partitions, prefetch {PREFETCH}",
            )

    @contextmanager
    def _topic(self, partitions: int) -> Iterator[Topic]:
        topic = create_topic(self._amqp_url, Topic(f"bench-{uuid.uuid4().hex[:8]}", partitions))
        try:
            yield topic
        finally:
            delete_topic(self._amqp_url, topic.name, force=True)

    def _consume(self, topic: Topic, messages: int, work: Callable[[], Awaitable[None]], **options: Any) -> float:
        with Publisher(self._amqp_url, topic) as publisher:
            sent = [publisher.publish(f"key-{n % KEYS}", BODY, wait=False) for n in range(messages)]
            for confirmed in sent:
                confirmed.result()
        return anyio.run(self._consume_as_member, topic, messages, work, options)

    async def _consume_as_member(
        self, topic: Topic, messages: int, work: Callable[[], Awaitable[None]], options: dict[str, Any]
    ) -> float:
        rate, finished = Rate(messages), anyio.Event()

        async def handle(_: Delivery) -> None:
            await work()
            if rate.count():
                finished.set()

        group = ConsumerGroup(
            f"bench-{uuid.uuid4().hex[:8]}",
            topic,
            handle,
            amqp_url=self._amqp_url,
            redis_url=self._redis_url,
            prefetch=PREFETCH,
            settings=GroupSettings(session_timeout_ms=1_000, heartbeat_interval_ms=300),
            **options,
        )
        async with group:
            await finished.wait()
        return rate.per_second


async def _nothing() -> None: ...


async def _wait() -> None:
    await anyio.sleep(HANDLER_S)
