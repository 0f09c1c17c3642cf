"""A service that squares numbers, and a client that asks it.

Start `request_reply.py serve` as often as you like, then `request_reply.py`.
"""

import os
import sys

import pika

from cobalance import ConsumerGroup, Delivery, Publisher, Topic, create_topic, run

AMQP_URL = os.environ.get("COBALANCE_AMQP_URL", "amqp://localhost")
REDIS_URL = os.environ.get("COBALANCE_REDIS_URL", "redis://localhost")
REQUESTS = Topic("square-requests", partitions=4)
TIMEOUT_S = 60


async def handle(delivery: Delivery) -> None:
    """The request is acknowledged once RabbitMQ has confirmed the reply, so none goes unanswered."""
    delivery.reply(str(int(delivery.body) ** 2))


def ask(*numbers: int) -> None:
    """Sends all requests at once, and prints the replies as they arrive; each has its request's correlation id."""
    with (
        pika.BlockingConnection(pika.URLParameters(AMQP_URL)) as connection,
        Publisher(AMQP_URL, REQUESTS) as publisher,
    ):
        channel = connection.channel()
        replies = str(channel.queue_declare("", exclusive=True).method.queue)  # deleted with the connection
        for number in numbers:
            publisher.publish(None, str(number), reply_to=replies, correlation_id=str(number))
        waiting = {str(number) for number in numbers}
        for _, properties, body in channel.consume(replies, auto_ack=True, inactivity_timeout=TIMEOUT_S):
            if properties is None or body is None:
                sys.exit(f"no reply to {sorted(waiting)}")
            if properties.correlation_id in waiting:  # a reply may come twice, e.g. after a crash of the service
                waiting.discard(properties.correlation_id)
                print(properties.correlation_id, "squared is", body.decode(), flush=True)
            if not waiting:
                break


create_topic(AMQP_URL, REQUESTS)
if sys.argv[1:] == ["serve"]:
    run(ConsumerGroup("square", REQUESTS, handle, amqp_url=AMQP_URL, redis_url=REDIS_URL))
else:
    ask(*range(10))
