"""Sends given-up messages to their queue's dead-letter target, and reports when RabbitMQ has confirmed each.

RabbitMQ's own reject is not confirmed: it drops a message whose target is missing or bound to nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import attrs
from pika.compat import long

from cobalance.errors import CobalanceError, PermissionMissing, PublishFailed, QueueMissing, Unreachable
from cobalance.rabbitmq.consume.dead_letter_target import required_target
from cobalance.rabbitmq.consume.dead_letters import ERROR, FAILURES, GROUP, QUEUE, publish
from cobalance.rabbitmq.consume.republishing import EXPIRATION, USER_ID, republished
from cobalance.rabbitmq.model.encoding import can_hold
from cobalance.rabbitmq.model.headers import DEATHS, as_number
from cobalance.rabbitmq.partition.delivery import EXCHANGE, ROUTING_KEY
from cobalance.rabbitmq.topics.admin import connected
from cobalance.rabbitmq.wire.pika_internals import frame_max

MOST_COUNTED = 2**31
"""A publisher can claim any number of earlier deaths; one more has to fit into a header."""

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel
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
            try:
                threading.Thread(target=self._run, name="cobalance dead letters", daemon=True).start()
            except RuntimeError as error:  # the system gives no more threads: the next letter asks for one again
                self._give_up(Unreachable(f"the message cannot be sent now: {error}"))
        return letter.sent

    def _run(self) -> None:
        while self._more():
            try:
                with connected(self._url) as admin:
                    while self._letters:
                        _send(self._letters[0], admin)
                        self._letters.popleft().sent.set_result(None)
            except Exception as error:  # noqa: BLE001 -- raised where it is waited for
                # It may be the connection's close that failed. A server that does not answer is not asked by each in turn.
                for _ in range(len(self._letters) if isinstance(error, Unreachable) else min(len(self._letters), 1)):
                    self._letters.popleft().sent.set_exception(_failure(error))

    def _give_up(self, error: CobalanceError) -> None:
        with self._lock:
            unsent, self._letters, self._running = self._letters, deque(), False
        for letter in unsent:
            letter.sent.set_exception(error)

    def _more(self) -> bool:
        with self._lock:
            self._running = bool(self._letters)
        return self._running


def _send(letter: Letter, admin: Admin) -> None:
    queue, delivery, reason = letter.queue, letter.delivery, letter.reason
    target = required_target(queue, delivery.routing_key)

    def send(channel: BlockingChannel) -> None:
        properties = _with_reason(queue, delivery, reason, frame_max(channel.connection))
        publish(channel, target.exchange, target.routing_key, properties, delivery.body)

    try:
        admin.call(queue.name, send)
    except QueueMissing:
        raise PublishFailed(f"there is no {target}, where dead letters of {queue.name!r} go") from None
    except PermissionMissing:
        exchange = target.exchange or "amq.default"
        raise PermissionMissing(
            f"the user needs the permission to write to exchange {exchange!r}, where dead letters of {queue.name!r} go"
        ) from None


def _with_reason(queue: Queue, delivery: Delivery, reason: Reason, most: int) -> BasicProperties:
    own = {
        QUEUE: queue.name,  # the only one that a replay needs, together with the next, if the message has it
        DEATHS: _deaths(queue.name, delivery),
        EXCHANGE: delivery.exchange,
        ROUTING_KEY: delivery.routing_key,
        EXPIRATION: delivery.properties.expiration,
        USER_ID: delivery.properties.user_id,
        FAILURES: reason.failures,
        GROUP: reason.group,
        ERROR: reason.error,
    }
    return republished(delivery.properties, own, frame_max=most)


def _deaths(queue: str, delivery: Delivery) -> list[Any]:
    """The message's deaths, this one first, as RabbitMQ has them when it rejects a message by itself: whoever moved the
    message last, its first entry says from where, and no header of a publisher does.
    """
    deaths = delivery.headers.get(DEATHS)
    earlier = [it for it in deaths if isinstance(it, dict) and can_hold(it)] if isinstance(deaths, list) else []
    same = [it for it in earlier if (it.get("queue"), it.get("reason")) == (queue, "rejected")]
    before = as_number(same[0].get("count")) if same else None
    this = {
        "count": long(min(before or 0, MOST_COUNTED) + 1),
        "reason": "rejected",
        "queue": queue,
        "time": datetime.now(UTC),
        "exchange": delivery.exchange,
        "routing-keys": [delivery.routing_key],
    }
    return [this, *(it for it in earlier if it not in same)]


def _failure(error: Exception) -> CobalanceError:
    if isinstance(error, CobalanceError):
        return error
    return PublishFailed(f"its properties cannot be sent again ({type(error).__name__})")
