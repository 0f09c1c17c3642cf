"""What a member holds, and which of it is paused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.errors import NotHeld, UsageError
from cobalance.group.membership import Membership

if TYPE_CHECKING:
    from cobalance.group.tenure import Tenure


class Pausing(Membership):
    """Pauses and resumes resources, for :class:`cobalance.group.group.Group`."""

    @property
    def tenures(self) -> dict[str, Tenure]:
        """The tenures held now, by resource."""
        return {it.resource: it.tenure for it in self._roster.everything() if it.tenure is not None and it.current}

    def pause(self, *resources: str) -> None:
        """Lets no new work begin on these resources until :meth:`resume`; running work is finished. They stay held,
        also through rebalances that leave them here. A resource that is handed over or lost is not paused when it
        comes back.

        A consumer group pauses by itself; a ``work`` function has to check ``tenure.paused``.

        Raises:
            NotHeld: this member does not hold one of them; nothing was changed.
            UsageError: nothing is named.
        """
        if not resources:
            raise UsageError("name what to pause, such as pause(*group.tenures) for all that is held")
        for tenure in self._held(resources):
            tenure.pause(on=True)

    def resume(self, *resources: str) -> None:
        """Undoes :meth:`pause`, without names for all that is held.

        Raises:
            NotHeld: this member does not hold one of them; nothing was changed.
        """
        for tenure in self._held(resources):
            tenure.pause(on=False)

    @property
    def paused(self) -> frozenset[str]:
        """The resources that are held and paused."""
        return frozenset(name for name, tenure in self.tenures.items() if tenure.paused)

    def _held(self, resources: tuple[str, ...]) -> list[Tenure]:
        held = self.tenures
        missing = [name for name in resources if name not in held]
        if missing:
            raise NotHeld(f"this member does not hold {', '.join(map(repr, missing))}: pause only what you hold")
        return [held[name] for name in resources or held]
