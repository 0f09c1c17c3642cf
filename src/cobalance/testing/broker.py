"""An in-process RabbitMQ for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.rabbitmq.memory import MemoryRabbitMQ
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.publish.publisher import Publisher
from cobalance.rabbitmq.topics.broker import create_topic

if TYPE_CHECKING:
    from cobalance.rabbitmq.model.topic import QueueType
    from cobalance.rabbitmq.publish.envelopes import Headers, Key


class Broker:
    """An in-process broker; pass its ``url`` wherever an AMQP URL is taken.

    Lengths, priorities and the management API are refused: they need a real RabbitMQ.
    """

    def __init__(self, name: str) -> None:
        self.url = f"memory://{name}"
        self._server = MemoryRabbitMQ.named(name)

    def close(self) -> None:
        """Ends the broker: connections are dropped, and all messages are gone. The fixture does so after each test."""
        self._server.close()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        queue_type: QueueType = "classic",
        delivery_limit: int | None = None,
        dead_letter: bool = True,
    ) -> Topic:
        """Creates a topic; see :class:`cobalance.Topic`."""
        topic = Topic(name, partitions, queue_type, delivery_limit=delivery_limit, dead_letter=dead_letter)
        return create_topic(self.url, topic)

    def publish(self, topic: Topic | str, key: Key, *bodies: bytes | str, headers: Headers | None = None) -> None:
        """Publishes messages to a topic, in this order, under one key."""
        with Publisher(self.url, topic) as publisher:
            for body in bodies:
                publisher.publish(key, body, headers)

    def ready(self, queue: str) -> list[bytes]:
        """The bodies of the messages ready in a queue, oldest first, without unacknowledged ones; all of a stream's."""
        return self._server.call(lambda broker: [it.body for it in broker.find(queue, None).contents])

    def is_empty(self, topic: Topic) -> bool:
        """Whether all messages of a topic are acknowledged. A stream keeps them: see :meth:`cobalance.testing.Churn.committed`."""
        return self._server.call(lambda broker: all(broker.queues[it].is_empty for it in topic.queue_names))

    def advance(self, seconds: float) -> None:
        """Lets time pass for the broker: messages and queues expire, and consumers that kept a message too long (30
        minutes) lose their channel.
        """
        self._server.advance(seconds * 1000)

    def shut_out(self, name: str) -> None:
        """Closes the connection of that name and refuses new ones."""
        self._server.shut_out(name)

    def let_in(self, name: str) -> None:
        """Accepts the connection of that name again."""
        self._server.let_in(name)
