"""Measures how late a member's calls are answered. Recorded in the journal, for tuning session timeouts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cobalance.coordinator.requests import Effort

if TYPE_CHECKING:
    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.member.events import Abandoned, Drained


class Lateness:
    """The longest time between answered calls, beyond a heartbeat interval. Slow networks, a busy or paused Redis, a
    frozen process and garbage collection all show in it. Monotonic ms.
    """

    def __init__(self) -> None:
        self._sent_at: int | None = None
        self._longest_ms = 0

    def heard(self, sent_at: int, now: int, reply: CoordinatorReply) -> None:
        """A call sent at ``sent_at`` was answered. Refusals renew nothing, and do not count."""
        if reply.status != "OK":
            return
        if self._sent_at is not None:
            self._longest_ms = max(self._longest_ms, now - self._sent_at - reply.heartbeat_interval_ms)
        self._sent_at = sent_at

    def noted_in(self, event: Drained | Abandoned) -> Drained | Abandoned:
        """Adds the lateness to the end of a tenure, if it was worked, and starts over."""
        if event.effort is None:
            return event
        longest, self._longest_ms = self._longest_ms, 0
        return attrs.evolve(event, effort=Effort(event.effort.handled, event.effort.busy_ms, longest))
