"""How a process that was asked to stop goes: whether it keeps what it holds, what it asks for in which order, and when it
gives up.

The theory. A leave that gives everything up is sent at once, before any release, or the coordinator would give back what is
released. One that keeps everything for the rejoin grace (instance id) is sent last: when nothing runs any more and the
offsets of what is kept have been committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.coordinator.requests import Leave

if TYPE_CHECKING:
    from cobalance.member.holdings import Holdings
    from cobalance.member.lease import Lease
    from cobalance.settings import MemberSettings


class Leaving:
    """One process's leave; nothing before it is asked for. Times are the member's monotonic ms."""

    def __init__(self, member: MemberSettings) -> None:
        self._own = member
        self._due = False
        self.asked_at: int | None = None
        """When the process was asked to stop; ``None`` before."""
        self.remain = False
        """Whether everything is kept for the rejoin grace."""

    def ask(self, now: int, *, remain: bool) -> int:
        """The process is asked to stop. By the returned time its work must have drained."""
        self.asked_at = now
        self.remain = remain and self._own.instance_id is not None
        return now + self._own.drain_timeout_ms

    def begin(self) -> None:
        """It is a member that can leave."""
        self._due = not self.remain

    def first_request(self) -> Leave | None:
        """What is asked for ahead of everything else."""
        due, self._due = self._due, False
        return Leave() if due else None

    def last_request(self, holdings: Holdings) -> Leave | None:
        """What is asked for when there is nothing else to ask for."""
        if holdings.unfinished() or (holdings.any_known() and not self.remain):
            return None
        return Leave(remain=self.remain)

    def over(self, now: int, holdings: Holdings, lease: Lease) -> bool:
        """Whether it ends by now, answered or not."""
        return self.asked_at is not None and now >= self.gives_up_at(self.asked_at, holdings, lease)

    def gives_up_at(self, asked_at: int, holdings: Holdings, lease: Lease) -> int:
        """When a process that was asked to stop ends, answered or not: once nothing runs and the session cannot have
        outlived the silence, and at the latest a session timeout after its drain timeout.
        """
        latest = asked_at + self._own.drain_timeout_ms + lease.session_ms
        if holdings.unfinished():
            return latest
        return min(latest, asked_at + lease.session_ms if lease.until is None else lease.until)
