"""Marks in RabbitMQ that a group has begun to read a stream: an exchange, which survives the loss of Redis's data.

If a committed offset is missing in Redis, either there never was one, or it was lost. If the mark is missing, too, the
group is new to the stream: the mark is made before the first offset is committed. It is deleted with the stream, to
which it is bound, and with the group. So if the mark is missing though an offset is known, the stream is another one.
"""

import hashlib
from collections.abc import Iterable
from concurrent.futures import Future

from pika import exceptions as pika_errors
from pika.channel import Channel
from pika.exchange_type import ExchangeType

from cobalance.rabbitmq.topics.admin import connected
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.containment import contained, failure_of
from cobalance.rabbitmq.wire.failures import channel_failure, channel_lost, is_unavailable
from cobalance.rabbitmq.wire.pika_internals import bare_close

NOT_ALLOWED, MISSING, THERE_OTHERWISE = 403, 404, 406


def is_marked(connection: BrokerConnection, group: str, stream: str) -> Future[bool]:
    """Whether the group may have read the stream."""
    return _begin(_Declaration(connection, group, stream, passive=True))


def mark(connection: BrokerConnection, group: str, stream: str) -> Future[bool]:
    """Records that the group reads the stream. False if the user may not configure exchanges of that name.

    Fails with QueueMissing if there is no such stream: a mark that is bound to nothing would outlive the next one.
    """
    return _begin(_Declaration(connection, group, stream, passive=False))


def remember(url: str, group: str, streams: Iterable[str]) -> None:
    """Marks streams whose offsets were set by hand. Blocks."""
    connection = BrokerConnection(url, "cobalance offsets")
    connection.connect()
    try:
        for stream in streams:
            mark(connection, group, stream).result()
    finally:
        connection.close()


def forget(url: str, group: str, streams: Iterable[str]) -> None:
    """Removes the marks of a deleted group. Blocks."""
    with connected(url) as admin:
        for stream in streams:
            admin.delete_exchange(mark_name(group, stream))


def mark_name(group: str, stream: str) -> str:
    """The exchange's name. Its arguments name the group and the stream in clear text."""
    return f"cobalance.read.{hashlib.sha256(f'{group} {stream}'.encode()).hexdigest()[:32]}"


def _begin(declaration: "_Declaration") -> Future[bool]:
    if not declaration.connection.submit(declaration.begin):
        declaration.lost("the connection to RabbitMQ is gone")
    return declaration.answer


class _Declaration:
    """One attempt, on its own channel. All methods run on the I/O thread."""

    def __init__(self, connection: BrokerConnection, group: str, stream: str, *, passive: bool) -> None:
        self.connection = connection
        self.answer: Future[bool] = Future()
        self.answer.set_running_or_notify_cancel()
        self._group, self._stream, self._passive = group, stream, passive
        self._declared = False

    @contained
    def begin(self) -> None:
        self.connection.add_end_listener(self.lost)
        if not self.answer.done():  # otherwise the connection has just ended
            self.connection.lend_channel(self._declare, self._closed, self.broken)

    @contained
    def lost(self, reason: str) -> None:
        self.broken(channel_lost(self._stream, reason))

    def broken(self, error: Exception) -> None:
        """A method has raised this error, or the channel was lost."""
        if not self.answer.done():
            self.connection.remove_end_listener(self.lost)
            self.answer.set_exception(failure_of(error, self._stream))

    @contained
    def _declare(self, channel: Channel) -> None:
        if not self._passive:
            channel.queue_declare(self._stream, passive=True)  # if it is missing, RabbitMQ ignores the rest
        channel.exchange_declare(
            mark_name(self._group, self._stream),
            ExchangeType("direct"),
            passive=self._passive,
            durable=True,
            auto_delete=True,  # with the binding, which goes with the stream
            arguments={"x-cobalance-group": self._group, "x-cobalance-stream": self._stream},
            callback=lambda _: self._found(channel) if self._passive else self._bind(channel),
        )

    @contained
    def _bind(self, channel: Channel) -> None:
        """Binds the mark to the stream if the user may; the mark counts in any case."""
        self._declared, name = True, mark_name(self._group, self._stream)
        channel.queue_bind(self._stream, name, routing_key="", callback=lambda _: self._found(channel))

    @contained
    def _found(self, channel: Channel) -> None:
        self._end(True)
        bare_close(channel)

    @contained
    def _closed(self, _: Channel, reason: Exception) -> None:
        code = reason.reply_code if isinstance(reason, pika_errors.ChannelClosedByBroker) else 0
        answers = {NOT_ALLOWED: self._declared, THERE_OTHERWISE: True, **({MISSING: False} if self._passive else {})}
        if code in answers and not is_unavailable(reason):
            self._end(answers[code])
        else:
            self.broken(channel_failure(reason, self._stream) or reason)

    def _end(self, found: bool) -> None:
        if not self.answer.done():
            self.connection.remove_end_listener(self.lost)
            self.answer.set_result(found)
