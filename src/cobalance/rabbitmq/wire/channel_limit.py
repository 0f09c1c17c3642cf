"""How many channels one connection may have.

RabbitMQ has a limit that it announces, ``channel_max``, and two that it does not: a user's ``max-channels``, and a
node's, which Amazon MQ sets.

A user who opens one channel too many loses the whole connection, and would lose the next one in the same way. So the
limit is learned from the first loss: RabbitMQ's reason names it, and other connections of the user may have taken some,
so it is the number of channels that were open then, if that is less.

What was learned is tried again after a while, since those others may have gone, and limits are raised. Each trial may
cost the connection, so they become rarer while they bring nothing. It is tried at once after a connection that was lost
for another reason.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

from cobalance.backoff import Backoff
from cobalance.errors import ChannelLimitReached

log = logging.getLogger("cobalance.rabbitmq")

SPARE = 1
"""Not used for consumers: stream queries and stream locks need a channel for a moment."""

TRIED_AGAIN_S = Backoff(30.0, 1_800.0)
"""How long a limit that was learned is kept."""

TOO_MANY = re.compile(r"number of channels opened .* limit of \(?(\d[\d,]*)")
"""RabbitMQ's words for one channel too many of a user, or on a node: "(20)", "(15,000)", "20"."""


class ChannelLimit:
    """The limit across successive connections to one place. I/O thread only."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name, self._clock = name, clock
        self._announced: int | None = None
        self._named = self._learned = self._losses = 0
        self._until = 0.0
        self._open = self._peak = 0
        self._logged: int | None = None

    @property
    def most(self) -> int | None:
        """How many channels this connection may have; None if any number."""
        if self._clock() >= self._until:
            return self._announced
        return self._learned if self._announced is None else min(self._learned, self._announced)

    def connected(self, channel_max: int) -> None:
        """A new connection is open; a `channel_max` of 0 means no limit."""
        self._open = self._peak = 0
        self._announced = channel_max or None

    def opened(self) -> None:
        self._open += 1
        self._peak = max(self._peak, self._open)

    def closed(self) -> None:
        self._open -= 1

    def lost(self, reason: str) -> None:
        """The connection has ended; if it was for too many channels, learn the limit."""
        match = TOO_MANY.search(reason)
        if match is None:
            self._learned, self._until, self._losses = 0, 0.0, 0
        else:
            self._learn(int(re.sub(r"\D", "", match[1])), self.most)

    def _learn(self, named: int, before: int | None) -> None:
        # RabbitMQ counts a moment late: it may open more channels than it allows before it ends the connection. If it
        # opened none, others have them all; one is too few for a queue, as the spare one is not for queues.
        allowed = min(named, max(self._peak, 1))
        if before is not None and allowed >= before:  # as many as were thought to be allowed were too many
            allowed = max(before - 1, 1)
        self._losses = 1 if allowed > self._learned else self._losses + 1
        self._named, self._learned = named, allowed
        self._until = self._clock() + TRIED_AGAIN_S.pause(self._losses)

    def leaves_room(self, count: int) -> bool:
        """Whether a channel may be opened for a moment beside so many, while others come that are to stay.

        Such channels can wait, so they never try whether more are allowed.
        """
        limits = [it for it in (self._learned, self._announced) if it]
        return not limits or count < min(limits) // 2

    def check(self, asked_for: int, place: str) -> None:
        """Raises ChannelLimitReached if that many channels would leave none to spare."""
        most = self.most
        if most is None or asked_for + SPARE <= most:
            return
        allowed = self._named if most == self._learned else most
        others = f" in all connections of this user, {most} of them on this one" if allowed > most else ""
        error = ChannelLimitReached(
            f"RabbitMQ at {place} allows {allowed} channels{others}, and each queue is consumed on one of its own: some of "
            "this member's queues cannot be consumed here. Raise channel_max in rabbitmq.conf, or the user's max-channels (rabbitmqctl "
            "set_user_limits), or run more members. What was raised is noticed within half an hour, or on a new connection."
        )
        if most != self._logged:
            log.error("%s: %s", self._name, error)
        self._logged = most
        raise error
