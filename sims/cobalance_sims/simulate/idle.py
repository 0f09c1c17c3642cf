"""Leaves out the time in which nothing would happen, so that the cost of a run depends on what happens in it and not on
its length.

When a group has been quiet for a while, every heartbeat is answered in time and changes nothing but when the next one
is due. So whole heartbeat intervals may be left out before the next event, which then finds every process at the same
point of that interval. The clock remembers how much was left out (``Clock.skipped``), and everything reported about the
run includes it. Only tombstones and forgotten offsets would notice the difference; they are kept for minutes or days,
and nothing reads them that late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.member.session import Phase
from cobalance_sims.simulate.checks.base import Check
from cobalance_sims.simulate.checks.in_a_row import AVOIDED_SESSIONS

if TYPE_CHECKING:
    from cobalance.journal import JournalEntry
    from cobalance_sims.simulate.world import World


class Idle(Check):
    """Not a promise: checks once a second whether time can be left out."""

    promise = ""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        it = world.settings
        self._session_ms, self._gather_ms = it.session_timeout_ms, it.gather_ms
        self._period_ms = it.heartbeat_interval_ms
        self._settling_ms = it.heartbeat_interval_ms + 1_000
        self._doubt_ms = max(it.session_timeout_ms, it.revocation_timeout_ms) + 1_000
        self._burst = self._calm_at = self._gathered_at = self._avoiding_until = 0

    def journal(self, entry: JournalEntry) -> None:
        """Notes what the coordinator remembers for a while: gathered changes (70_timers.lua), members that gave up."""
        now = self.world.now
        if entry.kind == "revoking" and self._gather_ms and now != self._gathered_at:
            self._burst = self._burst + 1 if now < self._calm_at else 0
            self._calm_at = now + min(self._gather_ms * 2**self._burst, self._session_ms) + self._session_ms + 1_000
            self._gathered_at = now
        elif entry.kind == "abandoned":
            self._avoiding_until = now + AVOIDED_SESSIONS * self._session_ms + 1_000

    def second(self) -> None:
        """Skips ahead if nothing would happen."""
        world = self.world
        now = world.now
        if now < max(world.changed_at + self._settling_ms, self._calm_at, self._avoiding_until):
            return
        if now >= world.redis.disturbed_at + self._doubt_ms and self._is_stationary():
            world.clock.skip_idle(self._period_ms)

    def _is_stationary(self) -> bool:
        world, ledger = self.world, self.world.redis.ledger
        if ledger.pending or ledger.recovering or not world.redis.up:
            return False
        if any(it.paused for it in ledger.resources.values()):  # until a moment on Redis's clock
            return False
        members = {process.session.member for process in world.living.values()}
        if ledger.members.keys() != members or any(status != "active" for status in ledger.members.values()):
            return False
        return all(
            it.session.phase is Phase.ACTIVE and it.reaches_redis and not it.paused and not it.leaving
            for it in world.living.values()
        ) and all(tenure.state == "working" for it in world.living.values() for tenure in it.work.tenures.values())
