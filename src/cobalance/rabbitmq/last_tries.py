"""Messages that a quorum queue delivers for the last time: the one after that goes to the dead letters, or nowhere, without a word."""

import logging
from collections.abc import Iterable

from cobalance.rabbitmq.delivery import Delivery
from cobalance.rabbitmq.queues import Queue

log = logging.getLogger("cobalance.rabbitmq")


def is_last_try(delivery: Delivery, queue: Queue) -> bool:
    """Whether the queue's delivery limit is reached: returned once more, the message is dead-lettered by RabbitMQ."""
    limit = queue.arguments.get("x-delivery-limit")
    return limit is not None and delivery.redelivered and (delivery.earlier_tries or 0) >= int(limit)


def warn_of_last_tries(group: str, queue: Queue, deliveries: Iterable[Delivery]) -> None:
    """One line in the log for each."""
    for delivery in deliveries:
        if is_last_try(delivery, queue):
            log.warning(
                "group %s: message %s of %s is delivered for the last time (try %d): unless it is finished now, RabbitMQ %s",
                group,
                delivery.properties.message_id or "without an id",
                queue.name,
                (delivery.earlier_tries or 0) + 1,
                "dead-letters it" if "x-dead-letter-exchange" in queue.arguments else "drops it",
            )
