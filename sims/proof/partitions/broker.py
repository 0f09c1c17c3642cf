"""As much of a broker as one consumer can tell: a queue or a stream, and what was sent on its channel.

It fails where RabbitMQ would close the channel, and where a consumer may not do what it does.
"""

from __future__ import annotations

from collections import deque

import attrs

from cobalance.rabbitmq.partition.acks import Flush


class Wrong(AssertionError):
    """A promise is broken."""


class BrokenHistory(Exception):
    """A history that breaks a promise."""

    def __init__(self, seed: int, wrong: Exception, story: list[str]) -> None:
        super().__init__(f"seed {seed}: {wrong}")
        self.wrong, self.story = f"{wrong}", "\n".join(story)


def require(holds: object, words: str) -> None:
    """Raises Wrong if it does not hold."""
    if not holds:
        raise Wrong(words)


@attrs.define
class OneQueue:
    """Messages are numbers, in order. A stream keeps them all, and serves them from an offset on."""

    prefetch: int
    stream: bool = False
    ready: deque[int] = attrs.Factory(deque)
    unacked: dict[int, int] = attrs.Factory(dict)
    """Tag → message, in order."""
    acked: set[int] = attrs.Factory(set)
    rejected: set[int] = attrs.Factory(set)
    is_open: bool = False
    tags: int = 0

    def open(self) -> None:
        self.is_open, self.tags = True, 0

    def deliver(self) -> tuple[int, int]:
        """The next tag and message."""
        self.tags += 1
        message = self.unacked[self.tags] = self.ready.popleft()
        return self.tags, message

    @property
    def may_deliver(self) -> bool:
        return self.is_open and bool(self.ready) and len(self.unacked) < self.prefetch

    def take_acks(self, flush: Flush) -> None:
        """Rejects, then single acks, then everything up to a tag: each must name a message that is still here."""
        require(self.is_open, f"{flush} is sent on a channel that is closed")
        for tag in flush.rejects:
            self.rejected.add(self._forget(tag))
        for tag in flush.singles:
            self.acked.add(self._forget(tag))
        if flush.ack is not None:
            up_to = [tag for tag in self.unacked if tag <= flush.ack]
            require(flush.ack in up_to, f"unknown delivery tag {flush.ack}")
            self.acked.update(self._forget(tag) for tag in up_to)

    def close(self) -> None:
        """What is unacknowledged is back in its place."""
        require(self.is_open, "the channel is closed twice")
        self.is_open = False
        self.ready.extendleft(reversed(self.unacked.values()))
        self.unacked.clear()

    def _forget(self, tag: int) -> int:
        require(tag in self.unacked, f"unknown delivery tag {tag}")
        return self.unacked.pop(tag)
