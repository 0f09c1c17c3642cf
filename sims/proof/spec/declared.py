"""What Redis knows of the lists that members name, as the pages that were served say."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.coordinator.requests import SetResources

WALKED = ("NEXT", "DONE", "RECOVERING")


class Declared:
    """By subscription: processes that name the same have one."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}

    def of(self, subscription: str) -> set[str]:
        """Nothing, as long as none of its pages was served."""
        return self._names.get(subscription, set())

    def learn(self, subscription: str, page: SetResources, reply: CoordinatorReply) -> set[str]:
        """What is on its list no longer, or only now. A page may have been served up to some name only."""
        if reply.results[0] not in WALKED:
            return set()
        to = reply.results[1] if len(reply.results) > 1 else ""
        before = self.of(subscription)
        outside = {name for name in before if name <= page.after or (to and name > to)}
        self._names[subscription] = outside | {name for name in page.names if not to or name <= to}
        return before ^ self._names[subscription]

    def keep(self, subscriptions: set[str]) -> None:
        """Lists that nobody has are let go of."""
        self._names = {it: names for it, names in self._names.items() if it in subscriptions}
