"""How many channels one connection may have.

RabbitMQ has two limits: ``channel_max``, which it announces, and a user's ``max-channels``, which it does not.

A user who opens one channel too many loses the whole connection, and would lose the next one in the same way. So the
limit is learned from the first loss: it is the number of channels that were open then.
"""

from __future__ import annotations

import logging

from cobalance.errors import ChannelLimitReached

log = logging.getLogger("cobalance.rabbitmq")

SPARE = 1
"""Not used for consumers: stream queries and stream locks need a channel for a moment."""


class ChannelLimit:
    """The limit across successive connections to one place. I/O thread only."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._most: int | None = None
        self._open = self._peak = 0
        self._logged = False

    def connected(self, channel_max: int) -> None:
        """A new connection is open; a `channel_max` of 0 means no limit."""
        self._open = self._peak = 0
        if channel_max:
            self._most = min(channel_max, self._most or channel_max)

    def opened(self) -> None:
        self._open += 1
        self._peak = max(self._peak, self._open)

    def closed(self) -> None:
        self._open -= 1

    def lost(self, reason: str) -> None:
        """The connection has ended; if it was for too many channels, learn the limit."""
        if "maximum allowed user limit" in reason and self._peak:
            self._most = self._peak

    def check(self, asked_for: int, place: str) -> None:
        """Raises ChannelLimitReached if that many channels would leave none to spare."""
        if self._most is None or asked_for + SPARE <= self._most:
            return
        error = ChannelLimitReached(
            f"RabbitMQ at {place} allows {self._most} channels, and each queue is consumed on one of its own: some of this member's queues "
            "cannot be consumed here. Raise channel_max in rabbitmq.conf, or the user's max-channels (rabbitmqctl set_user_limits), or run "
            "more members."
        )
        if not self._logged:
            log.error("%s: %s", self._name, error)
        self._logged = True
        raise error
