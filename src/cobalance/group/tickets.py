"""Commits that wait for their answers, on the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.member.events import CommitOutcome


class Ticket:
    def __init__(self, number: int, on_stored: Callable[[], None]) -> None:
        self.number, self.on_stored = number, on_stored
        self.answered = anyio.Event()
        self.outcome: CommitOutcome = "UNKNOWN"


class Tickets:
    """The pending commits of one member."""

    def __init__(self) -> None:
        self._waiting: dict[int, Ticket] = {}
        self._last = 0

    def take(self, on_stored: Callable[[], None]) -> Ticket:
        """A ticket for a commit. `on_stored` is called once it is stored, even if its caller waits no longer."""
        self._last += 1
        self._waiting[self._last] = ticket = Ticket(self._last, on_stored)
        return ticket

    def answer(self, number: int, outcome: CommitOutcome) -> None:
        """Sets the outcome of a commit and wakes its caller."""
        ticket = self._waiting.pop(number, None)
        if ticket is not None:
            ticket.outcome = outcome
            if outcome == "OK":
                ticket.on_stored()
            ticket.answered.set()

    def answer_all(self) -> None:
        """Sets the outcome of all pending commits to UNKNOWN."""
        for number in list(self._waiting):
            self.answer(number, "UNKNOWN")
