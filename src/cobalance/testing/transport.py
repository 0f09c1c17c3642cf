"""A member's connection to the in-process Redis, which a test can cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cobalance.coordinator.transport import Reply, Script


class OwnTransport(MemoryTransport):
    """The transport of one member."""

    is_cut = False

    def call(self, script: Script, keys: Sequence[str], args: Sequence[str | int | bytes]) -> Reply:
        """Runs the script, unless the connection is cut."""
        if self.is_cut:
            raise Unreachable("the test has cut this member off from Redis", outcome="not_executed")
        return super().call(script, keys, args)
