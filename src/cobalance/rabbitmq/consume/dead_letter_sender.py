"""Sends given-up messages to their queue's dead-letter target, and reports when RabbitMQ has confirmed each.

RabbitMQ's own reject is not confirmed: it drops a message whose target is missing or bound to nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.errors import CobalanceError, PermissionMissing, PublishFailed, QueueMissing
from cobalance.rabbitmq.consume.dead_letter_target import required_target
from cobalance.rabbitmq.consume.dead_letters import ERROR, FAILURES, GROUP, QUEUE, publish
from cobalance.rabbitmq.consume.republishing import republished
from cobalance.rabbitmq.partition.delivery import EXCHANGE, ROUTING_KEY
from cobalance.rabbitmq.topics.admin import connected

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pika.spec import BasicProperties

    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.partition.delivery import Delivery
    from cobalance.rabbitmq.topics.admin import Admin


@attrs.frozen
class Reason:
    """Why a message is given up."""

    group: str
    error: str
    failures: int | None = None
    """None if the handler did not fail, but rejected the message."""


@attrs.frozen
class Letter:
    """A message to send."""

    queue: Queue
    delivery: Delivery
    reason: Reason
    sent: Future[None] = attrs.field(factory=Future)


class DeadLetterSender:
    """Sends one message after the other, on a connection that stays open while there are any. Any thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._letters: deque[Letter] = deque()
        self._running = False

    def send(self, queue: Queue, delivery: Delivery, reason: Reason) -> Future[None]:
        """The result is done once RabbitMQ has confirmed the message; CobalanceError if it may not be there."""
        letter = Letter(queue, delivery, reason)
        letter.sent.set_running_or_notify_cancel()  # a waiter that gives up stops nothing
        with self._lock:
            self._letters.append(letter)
            first, self._running = not self._running, True
        if first:
            threading.Thread(target=self._run, name="cobalance dead letters", daemon=True).start()
        return letter.sent

    def _run(self) -> None:
        while self._more():
            try:
                with connected(self._url) as admin:
                    while self._letters:
                        _send(self._letters[0], admin)
                        self._letters.popleft().sent.set_result(None)
            except Exception as error:  # noqa: BLE001 -- raised where it is waited for
                if self._letters:  # otherwise closing the connection failed
                    self._letters.popleft().sent.set_exception(_failure(error))

    def _more(self) -> bool:
        with self._lock:
            self._running = bool(self._letters)
        return self._running


def _send(letter: Letter, admin: Admin) -> None:
    queue, delivery, reason = letter.queue, letter.delivery, letter.reason
    target, properties = required_target(queue, delivery.routing_key), _with_reason(queue, delivery, reason)
    try:
        admin.call(queue.name, lambda it: publish(it, target.exchange, target.routing_key, properties, delivery.body))
    except QueueMissing:
        raise PublishFailed(f"there is no {target}, where dead letters of {queue.name!r} go") from None
    except PermissionMissing:
        exchange = target.exchange or "amq.default"
        raise PermissionMissing(
            f"the user needs the permission to write to exchange {exchange!r}, where dead letters of {queue.name!r} go"
        ) from None


def _with_reason(queue: Queue, delivery: Delivery, reason: Reason) -> BasicProperties:
    properties = republished(delivery.properties)
    failures = {} if reason.failures is None else {FAILURES: reason.failures}
    headers: Mapping[str, Any] = properties.headers or {}
    properties.headers = {
        **headers,
        ERROR: reason.error,
        QUEUE: queue.name,
        GROUP: reason.group,
        **failures,
        EXCHANGE: delivery.exchange,
        ROUTING_KEY: delivery.routing_key,
    }
    return properties


def _failure(error: Exception) -> CobalanceError:
    if isinstance(error, CobalanceError):
        return error
    return PublishFailed(f"its properties cannot be sent again ({type(error).__name__})")
