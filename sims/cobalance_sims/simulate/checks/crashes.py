"""S2, where crashes are seen at once: whose session ends early."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.rabbitmq.consume.crash_watch import LOOK_EVERY_MS, LOOKS
from cobalance_sims.simulate.checks.base import Check

if TYPE_CHECKING:
    from cobalance.journal import JournalEntry

ROW_MS = (LOOKS - 1) * LOOK_EVERY_MS
"""How long a process is looked at, at least, before it is taken for dead."""


class S2Crashed(Check):
    """A session ends early only if its process is dead, or has lost all its connections for as long as it was looked at.

    A living process keeps everything if Redis found its listener or ran a request of it within the last row of looks;
    and if its calls have had no trouble, since it is the first to say that it has lost the broker. A member that lost all three
    connections has lost its guards, too: the broker has let others have what it worked.
    """

    promise = "S2"

    def journal(self, entry: JournalEntry) -> None:
        if entry.reason != "crashed" or entry.resource is not None or entry.member is None:
            return
        self.world.reached.count("crash seen at once")
        process = self.world.of_member(entry.member)
        if process is None or process.witness is None or process.witness.taken_for_dead != entry.member:
            return
        now = self.world.now
        if process.listens or now - process.heard_at < ROW_MS:
            self.broken(f"the session of {entry.member} ends early, and Redis has just heard from {process.name}")
        if now > process.troubled_at and process.reaches_redis and process.running:
            self.broken(f"the session of {entry.member} ends early, and {process.name} can reach Redis")
        self.world.reached.count("taken for dead")
