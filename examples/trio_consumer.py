"""A consumer on trio, inside a larger program: leaving the block hands everything over."""

import os
import signal

import trio

from cobalance import ConsumerGroup, Delivery, Topic
from cobalance.rabbitmq import create_topic

AMQP_URL = os.environ.get("COBALANCE_AMQP_URL", "amqp://localhost")
REDIS_URL = os.environ.get("COBALANCE_REDIS_URL", "redis://localhost")
TOPIC = Topic("trio-orders", partitions=4)


async def handle(delivery: Delivery) -> None:
    """Runs in a trio task; the partitions do not wait for each other."""
    await trio.sleep(0.001)
    print(delivery.queue, delivery.body.decode(), flush=True)


async def main() -> None:
    """Runs the member until it is asked to stop."""
    create_topic(AMQP_URL, TOPIC)
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with ConsumerGroup("trio", TOPIC, handle, amqp_url=AMQP_URL, redis_url=REDIS_URL):
            async for _ in signals:
                break


trio.run(main)
