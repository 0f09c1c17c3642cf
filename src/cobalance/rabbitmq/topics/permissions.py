"""What a user may not do, found out without doing it.

RabbitMQ looks at permissions before it looks at what they are for. So what is asked for is a queue that does not exist, or
makes no sense, and all that comes back is whether it was refused for want of a permission.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal

import attrs
from pika.adapters.blocking_connection import BlockingChannel

from cobalance.errors import CobalanceError, PermissionMissing
from cobalance.rabbitmq.model.queues import Queue
from cobalance.rabbitmq.topics.admin import Admin, connected

Permission = Literal["configure", "write", "read"]

NO_PRIORITY = "not a number"


def missing_for_wills(url: str, *, timeout_ms: int) -> list[str]:
    """What the user lacks for crashes to be noticed at once, in words."""
    name = f"last-will {uuid.uuid4().hex}"
    asked: dict[Permission, Callable[[BlockingChannel], object]] = {
        "configure": lambda it: it.queue_delete(name),
        "read": lambda it: it.queue_purge(name),
        "write": lambda it: it.queue_bind(name, "amq.direct"),
    }
    with connected(url, timeout_ms) as admin:
        refused = [permission for permission, ask in asked.items() if _is_refused(admin, name, ask)]
        missing = [f"{', '.join(refused)} on queues last-will.*"] if refused else []
        if _is_refused(admin, name, partial(_publish, name), kind="exchange"):
            missing.append("write on exchange amq.default")
    return missing


@attrs.frozen
class SeenQueues:
    """Queues, as far as the user may see and work them."""

    readable: list[Queue]
    missing: dict[str, Permission]
    """What the user lacks of others."""


def look_at_queues(url: str, names: Iterable[str]) -> SeenQueues:
    """The declarations of queues; those that are gone, or would be at their first handover, are left out."""
    found = SeenQueues([], {})
    with connected(url) as admin:
        for name in names:
            if _is_refused(admin, name, partial(_consume_nothing, name)):
                found.missing[name] = "read"
                continue
            try:
                queue = admin.learn(name)
            except PermissionMissing:
                found.missing[name] = "configure"
                continue
            except CobalanceError:
                continue
            if not queue.auto_delete:
                found.readable.append(queue)
    return found


def _publish(name: str, channel: BlockingChannel) -> None:
    """To a queue that does not exist, so RabbitMQ drops it."""
    channel.confirm_delivery()
    channel.basic_publish("", name, b"")


def _consume_nothing(name: str, channel: BlockingChannel) -> None:
    channel.basic_consume(name, lambda *_: None, arguments={"x-priority": NO_PRIORITY})
    raise AssertionError(f"RabbitMQ has taken {NO_PRIORITY!r} for a priority")


def _is_refused(admin: Admin, name: str, ask: Callable[[BlockingChannel], object], kind: str = "queue") -> bool:
    """Whether it was refused for want of a permission on this kind of thing."""
    try:
        admin.call(name, ask)
    except PermissionMissing as error:
        return f"access to {kind} " in str(error)
    except CobalanceError:  # it is not there
        return False
    return False
