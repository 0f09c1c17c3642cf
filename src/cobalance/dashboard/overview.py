"""All groups, a row each, and their topics; those first that need attention."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.coordinator.transport import Listing
from cobalance.dashboard.feed import FRESH_S, SHARE
from cobalance.description import GroupDescription
from cobalance.errors import CobalanceError
from cobalance.journal import JournalFollower
from cobalance.operate.explanation import Explanation
from cobalance.operate.moves import Account
from cobalance.operate.topics import TopicDescription, topics_of
from cobalance.operate.watch import Looks
from cobalance.ownership import BEGINNINGS
from cobalance.redact import redact

if TYPE_CHECKING:
    from cobalance.admin import GroupAdmin
    from cobalance.journal import Journal
    from cobalance.operate.watch import Watch

HOUR_MS = 3_600_000

MOST_TOPICS = 1_000
"""In one answer."""


class Overview:
    """Any number of threads may ask."""

    def __init__(
        self, admin: GroupAdmin, watch: Callable[[str], Watch], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._admin, self._watch, self._clock = admin, watch, clock
        self._lock, self._looks = Lock(), Looks()
        self._watches: dict[str, Watch] = {}
        self._recent: dict[str, RecentMoves] = {}
        self._rows: list[dict[str, Any]] = []
        self._topics: list[TopicDescription] = []
        self._problem: str | None = None
        self._fresh_until = 0.0

    def look(self) -> list[dict[str, Any]]:
        """The groups as they are, or were a moment ago.

        Raises:
            ServerError: Redis cannot be queried.
        """
        with self._lock:
            if self._clock() >= self._fresh_until:
                begun = self._clock()
                self._rows = self._read()
                self._fresh_until = begun + max(FRESH_S, SHARE * (self._clock() - begun))
            return self._rows

    def groups(self) -> dict[str, Any]:
        """The groups, and why some may be missing.

        Raises:
            ServerError: Redis cannot be queried.
        """
        return {"groups": self.look(), "problem": self._problem}

    def topics(self) -> dict[str, Any]:
        """The topics of all groups, each as far as one group works it.

        Raises:
            ServerError: Redis cannot be queried.
        """
        self.look()
        found = sorted(self._topics, key=_topic_urgency)
        return {
            "topics": [attrs.asdict(it) for it in found[:MOST_TOPICS]],
            "left_out": max(0, len(found) - MOST_TOPICS),
            "problem": self._problem,
        }

    def _read(self) -> list[dict[str, Any]]:
        listing = Listing.of(self._admin.list)
        self._problem = None if listing.problem is None else redact(str(listing.problem))
        hidden = listing.hidden(self._watches)
        names = {*listing.names, *hidden}
        self._watches = {name: it for name, it in self._watches.items() if name in names}
        self._recent = {name: it for name, it in self._recent.items() if name in names}
        topics: list[TopicDescription] = []
        rows = self._looks.read(listing.names, lambda name, within_ms: self._row(name, topics, within_ms))
        self._topics = topics
        return sorted([*rows, *({"name": it, "problem": self._problem} for it in hidden)], key=_urgency)

    def _row(self, group: str, topics: list[TopicDescription], within_ms: int) -> dict[str, Any]:
        try:
            watch = self._watches[group] = self._watch(group)
            snapshot = watch.snapshot(within_ms=within_ms)
            topics += topics_of(snapshot)
            if group not in self._recent:
                self._recent[group] = RecentMoves(self._admin.journal(group))
            return summary(snapshot, self._recent[group].count(snapshot.at_ms))
        except CobalanceError as error:  # one that is gone, or cannot be read, hides no other
            return {"name": group, "problem": str(error)}


class RecentMoves:
    """The moves of the last hour; what is older is not read."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._follower: JournalFollower | None = None
        self._at_ms: deque[int] = deque()

    def count(self, now_ms: int) -> int:
        """How many tenures have begun within an hour.

        Raises:
            ServerError: the journal could not be read.
        """
        if self._follower is None:
            self._follower = JournalFollower(self._journal, f"{now_ms - HOUR_MS}-0")
        for entry in self._follower.entries():
            if entry.kind in BEGINNINGS:
                self._at_ms.append(entry.at_ms)
        while self._at_ms and self._at_ms[0] < now_ms - HOUR_MS:
            self._at_ms.popleft()
        return len(self._at_ms)


def summary(group: GroupDescription, moves: int) -> dict[str, Any]:
    """A group in one row. What is not known is None."""
    backlogs = [it.backlog for it in group.resources]
    lags = [it.lag for it in backlogs if it.lag is not None]
    states = [it.state for it in group.resources]
    return {
        "name": group.name,
        "state": group.state,
        "verdict": group.verdict,
        "members": len(group.members),
        "idle_members": sum(not it.resources for it in group.members),
        "partitions": len(group.resources),
        "lag": sum(lags) if len(lags) == len(backlogs) else None,
        "oldest_ms": max((it.oldest_ms for it in backlogs if it.oldest_ms is not None), default=None),
        "draining": states.count("pending"),
        "free": states.count("free"),
        "halted": states.count("halted"),
        "moves_last_hour": moves,
        "attention": [redact(it) for it in Explanation(group, Account()).attention()],
        "problem": next((redact(it.problem) for it in group.servers if it.problem), None),
    }


_ORDER = {"STOP": 0, "STALL": 1, "WARN": 2, None: 3, "OK": 4}


def _urgency(row: Mapping[str, Any]) -> tuple[int | str, ...]:
    if "state" not in row:
        return (-1, 0, 0, 0, row["name"])
    return (_ORDER[row["verdict"]], -row["halted"], -row["free"], -row["draining"], row["name"])


def _topic_urgency(it: TopicDescription) -> tuple[int | str, ...]:
    return (_ORDER[it.verdict], -(it.lag or 0), it.topic or "", it.group)
