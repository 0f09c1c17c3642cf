"""One client's connection: frames in, methods to its channels, frames out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import attrs
from pika.frame import Body, Header, Heartbeat, Method, ProtocolHeader, decode_frame
from pika.spec import Basic, BasicProperties, Channel, Connection

from cobalance.rabbitmq.memory.channel import MemoryChannel
from cobalance.rabbitmq.memory.refusal import Refusal

if TYPE_CHECKING:
    from cobalance.rabbitmq.memory.broker import MemoryBroker

FRAME_MAX, CHANNEL_MAX, HEARTBEAT_S = 131_072, 2_047, 60

PROPERTIES = {
    "product": "Cobalance memory://",
    "version": "3.10.8",
    "capabilities": {
        "publisher_confirms": True,
        "basic.nack": True,
        "consumer_cancel_notify": True,
        "authentication_failure_close": True,
        "per_consumer_qos": True,
    },
}
"""The server properties: as far as implemented, it behaves like this RabbitMQ."""


@attrs.define
class Incoming:
    """A message that is not complete yet."""

    method: Basic.Publish
    properties: BasicProperties = attrs.field(factory=BasicProperties)
    size: int = 0
    parts: list[bytes] = attrs.field(factory=list)


class MemoryConnection(asyncio.Protocol):
    """A connection, on the broker's thread."""

    def __init__(self, broker: MemoryBroker, connections: set[MemoryConnection]) -> None:
        self._broker, self._connections = broker, connections
        self._buffer = b""
        self._channels: dict[int, MemoryChannel] = {}
        self._incoming: dict[int, Incoming] = {}
        self._transport: asyncio.Transport
        self._heartbeat: asyncio.TimerHandle | None = None
        self.name = ""
        """The client's name for the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 -- it is TCP
        self._transport = transport
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cleans up: the channels end, and exclusive queues are deleted."""
        del exc
        self._connections.discard(self)
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self._end_channels()

    def _end_channels(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            channel.end()
        self._broker.connection_ended(self)

    def cut(self) -> None:
        """Drops the connection, as if the client's machine lost power."""
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while True:
            used, frame = decode_frame(self._buffer)
            if not used or frame is None:
                return
            self._buffer = self._buffer[used:]
            self._frame(frame)

    def send(self, number: int, method: Any, properties: BasicProperties | None = None, body: bytes = b"") -> None:
        """Sends a method and, if given, its message."""
        frames: list[Any] = [Method(number, method)]
        if properties is not None:
            frames.append(Header(number, len(body), properties))
            step = FRAME_MAX - 8
            frames += [Body(number, body[start : start + step]) for start in range(0, len(body), step)]
        self._transport.write(b"".join(frame.marshal() for frame in frames))

    def _frame(self, frame: Any) -> None:
        if isinstance(frame, ProtocolHeader):
            self.send(0, Connection.Start(0, 9, PROPERTIES, "PLAIN", "en_US"))
        elif isinstance(frame, Method):
            self._method(frame.channel_number, frame.method)
        elif isinstance(frame, Header) and frame.channel_number in self._incoming:
            incoming = self._incoming[frame.channel_number]
            incoming.properties, incoming.size = frame.properties, frame.body_size
            self._complete(frame.channel_number)
        elif isinstance(frame, Body) and frame.channel_number in self._incoming:
            self._incoming[frame.channel_number].parts.append(frame.fragment)
            self._complete(frame.channel_number)

    def _method(self, number: int, method: Any) -> None:
        if number == 0:
            self._of_connection(method)
        elif isinstance(method, Channel.Open):
            self._channels[number] = MemoryChannel(self._broker, self, number)
            self.send(number, Channel.OpenOk())
        elif number in self._channels:
            self._of_channel(number, self._channels[number], method)

    def _of_connection(self, method: Any) -> None:
        if isinstance(method, Connection.StartOk):
            self.name = str((method.client_properties or {}).get("connection_name", ""))
            if self.name in self._broker.shut_out:
                self.cut()
                return
            self.send(0, Connection.Tune(CHANNEL_MAX, FRAME_MAX, HEARTBEAT_S))
        elif isinstance(method, Connection.TuneOk) and method.heartbeat:
            self._beat(method.heartbeat / 3)
        elif isinstance(method, Connection.Open):
            self.send(0, Connection.OpenOk())
        elif isinstance(method, Connection.Close):
            self.send(0, Connection.CloseOk())
            self._transport.close()
        elif isinstance(method, Connection.CloseOk):
            self._transport.close()

    def _beat(self, every_s: float) -> None:
        self._transport.write(Heartbeat().marshal())
        self._heartbeat = asyncio.get_running_loop().call_later(every_s, self._beat, every_s)

    def _of_channel(self, number: int, channel: MemoryChannel, method: Any) -> None:
        if isinstance(method, Channel.Close | Channel.CloseOk):
            channel.end()
            del self._channels[number]
            if isinstance(method, Channel.Close):
                self.send(number, Channel.CloseOk())
        elif channel.closing:
            return
        elif isinstance(method, Basic.Publish):
            self._incoming[number] = Incoming(method)
        else:
            self._attempt(channel, method, lambda: channel.handle(method))

    def _complete(self, number: int) -> None:
        incoming, body = self._incoming[number], b"".join(self._incoming[number].parts)
        if len(body) < incoming.size:
            return
        del self._incoming[number]
        channel = self._channels.get(number)
        if channel is not None and not channel.closing:
            self._attempt(channel, incoming.method, lambda: channel.publish(incoming.method, incoming.properties, body))

    def _attempt(self, channel: MemoryChannel, method: Any, do: Any) -> None:
        try:
            do()
        except Refusal as refusal:
            if refusal.whole_connection:
                self._end_channels()
                self.send(0, Connection.Close(refusal.code, refusal.text, *divmod(method.INDEX, 1 << 16)))
            else:
                channel.refuse(refusal, method)
