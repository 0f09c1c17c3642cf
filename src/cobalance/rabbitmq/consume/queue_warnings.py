"""Warns of queues from which RabbitMQ removes messages that nobody has handled: after a time without consumers, or when
they are full.
"""

import logging

from cobalance.rabbitmq.model.queues import Queue

log = logging.getLogger("cobalance.rabbitmq")

LIMITS = "x-max-length", "x-max-length-bytes"
REFUSING = "reject-publish", "reject-publish-dlx"
"""With these a full queue refuses what is published. Otherwise it drops its oldest messages."""


def warn_of_loss(group: str, queue: Queue) -> None:
    """Logs it when a member begins such a queue. What a policy says is not visible."""
    expires_ms = queue.arguments.get("x-expires")
    if expires_ms is not None:
        log.warning(
            "group %s: queue %s is declared with x-expires=%s: RabbitMQ deletes it with its messages once nobody has worked it for so many "
            "ms, as during a pause after failures (up to five minutes) or while all members are away; declare it without",
            *(group, queue.name, expires_ms),
        )
    limits = [f"{it}={queue.arguments[it]}" for it in LIMITS if it in queue.arguments]
    if limits and queue.kind != "stream" and queue.arguments.get("x-overflow") not in REFUSING:
        log.warning(
            "group %s: queue %s is declared with %s: when it is full, RabbitMQ drops its oldest messages, and it may be full after any "
            "handover, since what was sent ahead to a member (prefetch) counts again once it comes back; declare it without, or with "
            "x-overflow=reject-publish",
            *(group, queue.name, " and ".join(limits)),
        )
