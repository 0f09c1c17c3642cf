"""Commits that wait for their answers, on the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from cobalance.member.events import CommitOutcome


class Ticket:
    def __init__(self, number: int) -> None:
        self.number = number
        self.answered = anyio.Event()
        self.outcome: CommitOutcome = "UNKNOWN"


class Tickets:
    """The pending commits of one member."""

    def __init__(self) -> None:
        self._waiting: dict[int, Ticket] = {}
        self._last = 0

    def take(self) -> Ticket:
        self._last += 1
        self._waiting[self._last] = ticket = Ticket(self._last)
        return ticket

    def answer(self, number: int, outcome: CommitOutcome) -> None:
        """Sets the outcome of a commit and wakes its caller."""
        ticket = self._waiting.pop(number, None)
        if ticket is not None:
            ticket.outcome = outcome
            ticket.answered.set()

    def answer_all(self) -> None:
        """Sets the outcome of all pending commits to UNKNOWN."""
        for number in list(self._waiting):
            self.answer(number, "UNKNOWN")
