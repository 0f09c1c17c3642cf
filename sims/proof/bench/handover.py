"""The handover gap: from the last message finished by the old owner of a partition to the first one at the new owner.

Ours is the whole protocol: the coordinator revokes the partition, the holder drains, flushes its acks and closes its
channel, releases in Redis, and the next member is woken, informed and subscribes. The raw peer is what RabbitMQ alone
needs: a bare Channel.Close, and a second, connected consumer that subscribes the instant CloseOk arrives.
"""

from __future__ import annotations

import statistics
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import anyio

from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.publish.publisher import Publisher
from cobalance.rabbitmq.topics.broker import create_topic
from cobalance.rabbitmq.topics.deletion import delete_topic
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.pika_internals import bare_close
from cobalance.settings import GroupSettings
from proof.bench.figures import Figure, compare

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.rabbitmq.consume.handlers import Handler
    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.partition.delivery import Delivery

PARTITIONS = 8
BACKLOG = 20_000
PREFETCH = 20
SETTINGS = GroupSettings(session_timeout_ms=3_000, heartbeat_interval_ms=900, gather_ms=0)


class Handovers:
    """A topic with a backlog on every partition, so that a message is always waiting for the next owner."""

    def __init__(self, redis_url: str, amqp_url: str) -> None:
        self._redis_url, self._amqp_url = redis_url, amqp_url
        self._topic = Topic(f"bench-{uuid.uuid4().hex[:8]}", PARTITIONS)

    def figures(self, rounds: int) -> list[Figure]:
        """The gap of a planned handover."""
        try:
            name = "handover gap ÷ raw Channel.Close takeover"
            detail = f"medians of {PARTITIONS // 2} handovers a round, from a backlog, prefetch {PREFETCH}"
            return [compare(name, "ms", self.ours, self.raw, rounds=rounds, most=3.0, detail=detail)]
        finally:
            delete_topic(self._amqp_url, self._topic.name, force=True)

    def _fill(self) -> None:
        create_topic(self._amqp_url, self._topic)
        with Publisher(self._amqp_url, self._topic) as publisher:
            sent = [publisher.publish(f"key {number}", b"", wait=False) for number in range(BACKLOG)]
            for confirmed in sent:
                confirmed.result()

    def ours(self) -> float:
        """Two members; the second joins, and half of the partitions move."""
        self._fill()
        return anyio.run(self._join_a_second_member)

    async def _join_a_second_member(self) -> float:
        name = f"bench-{uuid.uuid4().hex[:8]}"
        last: dict[str, int] = {}
        gaps_ms: dict[str, float] = {}
        moved = anyio.Event()

        async def handle_old(delivery: Delivery) -> None:
            await anyio.sleep(0.001)
            last[delivery.queue] = time.monotonic_ns()

        async def handle_new(delivery: Delivery) -> None:
            if delivery.queue not in gaps_ms:
                gaps_ms[delivery.queue] = (time.monotonic_ns() - last[delivery.queue]) / 1e6
            await anyio.sleep(0.001)
            if len(gaps_ms) == PARTITIONS // 2:
                moved.set()

        def member(handler: Handler) -> ConsumerGroup:
            return ConsumerGroup(
                name,
                self._topic,
                handler,
                amqp_url=self._amqp_url,
                redis_url=self._redis_url,
                settings=SETTINGS,
                prefetch=PREFETCH,
            )

        async with member(handle_old) as old:
            await old.wait_held(*self._topic.queue_names)
            async with member(handle_new):
                await moved.wait()
        return statistics.median(gaps_ms.values())

    def raw(self) -> float:
        """The same number of takeovers by two bare consumers."""
        self._fill()
        old, new = (BrokerConnection(self._amqp_url, name) for name in ("bench old", "bench new"))
        old.connect()
        new.connect()
        gaps_ms = [_take_over(queue, old, new) for queue in self._topic.queues[: PARTITIONS // 2]]
        old.close()
        new.close()
        return statistics.median(gaps_ms)


def _take_over(queue: Queue, old: BrokerConnection, new: BrokerConnection) -> float:
    """The gap of one takeover in ms."""
    before, after = _Bare(queue, old), _Bare(queue, new)
    before.start()
    before.wait_for_message()
    before.close(then=after.start)
    after.wait_for_message()
    after.close(then=lambda: None)
    return (after.first_ns - before.last_ns) / 1e6


class _Bare:
    """A consumer with nothing around it: acks each message at once, on the I/O thread."""

    def __init__(self, queue: Queue, connection: BrokerConnection) -> None:
        self.first_ns = self.last_ns = 0
        self._queue, self._connection = queue, connection
        self._arrived, self._closed = threading.Event(), threading.Event()
        self._channel: Any = None

    def start(self) -> None:
        self._connection.submit(self._open)

    def close(self, then: Callable[[], None]) -> None:
        """Sends a bare Channel.Close; `then` runs the instant CloseOk arrives."""

        def close_now() -> None:
            self._channel.add_on_close_callback(closed)
            bare_close(self._channel)

        def closed(*_: object) -> None:
            then()
            self._closed.set()

        self._connection.submit(close_now)
        if not self._closed.wait(30):
            raise TimeoutError("no CloseOk within 30 s")

    def wait_for_message(self) -> None:
        if not self._arrived.wait(30):
            raise TimeoutError("no message within 30 s")

    def _open(self) -> None:
        self._channel = self._connection.open_channel(self._consume)

    def _consume(self, channel: Any) -> None:
        channel.basic_qos(prefetch_count=PREFETCH)
        channel.basic_consume(self._queue.name, self._message, exclusive=True)

    def _message(self, channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        self.last_ns = time.monotonic_ns()
        self.first_ns = self.first_ns or self.last_ns
        channel.basic_ack(method.delivery_tag)
        self._arrived.set()
