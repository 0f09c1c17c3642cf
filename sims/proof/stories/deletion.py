"""An administrator deletes a group from Redis while members, which know nothing of it, are alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cobalance_sims.simulate.checks.base import Violation

if TYPE_CHECKING:
    from cobalance_sims.simulate.world import World


@attrs.frozen
class Delete:
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
