"""A member inside a larger program that decides when to stop.

On SIGTERM the running handlers finish, their messages are acknowledged, and the partitions move to other members at
once.
"""

import os
import signal

import anyio

from cobalance import ConsumerGroup, Delivery, MemberSettings, Topic
from cobalance.rabbitmq import create_topic

AMQP_URL = os.environ.get("COBALANCE_AMQP_URL", "amqp://localhost")
REDIS_URL = os.environ.get("COBALANCE_REDIS_URL", "redis://localhost")
TOPIC = Topic("slow-orders", partitions=2)


async def handle(delivery: Delivery) -> None:
    """Must not be interrupted in the middle."""
    print("begun", delivery.queue, delivery.body.decode(), flush=True)
    await anyio.sleep(0.2)
    print("done", delivery.queue, delivery.body.decode(), flush=True)


async def main() -> None:
    """Leaving the block drains; what is not begun within half of the drain timeout goes to the next member."""
    create_topic(AMQP_URL, TOPIC)
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with ConsumerGroup(
            "shop",
            TOPIC,
            handle,
            amqp_url=AMQP_URL,
            redis_url=REDIS_URL,
            member=MemberSettings(drain_timeout_ms=2_000),
        ):
            async for _ in signals:
                break
        print("left", flush=True)


anyio.run(main)
