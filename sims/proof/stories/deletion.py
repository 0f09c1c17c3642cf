"""An administrator has Redis forget a group, of which members know nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cobalance_sims.simulate.checks.base import Violation

if TYPE_CHECKING:
    from cobalance_sims.simulate.world import World


@attrs.frozen
class Delete:
    """The group is deleted by force: to its members a loss of data. Gently, it has to be refused, since somebody always lives."""

    by_force: bool = True

    def strike(self, world: World) -> None:
        """Its keys are gone; other groups, and the server, are as they were.

        Raises:
            Violation: the group went although nobody said that it must.
        """
        is_gone = world.redis.delete(by_force=self.by_force)
        world.log(None, f"the group is {'' if is_gone else 'not '}deleted{' by force' if self.by_force else ''}")
        if is_gone and not self.by_force:
            raise Violation("S4", "a group that has members is deleted, and nobody said that it must go by force")
        if is_gone:
            world.watch.data_lost(-1)
