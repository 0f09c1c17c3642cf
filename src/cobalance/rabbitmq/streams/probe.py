"""Finds a stream's first and last offsets by consuming: AMQP cannot be asked for them.

That nothing comes is no answer by itself, since RabbitMQ may be slow: where it is not proven that there is nothing, the
query fails with ChannelLost: with Undelivered if RabbitMQ counts what it does not deliver.
"""

from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any

from pika.channel import Channel
from pika.spec import Basic, BasicProperties

from cobalance.rabbitmq.streams.continuity import Undelivered
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.containment import contained, failure_of, unreadable
from cobalance.rabbitmq.wire.failures import channel_failure, channel_lost
from cobalance.rabbitmq.wire.header_table import number_among
from cobalance.rabbitmq.wire.pika_internals import Unreadable, bare_close

OFFSET_HEADER = "x-stream-offset"

SILENCE_MS = 2_000.0
"""Delivery normally takes milliseconds; if nothing comes for this long, it is asked whether there is anything."""

EPOCH = datetime.fromtimestamp(0, UTC)

WINDOW = 500
"""The prefetch while looking for the end of a chunk."""


def first_offset(connection: BrokerConnection, stream: str) -> Future[int | None]:
    """The offset of the oldest message; None if the stream is empty."""
    return _begin(_Probe(connection, stream, "first", window=1))


def offset_since(connection: BrokerConnection, stream: str, offset: int) -> Future[int | None]:
    """The offset of the oldest message from this offset on; None if there is none."""
    return _begin(_Probe(connection, stream, offset, window=1))


def last_chunk(connection: BrokerConnection, stream: str) -> Future[int | None]:
    """The offset of the first message of the last chunk; None if the stream is empty."""
    return _begin(_Probe(connection, stream, "last", window=1))


def offset_at(connection: BrokerConnection, stream: str, time: datetime) -> Future[int | None]:
    """The offset of the first message of the chunk written at this time, or next; None if nothing was written since.

    RabbitMQ takes whole seconds, none before 1970.
    """
    return _begin(_Probe(connection, stream, max(time, EPOCH), window=1))


def last_offset(connection: BrokerConnection, stream: str) -> Future[int | None]:
    """The offset of the last message; None if the stream is empty.

    Reads the last chunk to its end, which is reached when a request is answered and RabbitMQ has not sent as much as
    the acks before the request allow. Where too much is published for that, it is the last message so far.
    """
    return _begin(_Probe(connection, stream, "last", window=WINDOW))


def offset_of(stream: str, method: Basic.Deliver, properties: BasicProperties) -> int:
    """A delivered message's offset; raises MessageUnreadable if not even that can be read."""
    if not isinstance(properties, Unreadable):
        return int((properties.headers or {})[OFFSET_HEADER])
    offset = number_among(properties.encoded, OFFSET_HEADER)
    if offset is None:
        raise unreadable(stream, method, properties)
    return offset


def _begin(probe: "_Probe") -> Future[int | None]:
    if not probe.connection.submit(probe.begin):
        probe.lost("the connection to RabbitMQ is gone")
    return probe.found


class _Probe:
    """One probe, on its own channel. All methods run on the I/O thread."""

    def __init__(self, connection: BrokerConnection, stream: str, spec: str | int | datetime, *, window: int) -> None:
        self.connection = connection
        self.found: Future[int | None] = Future()
        self.found.set_running_or_notify_cancel()
        self._stream, self._spec, self._window = stream, spec, window
        self._channel: Channel | None = None
        self._last: int | None = None
        self._received = 0
        self._asking = False
        self._asked_for_last = False
        self._has_last = False

    @contained
    def begin(self) -> None:
        self.connection.add_end_listener(self.lost)
        if not self.found.done():  # otherwise the connection has just ended
            self.connection.lend_channel(self._subscribe, self._closed, self.broken)

    @contained
    def lost(self, reason: str) -> None:
        self._fail(channel_lost(self._stream, reason))

    @contained
    def _subscribe(self, channel: Channel) -> None:
        self._channel = channel
        channel.basic_qos(prefetch_count=self._window)
        channel.basic_consume(
            self._stream, self._message, arguments={OFFSET_HEADER: self._spec}, callback=self._subscribed
        )

    @contained
    def _subscribed(self, _: object) -> None:
        self.connection.call_later(SILENCE_MS, self._silent)

    @contained
    def _silent(self) -> None:
        if self._last is None:
            self._ask(self._judge_silence)
        else:
            self._answer(self._last)

    @contained
    def _judge_silence(self, leader: Any) -> None:
        """What was merely late has arrived before this answer.

        RabbitMQ serves a channel's consumers in order: if the last chunk comes, nothing comes that was asked for
        before. Only whether there is a last chunk is left to the leader's count, which is up to five seconds old.
        """
        if self.found.done() or self._channel is None:
            return
        if self._last is not None:
            self.connection.call_later(SILENCE_MS, self._silent)
        elif not (self._asked_for_last or self._spec in {"first", "last"}):
            self._asked_for_last = True
            arguments = {OFFSET_HEADER: "last"}
            self._channel.basic_consume(self._stream, self._meet_last, arguments=arguments, callback=self._subscribed)
        elif leader.method.message_count:
            self._fail(Undelivered(self._stream, leader.method.message_count))
        else:
            self._answer(None)

    @contained
    def _meet_last(self, *_: object) -> None:
        if not self._has_last:
            self._has_last = True
            self._ask(lambda _: self._answer(None))

    @contained
    def _message(self, channel: Channel, method: Basic.Deliver, properties: BasicProperties, _: bytes) -> None:
        if self.found.done():
            return
        self._last = offset_of(self._stream, method, properties)
        if self._window == 1:
            self._answer(self._last)
            return
        self._received += 1
        channel.basic_ack(method.delivery_tag or 0)
        if not self._asking:
            self._asking = True
            self._ask_for_end()

    def _ask_for_end(self) -> None:
        credit = self._received + self._window
        self._ask(lambda _: self._judge_end(credit))

    @contained
    def _judge_end(self, credit: int) -> None:
        if self._received < credit:
            self._answer(self._last)
        else:
            self._ask_for_end()

    def _ask(self, answered: Callable[[Any], None]) -> None:
        """Asks the leader for its count."""
        if self._channel is not None and not self.found.done():
            self._channel.queue_declare(self._stream, passive=True, callback=answered)

    def _answer(self, offset: int | None) -> None:
        if not self.found.done():
            self._end(lambda: self.found.set_result(offset))

    def broken(self, error: Exception) -> None:
        """A method has raised this error."""
        self._fail(failure_of(error, self._stream))

    def _fail(self, error: Exception) -> None:
        if not self.found.done():
            self._end(lambda: self.found.set_exception(error))

    def _end(self, settle: Callable[[], None]) -> None:
        settle()
        self.connection.remove_end_listener(self.lost)
        if self._channel is not None and not (self._channel.is_closing or self._channel.is_closed):
            bare_close(self._channel)

    @contained
    def _closed(self, _: Channel, reason: Exception) -> None:
        self._fail(channel_failure(reason, self._stream) or channel_lost(self._stream, "it was closed"))
