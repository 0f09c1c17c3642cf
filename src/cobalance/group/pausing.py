"""What a member holds, and which of it is to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.errors import NotHeld
from cobalance.group.membership import Membership

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cobalance.group.tenure import Tenure


class Pausing(Membership):
    """The part of :class:`cobalance.group.group.Group` that pauses and resumes resources."""

    @property
    def tenures(self) -> dict[str, Tenure]:
        """What is held now, by resource."""
        return {it.resource: it.tenure for it in self._roster.everything() if it.tenure is not None and it.current}

    def pause(self, *resources: str) -> None:
        """No new work is to begin on these before :meth:`resume`; what has begun is finished. They stay held, rebalances that leave
        them here included; what was handed over or lost, and comes back, is not paused.

        A consumer group sees to it by itself; a ``work`` function looks at ``tenure.paused``.

        Raises:
            NotHeld: this member does not hold one of them; nothing was changed.
        """
        for tenure in self._held(resources):
            tenure.pause(on=True)

    def resume(self, *resources: str) -> None:
        """Undoes :meth:`pause`.

        Raises:
            NotHeld: this member does not hold one of them; nothing was changed.
        """
        for tenure in self._held(resources):
            tenure.pause(on=False)

    @property
    def paused(self) -> frozenset[str]:
        """What is held and paused."""
        return frozenset(name for name, tenure in self.tenures.items() if tenure.paused)

    def _held(self, resources: Iterable[str]) -> list[Tenure]:
        held = self.tenures
        missing = [name for name in resources if name not in held]
        if missing:
            raise NotHeld(f"this member does not hold {', '.join(map(repr, missing))}: pause only what you hold")
        return [held[name] for name in resources]
