"""The resource list that this process declares to its group, page by page."""

from __future__ import annotations

from bisect import bisect_right
from hashlib import sha256
from typing import TYPE_CHECKING

from cobalance.coordinator.requests import SetResources
from cobalance.errors import counted
from cobalance.member.actions import Declared, Problem

if TYPE_CHECKING:
    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.coordinator.requests import Payload

NAMES_A_PAGE = 200


def digest(names: tuple[str, ...]) -> str:
    """A hash by which members recognise that they declare the same list."""
    return sha256("\n".join(names).encode()).hexdigest()[:16]


class Declaration:
    """The declared list, and how much of it the coordinator has.

    A list whose pages are under way is sent to its end before a newer one begins. Otherwise lists that come faster than
    they can be sent would never be known.
    """

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._declared = (0, "")
        self._next: tuple[int, tuple[str, ...]] | None = None
        self._known, self._is_sent = True, False
        self._after = ""
        self._not_before = 0

    def declare(self, version: int, names: tuple[str, ...]) -> None:
        """Declares a new list. The coordinator ignores versions lower than its own."""
        if version >= self._declared[0] and (self._is_sent or self._after):
            self._next = version, names
        else:
            self._begin(version, names)

    def _begin(self, version: int, names: tuple[str, ...]) -> None:
        self._names = tuple(sorted(set(names)))
        self._declared = (version, digest(self._names))
        self._next = None
        self.forget()

    def forget(self) -> None:
        """Starts over, with the newest list, since the coordinator may have lost it."""
        self._is_sent = False
        if self._next is not None:
            self._begin(*self._next)
        self._known = self._declared[0] == 0
        self._after, self._not_before = "", 0

    def rejoined(self, *, is_looked_for: bool) -> None:
        """Starts over, unless what is on the list is looked for: what was found once may be out of date, and members that
        hold what has come since would lose it. It is not sent a second time; the head looks again.
        """
        if not (is_looked_for and self._known):
            self.forget()

    def times(self) -> list[int]:
        """When the next page is due."""
        return [] if self._known else [self._not_before]

    def next_page(self, now: int) -> SetResources | None:
        """The page to send, if one is due."""
        if self._known or now < self._not_before:
            return None
        start = bisect_right(self._names, self._after)
        page = self._names[start : start + NAMES_A_PAGE]
        to = page[-1] if start + NAMES_A_PAGE < len(self._names) else ""
        version, hashed = self._declared
        self._is_sent = True
        return SetResources(version=version, digest=hashed, after=self._after, to=to, names=page)

    def answered(self, payload: Payload, reply: CoordinatorReply, now: int) -> list[Problem | Declared]:
        """Continues after the answer to a page: the next page, or the list is complete, or it is disputed."""
        if not isinstance(payload, SetResources):
            return []
        self._is_sent = False
        if (payload.version, payload.digest) != self._declared:
            return []
        result = reply.results[0]
        if result == "NEXT":
            self._after, self._not_before = reply.results[1], 0
            return []
        out = self._ended(result, reply, now)
        if self._next is not None:
            self._begin(*self._next)
            if payload.after:  # members that wait for its end ask that often
                self._not_before = now + reply.heartbeat_interval_ms // 2
        return out

    def _ended(self, result: str, reply: CoordinatorReply, now: int) -> list[Problem | Declared]:
        """The list, or its turn, has come to its end."""
        self._after, self._not_before = "", 0
        if result == "AGAIN":
            return []
        if result == "WAIT":
            self._not_before = now + reply.heartbeat_interval_ms // 4
            return []
        if result == "RECOVERING":
            self._not_before = now + reply.recovering_ms
        else:
            self._known = True
        return [Problem("list_disagrees", self._dispute(), fatal=True) if result == "DISAGREE" else Declared()]

    def _dispute(self) -> str:
        return (
            f"this process declares {counted(len(self._names), 'resource')} as version {self._declared[0]}, but the group knows another "
            f"list under that version: give all members the same list, or this one a higher version"
        )
