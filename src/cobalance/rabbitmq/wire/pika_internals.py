"""The thirteen places that touch pika's private parts, each pinned by a test."""

import math
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from pika import BlockingConnection, SelectConnection, URLParameters, spec
from pika.adapters.blocking_connection import BlockingChannel
from pika.adapters.select_connection import IOLoop
from pika.channel import Channel
from pika.exceptions import StreamLostError
from pika.frame import Body, Frame, Header, Heartbeat, Method

with suppress(ImportError):  # on Windows
    import fcntl
    import termios

LOOKS = 20
"""So often in a time that anything may take it is looked whether there is progress."""


def bare_close(channel: Channel) -> None:
    """Sends Channel.Close and nothing before it; pika's close callback comes with CloseOk. I/O thread only.

    `Channel.close()` first sends basic.cancel, and pika rejects what arrives until CancelOk; besides, on quorum queues
    the broker returns deliveries in flight when a consumer is cancelled. Either puts messages behind younger ones, and
    on streams the reject ends the whole connection. A consumer that pika believes cancelled avoids both: deliveries
    that still arrive are dropped silently, unacknowledged, and the broker puts all of them back where they were.
    """
    channel._cancelled.update(channel._consumers)  # type: ignore[attr-defined]  # noqa: SLF001
    channel.close()


def bare_close_blocking(channel: BlockingChannel) -> None:
    """As :func:`bare_close`, and returns once it is closed. pika would reject what it has not handed out yet."""
    bare_close(channel._impl)  # type: ignore[attr-defined]  # noqa: SLF001
    channel._flush_output(lambda: channel.is_closed)  # type: ignore[attr-defined]  # noqa: SLF001


def look_for_all(channel: BlockingChannel, queues: Sequence[str]) -> None:
    """Asks for queues in one round trip: RabbitMQ answers only the last question, or closes the channel over the first
    queue that does not exist.
    """
    for queue in queues[:-1]:
        look_unanswered(channel, queue)
    channel.queue_declare(queues[-1], passive=True)


def look_unanswered(channel: BlockingChannel, queue: str) -> None:
    """Asks for a queue without waiting: if it does not exist, RabbitMQ closes the channel, and ignores what follows."""
    channel._impl.queue_declare(queue, passive=True)  # type: ignore[attr-defined]  # noqa: SLF001 -- with no callback


def drop(connection: SelectConnection) -> None:
    """Closes the socket of a connection whose loop has stopped, as the process's end would. Idempotent."""
    if connection._transport is not None:  # type: ignore[attr-defined]  # noqa: SLF001
        connection._transport._sock.close()  # type: ignore[attr-defined]  # noqa: SLF001


def lose(channel: Channel, reason: Exception) -> None:
    """Has a channel closed whose connection was dropped, as pika does if it notices a loss itself. Idempotent."""
    channel._on_close_meta(reason)  # type: ignore[attr-defined]  # noqa: SLF001


def close_loop(loop: IOLoop) -> None:
    """Closes a loop that does not run. If the system gave it no selector, pika takes it for running, and would refuse."""
    loop._poller._running = False  # type: ignore[attr-defined]  # noqa: SLF001
    loop.close()


def calling_back(connection: BlockingConnection) -> AbstractContextManager[bool]:
    """A context in which pika calls no callbacks, as while one is running. Yields False if one already is."""
    return connection._acquire_event_dispatch()  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001


def frame_max(connection: BlockingConnection) -> int:
    """The largest frame that both sides take, in bytes; 0 if there is no limit."""
    return int(connection._impl.params.frame_max)  # type: ignore[attr-defined]  # noqa: SLF001


def host_resolved_by(thread: threading.Thread) -> object:
    """The host, as given, that this thread resolves for pika; None if the thread is not one of pika's resolvers."""
    return getattr(getattr(getattr(thread, "function", None), "__self__", None), "_host", None)


class PatientConnection(BlockingConnection):
    """A BlockingConnection that ends if, while an answer is waited for, nothing but heartbeats has come or gone for
    `patience_s`. So large messages may take their time. pika waits two heartbeats or more for anything.

    Messages that cannot be read arrive as :class:`Unreadable`.
    """

    _impl: Any

    def __init__(self, parameters: URLParameters, patience_s: float) -> None:
        self.patience_s = patience_s
        self.give_up_at = math.inf
        """When it ends in any case if an answer is waited for, by `time.monotonic`."""
        super().__init__(parameters, QuickConnection)  # type: ignore[arg-type]  # which it calls

    def _flush_output(self, *waiters: Callable[[], bool]) -> None:
        patience = _Patience(self._impl, self.patience_s, self.give_up_at, self._end)
        try:
            super()._flush_output(*waiters)  # type: ignore[misc]
        finally:
            patience.stop()

    def free(self) -> None:
        """Closes what pika leaves open if it loses a connection outside of a call, such as while connecting. Idempotent."""
        self._cleanup()  # type: ignore[attr-defined]

    def _end(self) -> None:
        if not self._impl.is_closed:  # pika may have lost it in this very turn of its loop
            self._impl._terminate_stream(StreamLostError("Timeout"))  # noqa: SLF001


