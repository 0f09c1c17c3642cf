"""S6 once more: a resource that nobody can work makes no other resource move."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cobalance_sims.simulate.checks.base import Check
from cobalance_sims.simulate.checks.in_a_row import OWN_TROUBLE, InARow
from cobalance_sims.simulate.checks.liveness import LONGEST_PAUSE_MS

if TYPE_CHECKING:
    from cobalance.journal import JournalEntry
    from cobalance_sims.simulate.world import World

_CHANGES = frozenset(
    {
        "joined",
        "leaving",
        "left",
        "expired_member",
        "graced",
        "added",
        "removing",
        "claimed",
        "incarnation",
        "configured",
    }
)
"""What may move resources for reasons of its own."""

MOST_MOVES = 2
"""A resource that is given up goes to another member once, which may then have one too many, and later to nobody."""


class S6Poison(Check):
    """Nothing else is interrupted.

    While nothing else changes, a resource that is given up again and again, for any reason, has at most two others
    revoked, however long that goes on. A resource that is given up twice in a row, for reasons other than its givers'
    own trouble, is paused; the pauses between attempts double from one session timeout up to five minutes, but for
    what was being asked back when it was given up. Changes of members and of the list move resources themselves, for as
    long as they may be gathered and drained.
    """

    promise = "S6"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        it = world.settings
        self._settling_ms = 2 * it.session_timeout_ms + it.revocation_timeout_ms
        self._pauses: Counter[str | None] = Counter()
        self._noted_at: dict[str | None, int] = {}
        """When it was given up, or its pause ended."""
        self._in_a_row = InARow(it.session_timeout_ms, OWN_TROUBLE)
        self._begin()

    def _begin(self) -> None:
        self._calm_from = self.world.now + self._settling_ms
        self._given_up: set[str | None] = set()
        self._moved: list[str | None] = []

    def data_lost(self, known_from: int) -> None:
        """All counts start again."""
        del known_from
        self._pauses.clear()
        self._in_a_row.clear()
        self._begin()

    def journal(self, entry: JournalEntry) -> None:
        """Counts what is given up and what moves."""
        self._check_pauses(entry)
        self._check_row(entry)
        if entry.kind in _CHANGES:
            self._begin()
        elif entry.kind == "abandoned":
            self._given_up.add(entry.resource)
        elif entry.kind == "revoking" and self.world.now > self._calm_from:
            self._moved.append(entry.resource)
            if self._given_up and len(self._moved) > MOST_MOVES * len(self._given_up):
                self.broken(f"{len(self._moved)} resources moved for {len(self._given_up)} that nobody can work")

    def _check_pauses(self, entry: JournalEntry) -> None:
        name = entry.resource
        if entry.kind in ("released", "removed", "repaired"):
            self._pauses.pop(name, None)
        elif entry.kind in ("abandoned", "resumed"):
            if entry.at_ms - self._noted_at.get(name, entry.at_ms) > self._in_a_row.forgotten_ms:
                self._pauses.pop(name, None)
            self._noted_at[name] = entry.at_ms
        elif entry.kind == "halted" and entry.reason == "paused":
            self._check_length(name, (entry.deadline_ms or 0) - entry.at_ms)

    def _check_length(self, name: str | None, length_ms: int) -> None:
        before = self._pauses[name]
        if self._in_a_row.was_asked_back(name):
            before = max(0, before - 1)  # that it was given up once more is not counted
        if length_ms < min(self.world.settings.session_timeout_ms * 2**before, LONGEST_PAUSE_MS):
            self.broken(f"{name} is tried again after {length_ms} ms already")
        self._pauses[name] = before + 1

    def _check_row(self, entry: JournalEntry) -> None:
        self._in_a_row.journal(entry)
        count = self._in_a_row.count(entry.resource)
        if entry.kind == "granted" and count > 1:
            self.broken(f"{entry.resource} was given up {count} times in a row, and is tried again without a pause")
