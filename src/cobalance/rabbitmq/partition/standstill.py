"""Notices a quorum queue that stands still: it has messages ready for a consumer that has none, and sends nothing.

RabbitMQ (3.10 at least) cancels the consumers of a queue that is deleted; but if a quorum queue is created again within
milliseconds, it may let them be. The new queue counts them as its own and the first messages, up to the prefetch, as
sent to them, but they never arrive, nor does anything else. Only another channel helps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from pika.channel import Channel

from cobalance.backoff import Backoff

LOOK_MS = Backoff(30_000.0, 600_000.0)
"""Pauses between looks at a queue from which nothing arrives."""

CERTAIN_MS = 5_000.0
"""What was ready at one look has arrived by the next, if the queue works."""


@attrs.define
class Standstill:
    """Of one channel on a quorum queue. I/O thread only.

    `arrived()` says how many messages have arrived, or None while any is in hand or the partition is asked back. Who
    has not been sent any may be waiting for an older consumer, and is left alone.
    """

    _channel: Channel
    _queue: str
    _call_later: Callable[[float, Callable[[], None]], object]
    _arrived: Callable[[], int | None]
    _stands_still: Callable[[int], None]
    _seen: int | None = attrs.field(default=None, init=False)
    _looks: int = attrs.field(default=1, init=False)
    _suspected: bool = attrs.field(default=False, init=False)

    def look_later(self) -> None:
        self._call_later(CERTAIN_MS if self._suspected else LOOK_MS.pause(self._looks), self._look)

    def _look(self) -> None:
        if not self._channel.is_open:
            return
        if self._is_silent():
            self._channel.queue_declare(self._queue, passive=True, callback=self._counted)
        else:
            self._seen, self._looks, self._suspected = self._arrived(), 1, False
            self.look_later()

    def _is_silent(self) -> bool:
        return bool(self._seen) and self._arrived() == self._seen

    def _counted(self, frame: Any) -> None:
        ready = frame.method.message_count
        if ready and self._suspected and self._is_silent():
            self._stands_still(ready)
            return
        self._suspected, self._looks = ready > 0, self._looks + 1
        self.look_later()
