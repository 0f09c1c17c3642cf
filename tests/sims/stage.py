"""A world in which nothing happens except what a test plants."""

from __future__ import annotations

from typing import Any

from cobalance.coordinator.replies import CoordinatorReply
from cobalance.coordinator.requests import Commit, CommitItem, Header, Request
from cobalance.journal import JournalEntry
from cobalance.member import actions as act
from cobalance_sims.simulate.checks import Check
from cobalance_sims.simulate.process import Process
from cobalance_sims.simulate.scenario import QUICKENED
from cobalance_sims.simulate.world import World


class Stage:
    """The world, and what tests plant in it."""

    def __init__(self, check: type[Check], *, partitions: bool = False) -> None:
        self.world = World(QUICKENED, partitions=partitions)
        self.check = check(self.world)
        self.world.watch.add(self.check)
        self.first, self.second = self.world.start(), self.world.start()
        self._seq = 0
        self.at_ms = 0
        """The time in the entries of the journal."""

    def entry(self, kind: str, **fields: Any) -> None:
        """Writes an entry of the journal, as if a script had written it."""
        self._seq += 1
        self.world._on_entry(JournalEntry(id=str(self._seq), seq=self._seq, kind=kind, at_ms=self.at_ms, **fields))

    def held(self, resource: str, member: str, token: int) -> None:
        """A resource and its holder."""
        self.entry("added", resource=resource)
        self.entry("granted", resource=resource, member=member, token=token)

    def start(self, process: Process, token: int, committed: int | None = None) -> None:
        """Tells a member that it holds r."""
        self.world.watch.started(process, act.Start("r", token, committed))

    def commit(self, number: int, token: int, offset: int) -> None:
        """A commit of the first process was accepted."""
        request = Request(Header("p1.1", number), Commit((CommitItem("r", token, offset),)))
        self.world.watch.executed(self.first, request, CoordinatorReply(status="OK", results=("OK",)))

    def let_pass(self, ms: int) -> None:
        """Lets time pass for the checkers; nobody calls Redis, but it looks as if someone did."""
        for _ in range(ms // 1_000):
            self.world.clock.now += 1_000
            self.world.redis.heard_at = self.world.now
            self.check.second()
