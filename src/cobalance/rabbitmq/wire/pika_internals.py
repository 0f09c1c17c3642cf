"""The six places where pika's private parts are touched, each pinned by a test."""

import struct
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from pika import BlockingConnection, SelectConnection, URLParameters, spec
from pika.channel import Channel
from pika.exceptions import StreamLostError
from pika.frame import Body, Frame, Header, Method


def bare_close(channel: Channel) -> None:
    """Sends Channel.Close and nothing before it; pika's close callback comes with CloseOk. I/O thread only.

    `Channel.close()` first sends basic.cancel, and pika rejects what arrives until CancelOk; on quorum queues the broker moreover
    returns deliveries in flight when a consumer is cancelled. Either puts messages behind younger ones, and on streams the reject
    ends the whole connection. A consumer that pika believes cancelled already gets neither: deliveries that still arrive are
    dropped in silence, unacknowledged, and the broker puts all of them back where they were.
    """
    channel._cancelled.update(channel._consumers)  # type: ignore[attr-defined]  # noqa: SLF001
    channel.close()


def drop(connection: SelectConnection) -> None:
    """Closes the socket of a connection whose loop has stopped, as the end of the process would. Harmless once it is closed."""
    if connection._transport is not None:  # type: ignore[attr-defined]  # noqa: SLF001
        connection._transport._sock.close()  # type: ignore[attr-defined]  # noqa: SLF001


def calling_back(connection: BlockingConnection) -> AbstractContextManager[bool]:
    """While it lasts, pika calls none of the program's functions, as it does while one of them runs. False when that is so already."""
    return connection._acquire_event_dispatch()  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001


def host_resolved_by(thread: threading.Thread) -> object:
    """Of a thread in which pika looks an address up, the host it was given; None of any other."""
    return getattr(getattr(getattr(thread, "function", None), "__self__", None), "_host", None)


class PatientConnection(BlockingConnection):
    """A BlockingConnection that waits for each answer so long and then ends; pika waits for two heartbeats at least."""

    _impl: Any

    def __init__(self, parameters: URLParameters, patience_s: float) -> None:
        self.patience_s = patience_s
        super().__init__(parameters)

    def _flush_output(self, *waiters: Callable[[], bool]) -> None:
        loop = self._impl.ioloop
        end = loop.call_later(self.patience_s, self._end)
        try:
            super()._flush_output(*waiters)  # type: ignore[misc]
        finally:
            loop.remove_timeout(end)

    def _end(self) -> None:
        self._impl._terminate_stream(StreamLostError("Timeout"))  # noqa: SLF001


class QuickConnection(SelectConnection):
    """A SelectConnection that reads deliveries quicker: what that saves pays for the way to the user's event loop.

    pika copies the rest of its buffer for every frame, and looks every frame up in a table of callbacks, where those of a message
    never are. Here the frames of messages are read where they lie and go straight to their channel; from the first other
    frame on, an incomplete or a broken one included, the rest of the buffer is left to pika.
    """

    @property
    def heard_no_amqp(self) -> bool:
        """Whether what has come, all of it still in the buffer, is not the beginning of RabbitMQ's greeting."""
        begin: bytes = self._frame_buffer[: len(_GREETING)]
        return not self.bytes_received and begin != _GREETING[: len(begin)]

    def _read_frame(self) -> tuple[int, Frame | None]:
        end = _frame_end(self._frame_buffer, 0)
        frame = _message_frame(self._frame_buffer, 0, end) if end else None
        return (end, frame) if frame else super()._read_frame()  # type: ignore[misc]

    def _on_data_available(self, data_in: bytes) -> None:
        buffer, start = self._frame_buffer + data_in, 0  # type: ignore[has-type]
        while (end := _frame_end(buffer, start)) and (frame := _message_frame(buffer, start, end)):
            start = end
            self.frames_received += 1
            self._deliver_frame_to_channel(frame)  # type: ignore[attr-defined]
        self.bytes_received += start  # The heartbeat checker goes by it.
        self._frame_buffer = b""
        super()._on_data_available(buffer[start:])  # type: ignore[misc]


class Unreadable(spec.BasicProperties):
    """Those of a message whose headers pika cannot read, which would end the connection."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


_PREFIX = struct.Struct(">BHL")  # Kind, channel, size of the payload.
_GREETING = bytes([spec.FRAME_METHOD, 0, 0])  # A method on channel 0.
_BODY_SIZE = struct.Struct(">Q")
_DELIVER = struct.pack(">HH", *divmod(spec.Basic.Deliver.INDEX, 1 << 16))


def _frame_end(buffer: bytes, start: int) -> int:
    """Where the frame that begins at `start` ends; 0 when it is incomplete."""
    if len(buffer) - start < _PREFIX.size:
        return 0
    end: int = start + _PREFIX.size + _PREFIX.unpack_from(buffer, start)[2] + spec.FRAME_END_SIZE
    return end if end <= len(buffer) else 0


def _properties(buffer: bytes, start: int) -> spec.BasicProperties:
    properties = spec.BasicProperties()
    try:
        properties.decode(buffer, start)
    except Exception as error:  # noqa: BLE001 -- whatever pika trips over
        return Unreadable(error)
    return properties


def _message_frame(buffer: bytes, start: int, end: int) -> Frame | None:
    """The frame, if it is one of a message."""
    kind, channel, _ = _PREFIX.unpack_from(buffer, start)
    payload = start + _PREFIX.size
    if buffer[end - 1] != spec.FRAME_END:
        return None
    if kind == spec.FRAME_BODY:
        return Body(channel, buffer[payload : end - 1])
    if kind == spec.FRAME_HEADER:
        properties = _properties(buffer, payload + 12)
        return Header(channel, _BODY_SIZE.unpack_from(buffer, payload + 4)[0], properties)
    if kind == spec.FRAME_METHOD and buffer.startswith(_DELIVER, payload):
        return Method(channel, spec.Basic.Deliver().decode(buffer, payload + 4))
    return None
