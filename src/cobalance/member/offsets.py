"""Commits that wait for an answer. Those of one tenure are sent as one, with the highest offset."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, cast

from cobalance.coordinator.requests import Commit, CommitItem
from cobalance.limits import STARTING
from cobalance.member.actions import CommitDone

if TYPE_CHECKING:
    from cobalance.member.events import CommitAsked, CommitOutcome

COMMITS_A_CALL = 100


class PendingCommits:
    """Commits that were requested and not answered."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, int], list[CommitAsked]] = {}
        self._sent: dict[tuple[str, int], list[CommitAsked]] = {}

    def add(self, asked: CommitAsked) -> None:
        self._waiting.setdefault((asked.resource, asked.token), []).append(asked)

    def take(self) -> list[CommitItem]:
        """The items of the next request, as many as fit into a call."""
        if not self._waiting:
            return []
        keys = list(islice(self._waiting, COMMITS_A_CALL))
        self._sent = {key: self._waiting.pop(key) for key in keys}
        return [CommitItem(name, token, max(it.offset for it in asked)) for (name, token), asked in self._sent.items()]

    def answered(self, payload: Commit, results: tuple[str, ...]) -> list[CommitDone]:
        """Returns the outcome of each commit, as if it had been sent alone: one below an earlier one has regressed."""
        done: list[CommitDone] = []
        for item, result in zip(payload.items, results, strict=True):
            highest = STARTING
            for asked in self._sent.pop((item.resource, item.token), []):
                outcome = "REGRESSED" if result == "OK" and asked.offset < highest else result
                highest = max(highest, asked.offset)
                done.append(CommitDone(asked.ticket, cast("CommitOutcome", outcome)))
        return done

    def retry(self) -> None:
        """The request was refused as a whole, but its tenures live on: sends the commits again."""
        for key, asked in self._sent.items():
            self._waiting[key] = asked + self._waiting.get(key, [])
        self._sent = {}

    def drop_all(self) -> list[CommitDone]:
        """The session is over: commits that were sent may have been stored, the others were not."""
        sent = [CommitDone(asked.ticket, "UNKNOWN") for asks in self._sent.values() for asked in asks]
        waiting = [CommitDone(asked.ticket, "FENCED") for asks in self._waiting.values() for asked in asks]
        self._sent, self._waiting = {}, {}
        return sent + waiting
