"""Warns of messages on their last delivery from a quorum queue, which then drops or dead-letters them silently."""

import logging
from collections.abc import Iterable

from cobalance.rabbitmq.model.queues import Queue
from cobalance.rabbitmq.partition.delivery import Delivery

log = logging.getLogger("cobalance.rabbitmq")


LIMIT_SINCE_4 = 20
"""The default limit of quorum queues since RabbitMQ 4."""


def delivery_limit(queue: Queue, rabbitmq: str) -> int | None:
    """How often a message may be returned to the queue. A limit set by a policy is not visible."""
    limit = queue.arguments.get("x-delivery-limit")
    if limit is not None:
        return int(limit) if int(limit) >= 0 else None
    major = rabbitmq.partition(".")[0]
    return LIMIT_SINCE_4 if queue.kind == "quorum" and major.isdigit() and int(major) >= 4 else None


def warn_of_last_tries(group: str, queue: Queue, deliveries: Iterable[Delivery], *, rabbitmq: str) -> None:
    """Logs each message that RabbitMQ dead-letters or drops if it is returned once more."""
    limit = delivery_limit(queue, rabbitmq)
    for delivery in deliveries:
        if limit is not None and delivery.redelivered and (delivery.earlier_tries or 0) >= limit:
            log.warning(
                "group %s: message %s of %s is delivered for the last time (try %d): unless it is finished now, RabbitMQ %s",
                group,
                delivery.properties.message_id or "without an id",
                queue.name,
                (delivery.earlier_tries or 0) + 1,
                "dead-letters it" if "x-dead-letter-exchange" in queue.arguments else "drops it",
            )
