"""Creating, checking, reading and deleting topics and queues: short blocking calls, for set-up and for the CLI."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TypeVar

import pika
from pika import exceptions as pika_errors
from pika.adapters.blocking_connection import BlockingChannel
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exchange_type import ExchangeType

from cobalance.errors import QueueMismatch, QueueMissing, TopicInUse, TopicMismatch, TopicMissing
from cobalance.rabbitmq.failures import channel_failure, connect_failure, difference
from cobalance.rabbitmq.parameters import connection_parameters, place
from cobalance.rabbitmq.queues import Queue
from cobalance.rabbitmq.topic import Topic

DIRECT = ExchangeType("direct")

PARTITIONS_ARGUMENT = "x-cobalance-partitions"
"""An exchange that bears it is a topic. RabbitMQ keeps arguments that it does not know, and the management API shows them."""

LOOK_AHEAD = 8
"""AMQP cannot list queues: when one is missing, so many numbers further are looked at before the topic is taken to end there."""

MAX_ATTEMPTS = 40
"""Reading a queue's declaration takes one attempt for each thing that differs from the default; RabbitMQ knows fewer arguments."""

T = TypeVar("T")


def create_topic(url: str, topic: Topic) -> None:
    """Declares the topic's exchange, queues and bindings. What exists already must be the same, and is then left as it is."""
    with _connected(url) as broker:
        broker.refuse_more_partitions(topic)
        arguments = {PARTITIONS_ARGUMENT: topic.partitions}
        broker.call(topic.name, lambda c: c.exchange_declare(topic.name, DIRECT, durable=True, arguments=arguments))
        if topic.dead_letter_queue:
            broker.declare(topic.dead_letter_queue)
        for partition, queue in enumerate(topic.queues):
            broker.declare(queue)
            broker.bind(queue, topic.name, str(partition))


def verify_topic(url: str, topic: Topic) -> None:
    """Raises TopicMissing, QueueMissing, QueueMismatch or TopicMismatch unless the broker has exactly this topic."""
    with _connected(url) as broker:
        broker.require_exchange(topic.name)
        for queue in topic.queues:
            broker.verify(queue)
        broker.refuse_more_partitions(topic)


def check_topic(url: str, topic: Topic, *, timeout_ms: int = 10_000) -> None:
    """Raises TopicMissing, QueueMissing or TopicMismatch unless a topic of that name and size is there.

    What a publisher needs to know; unlike `verify_topic` it takes no permission to configure queues.
    """
    last = topic.queue_names[-1]
    with _connected(url, timeout_ms) as broker:
        broker.require_exchange(topic.name)
        broker.call(last, lambda c: c.queue_declare(last, passive=True))
        broker.refuse_more_partitions(topic)


def read_topic(url: str, name: str) -> Topic:
    """The topic as the broker has it; raises TopicMissing."""
    with _connected(url) as broker:
        broker.require_exchange(name)
        partitions = broker.partitions(name)
        if not partitions:
            raise TopicMissing(
                f"{name!r} at {broker.place} is an exchange without the queue {name}-0, so it is not a topic."
            )
        arguments = broker.learn(f"{name}-0").arguments
        return Topic(
            name,
            partitions,
            "quorum" if arguments.get("x-queue-type") == "quorum" else "classic",
            delivery_limit=int(arguments.get("x-delivery-limit", 20)),
            dead_letter="x-dead-letter-routing-key" in arguments,
        )


def delete_topic(url: str, name: str, *, force: bool = False) -> None:
    """Deletes exchange, partition queues and dead-letter queue; raises TopicInUse, having deleted nothing, if messages or consumers
    would be lost and `force` is not given.
    """
    with _connected(url) as broker:
        broker.require_exchange(name)
        queues = [f"{name}.dead", *(f"{name}-{partition}" for partition in broker.partition_numbers(name))]
        for queue in queues if not force else ():
            broker.refuse_in_use(queue)
        broker.call(name, lambda c: c.exchange_delete(name))
        for queue in queues:
            broker.delete(queue)


def learn_queue(url: str, name: str) -> Queue:
    """An existing queue's declaration, so that its guard can be told and proven; raises QueueMissing."""
    with _connected(url) as broker:
        return broker.learn(name)


def ready_messages(url: str, queues: Iterable[str], *, timeout_ms: int = 10_000) -> dict[str, int | None]:
    """How many messages each queue has for the next consumer, without those sent ahead to the present one; None for a queue that
    does not exist.
    """
    with _connected(url, timeout_ms) as broker:
        return {queue: broker.ready(queue) for queue in queues}


