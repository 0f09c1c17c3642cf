"""A client that notes what it observes, for tests that must see the same on any RabbitMQ."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import attrs
import pika
from pika import exceptions as pika_errors
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic, BasicProperties
from tests.consumers import WITHIN_S
from tests.names import unique

from cobalance.rabbitmq.wire.pika_internals import bare_close_blocking

PAUSE_S: Any = 0.02  # pika's types say int


@attrs.frozen
class Got:
    """A message as it arrived."""

    body: str
    tag: int
    redelivered: bool
    properties: BasicProperties = attrs.field(repr=False)

    @property
    def headers(self) -> dict[str, Any]:
        return dict(self.properties.headers or {})


@attrs.frozen
class Refused:
    """How RabbitMQ refused a request."""

    code: int
    text: str
    whole_connection: bool = False


class Client:
    """One connection with one channel."""

    def __init__(self, url: str) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel: BlockingChannel = self.connection.channel()
        self.got: list[Got] = []
        self.cancelled: list[str] = []
        self.channel.add_on_cancel_callback(self._note_cancel)
        self._asked = 0

    def _note_cancel(self, frame: Any) -> None:
        self.cancelled.append(frame.method.consumer_tag)

    def publish(self, queue: str, *bodies: object, exchange: str = "", **properties: Any) -> None:
        """Publishes messages, each of which is confirmed; raises if one is returned."""
        if not self.channel._delivery_confirmation:  # type: ignore[attr-defined]
            self.channel.confirm_delivery()
        for body in bodies:
            sent = BasicProperties(delivery_mode=2, **properties)
            self.channel.basic_publish(exchange, queue, str(body).encode(), sent, mandatory=True)

    def consume(self, queue: str, prefetch: int = 0, **options: Any) -> str:
        """Starts a consumer, which notes what arrives; returns its tag."""
        if prefetch:
            self.channel.basic_qos(prefetch_count=prefetch)
        return str(self.channel.basic_consume(queue, self._note, **options))

    def _note(self, _: object, method: Any, properties: BasicProperties, body: bytes) -> None:
        self.got.append(Got(body.decode(), method.delivery_tag, method.redelivered, properties))

    def take(self, count: int) -> list[Got]:
        """The next messages that consumers get, this many."""
        self.until(lambda: len(self.got) >= self._asked + count)
        self._asked += count
        return self.got[self._asked - count : self._asked]

    def bodies(self, count: int) -> list[str]:
        return [it.body for it in self.take(count)]

    def get(self, queue: str) -> Got | None:
        """The first message of a queue, by basic.get."""
        answer: Any = self.channel.basic_get(queue)
        method, properties, body = answer
        return None if method is None else Got(body.decode(), method.delivery_tag, method.redelivered, properties)

    def wait_for(self, queue: str) -> Got:
        """The first message of a queue, as soon as there is one."""
        found: list[Got | None] = [None]

        def look() -> bool:
            found[0] = self.get(queue)
            return found[0] is not None

        self.until(look)
        assert found[0] is not None
        return found[0]

    def settle(self, method: Any) -> None:
        """Sends an ack, a nack or a reject. Returns when RabbitMQ has handled it."""
        self.channel._impl._send_method(method)  # type: ignore[attr-defined]
        self.channel.basic_qos(prefetch_count=0)

    def ready(self, queue: str) -> int:
        """How many messages are there for the next consumer."""
        return int(self.channel.queue_declare(queue, passive=True).method.message_count or 0)

    def close_channel(self) -> None:
        """Sends Channel.Close and nothing before it."""
        bare_close_blocking(self.channel)

    def cancel(self) -> None:
        """Cancels the consumer. pika would reject what has arrived."""
        tag: Any = self.channel.consumer_tags[0]
        self.settle(Basic.Cancel(tag))

    def disconnect(self) -> None:
        """Closes the connection. pika would cancel all consumers first."""
        self.connection._impl.close()  # type: ignore[attr-defined]
        with suppress(pika_errors.AMQPConnectionError):
            self.until(lambda: self.connection.is_closed)

    def cut(self) -> None:
        """Ends the TCP connection, as the end of the process would."""
        self.connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined]
        with suppress(pika_errors.AMQPConnectionError):
            self.until(lambda: self.connection.is_closed)

    def until(self, condition: Callable[[], object]) -> None:
        """Handles what arrives until the condition is true."""
        end = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < end, f"it never came: {self.got}"
            self.connection.process_data_events(PAUSE_S)

    def refusal(self, ask: Callable[[BlockingChannel], object]) -> Refused:
        """How RabbitMQ refuses this."""
        try:
            ask(self.channel)
            self.until(lambda: not self.channel.is_open)
            raise self.channel._closing_reason  # type: ignore[attr-defined]
        except pika_errors.ChannelClosedByBroker as error:
            self.connection.channel().close()  # the connection is still there
            return Refused(error.reply_code, error.reply_text)
        except pika_errors.ConnectionClosedByBroker as error:
            return Refused(error.reply_code, error.reply_text, whole_connection=True)


class Place:
    """One RabbitMQ, and the queues and exchanges of one test."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = unique("memory")
        self._clients: list[Client] = []
        self._queues: list[str] = []
        self._exchanges: list[str] = []

    def client(self) -> Client:
        self._clients.append(Client(self.url))
        return self._clients[-1]

    @property
    def version(self) -> tuple[int, int]:
        """RabbitMQ's major and minor version."""
        properties = self.client().connection._impl.server_properties  # type: ignore[attr-defined]
        major, minor, *_ = properties["version"].split(".")
        return int(major), int(minor)

    def is_gone(self, queue: str) -> bool:
        """Whether a queue no longer exists. A binding does not count as using it, and does not get in its way."""
        try:
            self.client().channel.queue_bind(queue, "amq.direct", queue)
        except pika_errors.ChannelClosedByBroker as error:
            return error.reply_code == 404
        return False

    def refusal(self, ask: Callable[[BlockingChannel], object]) -> Refused:
        """How RabbitMQ refuses this to a client of its own."""
        return self.client().refusal(ask)

    def queue(self, kind: str, suffix: str = "", **arguments: Any) -> str:
        """Declares a queue; ``x_delivery_limit=1`` is the argument ``x-delivery-limit``."""
        name = f"{self.name}{suffix}"
        self._queues.append(name)
        self.client().channel.queue_declare(name, durable=True, arguments=of_kind(kind, **arguments))
        return name

    def filled(self, kind: str, count: int, suffix: str = "", **arguments: Any) -> str:
        """Declares a queue with messages, numbered from 1."""
        queue = self.queue(kind, suffix, **arguments)
        self.client().publish(queue, *range(1, count + 1))
        return queue

    def exchange(self, kind: Any = "direct", suffix: str = "", **options: Any) -> str:
        name = f"{self.name}{suffix}"
        self._exchanges.append(name)
        self.client().channel.exchange_declare(name, kind, **options)
        return name

    def close(self) -> None:
        for client in self._clients:
            if client.connection.is_open:
                client.disconnect()
        last = Client(self.url)
        for queue in self._queues:
            last.channel.queue_delete(queue)
        for exchange in self._exchanges:
            last.channel.exchange_delete(exchange)
        last.connection.close()


def of_kind(kind: str, **arguments: Any) -> dict[str, Any]:
    """The arguments of a queue of this type."""
    return {"x-queue-type": kind, **{name.replace("_", "-"): value for name, value in arguments.items()}}
