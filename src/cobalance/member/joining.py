"""The requests to join: settings, and claims page by page. Waits for a previous process with the same instance id."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cobalance.coordinator.requests import GROUPS_OWN, LOOKED_FOR, Claim, Join
from cobalance.member.actions import Problem

if TYPE_CHECKING:
    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.settings import GroupSettings, MemberSettings

CLAIMS_A_PAGE = 50
"""Each is a move, and a call makes about this many."""


class Joining:
    """Makes the requests of a join, a page of claims at a time, and decides what a refusal means."""

    def __init__(self, label: str, settings: GroupSettings, member: MemberSettings) -> None:
        self._label, self._settings, self._own = label, settings, member
        self.subscription = GROUPS_OWN
        self._claims: list[Claim] = []
        self._owner: _Owner | None = None

    @property
    def is_looked_for(self) -> bool:
        """Whether a head, an elected member, looks for what is on the subscription's list."""
        return self.subscription.startswith(LOOKED_FOR)

    def begin(self, claims: list[Claim]) -> None:
        self._claims = claims

    def page(self, previous: str, floor_token: int, session_ms: int, heartbeat_ms: int) -> Join:
        """The next page. It carries the group's timings as last known: a Redis that has lost them waits for claims as
        long as the leases run.
        """
        page = self._claims[:CLAIMS_A_PAGE]
        settings = attrs.evolve(
            self._settings,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=min(heartbeat_ms, session_ms // 3),
            revocation_timeout_ms=max(self._settings.revocation_timeout_ms, session_ms),
        )
        return Join(
            settings=settings,
            capacity=self._own.capacity,
            instance_id=self._own.instance_id,
            previous=previous or None,
            label=self._label,
            floor_token=floor_token,
            claims=tuple(page),
            last_page=len(page) == len(self._claims),
            subscription=self.subscription,
        )

    def answered(self, page: Join) -> None:
        """The coordinator accepted this page."""
        self._claims = self._claims[len(page.claims) :]
        self._owner = None

    def refused(self, reply: CoordinatorReply) -> list[Problem]:
        """Another process has the instance id. One that died keeps it until its session ends, which may have been promised
        longer than sessions are now; one that keeps it longer is alive. With each new owner the wait begins again.
        """
        first = self._owner is None
        if self._owner is None or not self._owner.is_same(reply):
            self._owner = _Owner(reply.incarnation, reply.owner, _owner_until(reply))
        alive = self._owner.is_alive(reply)
        message = (
            f"instance id {self._own.instance_id!r} belongs to another live process: stop that one, or give this one an "
            f"instance id of its own"
        )
        return [Problem("instance_in_use", message, fatal=alive)] if first or alive else []


RENEWALS_OF_THE_LIVING = 2
"""One may be a call of the dead that came late. None does for longer than a session."""


@attrs.define
class _Owner:
    """The member that has the instance id."""

    incarnation: int
    member: str
    until_ms: int
    renewals: int = 0
    """How often its session had been renewed when its end came."""

    def is_same(self, reply: CoordinatorReply) -> bool:
        return (self.incarnation, self.member) == (reply.incarnation, reply.owner)

    def is_alive(self, reply: CoordinatorReply) -> bool:
        until_ms = _owner_until(reply)
        if reply.now_ms > self.until_ms and until_ms > self.until_ms:
            self.renewals += 1
            self.until_ms = until_ms
        return self.renewals >= RENEWALS_OF_THE_LIVING


def _owner_until(reply: CoordinatorReply) -> int:
    """When the owner's session ends. A coordinator that does not say so may have heard it just now."""
    return reply.now_ms + reply.session_timeout_ms if reply.owner_until_ms is None else reply.owner_until_ms
