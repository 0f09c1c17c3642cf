"""How often in a row a resource that nobody can work was given up."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from cobalance.journal import JournalEntry

OWN_TROUBLE = frozenset({"fenced", "unconnected", "resigned", "deadline", "left", "blocked"})
"""Reasons that speak about the member that gives up, not about the resource."""

SOMEBODY_ELSES = frozenset({"fenced", "unconnected", "resigned"})
"""Those of them that make a resource go to another member each time."""

AVOIDED_SESSIONS = 3
"""Session timeouts for which unfinished work is not given back to the member that gave it up."""

REMEMBERED_MS = 600_000
"""How long it is remembered after that (50_moves.lua)."""


class InARow:
    """Counts by resource. Revoked resources do not count, nor those given up for one of these reasons."""

    def __init__(self, session_ms: int, uncounted: Collection[str]) -> None:
        self._uncounted = uncounted
        self.forgotten_ms = AVOIDED_SESSIONS * session_ms + REMEMBERED_MS
        self._counts: dict[str | None, tuple[int, int]] = {}
        self._asked_back: set[str | None] = set()

    def clear(self) -> None:
        """Data was lost, or taken back."""
        self._counts.clear()

    def count(self, resource: str | None) -> int:
        """The current count."""
        return self._counts.get(resource, (0, 0))[0]

    def was_asked_back(self, resource: str | None) -> bool:
        """Whether it was asked back in its present tenure, or the last one."""
        return resource in self._asked_back

    def journal(self, entry: JournalEntry) -> None:
        """Counts what is given up; a resource that is released in order, or paused, starts again at zero."""
        name = entry.resource
        if entry.kind == "repaired":
            self.clear()
        elif entry.kind in ("released", "removed", "halted", "claimed"):
            self._counts.pop(name, None)
        elif entry.kind == "abandoned" and name not in self._asked_back and entry.reason not in self._uncounted:
            count, since = self._counts.get(name, (0, 0))
            self._counts[name] = (1 if entry.at_ms - since > self.forgotten_ms else count + 1, entry.at_ms)
        if entry.kind == "revoking":
            self._asked_back.add(name)
        elif entry.kind in ("granted", "cancelled"):
            self._asked_back.discard(name)
