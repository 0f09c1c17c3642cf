"""Until when RabbitMQ is known to keep a connection, and with it the guard of every queue that is consumed on it.

A member that is cut off from Redis goes on with what RabbitMQ guards, so it must stop before RabbitMQ can have let somebody else in.
When RabbitMQ hears nothing more, it counts the bytes of a connection once a heartbeat, and closes it at the second count in
a row without a new one (``rabbit_heartbeat.erl``; the same in 3.10 and 4): between two and three heartbeats after the last byte
came, never sooner. What came last is not known here, since what we send may be lost while RabbitMQ is still heard. Therefore it is
asked something twice a heartbeat: the answer to a question proves that this one arrived, and so not before it was sent. From then on
the guard is sure for two heartbeats; the last half of one is kept back for the work to stop.

A connection that ends in any other way than by silence is told of by TCP, on the spot.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pika.channel import Channel

    from cobalance.rabbitmq.wire.connection import BrokerConnection

ASKED_EVERY, LASTS = 0.5, 1.5
"""In heartbeats: from one question to the next, and how long an answer is good for, from when its question was sent."""


class Proof:
    """Of one connection, as long as that lives. ``tell(holds)`` is called with each change. I/O thread only."""

    def __init__(self, connection: BrokerConnection, heartbeat_s: float, tell: Callable[[bool], None]) -> None:
        self._connection, self._heartbeat_s, self._tell = connection, heartbeat_s, tell
        self._until = 0.0
        self._told = False

    @property
    def holds(self) -> bool:
        """By the clock: a process that was frozen need not wait to be told that it does no more. Any thread."""
        return time.monotonic() < self._until

    def begin(self) -> None:
        """Asks for the first time, on a channel of its own."""
        self._connection.open_channel(self._ask)

    def _ask(self, channel: Channel) -> None:
        """A limit for consumers that this channel will never have: of no effect, and always answered."""
        if channel.is_open:
            asked_at = time.monotonic()
            channel.basic_qos(prefetch_count=1, callback=lambda _: self._answered(channel, asked_at))

    def _answered(self, channel: Channel, asked_at: float) -> None:
        self._until = asked_at + LASTS * self._heartbeat_s
        self._look()
        self._at(self._until, self._look)
        self._at(asked_at + ASKED_EVERY * self._heartbeat_s, lambda: self._ask(channel))

    def _at(self, due: float, job: Callable[[], None]) -> None:
        self._connection.call_later(max(0.0, due - time.monotonic()) * 1000, job)

    def _look(self) -> None:
        holds = self.holds
        if holds != self._told:
            self._told = holds
            self._tell(holds)
