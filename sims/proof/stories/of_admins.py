"""Scenarios of administrators: groups are deleted under their members, and expire when nobody uses them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cobalance.settings import HOUR_MS
from cobalance_sims.simulate.checks.base import Violation
from cobalance_sims.simulate.habits import SLOW, Habits
from cobalance_sims.simulate.scenario import QUICKENED, At, Every, Scenario
from proof.stories import faults as f
from proof.stories.faults import names

if TYPE_CHECKING:
    from cobalance_sims.simulate.world import World


@attrs.frozen
class DeleteGroup:
    """Deletes the group: by force, a loss of data; otherwise it has to be refused, since a member is always alive."""

    by_force: bool = True

    def strike(self, world: World) -> None:
        """Deletes the group's keys; other groups, and the server, are unaffected.

        Raises:
            Violation: the group was deleted although force was not asked for.
        """
        is_gone = world.redis.delete(by_force=self.by_force)
        world.log(None, f"the group is {'' if is_gone else 'not '}deleted{' by force' if self.by_force else ''}")
        if is_gone and not self.by_force:
            raise Violation("S4", "a group that has members is deleted, and nobody said that it must go by force")
        if is_gone:
            world.watch.data_lost(-1)


COMMITS = Every(700, f.CommitSome(2), jitter_ms=300)

DAY_MS = 24 * HOUR_MS

SCENARIOS = (
    Scenario(
        name="group_deleted",
        summary="the group is deleted by force while members work, drain, join and crash; deleting it gently is refused",
        plan=(
            Every(9_000, DeleteGroup(by_force=False), jitter_ms=4_000),
            Every(23_000, DeleteGroup(), jitter_ms=6_000),
            Every(23_000, f.Crash(), start_ms=2_000, jitter_ms=6_000),
            Every(9_000, f.Arrive(), jitter_ms=3_000),
            Every(11_000, f.Depart(), start_ms=5_000, jitter_ms=3_000),
            Every(13_000, f.CutOff(4_000), jitter_ms=4_000),
            Every(11_000, f.Behave(SLOW, ms=6_000), jitter_ms=4_000),
            COMMITS,
        ),
        habits=Habits(drain_ms=(200, 3_000)),
        length_ms=80_000,
    ),
    Scenario(
        name="deploy_deleted",
        summary="the group is deleted by force in the middle of rolling deploys that swap and add topics; members have instance ids",
        plan=(
            At(6_000, f.Redeploy(remain=True, every_ms=5_000, wants=names(8, 4)), jitter_ms=3_000),
            At(45_000, f.Redeploy(remain=True, every_ms=5_000, wants=names(14)), jitter_ms=5_000),
            Every(31_000, DeleteGroup(), start_ms=12_000, jitter_ms=9_000),
            Every(19_000, f.Restart(1_000), jitter_ms=8_000),
            COMMITS,
        ),
        instances=True,
        settings=attrs.evolve(QUICKENED, rejoin_grace_ms=10_000),
        wants=names(8),
    ),
    Scenario(
        name="days_away",
        summary="the clock of Redis is days ahead, twice, and a group that is kept for an hour without members has its members still",
        plan=(
            At(20_000, f.StepClock(5 * DAY_MS), jitter_ms=4_000),
            At(50_000, f.StepClock(5 * DAY_MS), jitter_ms=4_000),
            Every(17_000, f.Restart(1_000), jitter_ms=6_000),
            COMMITS,
        ),
        settings=attrs.evolve(QUICKENED, idle_expiry_ms=HOUR_MS),
    ),
)
