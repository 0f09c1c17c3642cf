"""Which handovers of partitions are explored: members, messages, what guards a queue, and how much may go wrong."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import attrs

Guard = Literal["exclusive", "single active", "lock", "none"]


@attrs.frozen(kw_only=True)
class HandoverScope:
    """One exhaustive exploration. A budget is how often something may happen on one path, to all partitions together.

    All partitions are granted to the first of two members when it begins.
    """

    name: str
    messages: tuple[str, ...]
    """For each partition its messages, as the letters of their keys: ``"xxy"``."""
    guard: Guard = "exclusive"
    """Streams have a lock, or nothing."""
    by_key: bool = False
    """Whether messages of different keys may be worked side by side; otherwise one is worked at a time."""
    manual: bool = False
    """Whether messages are settled by the program, at any time after their handlers have returned."""
    prefetch: int = 2
    ack_every: int = 2
    budgets: tuple[tuple[str, int], ...]

    @property
    def is_stream(self) -> bool:
        """Whether the partitions are streams."""
        return self.guard in ("lock", "none")

    @property
    def names(self) -> tuple[str, ...]:
        """The partitions."""
        return tuple("pqr"[: len(self.messages)])

    def keys(self, partition: int) -> str:
        """What order is kept by: all messages of a partition have one key where order is kept by partition."""
        keys = self.messages[partition]
        return keys if self.by_key else keys[:1] * len(keys)


COSTS = {
    "ask": "ask",
    "keep": "keep",
    "give up": "give up",
    "lose": "lose",
    "cut": "lose",
    "force": "force",
    "abort": "abort",
    "fail": "fail",
}
"""What takes from which budget; all else happens as often as it can."""

_FOLLOWS = {
    "drain": "ask",
    "cut short": "ask",
    "release": "ask",
    "fenced": "force",
    "reset": "lose",
    "go on": "keep",
    "time out": "give up",
}
"""What happens only after something that costs."""


def can_happen(what: str, scopes: Iterable[HandoverScope]) -> bool:
    """Whether some scope allows it at all."""
    if what == "commit":
        return any(it.is_stream for it in scopes)
    if what == "settle":
        return any(it.manual for it in scopes)
    cost = COSTS.get(_FOLLOWS.get(what, what))
    return cost is None or any(cost in dict(it.budgets) for it in scopes)


def _budgets(*once: str) -> tuple[tuple[str, int], ...]:
    return tuple((it, 1) for it in once)


_KEPT = (("ask", 2), ("keep", 1))
_PLANNED, _MOVED = _budgets("ask", "lose"), _budgets("lose", "force")

HANDOVER_SCOPES: dict[str, HandoverScope] = {
    scope.name: scope
    for scope in (
        HandoverScope(name="1q", messages=("xx",), budgets=_PLANNED),
        HandoverScope(name="1q-force", messages=("xx",), budgets=_budgets("force")),
        HandoverScope(name="1q-refused", messages=("x",), budgets=_budgets("ask", "force")),
        HandoverScope(name="1q-abort", messages=("xx",), budgets=_budgets("ask", "abort")),
        HandoverScope(name="1q-keys", messages=("xxy",), by_key=True, budgets=_PLANNED),
        HandoverScope(name="1q-fail", messages=("xxy",), by_key=True, budgets=_budgets("ask", "fail")),
        HandoverScope(name="1q-quorum", messages=("xxx",), guard="single active", budgets=_PLANNED),
        HandoverScope(name="1q-stream", messages=("xxx",), guard="lock", budgets=_PLANNED),
        HandoverScope(name="1q-unlocked", messages=("xx",), guard="none", budgets=_budgets("force")),
        HandoverScope(name="1q-kept", messages=("xxx",), manual=True, budgets=_KEPT),
        HandoverScope(name="1q-kept-keys", messages=("xxy",), by_key=True, budgets=(*_KEPT, *_budgets("fail"))),
        HandoverScope(name="1q-kept-stream", messages=("xx",), manual=True, guard="lock", budgets=_KEPT),
        HandoverScope(name="1q-given-up", messages=("xx",), manual=True, budgets=_budgets("give up", "ask", "keep")),
        HandoverScope(name="2q", messages=("xx", "x"), budgets=_PLANNED),
        HandoverScope(name="2q-keys", messages=("xy", "x"), by_key=True, budgets=_PLANNED),
        HandoverScope(name="2q-moved", messages=("xx", "x"), budgets=_MOVED),
        HandoverScope(name="2q-keys-moved", messages=("xy", "x"), by_key=True, budgets=_MOVED),
        HandoverScope(name="1q-all", messages=("xx",), budgets=_budgets("ask", "lose", "force")),
    )
}
