"""What the tests of replies have in common."""

from __future__ import annotations

from typing import cast

from pika.spec import BasicProperties
from tests.consumers import Place, channel, until

from cobalance.errors import PublishFailed
from cobalance.rabbitmq import Delivery, Publisher, Topic
from cobalance.rabbitmq.model.retries import Retries
from cobalance.rabbitmq.partition.replies import Reply
from cobalance.rabbitmq.topics.broker import ready_messages

SOON = Retries(3, first_ms=5, last_ms=10)


def ask(here: Place, topic: Topic, replies: str, *bodies: str) -> None:
    """Publishes requests."""
    with Publisher(here.amqp_url, topic) as publisher:
        for body in bodies:
            publisher.publish("k", body, reply_to=replies, correlation_id=f"c-{body}", message_id=f"m-{body}")


def answers(here: Place, replies: str) -> list[tuple[str, str | None]]:
    """The bodies of the replies, with their correlation ids."""
    found = []
    with channel(here.amqp_url) as it:
        while (got := it.basic_get(replies, auto_ack=True))[0] is not None:
            properties, body = cast("tuple[BasicProperties, bytes]", got[1:])
            found.append((body.decode(), properties.correlation_id))
    return found


def arrived(url: str, replies: str) -> int:
    """Number of replies that nobody has taken yet."""
    return ready_messages(url, [replies])[replies] or 0


async def until_worked(here: Place, topic: Topic) -> None:
    """Waits until the topic is empty, as RabbitMQ reports it when it is no longer consumed."""
    await until(lambda: set(ready_messages(here.amqp_url, topic.queue_names).values()) == {0})


class Answering:
    """A handler that answers what asks for it, and an ``on_failure``."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.failures: list[tuple[bytes, str, str]] = []

    async def handle(self, delivery: Delivery) -> None:
        self.seen.append(delivery.body)
        if delivery.properties.reply_to:
            delivery.reply(delivery.body)

    def on_failure(self, delivery: Delivery, error: Exception) -> None:
        assert isinstance(error, PublishFailed)
        self.failures.append((delivery.body, error.outcome, str(error)))


def reply_to(queue: str, size: int = 4) -> Reply:
    return Reply.make(BasicProperties(reply_to=queue, correlation_id="c"), bytes(size), None, None)
