"""Publishes twenty orders and consumes them. Start it several times: each process takes its share of the partitions."""

import os

from cobalance import ConsumerGroup, Delivery, Publisher, Topic, run
from cobalance.rabbitmq import create_topic

AMQP_URL = os.environ.get("COBALANCE_AMQP_URL", "amqp://localhost")
REDIS_URL = os.environ.get("COBALANCE_REDIS_URL", "redis://localhost")
orders = Topic("orders", partitions=12)


async def handle(delivery: Delivery) -> None:
    print(delivery.queue, delivery.body.decode(), flush=True)


create_topic(AMQP_URL, orders)
with Publisher(AMQP_URL, orders) as publisher:
    for number in range(20):
        publisher.publish(f"customer-{number % 5}", f"order {number}".encode())
run(ConsumerGroup("billing", orders, handle, amqp_url=AMQP_URL, redis_url=REDIS_URL))
