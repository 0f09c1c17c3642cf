"""Consumed messages a second: a consumer group of one, a raw pika SelectConnection, and aio-pika's iterator.

All three read the same durable queue, with the same prefetch and the same ack batching, into a handler that does nothing.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING, Any

import aio_pika
import anyio
import attrs
import pika

from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.publish.publisher import Publisher
from cobalance.rabbitmq.topics.broker import create_topic
from cobalance.rabbitmq.topics.deletion import delete_topic
from cobalance.settings import GroupSettings
from proof.bench.figures import Figure, compare

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from cobalance.rabbitmq.partition.delivery import Delivery

BODY_BYTES = 1024
PREFETCH, ACK_EVERY = 100, 50


@attrs.define
class Rate:
    """Counts up to a number of messages; the time runs from the first to the last."""

    messages: int
    clock: Callable[[], float] = time.perf_counter
    _count: int = 0
    _began: float = 0.0
    seconds: float = 0.0

    def count(self) -> bool:
        """Counts one message; True at the last one."""
        if self._count == 0:
            self._began = self.clock()
        self._count += 1
        if self._count == self.messages:
            self.seconds = self.clock() - self._began
            return True
        return False

    @property
    def per_second(self) -> float:
        return (self.messages - 1) / self.seconds


class Consuming:
    """One queue that is filled before each run."""

    clock = staticmethod(time.perf_counter)

    def __init__(self, redis_url: str, amqp_url: str, messages: int) -> None:
        self._redis_url, self._amqp_url, self._messages = redis_url, amqp_url, messages
        self._topic = Topic(f"bench-{uuid.uuid4().hex[:8]}", 1)

    def figures(self, rounds: int) -> Iterable[Figure]:
        """Ours against both peers."""
        create_topic(self._amqp_url, self._topic)
        detail = f"{self._messages} x {BODY_BYTES} B, prefetch {PREFETCH}, ack every {ACK_EVERY}"
        try:
            return [
                compare(f"consumed ÷ {name}", "messages/s", self.ours, peer, rounds=rounds, least=goal, detail=detail)
                for name, peer, goal in (("raw pika", self.raw_pika, 0.95), ("aio-pika iterator", self.aio_pika, 2.5))
            ]
        finally:
            delete_topic(self._amqp_url, self._topic.name, force=True)

    def _fill(self, messages: int | None = None) -> None:
        with Publisher(self._amqp_url, self._topic) as publisher:
            count = messages or self._messages
            sent = [publisher.publish("key", b"x" * BODY_BYTES, wait=False) for _ in range(count)]
            for confirmed in sent:
                confirmed.result()

    def ours(self, **options: Any) -> float:
        """A group of one member, handling on asyncio."""
        return self.consumed(Rate(self._messages, self.clock), **options)

    def consumed(self, rate: Rate, work: Callable[[], Awaitable[None]] | None = None, **options: Any) -> float:
        """The same, with this many messages, and with a handler that does this."""
        self._fill(rate.messages)
        return anyio.run(self._consume_as_member, rate, work, options)

    async def _consume_as_member(
        self, rate: Rate, work: Callable[[], Awaitable[None]] | None, options: dict[str, Any]
    ) -> float:
        finished = anyio.Event()

        async def handle(_: Delivery) -> None:
            if work is not None:
                await work()
            if rate.count():
                finished.set()

        group = ConsumerGroup(
            f"bench-{uuid.uuid4().hex[:8]}",
            self._topic,
            handle,
            amqp_url=self._amqp_url,
            redis_url=self._redis_url,
            prefetch=PREFETCH,
            ack_every=ACK_EVERY,
            settings=GroupSettings(session_timeout_ms=1_000, heartbeat_interval_ms=300),
            **options,
        )
        async with group:
            await finished.wait()
        return rate.per_second

    def raw_pika(self) -> float:
        """The least that pika can do: a callback that acknowledges batches."""
        self._fill()
        rate = Rate(self._messages)
        connection: Any = None

        def on_message(channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
            last = rate.count()
            if last or method.delivery_tag % ACK_EVERY == 0:
                channel.basic_ack(method.delivery_tag, multiple=True)
            if last:
                connection.close()

        def on_channel(channel: Any) -> None:
            channel.basic_qos(prefetch_count=PREFETCH)
            channel.basic_consume(self._topic.queue_names[0], on_message, exclusive=True)

        def on_open(opened: Any) -> None:
            opened.channel(on_open_callback=on_channel)

        connection = pika.SelectConnection(
            pika.URLParameters(self._amqp_url),
            on_open_callback=on_open,
            on_close_callback=lambda closed, _reason: closed.ioloop.stop(),
        )
        connection.ioloop.start()
        return rate.per_second

    def aio_pika(self) -> float:
        """The usual asyncio consumer, with the same batching of acks."""
        self._fill()
        return asyncio.run(self._consume_with_aio_pika())

    async def _consume_with_aio_pika(self) -> float:
        rate = Rate(self._messages)
        connection = await aio_pika.connect(self._amqp_url)
        async with connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=PREFETCH)
            queue = await channel.get_queue(self._topic.queue_names[0])
            number = 0
            async with queue.iterator() as messages:
                async for message in messages:
                    number += 1
                    last = rate.count()
                    if last or number % ACK_EVERY == 0:
                        await message.ack(multiple=True)
                    if last:
                        break
        return rate.per_second
