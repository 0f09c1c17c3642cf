"""Keeps the order of what quorum queues got back, where a consumer's prefetch is smaller than an earlier one's.

A quorum queue keeps what comes back ahead of everything else, in the order of the returns. A consumer whose prefetch is
smaller than what came back has only the beginning of it, and if it gave that back as it is, the rest would be in front.
So before its channel is closed, the rest is taken as well: on the same channel, since what one channel has goes back in
the order of its consumers (3.10: of their tags, 4.0: of their subscriptions).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
from pika.channel import Channel

from cobalance.group.clock import monotonic_ms
from cobalance.rabbitmq.model.batches import MOST_MESSAGES

log = logging.getLogger("cobalance.rabbitmq")

LOOK_AGAIN_MS = 5
"""Between two looks for what is on its way."""

LOOKS_IN_VAIN = 3
"""If nothing has come by then, another consumer has the queue."""

WAITS_MS = 1_000
"""Who has been sent nothing for so long waits behind another consumer. Were it the next by the second look, it would take
one message more than had come back, and a crash of its successor would then spoil the order.
"""

WITHIN_MS = 2_000
"""A queue that sends nothing for so long keeps no handover waiting for longer."""

ANSWERED_MS = 1_000
"""RabbitMQ answers for a silent leader after 250 ms. A later answer waits behind a large message, as CloseOk would."""


@attrs.define
class Returned:
    """Of one channel on a quorum queue. I/O thread only."""

    _channel: Channel
    _queue: str
    _prefetch: int
    _tag: str
    _on_message: Callable[..., None]
    _call_later: Callable[[float, Callable[[], None]], object]
    _since: int = attrs.field(factory=monotonic_ms, init=False)
    _received: int = attrs.field(default=0, init=False)
    _has_all: bool = attrs.field(default=False, init=False)
    _consumers: int = attrs.field(default=1, init=False)
    _due: int = attrs.field(default=0, init=False)  # what the consumers so far are sent, if there is that much
    _looks: int = attrs.field(default=0, init=False)
    _asked_at: int | None = attrs.field(default=None, init=False)
    """None once RabbitMQ has answered."""
    _then: Callable[[], None] | None = attrs.field(default=None, init=False)

    def note(self, *, redelivered: bool) -> None:
        """A message arrived. Behind what came back is what was never sent before."""
        self._received += 1
        self._has_all = self._has_all or not redelivered

    @property
    def may_lack_some(self) -> bool:
        """Whether more may have come back than has arrived here."""
        return not self._has_all

    def take_rest(self, acknowledged: int, then: Callable[[], None]) -> None:
        """Calls `then` when everything that came back was sent here. So many were acknowledged, and no more will be."""
        if self._then is None:
            self._then, self._due = then, self._prefetch + acknowledged
            self._give_up_later()
            self._look()

    def _look(self) -> None:
        if self._channel.is_open:
            self._asked_at = monotonic_ms()
            self._channel.queue_declare(self._queue, passive=True, callback=self._counted)

    def _counted(self, frame: Any) -> None:
        self._asked_at = None
        waiting = frame.method.message_count
        is_known = waiting or frame.method.consumer_count  # its leader: a silent one counts not even us
        if self._has_all or (is_known and not waiting):
            self._finish()
        elif not is_known:
            self._call_later(LOOK_AGAIN_MS, self._look)
        elif self._received < self._due:
            self._looks += 1
            if self._received or (self._looks < LOOKS_IN_VAIN and monotonic_ms() - self._since < WAITS_MS):
                self._call_later(LOOK_AGAIN_MS, self._look)
            else:
                self._finish()
        elif self._channel.is_open:
            # One more tells in most cases. Steps double, since RabbitMQ shuffles what more than 32 consumers had.
            self._consume(min(waiting, 2 ** (self._consumers - 1), MOST_MESSAGES))

    def _consume(self, count: int) -> None:
        """Subscribes first, and cancels the last consumer then: the queue is never free for others meanwhile, as of all
        that wait the one with the highest priority is next, in RabbitMQ 3.10 the first that came.
        """
        self._consumers += 1
        self._asked_at = monotonic_ms()
        self._channel.basic_qos(prefetch_count=count)
        self._channel.basic_consume(
            self._queue,
            self._on_message,
            consumer_tag=self._tag_of(self._consumers),
            arguments={"x-priority": self._consumers - 1},
            callback=lambda _: self._go_over(count),
        )

    def _go_over(self, count: int) -> None:
        if self._channel.is_open:  # nothing is on its way to the last one, which would be put back now
            self._due += count
            self._asked_at = monotonic_ms()
            self._channel.basic_cancel(self._tag_of(self._consumers - 1), callback=lambda _: self._look())

    def _tag_of(self, consumer: int) -> str:
        return self._tag if consumer == 1 else f"{self._tag}.{consumer:06}"

    def _give_up_later(self) -> None:
        self._call_later(WITHIN_MS, partial(self._give_up, self._received))

    def _give_up(self, had_received: int) -> None:
        is_awaited = self._then is not None and self._channel.is_open
        is_busy = self._asked_at is not None and monotonic_ms() - self._asked_at >= ANSWERED_MS
        if is_awaited and (is_busy or self._received > had_received):
            self._give_up_later()  # large messages take their time; the deadline of the handover bounds it
            return
        if is_awaited:
            log.warning(
                "queue %s has sent nothing for %d ms of all that it had got back before, and may send it out of order: was prefetch larger before?",
                *(self._queue, WITHIN_MS),
            )
        self._finish()

    def _finish(self) -> None:
        self._has_all = True
        then, self._then = self._then, None
        if then is not None:
            then()
