"""Marks in RabbitMQ that a group has begun to read a stream: an exchange, which survives the loss of Redis's data.

If a committed offset is missing in Redis, either there never was one, or it was lost. If the mark is missing, too, the
group is new to the stream: that is committed, and only then the mark is made. It is deleted with the stream, to which it
is bound, and with the group. So if the mark is missing though an offset is known, the stream is another one; it is not
marked before an operator has said where to go on. Offsets are kept in one database of Redis, under a key prefix. So a
mark is named after the group's scope (:attr:`cobalance.coordinator.client.Coordinator.scope`).
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import attrs
from pika import exceptions as pika_errors
from pika.channel import Channel
from pika.exchange_type import ExchangeType

from cobalance.errors import OffsetUnknown, QueueMissing
from cobalance.rabbitmq.model.queues import Queue
from cobalance.rabbitmq.topics.admin import connected
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.containment import contained, failure_of
from cobalance.rabbitmq.wire.failures import channel_failure, channel_lost, is_unavailable
from cobalance.rabbitmq.wire.pika_internals import bare_close

NOT_ALLOWED, MISSING, THERE_OTHERWISE = 403, 404, 406


def is_marked(connection: BrokerConnection, scope: str, stream: str) -> Future[bool]:
    """Whether the group may have read the stream. The mark is bound again: whoever made it may have died half-way.

    This and the others fail with QueueMissing if there is no such stream: a mark that is bound to nothing would outlive
    the next one.
    """
    name = mark_name(scope, stream)
    return _ask(connection, stream, _found(name), _bound(name, stream))


def may_mark(connection: BrokerConnection, scope: str, stream: str) -> Future[bool]:
    """Whether the user may mark this stream, which is not marked."""
    return _ask(connection, stream, _deleted(mark_name(scope, stream)))


def may_configure(connection: BrokerConnection, stream: Queue) -> Future[bool]:
    """Declares the stream again, which takes the same permission as a mark, and without which nobody can read it.

    True, though it may be declared otherwise now; or it fails with PermissionMissing.
    """
    return _ask(connection, stream.name, _declared_again(stream))


def mark(connection: BrokerConnection, scope: str, stream: str) -> Future[bool]:
    """Records that the group reads the stream. False if the user may not configure exchanges of that name."""
    name = mark_name(scope, stream)
    return _ask(connection, stream, _declared(name, scope, stream), _bound(name, stream))


def remember(url: str, scope: str, streams: Iterable[str]) -> list[str]:
    """Marks the streams whose offsets an operator has decided on; returns those that this user may not mark. Blocks."""
    connection = BrokerConnection(url, "cobalance offsets")
    connection.connect()
    refused = []
    try:
        for stream in streams:
            with suppress(QueueMissing):  # if one of that name is made, it is another
                if not mark(connection, scope, stream).result():
                    refused.append(stream)
    finally:
        connection.close()
    return refused


def forget(url: str, scope: str, streams: Iterable[str]) -> None:
    """Removes the marks of a deleted group. Blocks."""
    with connected(url) as admin:
        for stream in streams:
            admin.delete_exchange(mark_name(scope, stream))


def mark_name(scope: str, stream: str) -> str:
    """The exchange's name. Its arguments name the group's scope and the stream in clear text; no name has a blank."""
    return f"cobalance.read.{hashlib.sha256(f'{scope} {stream}'.encode()).hexdigest()[:32]}"


def unmarked(stream: str) -> OffsetUnknown:
    """The error that a stream is not the one that was read."""
    return OffsetUnknown(
        f"An offset of stream {stream!r} is known, but RabbitMQ does not know that this group has read it: the stream was deleted and "
        "created again, or the group has moved to another virtual host or cluster. Say where to begin; or, if the offset was set by "
        "hand, and is meant for this stream, resume it. Both need --amqp-url."
    )


@attrs.frozen
class _Step:
    """A method of AMQP. Taking the channel and a callback, `send` sends it."""

    send: Callable[[Channel, Callable[[Any], None]], object]
    refusals: Mapping[int, bool]
    """Reply code → the answer to the whole question. Any other is an error."""


def _there(stream: str) -> _Step:
    return _Step(lambda channel, then: channel.queue_declare(stream, passive=True, callback=then), {})


def _declared_again(stream: Queue) -> _Step:
    def send(channel: Channel, then: Callable[[Any], None]) -> None:
        channel.queue_declare(stream.name, passive=True)  # or it would be made if it has gone
        channel.queue_declare(
            stream.name,
            durable=stream.durable,
            auto_delete=stream.auto_delete,
            arguments=stream.declaration,
            callback=then,
        )

    return _Step(send, {THERE_OTHERWISE: True})


def _found(name: str) -> _Step:
    return _Step(
        lambda channel, then: channel.exchange_declare(name, passive=True, callback=then),
        {NOT_ALLOWED: False, MISSING: False},
    )


def _deleted(name: str) -> _Step:
    """It takes the same permission as to declare it, and nothing happens: there is none, or it is bound meanwhile."""
    return _Step(
        lambda channel, then: channel.exchange_delete(name, if_unused=True, callback=then),
        {NOT_ALLOWED: False, THERE_OTHERWISE: True},
    )


def _declared(name: str, scope: str, stream: str) -> _Step:
    def send(channel: Channel, then: Callable[[Any], None]) -> None:
        channel.exchange_declare(
            name,
            ExchangeType("direct"),
            durable=True,
            auto_delete=True,  # with the binding, which goes with the stream
            arguments={"x-cobalance-group": scope, "x-cobalance-stream": stream},
            callback=then,
        )

    return _Step(send, {NOT_ALLOWED: False, THERE_OTHERWISE: True})


def _bound(name: str, stream: str) -> _Step:
    """Binds the mark to the stream if the user may; the mark counts in any case."""
    return _Step(
        lambda channel, then: channel.queue_bind(stream, name, routing_key="", callback=then), {NOT_ALLOWED: True}
    )


def _ask(connection: BrokerConnection, stream: str, *steps: _Step) -> Future[bool]:
    question = _Question(connection, stream, [_there(stream), *steps])
    if not connection.submit(question.begin):
        question.lost("the connection to RabbitMQ is gone")
    return question.answer


class _Question:
    """One attempt, on its own channel: True if no step is refused. All methods run on the I/O thread."""

    def __init__(self, connection: BrokerConnection, stream: str, steps: list[_Step]) -> None:
        self.connection = connection
        self.answer: Future[bool] = Future()
        self.answer.set_running_or_notify_cancel()
        self._stream, self._steps = stream, steps

    @contained
    def begin(self) -> None:
        self.connection.add_end_listener(self.lost)
        if not self.answer.done():  # otherwise the connection has just ended
            self.connection.lend_channel(self._go_on, self._closed, self.broken)

    @contained
    def lost(self, reason: str) -> None:
        self.broken(channel_lost(self._stream, reason))

    def broken(self, error: Exception) -> None:
        """A method has raised this error, or the channel was lost."""
        if not self.answer.done():
            self.connection.remove_end_listener(self.lost)
            self.answer.set_exception(failure_of(error, self._stream))

    @contained
    def _go_on(self, channel: Channel) -> None:
        self._steps[0].send(channel, lambda _: self._done(channel))

    @contained
    def _done(self, channel: Channel) -> None:
        if len(self._steps) > 1:
            del self._steps[0]
            self._go_on(channel)
        else:
            self._end(answer=True)
            bare_close(channel)

    @contained
    def _closed(self, _: Channel, reason: Exception) -> None:
        code = reason.reply_code if isinstance(reason, pika_errors.ChannelClosedByBroker) else 0
        refusals = self._steps[0].refusals
        if code in refusals and not is_unavailable(reason):
            self._end(answer=refusals[code])
        else:
            self.broken(channel_failure(reason, self._stream) or reason)

    def _end(self, *, answer: bool) -> None:
        if not self.answer.done():
            self.connection.remove_end_listener(self.lost)
            self.answer.set_result(answer)