class _Broker:
    """A blocking connection; each call has its own channel, since RabbitMQ answers a failed one by closing its channel."""

    def __init__(self, connection: pika.BlockingConnection, place: str) -> None:
        self.place, self._connection = place, connection

    def call(self, queue: str, use: Callable[[BlockingChannel], T]) -> T:
        channel = self._connection.channel()
        try:
            result = use(channel)
        except pika_errors.ChannelClosedByBroker as error:
            raise channel_failure(error, queue) or error from None
        channel.close()
        return result

    def declare(self, queue: Queue) -> None:
        self.call(queue.name, lambda c: self._declare(c, queue))

    def verify(self, queue: Queue) -> None:
        self.call(queue.name, lambda c: c.queue_declare(queue.name, passive=True))  # The other one would create it.
        self.declare(queue)

    def bind(self, queue: Queue, exchange: str, routing_key: str) -> None:
        self.call(queue.name, lambda c: c.queue_bind(queue.name, exchange, routing_key))

    def delete(self, queue: str) -> None:
        self.call(queue, lambda c: c.queue_delete(queue))

    def exists(self, queue: str) -> bool:
        return self.ready(queue) is not None

    def ready(self, queue: str) -> int | None:
        channel = self._connection.channel()
        try:
            found = channel.queue_declare(queue, passive=True).method
        except pika_errors.ChannelClosedByBroker as error:
            if error.reply_code == 404:
                return None
            raise channel_failure(error, queue) or error from None
        channel.close()
        return found.message_count or 0

    def learn(self, name: str) -> Queue:
        """AMQP has no way to ask for a queue's arguments, but a declaration that differs is refused with the first difference named."""
        self.call(name, lambda c: c.queue_declare(name, passive=True))
        queue = Queue(name, {"x-queue-type": "classic"})
        for _ in range(MAX_ATTEMPTS):
            refusal = self._refusal(queue)
            if refusal is None:
                return queue
            found = difference(refusal)
            if found is None:
                break
            queue = found.applied_to(queue)
        raise QueueMismatch(f"The arguments of queue {name!r} at {self.place} could not be read.")

    def partitions(self, topic: str) -> int:
        """How many there are. One that is missing among others would else make keys go astray without a word."""
        found = list(self.partition_numbers(topic))
        missing = next((n for n, number in enumerate(found) if n != number), None)
        if missing is not None:
            raise QueueMissing(
                f"Queue '{topic}-{missing}' at {self.place} does not exist, though '{topic}-{found[-1]}' does: the topic is incomplete. "
                f"Create it again with its real number of partitions: cobalance topic create {topic} --partitions N"
            )
        return len(found)

    def partition_numbers(self, topic: str) -> Iterator[int]:
        """The partitions that exist, in order."""
        missed = 0
        for number in count():
            if self.exists(f"{topic}-{number}"):
                missed = 0
                yield number
            else:
                missed += 1
            if missed > LOOK_AHEAD:
                return

    def require_exchange(self, name: str) -> None:
        channel = self._connection.channel()
        try:
            channel.exchange_declare(name, DIRECT, passive=True)
        except pika_errors.ChannelClosedByBroker as error:
            if error.reply_code == 404:
                raise TopicMissing(
                    f"There is no topic {name!r} at {self.place}; create it with: cobalance topic create {name} --partitions N"
                ) from None
            raise channel_failure(error, name) or error from None
        channel.close()

    def refuse_more_partitions(self, topic: Topic) -> None:
        if self.exists(f"{topic.name}-{topic.partitions}"):
            raise TopicMismatch(
                f"Topic {topic.name!r} at {self.place} has more than {topic.partitions} partitions: the queue "
                f"{topic.name}-{topic.partitions} exists. Use its real number of partitions, or another name."
            )

    def refuse_in_use(self, queue: str) -> None:
        if not self.exists(queue):
            return
        found = self.call(queue, lambda c: c.queue_declare(queue, passive=True)).method
        if found.message_count or found.consumer_count:
            raise TopicInUse(
                f"Queue {queue!r} at {self.place} still has {found.message_count} messages and {found.consumer_count} consumers; "
                "nothing was deleted. Stop the consumers and drain it, or force the deletion."
            )

    def _refusal(self, queue: Queue) -> str | None:
        """Why RabbitMQ refuses the declaration, in its own words; None when it is equivalent to the queue's."""
        channel = self._connection.channel()
        try:
            self._declare(channel, queue)
        except pika_errors.ChannelClosedByBroker as error:
            if error.reply_code == 406:
                return error.reply_text
            raise channel_failure(error, queue.name) or error from None
        channel.close()
        return None

    @staticmethod
    def _declare(channel: BlockingChannel, queue: Queue) -> object:
        return channel.queue_declare(
            queue.name, durable=queue.durable, auto_delete=queue.auto_delete, arguments=queue.declaration
        )


@contextmanager
def _connected(url: str, timeout_ms: int = 10_000) -> Iterator[_Broker]:
    where = place(url)
    try:
        connection = pika.BlockingConnection(connection_parameters(url, "cobalance set-up", 60, timeout_ms))
    except (pika_errors.AMQPError, AMQPConnectorException, OSError, RuntimeError) as error:
        raise connect_failure(error, where) from None
    try:
        yield _Broker(connection, where)
    finally:
        if connection.is_open:
            connection.close()
