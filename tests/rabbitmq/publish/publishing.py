"""What the tests of publishers have in common."""

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.frame import Method

from cobalance.rabbitmq import AsyncPublisher, Publisher, Topic
from cobalance.rabbitmq.wire.connection import BrokerConnection

WAIT_S = 60


@contextmanager
def broker(url: str) -> Iterator[BlockingChannel]:
    """A plain pika channel."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        yield connection.channel()
    finally:
        connection.close()


def stored(url: str, topic: Topic) -> dict[int, list[bytes]]:
    """The messages of each partition, in order."""
    found: dict[int, list[bytes]] = defaultdict(list)
    with broker(url) as channel:
        for partition, name in enumerate(topic.queue_names):
            while (message := get(channel, name))[0] is not None:
                found[partition].append(message[2])
    return found


def get(channel: BlockingChannel, name: str) -> Any:
    """A message as method, properties, body; all of them None if the queue is empty."""
    return channel.basic_get(name, auto_ack=True)


def connection_of(publisher: Publisher | AsyncPublisher) -> BrokerConnection:
    """The internal connection, for injecting faults."""
    return publisher._channel._connection


def receive(publisher: Publisher | AsyncPublisher, method: Any) -> None:
    """Has the publisher's connection receive a frame, as if from the broker, and waits until it is handled."""
    handled = threading.Event()
    frame = Method(0, method).marshal()
    connection = connection_of(publisher)
    connection.submit(lambda: connection._pika._on_data_available(frame))  # type: ignore[union-attr]
    connection.submit(handled.set)
    assert handled.wait(WAIT_S)


@contextmanager
def impatient(publisher: Publisher | AsyncPublisher) -> Iterator[None]:
    """Shortens the timeout of messages; connecting and closing take what time they need on a busy machine."""
    patience_ms = publisher._timeout_ms
    publisher._timeout_ms = publisher._channel._timeout_ms = 100
    try:
        yield
    finally:
        publisher._timeout_ms = publisher._channel._timeout_ms = patience_ms
