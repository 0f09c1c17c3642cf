"""Where a queue's dead letters go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
from pika import exceptions as pika_errors

from cobalance.errors import UsageError

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

    from cobalance.rabbitmq.model.queues import Queue

EXCHANGE, ROUTING_KEY = "x-dead-letter-exchange", "x-dead-letter-routing-key"


@attrs.frozen
class Target:
    """An exchange, and what a dead letter is published to it with."""

    exchange: str
    routing_key: str

    def __str__(self) -> str:
        return f"exchange {self.exchange!r}" if self.exchange else f"queue {self.routing_key!r}"

    def is_there(self, connection: BlockingConnection) -> bool:
        """Whether there is such an exchange, or, of the default one, such a queue. RabbitMQ does not tell what an exchange is bound to."""
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
            channel.queue_declare(self.routing_key, passive=True)


def target_of(queue: Queue, published_with: str) -> Target | None:
    """None where a rejected message is dropped; that of a policy is not seen."""
    if EXCHANGE not in queue.arguments:
        return None
    return Target(str(queue.arguments[EXCHANGE]), str(queue.arguments.get(ROUTING_KEY, published_with)))


def required_target(queue: Queue, published_with: str) -> Target:
    """Raises UsageError for a message that could go nowhere."""
    if queue.kind == "stream":
        raise UsageError(
            f"{queue.name!r} is a stream, which cannot dead-letter messages: store it elsewhere, then acknowledge it"
        )
    target = target_of(queue, published_with)
    if target is None:
        raise UsageError(
            f"queue {queue.name!r} has no dead-letter target, so a rejected message would be lost: declare one ({EXCHANGE}; that of a "
            "policy is not seen), or acknowledge the message"
        )
    return target
