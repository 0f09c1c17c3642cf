"""RabbitMQ alone: queues with a single active consumer, and a consumer of every process on each."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import attrs
import pika
from pika.exceptions import ChannelClosedByBroker

from proof.bench.peers.team import python


@attrs.frozen
class SingleActiveConsumer:
    """RabbitMQ's own way to one consumer a queue."""

    kind: str
    amqp_url: str = attrs.field(repr=False)
    beat_s: float = 0.0
    patience_s: float = 3.0
    """Nothing of it is ever balanced, so waiting longer shows nothing else."""

    @property
    def name(self) -> str:
        return f"rabbitmq-{self.kind}"

    @property
    def title(self) -> str:
        return f"RabbitMQ alone, {self.kind} queues"

    def open(self, partitions: int) -> _Queues:
        name = f"peers-{uuid.uuid4().hex[:8]}"
        queues = [f"{name}-{number}" for number in range(partitions)]
        with pika.BlockingConnection(pika.URLParameters(self.amqp_url)) as connection:
            channel = connection.channel()
            for queue in queues:
                arguments = {"x-queue-type": self.kind, "x-single-active-consumer": True}
                channel.queue_declare(queue, durable=True, arguments=arguments)
        return _Queues(self.amqp_url, queues)


@attrs.frozen
class _Queues:
    amqp_url: str
    queues: Sequence[str]
    environment: Mapping[str, str] = {}

    @property
    def command(self) -> list[str]:
        return python("proof.bench.peers.members.rabbitmq", self.amqp_url, *self.queues)

    def publisher(self) -> QueuePublisher:
        return QueuePublisher(self.amqp_url, self.queues)

    def close(self) -> None:
        with pika.BlockingConnection(pika.URLParameters(self.amqp_url)) as connection:
            channel = connection.channel()
            for queue in self.queues:
                channel.queue_delete(queue)


class QueuePublisher:
    """Persistent messages to queues, without confirms: no broker dies in the story."""

    def __init__(self, amqp_url: str, queues: Sequence[str]) -> None:
        self._queues = queues
        self._connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
        self._channel = self._connection.channel()

    def publish(self, partition: int, number: int) -> None:
        properties = pika.BasicProperties(delivery_mode=2)
        self._channel.basic_publish("", self._queues[partition], str(number).encode(), properties)

    def rest(self, seconds: float) -> None:
        self._connection.process_data_events(seconds)  # type: ignore[arg-type]  # it takes fractions

    def close(self) -> None:
        self._connection.close()


def why_no_super_streams(amqp_url: str) -> str:
    """Asks this RabbitMQ for a stream with a single active consumer over AMQP 0-9-1; says what it answers."""
    name = f"peers-{uuid.uuid4().hex[:8]}"
    arguments = {"x-queue-type": "stream", "x-single-active-consumer": True}
    with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection:
        channel = connection.channel()
        try:
            channel.queue_declare(name, durable=True, arguments=arguments)
        except ChannelClosedByBroker as refusal:
            answer = f"it answers {refusal.reply_code} {refusal.reply_text}"
        else:
            channel.queue_delete(name)
            answer = "it accepts the declaration, and applies it to no consumer"
    return (
        "Super streams take no part: their single active consumers exist in RabbitMQ's stream protocol only (3.11 and later). "
        f"Asked for a stream with one over AMQP 0-9-1, {answer}."
    )
