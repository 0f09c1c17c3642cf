"""Counts payments, and commits manually once a count is stored. Start it twice, and stop one.

A stream is read by offset: the next holder starts after the committed one. Here the offset is committed only after the
result of a batch is stored, together with the fencing token, so that writes of a process that was replaced can be
recognized.
"""

import os
from collections import Counter

from cobalance import Batch, ConsumerGroup, Delivery, StreamSettings, Topic, run
from cobalance.rabbitmq import create_topic

AMQP_URL = os.environ.get("COBALANCE_AMQP_URL", "amqp://localhost")
REDIS_URL = os.environ.get("COBALANCE_REDIS_URL", "redis://localhost")
TOPIC = Topic("payments", partitions=4, queue_type="stream")


async def count(payments: list[Delivery]) -> None:
    """Stores what is in a batch, then commits its last offset."""
    stored = Counter(payment.body.decode() for payment in payments)
    last = payments[-1]
    print(os.getpid(), last.queue, last.offset, last.token, sum(stored.values()), flush=True)
    await group.commit(last.queue, last.offset or 0)


create_topic(AMQP_URL, TOPIC)
group = ConsumerGroup(
    "revenue",
    TOPIC,
    count,
    batch=Batch(50),
    ack="manual",
    streams=StreamSettings(start="first"),
    amqp_url=AMQP_URL,
    redis_url=REDIS_URL,
)
run(group)
