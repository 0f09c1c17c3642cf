"""When a replay is ended early: what the group's journal shows, beside what may be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import attrs

from cobalance.ownership import BEGINNINGS, Ownership

if TYPE_CHECKING:
    from cobalance.journal import JournalEntry
    from cobalance.settings import GroupSettings

SLACK_MS = 5_000
"""What a busy machine may add to a promise."""


@attrs.frozen(kw_only=True)
class Limits:
    """What ends a replay early."""

    unworked_ms: int
    """A resource is without an owner for longer."""
    expiries: int
    """More sessions expire."""
    lag: int | None = None
    """More messages wait in all partitions together."""


class LimitWatch:
    """Follows the journal from its beginning."""

    def __init__(self, limits: Limits, settings: GroupSettings) -> None:
        self._limits = limits
        self._pending_ms = settings.revocation_timeout_ms + settings.session_timeout_ms + SLACK_MS
        self._expired_ms = 2 * settings.session_timeout_ms + settings.rejoin_grace_ms + SLACK_MS
        self._ownership = Ownership()
        self._labels: dict[str, str] = {}
        self._dead: dict[str, int] = {}
        self._broken = ""
        self._calm_since = self._expiries = 0

    def know(self, members: Iterable[tuple[str, str]]) -> None:
        """Members that are there, and their labels."""
        self._labels.update(members)

    def killed(self, label: str, at_ms: int) -> None:
        """A process was killed: its member has to go within its session timeout, at worst two (L3)."""
        self._dead.update(dict.fromkeys((it for it, known in self._labels.items() if known == label), at_ms))

    def take(self, entry: JournalEntry, *, counts: bool) -> None:
        """The next entry; ``counts`` if it is part of the replay."""
        it = self._ownership.resources.get(entry.resource or "")
        if counts and entry.kind in BEGINNINGS and it is not None and not self._ownership.recovering:
            if (entry.token or 0) <= it.token:
                self._broken = f"S1: {entry.resource} was given away under token {entry.token}, after {it.token}"
            if it.owner and it.owner != entry.member:
                self._broken = f"S1: {entry.resource} was given to {entry.member} while {it.owner} had it"
        self._ownership.apply(entry, entry.at_ms)
        if entry.kind == "joined":
            self._labels[entry.member or ""] = entry.label or ""
        self._expiries += counts and entry.kind == "expired_member" and entry.reason != "grace"

    def reason(self, now_ms: int, lag: int | None, *, somebody_runs: bool) -> str:
        """Why to end now; "" for none. Where nobody runs, nobody notices what is due, and that time does not count."""
        if not somebody_runs:
            self._calm_since = now_ms
        if self._broken:
            return f"a promise was broken: {self._broken}"
        if self._expiries > self._limits.expiries:
            return f"{self._expiries} sessions have expired, more than {self._limits.expiries}"
        if self._limits.lag is not None and lag is not None and lag > self._limits.lag:
            return f"the lag is {lag:,}, more than {self._limits.lag:,}"
        return self._late(now_ms)

    def _late(self, now_ms: int) -> str:
        def lasts(since_ms: int) -> int:
            return now_ms - max(since_ms, self._calm_since)

        it, most = self._ownership, self._limits.unworked_ms
        for name in sorted(it.free):
            if lasts(it.resources[name].since) > most:
                return f"{name} has been without an owner for more than {most / 1000:g} s"
        for name, since in it.pending.items():
            if lasts(since) > self._pending_ms:
                return f"a promise was broken: L2: {name} has been asked back for {lasts(since) / 1000:.0f} s"
        for member, at in self._dead.items():
            if member in it.members and lasts(at) > self._expired_ms:
                return (
                    f"a promise was broken: L3: {member} was killed {lasts(at) / 1000:.0f} s ago, and is still a member"
                )
        return ""
