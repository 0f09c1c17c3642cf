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
from collections import defaultdict
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
from proof.bench.figures import Figure, alone, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cobalance.group.group import Group
    from cobalance.rabbitmq.consume.handlers import Handler
    from cobalance.rabbitmq.consume.metering import Call, Status, Step
    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.partition.delivery import Delivery

PARTITIONS = 8
BACKLOG = 20_000
PREFETCH = 20
SETTINGS = GroupSettings(session_timeout_ms=3_000, heartbeat_interval_ms=900, gather_ms=0)


class HandoverBench:
    """A topic with a backlog on every partition, so that a message is always waiting for the next owner."""

    def __init__(self, redis_url: str, amqp_url: str) -> None:
        self._redis_url, self._amqp_url = redis_url, amqp_url
        self._topic = Topic(f"bench-{uuid.uuid4().hex[:8]}", PARTITIONS)

    def figures(self, rounds: int) -> list[Figure]:
        """The gap of a planned handover, and where its time goes."""
        try:
            name = "handover gap ÷ raw Channel.Close takeover"
            detail = f"medians of {PARTITIONS // 2} handovers a round, from a backlog, prefetch {PREFETCH}"
            gap = compare(name, "ms", self.ours, self.raw, rounds=rounds, most=3.0, detail=detail)
            return [gap, *self.steps(rounds)]
        finally:
            delete_topic(self._amqp_url, self._topic.name, force=True)

    def steps(self, rounds: int) -> list[Figure]:
        """How long each step takes; with a meter that hears of them, so in rounds of their own."""
        took = defaultdict[str, list[float]](list)
        for _ in range(rounds):
            self._fill()
            steps = Steps()
            anyio.run(self._join_a_second_member, steps, steps)
            for name, ms in steps.took_ms():
                took[name].append(ms)
        detail = f"median of {rounds * PARTITIONS // 2} handovers, {PARTITIONS // 2} at a time"
        return [alone(f"handover, {name}", "ms", statistics.median(ms), detail=detail) for name, ms in took.items()]

    def _fill(self) -> None:
        create_topic(self._amqp_url, self._topic)
        with Publisher(self._amqp_url, self._topic) as publisher:
            sent = [publisher.publish(f"key {number}", b"", wait=False) for number in range(BACKLOG)]
            for confirmed in sent:
                confirmed.result()

    def ours(self) -> float:
        """Two members; the second joins, and half of the partitions move."""
        self._fill()
        steps = Steps()
        anyio.run(self._join_a_second_member, steps)
        return statistics.median(steps.gaps_ms())

    async def _join_a_second_member(self, steps: Steps, meter: Steps | None = None) -> None:
        name = f"bench-{uuid.uuid4().hex[:8]}"
        moved = anyio.Event()

        async def handle_old(delivery: Delivery) -> None:
            await anyio.sleep(0.001)
            steps.note(delivery.queue, "last", time.monotonic_ns())

        async def handle_new(delivery: Delivery) -> None:
            steps.note(delivery.queue, "first", time.monotonic_ns())
            await anyio.sleep(0.001)
            if len(steps.gaps_ms()) == PARTITIONS // 2:
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
                metrics=meter,
            )

        async with member(handle_old) as old:
            await old.wait_held(*self._topic.queue_names)
            async with member(handle_new):
                await moved.wait()

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


class Steps:
    """Notes when each step of a handover was taken: the last time, until the heir's first message begins. As a meter it
    hears of those between the messages.
    """

    NAMES = (
        ("its last message ended → closed: drain, acks, Channel.Close", "last", "ended"),
        ("closed → granted: release, hint, the heir's call", "ended", "granted"),
        ("granted → subscribed: event loop, channel, guard", "granted", "consuming"),
        ("subscribed → its first message begins", "consuming", "first"),
    )

    def __init__(self) -> None:
        self._at = defaultdict[str, dict[str, int]](dict)

    def note(self, queue: str, what: str, at_ns: int) -> None:
        """It happened to this queue at that time."""
        if "first" not in self._at[queue]:
            self._at[queue][what] = at_ns

    def gaps_ms(self) -> list[float]:
        """From the last message to the first one, for each queue that was handed over."""
        return [(at["first"] - at["last"]) / 1e6 for at in self._at.values() if "first" in at]

    def took_ms(self) -> Iterator[tuple[str, float]]:
        """Step and duration, for each of them."""
        for at in self._at.values():
            if "first" in at:
                for name, begin, end in self.NAMES:
                    yield name, (at[end] - at[begin]) / 1e6

    def moved(self, group: str, queue: str, token: int, step: Step) -> None:
        """What becomes of a tenure."""
        del group, token
        self.note(queue, step, time.monotonic_ns())

    def attach(self, group: Group) -> None: ...

    def begun(self, call: Call) -> None: ...

    def ended(self, call: Call, scope: None) -> None: ...

    def settled(self, group: str, delivery: Delivery, status: Status) -> None: ...


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
