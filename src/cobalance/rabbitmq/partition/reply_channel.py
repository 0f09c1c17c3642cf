"""A channel for replies: what is under way on it, and for how long."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pika.exceptions import ChannelClosedByBroker
from pika.spec import Basic

from cobalance.rabbitmq.wire.pika_internals import LOOKS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pika.channel import Channel
    from pika.frame import Method
    from pika.spec import BasicProperties

    from cobalance.rabbitmq.partition.replies import Reply
    from cobalance.rabbitmq.wire.connection import BrokerConnection

MOST_UNCONFIRMED = 100
"""RabbitMQ stops reading from the whole connection once it has some 200 messages that a channel has not handled."""

PATIENCE_S = 10.0
"""How long replies wait for a connection; then another member is to answer, which may have one. And how long for their
confirms, on one that is not blocked, from when RabbitMQ last took any of the oldest; then their queue is silent."""


class OnAnswer(Protocol):
    def __call__(self, reply: Reply, *, refused: bool, routed: bool) -> None: ...


class ReplyChannel:
    """A channel with at most so many replies under way, opened for the first of them, and for the next one after its end.

    When one is unconfirmed for `PATIENCE_S`, and RabbitMQ is not blocked, it is closed, and all that is unconfirmed is handed to
    `on_silence`. I/O thread only.
    """

    def __init__(
        self,
        connection: BrokerConnection,
        most: int,
        *,
        on_room: Callable[[], None],
        on_answer: OnAnswer,
        on_closed: Callable[[list[Reply], Exception], None],
        on_silence: Callable[[list[Reply]], None],
    ) -> None:
        self._connection, self._most = connection, most
        self._on_room, self._on_answer, self._on_closed, self._on_silence = on_room, on_answer, on_closed, on_silence
        self._channel: Channel | None = None
        self._is_ready = self._is_watched = False
        self._number = 0
        self._unconfirmed: dict[int, tuple[Reply, float, int]] = {}  # with when it was sent, and up to which byte
        self._returned: set[str] = set()
        self._reads_since = 0.0
        self._taken = 0  # bytes, when it was looked last

    @property
    def is_busy(self) -> bool:
        """Whether anything is under way."""
        return bool(self._unconfirmed)

    def has_room(self) -> bool:
        """Whether another reply may be published now; opens a channel if there is none, and calls `on_room` then."""
        if self._channel is None:
            self._open()
        return self._is_ready and len(self._unconfirmed) < self._most

    def publish(self, reply: Reply, *, must_be_routed: bool) -> None:
        """Sends it. What raises has not been sent.

        Raises:
            RuntimeError: there is no room for it.
        """
        if self._channel is None:
            raise RuntimeError("there is no channel yet: wait for has_room()")
        self._number += 1
        self._unconfirmed[self._number] = reply, time.monotonic(), self._connection.bytes_sent + len(reply.body)
        try:
            to: Any = reply.to  # pika takes bytes, too
            self._channel.basic_publish("", to, reply.body, reply.properties, mandatory=must_be_routed)
        except BaseException:
            del self._unconfirmed[self._number]
            self._number -= 1
            raise
        self._watch(PATIENCE_S / LOOKS)

    def wait_anew(self) -> None:
        """RabbitMQ reads."""
        self._reads_since = time.monotonic()

    def reset(self) -> list[Reply]:
        """The channel is gone, or not to be used any more. Returns what is unconfirmed."""
        unconfirmed, self._unconfirmed = [it for it, _, _ in self._unconfirmed.values()], {}
        self._channel, self._is_ready, self._is_watched, self._taken = None, False, False, 0
        self._returned.clear()
        return unconfirmed

    def _open(self) -> None:
        def ready(_: object) -> None:
            if channel is self._channel:
                self._is_ready, self._number = True, 0
                self._on_room()

        def confirm(_: object) -> None:
            channel.add_on_return_callback(self._was_returned)
            channel.confirm_delivery(partial(self._confirmed, channel), ready)

        self._channel = channel = self._connection.open_channel(confirm)
        channel.add_on_close_callback(self._closed)

    def _was_returned(self, channel: Channel, __: Basic.Return, properties: BasicProperties, ___: bytes) -> None:
        if channel is self._channel:
            self._returned.add(properties.message_id or "")

    def _confirmed(self, channel: Channel, frame: Method[Basic.Ack | Basic.Nack]) -> None:
        if channel is not self._channel:
            return
        tag, refused = frame.method.delivery_tag, isinstance(frame.method, Basic.Nack)
        numbers = [it for it in self._unconfirmed if it <= tag] if frame.method.multiple else [tag]
        for number in numbers:
            reply, _, _ = self._unconfirmed.pop(number)
            routed = reply.mark not in self._returned
            self._returned.discard(reply.mark)
            self._on_answer(reply, refused=refused, routed=routed)
        self._on_room()

    def _closed(self, channel: Channel, error: Exception) -> None:
        if channel is self._channel and isinstance(error, ChannelClosedByBroker):  # else the connection is lost
            self._on_closed(self.reset(), error)

    # -- silence -------------------------------------------------------------------------------------------------------

    def _watch(self, left_s: float) -> None:
        if not self._is_watched:
            self._is_watched = True
            self._connection.call_later(left_s * 1000, partial(self._look, self._channel))

    def _look(self, channel: Channel | None) -> None:
        if channel is None or channel is not self._channel or not channel.is_open:  # it is being closed
            return
        self._is_watched = False
        if not self._unconfirmed:
            return
        _, sent_at, end = next(iter(self._unconfirmed.values()))
        before, self._taken = self._taken, self._connection.bytes_taken
        if self._connection.blocked or before < min(self._taken, end):
            self.wait_anew()
        left_s = max(sent_at, self._reads_since) + PATIENCE_S - time.monotonic()
        if left_s > 0:
            self._watch(left_s if self._taken >= end else min(left_s, PATIENCE_S / LOOKS))
            return
        unconfirmed = self.reset()
        channel.close()
        self._on_silence(unconfirmed)
