"""Stores messages ten at a time and then acknowledges them: the handler only collects.

Whatever the order of the calls to ``ack``, RabbitMQ hears of a message once all older ones of its partition are done,
too, or when the partition is handed over.
"""

import os
import signal

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream

from cobalance import ConsumerGroup, Delivery, Topic
from cobalance.rabbitmq import create_topic

AMQP_URL = os.environ.get("COBALANCE_AMQP_URL", "amqp://localhost")
REDIS_URL = os.environ.get("COBALANCE_REDIS_URL", "redis://localhost")
TOPIC = Topic("bulk-orders", partitions=4)


async def store(group: ConsumerGroup, arriving: MemoryObjectReceiveStream[Delivery]) -> None:
    """Stores and acknowledges messages, at most ten at a time."""
    async for first in arriving:
        batch = [first]
        with anyio.move_on_after(0.05):  # a handover waits for begun messages, so none may wait here for long
            while len(batch) < 10:
                batch.append(await arriving.receive())
        print("stored", *(delivery.body.decode() for delivery in batch), flush=True)
        for delivery in batch:
            group.ack(delivery)


async def main() -> None:
    """Runs the member until it is asked to stop."""
    create_topic(AMQP_URL, TOPIC)
    collect, arriving = anyio.create_memory_object_stream[Delivery](100)
    group = ConsumerGroup("bulk", TOPIC, collect.send, ack="manual", amqp_url=AMQP_URL, redis_url=REDIS_URL)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(store, group, arriving)
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with group:
                async for _ in signals:
                    break
        tasks.cancel_scope.cancel()


anyio.run(main)
