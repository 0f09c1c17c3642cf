"""The way of one member to a Redis in this process, which can be cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cobalance.coordinator.transport import Reply, Script


class OwnTransport(MemoryTransport):
    """Of one member alone."""

    is_cut = False

    def call(self, script: Script, keys: Sequence[str], args: Sequence[str | int | bytes]) -> Reply:
        """Runs the script, while the way is open."""
        if self.is_cut:
            raise Unreachable("the test has cut this member off from Redis", outcome="not_executed")
        return super().call(script, keys, args)
