"""A program written for pika: consumes four queues and prints which process did what."""

import os
import signal
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import BasicProperties

AMQP_URL = os.environ.get("COBALANCE_AMQP_URL", "amqp://localhost")
QUEUES = [f"pika-{number}" for number in range(4)]


def on_message(channel: BlockingChannel, method: Any, _: BasicProperties, body: bytes) -> None:
    """The work: here it only prints."""
    print(os.getpid(), method.routing_key, body.decode(), flush=True)
    channel.basic_ack(method.delivery_tag)


connection = pika.BlockingConnection(pika.URLParameters(AMQP_URL))
channel = connection.channel()
channel.basic_qos(prefetch_count=50)
for queue in QUEUES:
    channel.queue_declare(queue, durable=True)
    channel.basic_consume(queue, on_message)
# Not by KeyboardInterrupt, which may come while pika is sending.
signal.signal(signal.SIGINT, lambda *_: connection.add_callback_threadsafe(channel.stop_consuming))
channel.start_consuming()
connection.close()
