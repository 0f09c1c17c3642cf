"""What Redis knows of members' lists, according to the pages that were served."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.coordinator.requests import SetResources

WALKED = ("NEXT", "DONE", "RECOVERING")


class DeclaredLists:
    """Lists by subscription, which processes that name the same share."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}

    def of(self, subscription: str) -> set[str]:
        """The list of a subscription; empty until one of its pages was served."""
        return self._names.get(subscription, set())

    def learn(self, subscription: str, page: SetResources, reply: CoordinatorReply) -> set[str]:
        """Returns what is no longer on its list, or new on it. A page may have been served up to some name only."""
        if reply.results[0] not in WALKED:
            return set()
        to = reply.results[1] if len(reply.results) > 1 else ""
        before = self.of(subscription)
        outside = {name for name in before if name <= page.after or (to and name > to)}
        self._names[subscription] = outside | {name for name in page.names if not to or name <= to}
        return before ^ self._names[subscription]

    def keep(self, subscriptions: set[str]) -> None:
        """Drops lists that nobody has."""
        self._names = {it: names for it, names in self._names.items() if it in subscriptions}
