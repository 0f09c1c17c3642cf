"""Members that fell silent: which of them had crashed, which came back, and how long it took until others had what they held."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from cobalance_sims.outcomes.event import Event


@attrs.define(eq=False)
class Expiry:
    """A session that ended by silence."""

    member: str
    since_ms: int
    """Healing counts from here: the crash where it is known (simulated), else the expiry."""
    is_false: bool
    waiting: set[str]
    """Of what it had, what nobody has again."""
    had_any: bool
    is_sure: bool
    """Whether that it lived, or did not, is known from the beginning (simulated)."""
    healed_at: int | None = None


@attrs.define(eq=False)
class Crashes:
    """All of one run."""

    expiries: list[Expiry] = attrs.Factory(list)
    _by_member: dict[str, Expiry] = attrs.Factory(dict)
    _by_resource: dict[str, Expiry] = attrs.Factory(dict)

    def expired(self, event: Event, resources: set[str]) -> None:
        """A session ended. In the simulator it is known whether the process lived; a journal tells later, if at all."""
        is_false = bool(event.alive)
        since = event.silent_since_ms if event.alive is False and event.silent_since_ms is not None else event.at_ms
        it = Expiry(event.member or "", since, is_false, set(resources), bool(resources), event.alive is not None)
        self.expiries.append(it)
        self._by_member[it.member] = it
        for resource in resources:
            self._by_resource[resource] = it

    def came_back(self, member: str) -> None:
        """It lived: a journal shows so when it joins again, or is refused something."""
        it = self._by_member.get(member)
        if it is not None and not it.is_sure:
            it.is_false = True

    def was_false(self, member: str | None) -> bool | None:
        """Whether that member's session ended although it lived; ``None`` if it did not end, or nobody knows."""
        it = self._by_member.get(member or "")
        return it.is_false if it is not None and (it.is_sure or it.is_false) else None

    def owned_again(self, resource: str, at_ms: int) -> None:
        """Somebody has it, or nobody is to have it any more."""
        it = self._by_resource.pop(resource, None)
        if it is not None:
            it.waiting.discard(resource)
            if not it.waiting:
                it.healed_at = at_ms

    @property
    def false(self) -> int:
        """How many lived."""
        return sum(it.is_false for it in self.expiries)

    @property
    def heal_ms(self) -> list[int]:
        """Of each crash of a member that had anything, in order."""
        return [it.healed_at - it.since_ms for it in self.expiries if not it.is_false and it.healed_at is not None]

    @property
    def unhealed(self) -> int:
        """Crashes of which something is left."""
        return sum(it.had_any and not it.is_false and it.healed_at is None for it in self.expiries)
