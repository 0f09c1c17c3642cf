"""Warns of queues that RabbitMQ deletes, with their messages, when nobody has used them for a while."""

import logging

from cobalance.rabbitmq.model.queues import Queue

log = logging.getLogger("cobalance.rabbitmq")


def warn_of_expiry(group: str, queue: Queue) -> None:
    """Logs it when a member begins such a queue. An expiry set by a policy is not visible."""
    expires_ms = queue.arguments.get("x-expires")
    if expires_ms is not None:
        log.warning(
            "group %s: queue %s is declared with x-expires=%s: RabbitMQ deletes it with its messages once nobody has worked it for so many "
            "ms, as during a pause after failures (up to five minutes) or while all members are away; declare it without",
            *(group, queue.name, expires_ms),
        )
