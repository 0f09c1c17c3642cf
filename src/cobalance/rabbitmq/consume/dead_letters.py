"""Dead letters: listing, replaying and dropping messages that were given up.

A message is only acknowledged in one queue once RabbitMQ has confirmed it in the other. A crash in between leaves it in
both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
from pika import exceptions as pika_errors
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import BasicProperties

from cobalance.errors import PublishFailed, TopicMissing, UsageError
from cobalance.limits import check_kind
from cobalance.rabbitmq.consume.republishing import EXPIRATION, USER_ID, republished
from cobalance.rabbitmq.model.topic import Topic, partition_named
from cobalance.rabbitmq.partition.delivery import EXCHANGE, ROUTING_KEY
from cobalance.rabbitmq.topics.admin import connected
from cobalance.rabbitmq.topics.broker import newest_layout
from cobalance.redact import redact

ERROR, QUEUE, GROUP = "x-cobalance-error", "x-cobalance-queue", "x-cobalance-group"
FAILURES = "x-cobalance-failures"
"""The headers of a dead letter, together with ``EXCHANGE``, ``ROUTING_KEY``, ``EXPIRATION`` and ``USER_ID``."""

NOT_THE_MESSAGES = ("x-cobalance-", "x-death", "x-first-death-", "x-last-death-")
"""Headers about the message's death; they are removed when it is sent back."""

MOST_TEXT = 300
"""Characters kept of an exception's text."""

OFTEN = 10
"""After this many deliveries a listed message is published again.

RabbitMQ 4 drops a message that a quorum queue has delivered 20 times without an ack, and listing is a delivery.
"""


@attrs.frozen(kw_only=True)
class DeadLetter:
    """A message that was given up, as its headers describe it."""

    message_id: str | None
    queue: str | None
    """The partition queue that it came from."""
    routing_key: str | None
    """The routing key it was published with."""
    exchange: str | None
    """The exchange it was published to."""
    error: str
    """Type and text of the handler's exception, or RabbitMQ's reason."""
    group: str | None
    """The group whose handler failed."""
    failures: int | None
    died_at: int | None
    """Unix time in seconds, set by RabbitMQ; None unless RabbitMQ itself moved the message."""
    expiration: str | None
    """The time to live that it was published with, in ms. A dead letter does not expire by it."""
    user_id: str | None
    """The user who published it, if it says so."""
    size: int
    """Size of the body, in bytes."""

    @classmethod
    def read(cls, properties: BasicProperties, size: int) -> DeadLetter:
        """Reads a message in a dead-letter queue."""
        headers: Mapping[str, Any] = properties.headers or {}
        death: Mapping[str, Any] = next(iter(headers.get("x-death") or ()), {})
        keys: Sequence[str] = death.get("routing-keys") or (None,)  # type: ignore[assignment]
        died = death.get("time")
        return cls(
            message_id=properties.message_id,
            queue=headers.get(QUEUE) or death.get("queue"),
            routing_key=headers.get(ROUTING_KEY) or keys[0],
            exchange=headers.get(EXCHANGE, death.get("exchange")),
            error=str(headers.get(ERROR) or death.get("reason") or "unknown"),
            group=headers.get(GROUP),
            failures=headers.get(FAILURES),
            died_at=None if died is None else int(died.timestamp()),
            expiration=headers.get(EXPIRATION) or death.get("original-expiration"),
            user_id=headers.get(USER_ID) or properties.user_id,
            size=size,
        )


# -- giving up ---------------------------------------------------------------------------------------------------------


def words_of(error: Exception) -> str:
    """Type and text of a program's exception in one line, shortened, without passwords."""
    kind = type(error).__name__
    try:
        text = " ".join(redact(str(error)).split())
    except Exception:  # noqa: BLE001 -- whatever the program's own __str__ raises
        text = ""
    return f"{kind}: {text}"[:MOST_TEXT] if text else kind


def publish(
    channel: BlockingChannel, exchange: str, routing_key: str, properties: BasicProperties, body: bytes
) -> None:
    """Returns once RabbitMQ has confirmed that a queue has the message; raises PublishFailed."""
    channel.confirm_delivery()
    try:
        channel.basic_publish(exchange, routing_key, body, properties, mandatory=True)
    except pika_errors.UnroutableError:
        raise PublishFailed(f"no queue takes routing key {routing_key!r} of exchange {exchange!r}") from None
    except pika_errors.NackError:
        raise PublishFailed("RabbitMQ refused the message, as a queue that is full does") from None


# -- afterwards --------------------------------------------------------------------------------------------------------