class _Patience:
    """Calls `end` at `give_up_at`, or once nothing but heartbeats has come or gone for so long, if that is sooner."""

    def __init__(
        self, connection: "QuickConnection", patience_s: float, give_up_at: float, end: Callable[[], None]
    ) -> None:
        self._connection, self._patience_s, self._give_up_at, self._end = connection, patience_s, give_up_at, end
        self._since, self._before = time.monotonic(), (connection.content_received, connection.unsent)
        self._timer = self._look_later()

    def stop(self) -> None:
        self._connection.ioloop.remove_timeout(self._timer)

    @property
    def _left_s(self) -> float:
        return max(0.0, min(self._since + self._patience_s, self._give_up_at) - time.monotonic())

    def _look_later(self) -> Any:
        return self._connection.ioloop.call_later(min(self._left_s, self._patience_s / LOOKS), self._look)

    def _look(self) -> None:
        (received, unsent), self._before = self._before, (self._connection.content_received, self._connection.unsent)
        if self._before[0] > received or self._before[1] < unsent:
            self._since = time.monotonic()
        # Ends in the next turn of the loop: a loss in this one takes effect first.
        self._timer = self._look_later() if self._left_s else self._connection.ioloop.call_later(0, self._end)


class QuickConnection(SelectConnection):
    """A SelectConnection that parses deliveries faster, which pays for the hop to the user's event loop.

    pika copies the rest of its buffer for every frame, and looks every frame up in a table of callbacks, which never
    has those of a message. Here message frames are parsed in place and go straight to their channel; from the first
    other frame on, including an incomplete or broken one, the rest of the buffer is left to pika.
    """

    content_received = 0
    """The bytes received, other than heartbeats, which come alone."""

    @property
    def unsent(self) -> int:
        """How many bytes of what is to be sent have not arrived, as far as the system says."""
        transport = self._transport  # type: ignore[attr-defined]
        return 0 if transport is None else transport.get_write_buffer_size() + _unacknowledged(transport._sock)  # noqa: SLF001

    @property
    def heard_no_amqp(self) -> bool:
        """Whether the bytes received, all still in the buffer, are not the beginning of RabbitMQ's greeting."""
        begin: bytes = self._frame_buffer[: len(_GREETING)]
        return not self.frames_received and begin != _GREETING[: len(begin)]

    def _read_frame(self) -> tuple[int, Frame | None]:
        end = _frame_end(self._frame_buffer, 0)
        frame = _message_frame(self._frame_buffer, 0, end) if end else None
        return (end, frame) if frame else super()._read_frame()  # type: ignore[misc]

    def _on_data_available(self, data_in: bytes) -> None:
        self.bytes_received += len(data_in)  # The heartbeat checker looks at this; a frame may take long to arrive.
        self.content_received += 0 if data_in == _HEARTBEAT else len(data_in)
        buffer, start = self._frame_buffer + data_in, 0  # type: ignore[has-type]
        while (end := _frame_end(buffer, start)) and (frame := _message_frame(buffer, start, end)):
            start = end
            self.frames_received += 1
            self._deliver_frame_to_channel(frame)  # type: ignore[attr-defined]
        self._frame_buffer = b""
        super()._on_data_available(buffer[start:])  # type: ignore[misc]

    def _trim_frame_buffer(self, byte_count: int) -> None:
        self._frame_buffer = self._frame_buffer[byte_count:]


def _unacknowledged(sock: socket.socket) -> int:
    """The bytes in its send buffer; 0 where a system does not say. They are several MB, and a slow link takes long for them."""
    try:
        return int(_LENGTH.unpack(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(_LENGTH.size)))[0])
    except (NameError, OSError, ValueError):  # Windows; another system; it is closed
        return 0


class Received(spec.BasicProperties):
    """The properties of a message, with their encoding as it arrived."""

    __slots__ = ("encoded",)  # pika compares and shows what is in __dict__
    encoded: bytes


class Unreadable(Received):
    """The properties of a message whose headers pika cannot decode, which would otherwise end the connection."""

    def __init__(self, error: Exception, encoded: bytes = b"") -> None:
        super().__init__()
        self.error = error
        self.encoded = encoded


_LENGTH = struct.Struct("i")
_PREFIX = struct.Struct(">BHL")  # frame type, channel, payload size
_GREETING = bytes([spec.FRAME_METHOD, 0, 0])  # a method frame on channel 0
_HEARTBEAT = Heartbeat().marshal()
_BODY_SIZE = struct.Struct(">Q")
_DELIVER = struct.pack(">HH", *divmod(spec.Basic.Deliver.INDEX, 1 << 16))


def _frame_end(buffer: bytes, start: int) -> int:
    """The end of the frame that begins at `start`; 0 if it is incomplete."""
    if len(buffer) - start < _PREFIX.size:
        return 0
    end: int = start + _PREFIX.size + _PREFIX.unpack_from(buffer, start)[2] + spec.FRAME_END_SIZE
    return end if end <= len(buffer) else 0


def _properties(buffer: bytes, start: int, end: int) -> spec.BasicProperties:
    properties = Received()
    properties.encoded = buffer[start:end]
    try:
        properties.decode(buffer, start)
    except Exception as error:  # noqa: BLE001 -- whatever pika trips over
        return Unreadable(error, properties.encoded)
    return properties


def _message_frame(buffer: bytes, start: int, end: int) -> Frame | None:
    """The frame, if it is part of a message."""
    kind, channel, _ = _PREFIX.unpack_from(buffer, start)
    payload = start + _PREFIX.size
    if buffer[end - 1] != spec.FRAME_END:
        return None
    if kind == spec.FRAME_BODY:
        return Body(channel, buffer[payload : end - 1])
    if kind == spec.FRAME_HEADER:
        properties = _properties(buffer, payload + 12, end - 1)
        return Header(channel, _BODY_SIZE.unpack_from(buffer, payload + 4)[0], properties)
    if kind == spec.FRAME_METHOD and buffer.startswith(_DELIVER, payload):
        return Method(channel, spec.Basic.Deliver().decode(buffer, payload + 4))
    return None
