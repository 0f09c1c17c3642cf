"""The messages of one tenure: those that wait, in order, and what became of those that were handed out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Any

from cobalance.coordinator.in_flight import InFlight
from cobalance.rabbitmq.partition.acks import AckTracker
from cobalance.rabbitmq.partition.arrivals import Arrivals

BURST = 256
"""How many messages a worker takes at a time."""


class Outcome(Enum):
    """What became of a message besides being processed. Something else has to have it before it may be acknowledged."""

    REJECTED = "rejected"
    """The broker is to dead-letter it, or to drop it."""
    LEFT = "left"
    """It is being sent to the dead letters. GONE, KEPT or OPEN follows."""
    REPLYING = "replying"
    """Its reply is being sent, and nothing else is left to do. GONE or KEPT follows."""
    GONE = "gone"
    """It has arrived there, and counts as processed."""
    KEPT = "kept"
    """It has not: it is redelivered after the close, with everything behind it."""
    OPEN = "open"
    """It has not: it is worked again."""
    PUT_BACK = "put back"
    """It is redelivered after the close, unless it was settled."""


_TRACKED = {
    Outcome.REJECTED: AckTracker.reject,
    Outcome.LEFT: AckTracker.leave,
    Outcome.REPLYING: AckTracker.reply,
    Outcome.GONE: AckTracker.gone,
    Outcome.KEPT: AckTracker.keep,
    Outcome.OPEN: AckTracker.stay,
    Outcome.PUT_BACK: AckTracker.put_back,
}


class Backlog:
    """Messages are opaque; the first to be handed out has tag 1. Not thread-safe."""

    def __init__(self, acks: AckTracker) -> None:
        self.acks = acks
        self.paused = False
        """While it is, nothing is handed out."""
        self._waiting: deque[Any] = deque()
        self._held: deque[Any] = deque()  # behind those that wait, if it is kept
        self._holds = False
        self._arrivals = Arrivals()
        self._armed = False

    def admit(self, message: Any, now: int) -> bool:
        """Adds a message. Returns whether somebody came for one in vain."""
        (self._held if self._holds else self._waiting).append(message)
        self._arrivals.note(self.acks.delivered + self._arrived, self.acks.told, now)
        if self._holds:
            return False
        armed, self._armed = self._armed, False
        return armed

    def take(self, most: int) -> list[Any]:
        """The next messages, oldest first."""
        waiting = self._waiting
        count = 0 if self.paused else min(most, len(waiting))
        self._armed = not count
        self.acks.deliver(count)
        return [waiting.popleft() for _ in range(count)]

    def take_back(self, messages: Sequence[Any]) -> bool:
        """The last messages taken wait again, first in line. False if any of them is not open any more."""
        is_open = self.acks.take_back(len(messages))
        if is_open:
            self._waiting.extendleft(reversed(messages))
        return is_open

    def settle(self, tag: int, outcome: Outcome) -> bool:
        """Records what became of a message. Returns whether so many are finished that acks are due."""
        return bool(_TRACKED[outcome](self.acks, tag))

    def hold(self, *, everything: bool) -> None:
        """Hands out nothing that arrives from here on; or, with `everything`, nothing at all."""
        self._holds = True
        if everything:
            self._held.extendleft(reversed(self._waiting))
            self._waiting.clear()

    def go_on(self) -> None:
        """Hands out what was held, too."""
        self._holds = False
        self._waiting.extend(self._held)
        self._held.clear()

    def drop_held(self) -> None:
        """Forgets what is held: the broker has it, too."""
        self._held.clear()

    def clear(self) -> None:
        """Forgets what waits: the broker has it, too."""
        self._waiting.clear()
        self.drop_held()

    @property
    def _arrived(self) -> int:
        """How many were not handed out."""
        return len(self._waiting) + len(self._held)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits, and everything handed out is finished."""
        return not self._waiting and self.acks.idle

    @property
    def is_quiet(self) -> bool:
        """Whether nothing waits, and the broker has been told about everything handed out."""
        return not (self._waiting or self._held or self.acks.outstanding)

    def in_flight(self, now: int) -> InFlight:
        """Messages that the broker has sent and that are not acknowledged, and the age of the oldest."""
        messages = self.acks.delivered + self._arrived - self.acks.committed
        since = self._arrivals.since(self.acks.told)
        return InFlight(messages, now - since if messages and since is not None else 0)
