"""A graceful leave: whether to keep what is held, what to request in which order, and when to give up.

A leave that gives everything up is sent at once, before any release; otherwise the coordinator would assign what is
released back to this member. One that keeps everything for the rejoin grace period (instance id) is sent last, when
nothing runs any more and the offsets of what is kept have been committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.coordinator.requests import Leave

if TYPE_CHECKING:
    from cobalance.member.holdings import Holdings
    from cobalance.member.lease import Lease
    from cobalance.settings import MemberSettings


class Leaving:
    """One process's leave. Times are the member's monotonic ms."""

    def __init__(self, member: MemberSettings) -> None:
        self._own = member
        self._begun = self._due = False
        self.asked_at: int | None = None
        """When the process was asked to stop; ``None`` before."""
        self.remain = False
        """Whether to keep everything for the rejoin grace period."""

    def ask(self, now: int, *, remain: bool) -> int:
        """The process is asked to stop. Returns when its work must have drained."""
        self.asked_at = now
        self.remain = remain and self._own.instance_id is not None
        return now + self._own.drain_timeout_ms

    def ask_for_good(self) -> None:
        """It is to remain, and asked to stop once more: nothing is kept."""
        if self.remain:
            self.remain, self._due = False, self._begun

    def begin(self) -> None:
        """The process is a member, so it can leave."""
        self._begun = True
        self._due = not self.remain

    def first_request(self) -> Leave | None:
        """The request to send before all others."""
        due, self._due = self._due, False
        return Leave() if due else None

    def last_request(self, holdings: Holdings) -> Leave | None:
        """The request to send when nothing else is left."""
        if holdings.unfinished() or (holdings.any_known() and not self.remain):
            return None
        return Leave(remain=self.remain)

    def over(self, now: int, holdings: Holdings, lease: Lease) -> bool:
        """Whether the leave ends by now, answered or not."""
        return self.asked_at is not None and now >= self.gives_up_at(self.asked_at, holdings, lease)

    def gives_up_at(self, asked_at: int, holdings: Holdings, lease: Lease) -> int:
        """When the leave ends, answered or not: once nothing runs and the session must have expired, and at the latest
        a session timeout after the drain timeout.
        """
        latest = asked_at + self._own.drain_timeout_ms + lease.session_ms
        if holdings.unfinished():
            return latest
        return min(latest, asked_at + lease.session_ms if lease.until is None else lease.until)
