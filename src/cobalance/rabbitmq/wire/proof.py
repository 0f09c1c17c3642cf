"""Until when RabbitMQ is known to keep a connection, and with it the guard of every queue consumed on it.

A member that is cut off from Redis goes on with the queues that RabbitMQ guards, so it must stop before RabbitMQ can
have admitted another consumer. When RabbitMQ hears nothing more, it counts a connection's bytes once per heartbeat, and
closes it at the second count in a row without a new one (``rabbit_heartbeat.erl``; the same in 3.10 and 4): between two
and three heartbeats after the last byte arrived, never sooner. We cannot know which byte arrived last, since what we
send may be lost while we still hear RabbitMQ. So we send a request twice per heartbeat: its answer proves that the
request arrived, and thus no earlier than it was sent. From then on the guard is certain for two heartbeats; the last
half of one is kept back for the work to stop.

If a connection ends other than by silence, TCP reports it at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.group.clock import monotonic_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from pika.channel import Channel

    from cobalance.rabbitmq.wire.connection import BrokerConnection

ASKED_EVERY, LASTS = 0.5, 1.5
"""In heartbeats: the interval between requests, and how long an answer is valid after its request was sent."""


class Proof:
    """The proof for one connection. Calls ``tell(holds)`` on each change. I/O thread only."""

    def __init__(self, connection: BrokerConnection, heartbeat_s: float, tell: Callable[[bool], None]) -> None:
        self._connection, self._heartbeat_s, self._report = connection, heartbeat_s, tell
        self._until = 0.0
        self._reported = False

    @property
    def holds(self) -> bool:
        """Read from the clock, so that a process that was frozen sees at once that it no longer holds. Any thread."""
        return monotonic_ms() / 1000 < self._until

    def begin(self) -> None:
        """Sends the first request, on a channel of its own."""
        self._connection.open_channel(self._ask)

    def _ask(self, channel: Channel) -> None:
        """Sets a prefetch limit for consumers that this channel never has: without effect, and always answered."""
        if channel.is_open:
            asked_at = monotonic_ms() / 1000
            channel.basic_qos(prefetch_count=1, callback=lambda _: self._answered(channel, asked_at))

    def _answered(self, channel: Channel, asked_at: float) -> None:
        self._until = asked_at + LASTS * self._heartbeat_s
        self._look()
        self._at(self._until, self._look)
        self._at(asked_at + ASKED_EVERY * self._heartbeat_s, lambda: self._ask(channel))

    def _at(self, due: float, job: Callable[[], None]) -> None:
        self._connection.call_later(max(0.0, due - monotonic_ms() / 1000) * 1000, job)

    def _look(self) -> None:
        holds = self.holds
        if holds != self._reported:
            self._reported = holds
            self._report(holds)
