"""What a partition's consumer sends on its channel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pika.channel import Channel

from cobalance.rabbitmq.model.queues import Guard, Queue
from cobalance.rabbitmq.partition.acks import Flush


def prove_and_subscribe(
    channel: Channel,
    queue: Queue,
    message: Callable[..., None],
    subscribed: Callable[[Any], None],
    *,
    prefetch: int,
    arguments: Mapping[str, str | int],
    tag: str,
) -> None:
    """Declares the queue twice without awaiting an answer; a failure closes the channel, so ConsumeOk is the proof.

    The passive declaration fails if the queue is missing (the other would create it); the full one fails if any
    argument differs from what is expected, the single active consumer included. This costs no round trip.
    """
    channel.queue_declare(queue.name, passive=True)
    channel.queue_declare(queue.name, durable=queue.durable, auto_delete=queue.auto_delete, arguments=queue.declaration)
    channel.basic_qos(prefetch_count=prefetch)
    channel.basic_consume(
        queue.name,
        message,
        exclusive=queue.guard is Guard.EXCLUSIVE,
        arguments=dict(arguments),
        consumer_tag=tag,
        callback=subscribed,
    )


def send_acks(channel: Channel, flush: Flush) -> None:
    """Every reject, then one ack for everything up to a tag, then single acks."""
    for tag in flush.rejects:
        channel.basic_reject(tag, requeue=False)
    if flush.ack is not None:
        channel.basic_ack(flush.ack, multiple=True)
    for tag in flush.singles:
        channel.basic_ack(tag)
