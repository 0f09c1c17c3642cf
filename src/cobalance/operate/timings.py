"""What a journal says of a group's timeouts: how long drains took, how late heartbeats were, how long processes were
away, and how often a timeout ended what it limits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from math import ceil
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from cobalance.journal import JournalEntry

MOST = 10_000
"""So many of the newest are kept of each kind."""

_CHANGES = frozenset({"joined", "leaving", "expired_member", "graced"})
"""Changes of the membership, which are gathered if they follow each other closely."""


def _newest() -> deque[int]:
    return deque(maxlen=MOST)


@attrs.define
class Timings:
    """Of one group. All durations in milliseconds."""

    drains: deque[int] = attrs.field(factory=_newest)
    """How long holders took for what they were asked back; of those that did not finish in time, how long they had."""
    late: deque[int] = attrs.field(factory=_newest)
    """How late heartbeats were at most in each tenure that was reported, of members that were well throughout."""
    away: deque[int] = attrs.field(factory=_newest)
    """How long processes with an instance id were gone before they came back for their place."""
    gaps: deque[int] = attrs.field(factory=_newest)
    """Time between one change of the membership and the next."""
    overrun: int = 0
    """Resources that were moved by force, or given up, since their holder had not finished in time."""
    crashed: int = 0
    """Members that were seen to be dead before their session ended."""
    silent: int = 0
    """Members whose session ended."""
    not_back: int = 0
    """Instance ids whose rejoin grace ended."""
    _instances: dict[str, str] = attrs.Factory(dict)
    _gone_ms: dict[str, int] = attrs.Factory(dict)
    _changed_ms: int | None = None
    _came_back: set[str] = attrs.Factory(set)

    def take(self, entry: JournalEntry) -> None:
        """Reads one more entry."""
        if entry.kind in _CHANGES and not (entry.kind == "graced" and entry.reason == "replaced"):  # by a join
            if self._changed_ms is not None:
                self.gaps.append(max(0, entry.at_ms - self._changed_ms))
            self._changed_ms = entry.at_ms
        if (entry.kind == "released" or entry.is_overrun) and entry.drain_ms:  # 0 where nobody had asked for it
            self.drains.append(entry.drain_ms)
        self._take_late(entry)
        self.overrun += entry.is_overrun
        self._follow_members(entry)

    def _take_late(self, entry: JournalEntry) -> None:
        """The first report of a member that came back tells of its silence before that, which ended its session."""
        member = entry.member or ""
        if entry.kind == "joined" and entry.reason not in {"", "-"}:
            self._came_back.add(member)
        elif entry.kind in {"left", "expired_member"}:
            self._came_back.discard(member)
        elif entry.late_ms is not None and member in self._came_back:
            self._came_back.remove(member)
        elif entry.late_ms is not None:
            self.late.append(entry.late_ms)

    def _follow_members(self, entry: JournalEntry) -> None:
        member = entry.member or ""
        if entry.kind == "joined" and entry.instance_id is not None:
            self._instances[member] = entry.instance_id
            gone_ms = self._gone_ms.pop(entry.instance_id, None)
            if gone_ms is not None:
                self.away.append(max(0, entry.at_ms - gone_ms))
        elif entry.kind == "graced" and entry.reason != "replaced" and member in self._instances:
            self._gone_ms[self._instances[member]] = entry.at_ms
        if entry.kind in {"graced", "expired_member"}:
            self.crashed += entry.reason == "crashed"
            self.silent += entry.reason == "expired"
        if entry.kind in {"left", "expired_member"}:
            instance_id = self._instances.pop(member, "")
            if entry.reason == "grace":
                self._gone_ms.pop(instance_id, None)
                self.not_back += 1


def quantile(values: Collection[int], share: float) -> int | None:
    """The smallest value that this share of them does not exceed; None without values."""
    found = sorted(values)
    return found[max(0, ceil(share * len(found)) - 1)] if found else None
