"""Members that fell silent: which of them crashed, which came back, and how long healing took."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from cobalance_sims.outcomes.event import Event

SEEN = "crashed"
"""Why a session ended whose member was seen to be dead: the broker reported its closed connections."""

UNSAID = frozenset({"expired", SEEN})
"""Why a session ends that its member did not end. ``expired``: it was silent for the session timeout."""


@attrs.define(eq=False)
class Expiry:
    """A session that its member did not end."""

    member: str
    since_ms: int
    """Start of healing: the crash where it is known (simulated), else the expiry."""
    is_false: bool
    waiting: set[str]
    """Resources of the member that have no new owner yet."""
    had_any: bool
    is_sure: bool
    """Whether it is known from the start (simulated) if the member was alive."""
    healed_at: int | None = None


@attrs.define(eq=False)
class Crashes:
    """All expiries of one run."""

    expiries: list[Expiry] = attrs.Factory(list)
    _by_member: dict[str, Expiry] = attrs.Factory(dict)
    _by_resource: dict[str, Expiry] = attrs.Factory(dict)

    def expired(self, event: Event, resources: set[str]) -> None:
        """A session expired. The simulator knows whether the process was alive; a journal shows it later, if at all."""
        is_false = bool(event.alive)
        since = event.silent_since_ms if event.alive is False and event.silent_since_ms is not None else event.at_ms
        it = Expiry(event.member or "", since, is_false, set(resources), bool(resources), event.alive is not None)
        self.expiries.append(it)
        self._by_member[it.member] = it
        for resource in resources:
            self._by_resource[resource] = it

    def came_back(self, member: str) -> None:
        """The member was alive: a journal shows this when it joins again, or when a request of it is refused."""
        it = self._by_member.get(member)
        if it is not None and not it.is_sure:
            it.is_false = True

    def was_false(self, member: str | None) -> bool | None:
        """Whether the member's session expired although it was alive; ``None`` if it did not expire, or if unknown."""
        it = self._by_member.get(member or "")
        return it.is_false if it is not None and (it.is_sure or it.is_false) else None

    def owned_again(self, resource: str, at_ms: int) -> None:
        """The resource has an owner again, or should no longer have one."""
        it = self._by_resource.pop(resource, None)
        if it is not None:
            it.waiting.discard(resource)
            if not it.waiting:
                it.healed_at = at_ms

    @property
    def false(self) -> int:
        """Number of false expiries: the member was alive."""
        return sum(it.is_false for it in self.expiries)

    @property
    def heal_ms(self) -> list[int]:
        """Healing times, in order, of crashed members that owned resources."""
        return [it.healed_at - it.since_ms for it in self.expiries if not it.is_false and it.healed_at is not None]

    def unhealed_ms(self, now_ms: int) -> list[int]:
        """For each crash of which some resource has no new owner yet: how long that has been so."""
        waiting = [it for it in self.expiries if it.had_any and not it.is_false and it.healed_at is None]
        return [max(0, now_ms - it.since_ms) for it in waiting]
