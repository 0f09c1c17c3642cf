"""A consumer inside a larger program without an event loop, which starts and stops it."""

import os
import signal
from contextlib import suppress

from cobalance import BlockingConsumerGroup, Delivery, Topic, create_topic

AMQP_URL = os.environ.get("COBALANCE_AMQP_URL", "amqp://localhost")
REDIS_URL = os.environ.get("COBALANCE_REDIS_URL", "redis://localhost")
TOPIC = Topic("blocking-orders", partitions=4)


def handle(delivery: Delivery) -> None:
    """Runs in a thread of the partition's own."""
    print(f"{delivery.queue} {delivery.body.decode()}\n", end="", flush=True)  # in one piece: other threads print, too


signal.signal(signal.SIGTERM, signal.default_int_handler)
create_topic(AMQP_URL, TOPIC)
group = BlockingConsumerGroup("blocking", TOPIC, handle, amqp_url=AMQP_URL, redis_url=REDIS_URL)
with suppress(KeyboardInterrupt):
    group.start()
    group.wait_left()  # the program's own work would be here
group.stop()
