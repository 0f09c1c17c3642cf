"""Keeps messages from the delivery limit of a quorum queue, which drops or dead-letters them silently, and warns of it.

Whatever was sent ahead and goes back counts a delivery, begun or not: RabbitMQ 3.10 has no way of returning a message
that does not count, be it the end of the channel, nack, reject or recover. A holder that hands over finishes what it has
begun, so a message is sent ahead in vain at most as often as there are messages before it. No more than half of the
limit are sent ahead, and the other half is left for failures and crashes.
"""

import logging
from collections.abc import Iterable

from cobalance.rabbitmq.model.queues import Queue
from cobalance.rabbitmq.model.topic import LEAST_LIMIT, UNLIMITED
from cobalance.rabbitmq.partition.delivery import Delivery
from cobalance.rabbitmq.wire.failures import limit_too_low
from cobalance.redact import printable

log = logging.getLogger("cobalance.rabbitmq")


LEAST_HALF = 3
"""Limits below twice this are meant to be reached."""

LIMIT_SINCE_4 = 20
"""The default limit of quorum queues since RabbitMQ 4."""


def check_limit(queue: Queue, rabbitmq: str = "") -> None:
    """Raises :class:`UsageError` if handovers alone use up the queue's limit. RabbitMQ 3 takes a negative one for 0."""
    limit = queue.arguments.get("x-delivery-limit")
    if limit is not None and int(limit) < LEAST_LIMIT and (int(limit) >= 0 or rabbitmq.startswith("3.")):
        remedy = f"Drain and delete it, and declare it with an x-delivery-limit of at least {LEAST_LIMIT}; RabbitMQ cannot change it."
        raise limit_too_low(f"Queue {queue.name!r}", int(limit), remedy)


def delivery_limit(queue: Queue, rabbitmq: str) -> int | None:
    """How often a message may be returned to the queue. A limit set by a policy is not visible."""
    limit = queue.arguments.get("x-delivery-limit")
    if limit is not None:
        return int(limit) if 0 <= int(limit) < UNLIMITED else None
    major = rabbitmq.partition(".")[0]
    return LIMIT_SINCE_4 if queue.kind == "quorum" and major.isdigit() and int(major) >= 4 else None


class SentAhead:
    """How many messages a member has sent ahead, by queue."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._said: set[str] = set()

    def bounded(self, queue: Queue, prefetch: int, *, rabbitmq: str) -> int:
        """The prefetch, or half of the queue's delivery limit if that is less; says so once.

        Raises:
            UsageError: the queue cannot be worked on this RabbitMQ.
        """
        check_limit(queue, rabbitmq)
        limit = delivery_limit(queue, rabbitmq)
        most = prefetch if limit is None else limit // 2
        if most < prefetch and queue.name not in self._said:
            self._said.add(queue.name)
            log.warning(
                "group %s: queue %s has a delivery limit of %d, and each handover counts for all that is sent ahead: no more than %d messages "
                "are sent ahead, not %d. For more, give the queue a higher delivery_limit",
                *(self._group, queue.name, limit, most, prefetch),
            )
        return min(prefetch, most)


def warn_of_last_tries(group: str, queue: Queue, deliveries: Iterable[Delivery], *, rabbitmq: str) -> None:
    """Logs each message that RabbitMQ dead-letters or drops if it is returned once more."""
    limit = delivery_limit(queue, rabbitmq)
    for delivery in deliveries:
        _warn_at_half(group, queue, delivery, limit)
        if limit is not None and delivery.redelivered and (delivery.earlier_tries or 0) >= limit:
            log.warning(
                "group %s: message %s of %s is delivered for the last time (try %d): unless it is finished now, RabbitMQ %s",
                group,
                printable(delivery.properties.message_id or "without an id"),
                queue.name,
                (delivery.earlier_tries or 0) + 1,
                "dead-letters it" if "x-dead-letter-exchange" in queue.arguments else "drops it",
            )


def _warn_at_half(group: str, queue: Queue, delivery: Delivery, limit: int | None) -> None:
    """Logs it, once for each channel, if half of the deliveries are used up: none behind the first was delivered more often."""
    tries = delivery.earlier_tries or 0
    if limit is not None and delivery.delivery_tag == 1 and LEAST_HALF <= limit // 2 <= tries < limit:
        log.warning(
            "group %s: message %s of %s was delivered %d times before, of %d, as may have been what is sent ahead with it: each handover and "
            "each failure counts for all of it, begun or not. Find out why it is not finished, or give the queue a higher delivery_limit",
            *(group, printable(delivery.properties.message_id or "without an id"), queue.name, tries, limit),
        )
