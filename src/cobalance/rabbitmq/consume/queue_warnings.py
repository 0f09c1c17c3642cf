"""Warns of queues from which RabbitMQ removes messages that nobody has handled, after a time or when they are full, and
of those that it delivers out of order.
"""

import logging

from cobalance.rabbitmq.model.queues import Queue

log = logging.getLogger("cobalance.rabbitmq")

LIMITS = "x-max-length", "x-max-length-bytes"
REFUSING = "reject-publish", "reject-publish-dlx"
"""With these a full queue refuses what is published. Otherwise it drops its oldest messages."""


def warn_of_declaration(group: str, queue: Queue) -> None:
    """Logs it when a member begins such a queue. What a policy says is not visible."""
    expires_ms = queue.arguments.get("x-expires")
    if expires_ms is not None:
        log.warning(
            "group %s: queue %s is declared with x-expires=%s: RabbitMQ deletes it with its messages once nobody has worked it for so many "
            "ms, as during a pause after failures (up to five minutes) or while all members are away; declare it without",
            *(group, queue.name, expires_ms),
        )
    ttl_ms = queue.arguments.get("x-message-ttl")
    if ttl_ms is not None:
        log.warning(
            "group %s: queue %s is declared with x-message-ttl=%s: RabbitMQ %s what waits for longer (ms), though no handler was given it, as "
            "during a pause after failures (up to five minutes) or while all members are away; declare it without",
            *(group, queue.name, ttl_ms, "dead-letters" if "x-dead-letter-exchange" in queue.arguments else "drops"),
        )
    most = queue.arguments.get("x-max-priority")
    if most is not None:
        log.warning(
            "group %s: queue %s is declared with x-max-priority=%s: RabbitMQ delivers messages of a higher priority ahead of older ones, "
            "which breaks the order of the queue, and the order of a key; declare it without, and give urgent messages a queue of their own",
            *(group, queue.name, most),
        )
    limits = [f"{it}={queue.arguments[it]}" for it in LIMITS if it in queue.arguments]
    if limits and queue.kind != "stream" and queue.arguments.get("x-overflow") not in REFUSING:
        log.warning(
            "group %s: queue %s is declared with %s: when it is full, RabbitMQ drops its oldest messages, and it may be full after any "
            "handover, since what was sent ahead to a member (prefetch) counts again once it comes back; declare it without, or with "
            "x-overflow=reject-publish",
            *(group, queue.name, " and ".join(limits)),
        )
