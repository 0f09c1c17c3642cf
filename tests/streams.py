"""Streams, their contents, and their readers, for tests on a real RabbitMQ."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pika
from pika.adapters.blocking_connection import BlockingChannel
from tests.names import unique

from cobalance.rabbitmq import Queue, Retention
from cobalance.rabbitmq.streams.probe import first_offset
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.pika_internals import bare_close_blocking

TINY = Retention(max_bytes=1_000, segment_bytes=500)
"""A few messages."""


class Stream:
    """One stream, filled with numbered messages."""

    def __init__(self, amqp_url: str, retention: Retention | None = None) -> None:
        self.name = unique("stream")
        self.amqp_url = amqp_url
        self._arguments = {"x-queue-type": "stream", **(retention or Retention()).arguments}
        self._dropping = retention is not None
        self.declare()

    @property
    def queue(self) -> Queue:
        """As a consumer takes it."""
        return Queue(self.name, self._arguments)

    def declare(self) -> None:
        self._published = 0
        with self._channel() as channel:
            channel.queue_declare(self.name, durable=True, arguments=self._arguments)

    def delete(self) -> None:
        with self._channel() as channel:
            channel.queue_delete(self.name)

    def make_anew(self) -> None:
        """Replaces it with an empty one of the same name."""
        self.delete()
        self.declare()

    def append(self, count: int, *, size: int = 0) -> None:
        """Appends this many more messages in one burst, numbered on; returns when the last of them can be read.

        Where a retention may drop them as soon as they arrive, they are confirmed one by one instead.
        """
        with self._channel() as channel:
            if self._dropping:
                channel.confirm_delivery()
            for number in range(self._published, self._published + count):
                channel.basic_publish("", self.name, str(number).encode().ljust(size))
            self._published += count
            if not self._dropping:
                self._wait_for_last(channel)

    def _wait_for_last(self, channel: BlockingChannel) -> None:
        last = self._published - 1
        channel.basic_qos(prefetch_count=100)
        arguments = {"x-stream-offset": last}  # its own offset, or a lower one
        for method, _, body in channel.consume(self.name, arguments=arguments, inactivity_timeout=60):
            assert method is not None, "the last message never came"
            channel.basic_ack(method.delivery_tag or 0)
            if int(body or b"-1") == last:
                return

    def append_until_gone(self, offset: int) -> int:
        """Appends until the retention has dropped the message of this offset; returns the offset of the oldest one
        left, which may be dropped next: RabbitMQ drops on its own time, and only the offsets that `first` returns
        before and after a test bound it.
        """
        with connected(self.amqp_url) as connection:
            for _ in range(200):
                self.append(10, size=100)
                first = first_offset(connection, self.name).result(60)
                if first is not None and first > offset:
                    return first
        raise AssertionError("the retention drops nothing")

    def first(self) -> int:
        """The offset of the oldest message left; the retention may still be dropping more."""
        with connected(self.amqp_url) as connection:
            first = first_offset(connection, self.name).result(60)
        assert first is not None, "the stream is empty"
        return first

    @contextmanager
    def _channel(self) -> Iterator[BlockingChannel]:
        connection = pika.BlockingConnection(pika.URLParameters(self.amqp_url))
        try:
            yield connection.channel()
        finally:
            connection.close()


@contextmanager
def new_stream(amqp_url: str, count: int = 0, retention: Retention | None = None) -> Iterator[Stream]:
    """A stream for one test, with this many messages."""
    stream = Stream(amqp_url, retention)
    try:
        if count:
            stream.append(count)
        yield stream
    finally:
        stream.delete()


def bodies_in_stream(amqp_url: str, name: str) -> list[str]:
    """All messages of a stream. It adds one of its own, behind which there are none."""
    found = list[str]()
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", name, b"end")
    channel.basic_qos(prefetch_count=100)
    for method, _, body in channel.consume(name, arguments={"x-stream-offset": "first"}, inactivity_timeout=60):
        assert method is not None, "the last message never came"
        channel.basic_ack(method.delivery_tag or 0)
        if body == b"end":
            break
        found.append((body or b"").decode())
    bare_close_blocking(channel)
    connection.close()
    return found


@contextmanager
def connected(
    amqp_url: str, name: str = "test", on_lost: Callable[[str], None] = lambda _: None
) -> Iterator[BrokerConnection]:
    """A connection for the length of a ``with``."""
    connection = BrokerConnection(amqp_url, name, on_lost=on_lost)
    connection.connect()
    try:
        yield connection
    finally:
        connection.close()


def cut(connection: BrokerConnection) -> threading.Event:
    """Ends the TCP connection under it. The event is set once that was noticed; it may be open again by then."""
    noticed, transport = threading.Event(), connection._pika._transport  # type: ignore[union-attr]
    connection.submit(lambda: connection.add_end_listener(lambda _: noticed.set()))
    connection.submit(lambda: transport._sock.shutdown(socket.SHUT_RDWR))
    return noticed


def wait_for_next_second() -> None:
    """RabbitMQ has a resolution of seconds: what is written from now on has another timestamp."""
    now = time.time()
    threading.Event().wait(1.02 - now % 1)
