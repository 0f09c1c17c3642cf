"""Where a queue's dead letters go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from pika import exceptions as pika_errors

from cobalance.errors import UsageError

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.partition.delivery import Delivery

EXCHANGE, ROUTING_KEY = "x-dead-letter-exchange", "x-dead-letter-routing-key"


@attrs.frozen
class Target:
    """An exchange, and the routing key that a dead letter is published with."""

    exchange: str
    routing_key: str | bytes
    """Bytes if it is not UTF-8, as pika has that of a message."""

    def __str__(self) -> str:
        return f"exchange {self.exchange!r}" if self.exchange else f"queue {self.routing_key!r}"

    def is_there(self, connection: BlockingConnection) -> bool:
        """Whether the exchange or, for the default exchange, the queue exists; bindings cannot be queried."""
        if not self.exchange and isinstance(self.routing_key, bytes):  # RabbitMQ has no such queue
            return False
        channel = connection.channel()
        try:
            self._look(channel)
        except pika_errors.ChannelClosedByBroker:
            return False
        channel.close()
        return True

    def _look(self, channel: BlockingChannel) -> None:
        if self.exchange:
            channel.exchange_declare(self.exchange, passive=True)
        else:
            channel.queue_declare(str(self.routing_key), passive=True)


def target_of(queue: Queue, published_with: str | bytes) -> Target | None:
    """None if a rejected message is dropped. A target set by a policy is not visible."""
    if EXCHANGE not in queue.arguments:
        return None
    declared = declared_key(queue)
    return Target(str(queue.arguments[EXCHANGE]), published_with if declared is None else declared)


def declared_key(queue: Queue) -> str | None:
    """None if each message keeps the routing key that it was published with."""
    key = queue.arguments.get(ROUTING_KEY)
    return None if key is None else str(key)


def required_target(queue: Queue, delivery: Delivery) -> Target:
    """The target; raises UsageError if there is none."""
    if queue.kind == "stream":
        raise UsageError(
            f"{queue.name!r} is a stream, which cannot dead-letter messages: store it elsewhere, then acknowledge it"
        )
    target = target_of(queue, _own_key(queue, delivery))
    if target is None:
        raise UsageError(
            f"queue {queue.name!r} has no dead-letter target, so a rejected message would be lost: declare one ({EXCHANGE}; that of a "
            "policy is not seen), or acknowledge the message"
        )
    return target


def _own_key(queue: Queue, delivery: Delivery) -> str | bytes:
    """The routing key of a message whose queue declares none for dead letters: as RabbitMQ says, since a publisher can
    claim any in a header, and the dead letter is sent with the consumer's permissions.

    A dead letter that was sent back has come to the queue itself, and only the header has its own key. To the default
    exchange that would be the name of any queue.
    """
    known = delivery.method.routing_key or ""
    was_sent_back = not delivery.method.exchange and known == queue.name
    return delivery.routing_key if was_sent_back and queue.arguments.get(EXCHANGE) else known