def read_dead_letters(url: str, topic: str, *, most: int = 100) -> list[DeadLetter]:
    """Returns a topic's dead letters, oldest first, and leaves them where they are.

    Raises:
        TopicMissing: the topic has no dead-letter queue.
    """
    found: list[DeadLetter] = []

    def look(channel: BlockingChannel, count: int) -> None:
        for tag, letter, properties, body in _letters(channel, topic, min(count, most)):
            found.append(letter)
            if int((properties.headers or {}).get("x-delivery-count", 0)) >= OFTEN:
                publish(channel, "", dead_letter_queue(topic), republished(properties), body)
                channel.basic_ack(tag)

    _visit(url, topic, look)
    return found


def replay_dead_letters(url: str, topic: str, *message_ids: str) -> list[DeadLetter]:
    """Sends dead letters, all or those with the given ids, back to their partition queues, behind what is there.

    They go to no other queue. Headers are kept, except those about their death; the original exchange and routing key
    become headers, which ``Delivery.exchange`` and ``Delivery.routing_key`` read. In a topic that has grown since, they
    go to the partition of the same number, since nobody consumes the queue they came from; the other messages of their
    keys may be in another partition.

    Properties are kept but for two, which are in the headers ``x-cobalance-expiration`` and ``x-cobalance-user-id``: a
    time to live has mostly passed by now, so that the message would be gone before it is handled, and RabbitMQ takes no
    other ``user_id`` than that of the connection.

    Raises:
        TopicMissing: the topic has no dead-letter queue.
        PublishFailed: one could not be sent back; it and those behind it are still dead letters.
    """
    check_kind("the topic's name", topic, str)
    with connected(url) as admin:
        newest = Topic(topic, 1, layout=newest_layout(admin, topic))
    return _settle(url, topic, message_ids, partial(_send_back, newest))


def drop_dead_letters(url: str, topic: str, *message_ids: str) -> list[DeadLetter]:
    """Deletes dead letters for good: all, or those with the given ids.

    Raises:
        TopicMissing: the topic has no dead-letter queue.
    """
    return _settle(url, topic, message_ids, lambda *_: None)


def dead_letter_queue(topic: str) -> str:
    """The name of a topic's dead-letter queue."""
    return f"{topic}.dead"


Deal = Callable[[BlockingChannel, DeadLetter, BasicProperties, bytes], None]


def _settle(url: str, topic: str, message_ids: Sequence[str], deal: Deal) -> list[DeadLetter]:
    settled: list[DeadLetter] = []

    def settle(channel: BlockingChannel, count: int) -> None:
        for tag, letter, properties, body in _letters(channel, topic, count):
            if not message_ids or letter.message_id in message_ids:
                deal(channel, letter, properties, body)
                channel.basic_ack(tag)
                settled.append(letter)

    _visit(url, topic, settle)
    return settled


def _visit(url: str, topic: str, use: Callable[[BlockingChannel, int], None]) -> None:
    """Calls `use` with a channel; what it does not acknowledge is back in its place once the channel is closed."""
    check_kind("the topic's name", topic, str)
    queue = dead_letter_queue(topic)
    with connected(url) as admin:
        count = admin.ready(queue)
        if count is None:
            raise TopicMissing(
                f"There is no queue {queue!r} at {admin.place}: {topic!r} is no topic, or one without dead letters."
            )
        admin.call(queue, lambda channel: use(channel, count))


def _letters(
    channel: BlockingChannel, topic: str, count: int
) -> Iterator[tuple[int, DeadLetter, BasicProperties, bytes]]:
    """No more than there were at the beginning: messages published again come behind those."""
    for _ in range(count):
        got: tuple[Any, Any, Any] = channel.basic_get(dead_letter_queue(topic))
        method, properties, body = got
        if method is None:
            return
        yield method.delivery_tag, DeadLetter.read(properties, len(body)), properties, body


def _send_back(
    newest: Topic, channel: BlockingChannel, letter: DeadLetter, properties: BasicProperties, body: bytes
) -> None:
    if letter.queue is None:
        raise UsageError(
            f"Message {letter.message_id} does not say which queue it came from: it was not given up by a group, nor by RabbitMQ."
        )
    again = republished(properties, without=NOT_THE_MESSAGES)
    headers: Mapping[str, Any] = again.headers or {}
    published = {EXPIRATION: letter.expiration, USER_ID: letter.user_id}
    if letter.routing_key is not None and letter.exchange is not None:
        published |= {EXCHANGE: letter.exchange, ROUTING_KEY: letter.routing_key}
    again.headers = {**headers, **{name: value for name, value in published.items() if value is not None}} or None
    publish(channel, "", _home(letter.queue, newest), again, body)


def _home(queue: str, newest: Topic) -> str:
    """The queue itself, or that of the same number in the layout that is consumed; the older ones have fewer."""
    match partition_named(queue):
        case newest.name, number:
            return f"{newest.prefix}-{number}"
        case _:
            return queue
