"""One look at a group a second, for however many browsers look at it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.dashboard.handovers import Handovers
from cobalance.dashboard.values import plain
from cobalance.description import GroupDescription
from cobalance.operate.explanation import Explanation
from cobalance.operate.verdict import WINDOW_MS
from cobalance.redact import redact

if TYPE_CHECKING:
    from cobalance.journal import Journal
    from cobalance.operate.tuned import Tuned, UnreadableTuned
    from cobalance.operate.watch import Watch

FRESH_S = 1.0

RECENT_S = 2.0
"""A look that is no older will do for a beginning."""

SHARE = 4
"""After a look that took long there is a pause of this many times as long."""

GONE_LOOKS = 600
"""For so many looks it is known what is gone; a browser that has missed more gets all of the rest."""

_AGES = {"age_ms": -1, "deadline_in_ms": 1, "tried_in_ms": 1}
"""They change with every look at what does not change."""


@attrs.frozen(kw_only=True)
class View:
    """A group at one moment."""

    number: int
    """Rises with every look."""
    group: GroupDescription
    rows: Mapping[str, tuple[int, dict[str, Any]]]
    """Resource → the number of the look at which it last changed, and how it is."""
    sentences: list[str]
    """Why the group is as it is."""
    seq: int
    """Of the newest entry in the journal."""
    numbers: Mapping[str, int]
    """Member → its number, by which it has its colour."""
    gone: Mapping[str, int]
    """Resources that are gone → the number of the look that missed them."""

    def since(self, number: int) -> dict[str, Any]:
        """What a browser needs that has seen an earlier look; all of it if it has seen none lately."""
        if self.number - number >= GONE_LOOKS:
            number = 0
        group = plain(attrs.evolve(self.group, resources=(), subscriptions=(), let_go=()))
        for name in ("resources", "subscriptions", "let_go"):
            del group[name]
        for member in group["members"]:
            member["number"] = self.numbers.get(member["id"])
        rows = [row for changed, row in self.rows.values() if changed > number]
        gone = [name for name, missed in self.gone.items() if number and missed > number]
        is_all = number == 0
        return {"group": group, "resources": rows, "gone": gone, "all": is_all, "seq": self.seq} | {
            "sentences": self.sentences,
            "window_ms": WINDOW_MS,
        }


class Feed:
    """One group. Any number of threads may ask."""

    def __init__(
        self,
        watch: Watch,
        journal: Journal,
        tuned: Callable[[], Tuned | UnreadableTuned | None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watch, self._clock = watch, clock
        self._read_tuned = tuned
        self._tuned: tuple[int, Tuned | UnreadableTuned | None] = 0, None
        self.past = Handovers(journal)
        self._lock = Lock()
        self._view: View | None = None
        self._fresh_until = 0.0
        self.asked_at = clock()

    @property
    def fresh(self) -> View | None:
        """The last look, if the next one is not due."""
        self.asked_at = self._clock()
        return self._view if self.asked_at < self._fresh_until else None

    def look(self) -> View:
        """How the group is, or was a moment ago.

        Raises:
            UnknownGroup: there is no such group any more.
            ServerError: Redis cannot be queried.
        """
        with self._lock:
            found = self.fresh
            if found is None:
                begun = self._clock()
                found = self._view = self._read(self._view, self._watch.snapshot())
                took = self._clock() - begun
                self._fresh_until = begun + max(FRESH_S, SHARE * took)
            return found

    def glance(self) -> View:
        """How the group was a few seconds ago; or, if nobody has looked for longer, as Redis has it now. A page begins
        with it, since RabbitMQ takes a second to tell of thousands of queues.

        Raises:
            UnknownGroup: there is no such group any more.
            ServerError: Redis cannot be queried.
        """
        with self._lock:
            now = self.asked_at = self._clock()
            if self._view is None or now - self._fresh_until >= RECENT_S:
                self._view, self._fresh_until = self._read(self._view, self._watch.describe()), now
            return self._view

    def tuned(self) -> Tuned | UnreadableTuned | None:
        """What was decided for the group the last time that it was tuned; asked once a look.

        Raises:
            UnknownGroup: there is no such group any more.
            ServerError: Redis cannot be queried.
        """
        number = self.look().number
        with self._lock:
            if self._tuned[0] != number:
                self._tuned = number, self._read_tuned()
            return self._tuned[1]

    def explain(self, resource: str) -> list[str]:
        """Why a resource is where it is.

        Raises:
            UsageError: there is no such resource.
        """
        group = self.look().group
        with self.past.lock:
            sentences = Explanation(group, self.past.account(resource)).sentences()
        return [redact(it) for it in sentences]

    def _read(self, before: View | None, group: GroupDescription) -> View:
        with self.past.lock:
            self.past.read()
            sentences = Explanation(group, self.past.account()).sentences()
            numbers = {it.id: self.past.numbers[it.id] for it in group.members if it.id in self.past.numbers}
        number = before.number + 1 if before is not None else 1
        rows = _rows(before, group, number)
        return View(
            number=number,
            group=group,
            rows=rows,
            sentences=[redact(it) for it in sentences],
            seq=self.past.seq,
            numbers=numbers,
            gone=_gone(before, rows, number),
        )


def _rows(before: View | None, group: GroupDescription, number: int) -> dict[str, tuple[int, dict[str, Any]]]:
    rows = {it.name: (number, plain(it)) for it in group.resources}
    if before is not None:
        for name, (_, row) in rows.items():
            known = before.rows.get(name)
            if known is not None and _lasting(known[1], before.group.at_ms) == _lasting(row, group.at_ms):
                rows[name] = (known[0], row)
    return rows


def _lasting(row: Mapping[str, Any], at_ms: int) -> dict[str, Any]:
    """A row with moments in place of ages."""
    return {
        key: at_ms + _AGES[key] * value if key in _AGES and value is not None else value for key, value in row.items()
    }


def _gone(before: View | None, rows: Mapping[str, Any], number: int) -> dict[str, int]:
    if before is None:
        return {}
    missed = {name: number for name in before.rows if name not in rows}
    known = {**before.gone, **missed}
    return {name: at for name, at in known.items() if name not in rows and number - at < GONE_LOOKS}
