"""The requests to join: settings, and claims page by page. Waits for a previous process with the same instance id."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cobalance.coordinator.requests import GROUPS_OWN, LOOKED_FOR, Claim, Join
from cobalance.member.actions import Problem

if TYPE_CHECKING:
    from cobalance.settings import GroupSettings, MemberSettings

CLAIMS_A_PAGE = 50
"""Each is a move, and a call makes about this many."""


class Joining:
    """Makes the requests of a join, a page of claims at a time, and decides what a refusal means."""

    def __init__(self, label: str, settings: GroupSettings, member: MemberSettings) -> None:
        self._label, self._settings, self._own = label, settings, member
        self.subscription = GROUPS_OWN
        self._claims: list[Claim] = []
        self._refused_since: int | None = None
        self._refused_at = 0

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
        self._refused_since = None

    def refused(self, now: int, session_ms: int) -> list[Problem]:
        """Another process has the instance id. One that died keeps it until its session ends; one that keeps it longer
        is alive. No session ends while Redis is away, so the wait then starts over.
        """
        first = self._refused_since is None
        if self._refused_since is None or 2 * (now - self._refused_at) > session_ms:
            self._refused_since = now
        self._refused_at = now
        alive = now >= self._refused_since + 2 * session_ms
        message = (
            f"instance id {self._own.instance_id!r} belongs to another live process: stop that one, or give this one an "
            f"instance id of its own"
        )
        return [Problem("instance_in_use", message, fatal=alive)] if first or alive else []
