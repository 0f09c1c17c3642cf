"""S4 as users see it: what they learn about their commits is true."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cobalance.coordinator.requests import Commit, Release
from cobalance_sims.simulate.checks.base import Check

if TYPE_CHECKING:
    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.coordinator.requests import Request
    from cobalance.journal import JournalEntry
    from cobalance.member import actions as act
    from cobalance.member.events import CommitOutcome
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.work import SimulatedTenure
    from cobalance_sims.simulate.world import World

Asked = tuple[str, int, int]
"""Resource, token, offset."""


class S4Told(Check):
    """A commit reported as stored is stored; one reported as fenced was not stored; one reported as regressed is below
    the stored offset. A tenure is released as finished only when its work has finished, and its final offset is stored
    at that point, or when it is kept for the rejoin grace. In the end every commit has been answered.

    Exempt are answers that were on the way when data was lost, and two session timeouts after it.
    """

    promise = "S4"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._stored: dict[str, int] = {}
        self._unheard: Counter[tuple[Asked, str]] = Counter()
        self._outdated: set[tuple[Asked, str]] = set()
        self._ended_at: dict[tuple[str, int], int] = {}
        self._begun: set[tuple[str, int]] = set()
        self._unsure_until = 0

    def data_lost(self, known_from: int) -> None:
        del known_from
        self._unsure_until = self.world.now + 2 * self.world.settings.session_timeout_ms
        self._stored.clear()
        self._outdated |= self._unheard.keys()
        self._unheard.clear()
        self._ended_at.clear()

    def executed(self, process: Process, request: Request, reply: CoordinatorReply) -> None:
        del process
        if not isinstance(request.payload, Commit | Release):
            return
        items = [(item.resource, item.token, item.offset) for item in request.payload.items]
        for (resource, token, offset), result in zip(items, reply.results, strict=True):
            if result == "OK" and offset is not None:
                self._stored[resource] = max(offset, self._stored.get(resource, 0))
            if offset is not None and isinstance(request.payload, Commit):
                self._unheard[(resource, token, offset), result] += 1

    def committed(self, process: Process, asked: Asked, outcome: CommitOutcome) -> None:
        resource, _, offset = asked
        was_stored = self._unheard.pop((asked, "OK"), 0)
        if (asked, outcome) in self._outdated:
            self._outdated.discard((asked, outcome))
            return
        if self.world.now < self._unsure_until:
            return
        if outcome == "OK" and offset > self._stored.get(resource, 0):
            self.broken(
                f"{process.name} is told that {offset} is stored for {resource}, but {self._known(resource)} is"
            )
        unknown = offset if self.world.redis.lost_data else 0  # nobody knows what a stale Redis still has stored
        if outcome == "REGRESSED" and offset > self._stored.get(resource, unknown):
            self.broken(
                f"{process.name} is told that {offset} for {resource} is behind what is stored, but {self._known(resource)} is"
            )
        if outcome == "FENCED" and was_stored:
            self.broken(
                f"{process.name} is told that its commit of {offset} for {resource} was fenced, but it is stored"
            )

    def _known(self, resource: str) -> int | None:
        return self._stored.get(resource)

    def started(self, process: Process, action: act.Start) -> None:
        del process
        self._begun.add((action.resource, action.token))
        if action.resource in self._stored and action.committed is not None:  # perhaps by a script that then died
            self._stored[action.resource] = max(action.committed, self._stored[action.resource])

    def drained(self, process: Process, tenure: SimulatedTenure) -> None:
        del process
        self._begun.discard((tenure.resource, tenure.token))
        if self.world.now >= self._unsure_until:
            self._ended_at[tenure.resource, tenure.token] = tenure.done

    def journal(self, entry: JournalEntry) -> None:
        """Claims restore offsets; a tenure may end well, or its member be kept for the grace."""
        if entry.kind == "claimed" and entry.resource in self._stored and entry.committed is not None:
            self._stored[entry.resource] = max(entry.committed, self._stored[entry.resource])
        if entry.kind == "released" and (entry.resource, entry.token) in self._begun:
            self.broken(f"{entry.resource} is released by {entry.member} as finished, and its work is not")
        if entry.kind == "released" and (entry.committed or 0) < self._end_of(entry.resource or "", entry.token or 0):
            self.broken(f"{entry.resource} is released at {entry.committed}, but its work ended further on")
        if entry.kind == "graced" and entry.reason == "left":
            for name, it in self.world.redis.ledger.resources.items():
                if it.owner == entry.member and self._end_of(name, it.token) > self._stored.get(name, 0):
                    self.broken(
                        f"{name} is kept for {entry.member} at {self._known(name)}, but its work ended further on"
                    )

    def _end_of(self, resource: str, token: int) -> int:
        return self._ended_at.get((resource, token), 0)

    def settled(self) -> None:
        for process in self.world.living.values():
            for resource, _, offset in process.tickets.values():
                self.broken(f"a commit of {offset} for {resource} at {process.name} was never answered")
