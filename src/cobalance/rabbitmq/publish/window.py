"""Messages from `publish` to their outcome: a line of those that wait for room, and a bounded number that have it.

A signal handler may raise at any moment of a call. So a call only adds its message to the line, in one operation, and
may then give it up by marking it. The publisher's thread does the rest, which no signal interrupts.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from cobalance.threads.gate import Gate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cobalance.rabbitmq.publish.confirms import UnconfirmedMessage


class Window:
    """Lets in at most so many messages at a time, first come, first served."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.line: deque[UnconfirmedMessage] = deque()
        """Those that were not let in yet."""
        self._inside: set[UnconfirmedMessage] = set()
        self._unsettled: set[UnconfirmedMessage] = set()

    @property
    def is_full(self) -> bool:
        """Whether the next message would have to wait. Any thread."""
        return len(self._inside) >= self.most

    def wait_for_room(self, message: UnconfirmedMessage, timeout_s: float) -> bool:
        """Waits until a message of the line is let in, or certain to be; False on timeout. Any thread."""
        if len(self.line) + len(self._inside) <= self.most:
            return True
        message.entry = entry = Gate()
        return message.is_inside or entry.wait(timeout_s) or message.is_inside

    def wait_until_settled(self, timeout_s: float) -> int:
        """Waits for those that are in the line or inside now; returns how many are still unsettled then. Any thread.

        Nobody waits for a message that was given up.
        """
        give_up_at = time.monotonic() + timeout_s
        messages = [*self.line.copy(), *self._unsettled.copy()]  # in this order: they move from one to the other
        left = {it for it in messages if not (it.withdrawn or it.ended.wait(give_up_at - time.monotonic()))}
        return len(left)

    # The rest is for the publisher's thread.

    def timed(self) -> list[UnconfirmedMessage]:
        """Those that end when their time is up, unless a call still waits for room for them."""
        messages = [*self.line.copy(), *self._unsettled]
        return [
            it for it in messages if it.is_timed and not (it.settled or (it.entry is not None and not it.is_inside))
        ]

    def let_in(self, *, all_of_them: bool = False) -> Iterator[UnconfirmedMessage]:
        """Lets in and yields those for which there is room, and those that were given up; or all, if none is sent."""
        while self.line and (all_of_them or self.line[0].withdrawn or not self.is_full):
            message = self.line[0]
            self._unsettled.add(message)
            self._inside.add(message)
            self.line.popleft()
            if message.settled:
                self.leave(message)
                self.settled(message)
                continue
            message.is_inside = True
            if message.entry is not None:
                message.entry.open()
            yield message

    def leave(self, message: UnconfirmedMessage) -> None:
        """Gives the message's place to others: its outcome is decided."""
        self._inside.discard(message)

    def settled(self, message: UnconfirmedMessage) -> None:
        """The message's outcome has been told."""
        self._unsettled.discard(message)
        message.ended.open()
        if message.entry is not None:
            message.entry.open()
