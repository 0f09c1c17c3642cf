"""A RabbitMQ in this process, as tests use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cobalance.rabbitmq.memory import MemoryRabbitMQ
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.publish.publisher import Publisher
from cobalance.rabbitmq.topics.broker import create_topic

if TYPE_CHECKING:
    from cobalance.rabbitmq.publish.envelopes import Headers, Key


class Broker:
    """What lies in it is in ``memory://NAME``; ``url`` goes wherever an AMQP URL is taken. Streams, priorities and messages that expire take a
    real RabbitMQ: it refuses them.
    """

    def __init__(self, name: str) -> None:
        self.url = f"memory://{name}"
        self._server = MemoryRabbitMQ.named(name)

    def create_topic(self, name: str, partitions: int = 1, **options: Any) -> Topic:
        """As :func:`cobalance.create_topic`."""
        return create_topic(self.url, Topic(name, partitions, **options))

    def publish(self, topic: Topic | str, key: Key, *bodies: bytes | str, headers: Headers | None = None) -> None:
        """Puts messages into a topic, in this order, under one key."""
        with Publisher(self.url, topic) as publisher:
            for body in bodies:
                publisher.publish(key, body, headers)

    def ready(self, queue: str) -> list[bytes]:
        """The bodies that lie in a queue, oldest first; not those that are out with a consumer."""
        return self._server.call(lambda broker: [it.body for it in broker.find(queue, None).ready])

    def is_empty(self, topic: Topic) -> bool:
        """Whether all of a topic's messages are acknowledged."""
        return self._server.call(lambda broker: all(broker.queues[it].is_empty for it in topic.queue_names))

    def shut_out(self, name: str) -> None:
        """Ends the connection of that name, and lets it in no more."""
        self._server.shut_out(name)

    def let_in(self, name: str) -> None:
        """Undoes that."""
        self._server.let_in(name)
