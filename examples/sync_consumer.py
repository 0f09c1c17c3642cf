"""A plain function as the handler: it runs in a thread, and may block. The program needs no event loop."""

import os
import time

from cobalance import ConsumerGroup, Delivery, Topic, run
from cobalance.rabbitmq import create_topic

AMQP_URL = os.environ.get("COBALANCE_AMQP_URL", "amqp://localhost")
REDIS_URL = os.environ.get("COBALANCE_REDIS_URL", "redis://localhost")
TOPIC = Topic("sync-orders", partitions=4)


def handle(delivery: Delivery) -> None:
    """Blocks its own partition only, and no heartbeat."""
    time.sleep(0.001)
    print(f"{delivery.queue} {delivery.body.decode()}\n", end="", flush=True)  # in one piece: other threads print, too


create_topic(AMQP_URL, TOPIC)
run(ConsumerGroup("sync", TOPIC, handle, amqp_url=AMQP_URL, redis_url=REDIS_URL))
