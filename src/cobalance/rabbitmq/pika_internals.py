"""The three places where pika's private parts are touched, each pinned by a test."""

from pika import SelectConnection
from pika.channel import Channel
from pika.frame import Body, Frame, Header, Method
from pika.spec import Basic


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


class QuickConnection(SelectConnection):
    """A SelectConnection that hands the three frames of a delivery straight to their channel.

    pika first looks each of them up in a table of callbacks, where they never are; leaving that out pays for most of what the
    way to the user's event loop costs.
    """

    def _process_frame(self, frame_value: Frame) -> None:
        kind = type(frame_value)
        if kind is Body or kind is Header or (kind is Method and type(frame_value.method) is Basic.Deliver):  # type: ignore[attr-defined]
            self.frames_received += 1
            self._deliver_frame_to_channel(frame_value)  # type: ignore[attr-defined]
        else:
            super()._process_frame(frame_value)  # type: ignore[misc]
