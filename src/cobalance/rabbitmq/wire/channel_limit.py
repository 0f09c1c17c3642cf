"""How many channels RabbitMQ lets one connection have: ``channel_max``, which it says, and a user's ``max-channels``, which it does not.

A user who opens one too many loses the whole connection, and would lose the next one in the same way. So the limit is learned from the
first loss: as many as were open then.
"""

from __future__ import annotations

import logging

from cobalance.errors import ChannelLimitReached

log = logging.getLogger("cobalance.rabbitmq")

SPARE = 1
"""Not for consumers: questions about streams, and their locks, take a channel for a moment."""


class ChannelLimit:
    """Of one connection after another to the same place. I/O thread only."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._most: int | None = None
        self._open = self._peak = 0
        self._told = False

    def connected(self, channel_max: int) -> None:
        """A new connection; 0 is no limit."""
        self._open = self._peak = 0
        if channel_max:
            self._most = min(channel_max, self._most or channel_max)

    def opened(self) -> None:
        """One more is open."""
        self._open += 1
        self._peak = max(self._peak, self._open)

    def closed(self) -> None:
        """One less."""
        self._open -= 1

    def lost(self, reason: str) -> None:
        """The connection has ended."""
        if "maximum allowed user limit" in reason and self._peak:
            self._most = self._peak

    def check(self, asked_for: int, place: str) -> None:
        """Raises ChannelLimitReached where so many channels leave none to spare."""
        if self._most is None or asked_for + SPARE <= self._most:
            return
        error = ChannelLimitReached(
            f"RabbitMQ at {place} allows {self._most} channels, and each queue is consumed on one of its own: some of this member's queues "
            "cannot be consumed here. Raise channel_max in rabbitmq.conf, or the user's max-channels (rabbitmqctl set_user_limits), or run "
            "more members."
        )
        if not self._told:
            log.error("%s: %s", self._name, error)
        self._told = True
        raise error
