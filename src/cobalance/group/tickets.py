"""Commits that wait for their answers, on the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from cobalance.member.events import CommitOutcome


class Ticket:
    """One of them."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.answered = anyio.Event()
        self.outcome: CommitOutcome = "UNKNOWN"


class Tickets:
    """All of one member."""

    def __init__(self) -> None:
        self._waiting: dict[int, Ticket] = {}
        self._last = 0

    def take(self) -> Ticket:
        """One more."""
        self._last += 1
        self._waiting[self._last] = ticket = Ticket(self._last)
        return ticket

    def answer(self, number: int, outcome: CommitOutcome) -> None:
        """Whoever waits goes on."""
        ticket = self._waiting.pop(number, None)
        if ticket is not None:
            ticket.outcome = outcome
            ticket.answered.set()

    def answer_all(self) -> None:
        """Nobody will ever know."""
        for number in list(self._waiting):
            self.answer(number, "UNKNOWN")
