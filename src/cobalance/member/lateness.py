"""How late a member's calls are answered, for the journal: session timeouts are tuned by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cobalance.coordinator.requests import Effort

if TYPE_CHECKING:
    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.member.events import Abandoned, Drained


class Lateness:
    """The longest time, beyond a heartbeat interval, for which the last answered call was not followed by another. Slow
    networks, a busy or paused Redis, a frozen process and a garbage collector all show in it. Monotonic ms.
    """

    def __init__(self) -> None:
        self._sent_at: int | None = None
        self._longest_ms = 0

    def heard(self, sent_at: int, now: int, reply: CoordinatorReply) -> None:
        """A call that was sent then is answered now. Refusals renew nothing, and do not count."""
        if reply.status != "OK":
            return
        if self._sent_at is not None:
            self._longest_ms = max(self._longest_ms, now - self._sent_at - reply.heartbeat_interval_ms)
        self._sent_at = sent_at

    def noted_in(self, event: Drained | Abandoned) -> Drained | Abandoned:
        """The end of a tenure, which now tells it too, unless nobody worked it; the count begins again."""
        if event.effort is None:
            return event
        longest, self._longest_ms = self._longest_ms, 0
        return attrs.evolve(event, effort=Effort(event.effort.handled, event.effort.busy_ms, longest))
