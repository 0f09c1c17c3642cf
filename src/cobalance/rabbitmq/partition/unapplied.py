"""Has a quorum queue apply all that was acknowledged before the channel is closed.

RabbitMQ's channel (seen with 3.10) sends a quorum queue no more while 32 commands are not applied. What is acknowledged
beyond that is held back, and dropped when the channel is closed: it would be sent again, though it was worked. One
command acknowledges everything up to a message, so that takes a burst of single acknowledgements, or a slow queue.

A further consumer on the channel is answered by the queue itself, behind the commands that it had; those held back follow
before the channel reads what comes next from us. The queue keeps that consumer waiting, behind ours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

import attrs
from pika.channel import Channel

from cobalance.group.clock import monotonic_ms
from cobalance.rabbitmq.partition.acks import Flush

MOST_FRAMES = 24
"""Fewer than RabbitMQ lets through: it counts what it sends the queue besides, such as credit."""

APPLIED_MS = 1_000
"""A queue that takes longer to apply a command is hardly to be had at all."""

WITHIN_MS = 2_000
"""A queue that does not answer for so long keeps no handover waiting."""


@attrs.define
class Unapplied:
    """Of one channel on a quorum queue. I/O thread only."""

    _channel: Channel
    _queue: str
    _tag: str
    _arguments: Mapping[str, str | int]
    _call_later: Callable[[float, Callable[[], None]], object]
    _sent: deque[tuple[int, int]] = attrs.field(factory=deque, init=False)
    """When, and how many frames."""
    _then: Callable[[], None] | None = attrs.field(default=None, init=False)
    _has_answered: bool = attrs.field(default=False, init=False)

    def note(self, flush: Flush) -> None:
        """This was sent."""
        self._forget_applied()
        self._sent.append((monotonic_ms(), len(flush.rejects) + len(flush.singles) + (flush.ack is not None)))

    def wait(self, then: Callable[[], None]) -> bool:
        """Calls `then` when the queue has applied what was sent. False if it need not be waited for."""
        if self._then is None and not self._has_answered and self._channel.is_open and self._may_hold_back:
            self._then = then
            self._channel.basic_qos(prefetch_count=1)
            self._channel.basic_consume(
                self._queue,
                lambda *_: None,
                arguments=dict(self._arguments),
                consumer_tag=f"{self._tag}.last",
                callback=lambda _: self._answered(),
            )
            self._call_later(WITHIN_MS, self._answered)
        return self._then is not None

    @property
    def _may_hold_back(self) -> bool:
        self._forget_applied()
        return sum(frames for _, frames in self._sent) > MOST_FRAMES

    def _forget_applied(self) -> None:
        since = monotonic_ms() - APPLIED_MS
        while self._sent and self._sent[0][0] < since:
            self._sent.popleft()

    def _answered(self) -> None:
        self._has_answered = True
        then, self._then = self._then, None
        if then is not None:
            then()
