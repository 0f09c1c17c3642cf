"""Logs a member's own events: one line per event, however many resources are involved.

The first event after a pause is logged at once, and what follows within :data:`GATHERED_MS` is combined. So draining
five hundred resources one by one takes two or three lines, and the log keeps up with a member that has a hundred
thousand.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs

from cobalance.member import actions as act
from cobalance.member import events as ev

if TYPE_CHECKING:
    from cobalance.member.session import Session
    from cobalance.settings import MemberSettings

log = logging.getLogger("cobalance.group")

GATHERED_MS = 250

MOST_NAMES = 8
"""Most names in one line."""

LONGEST_NAME = 60

_STOPPED: dict[act.AbortReason, str] = {
    "lost": "lost {}: they are somebody else's, whatever runs is told to stop",
    "deadline": "forced to let go of {}: their time to be handed over is up, whatever runs is told to stop",
    "fenced": "stops {}: its session may have ended",
    "left": "stops {}",
}
"""Hung handlers are logged elsewhere."""

_WARNED_OF = frozenset({"lost", "deadline", "fenced"})


@attrs.define
class _Gathered:
    """Resources combined in one line."""

    level: int
    number: int = 0
    names: list[str] = attrs.Factory(list)

    def add(self, resource: str) -> None:
        self.number += 1
        if len(self.names) < MOST_NAMES:
            self.names.append(resource)

    def __str__(self) -> str:
        more = f" and {self.number - len(self.names)} more" if self.number > len(self.names) else ""
        return f"{self.number} ({', '.join(map(cut, self.names))}{more})"


class EventLog:
    """Logs the events of one session. On the engine's thread.

    Args:
        group: its name.
        label: identifies this process, for display.
        member: this process's own settings.
        session: the session to log.
    """

    def __init__(self, group: str, label: str, member: MemberSettings, session: Session) -> None:
        self._group, self._label, self._own, self._session = group, label, member, session
        self._gathered: dict[str, _Gathered] = {}
        self._next_at = self._leaves_since = 0
        self._member = ""

    def hear(self, event: ev.Event, now: int) -> None:
        """Takes note of an event before the session handles it."""
        match event:
            case ev.Drained(resource, token) if self._session.holdings.is_worked(resource, token):
                stays = self._session.leaving.remain
                self._gather("finished {}, kept for its return" if stays else "hands over {}", resource)
            case ev.Abandoned(resource, token, reason) if self._session.holdings.is_worked(resource, token):
                self._gather(f"gave up {{}}: {reason}", resource)
            case ev.StopAsked() if self._member and not self._leaves_since:
                self._leaves_since = now
                self._say(f"leaves, holding {self._session.holdings.number}")

    def tell(self, action: act.Action, now: int) -> None:
        """Takes note of an action of the session."""
        match action:
            case act.Start(resource):
                self._gather("was assigned {}", resource)
            case act.Drain(resource, _, abort_at) if not self._leaves_since:
                self._gather(f"is to hand over {{}} within {seconds(abort_at - now)}", resource)
            case act.Keep(resource):
                self._gather("keeps {} after all", resource)
            case act.Abort(resource, _, reason) if reason in _STOPPED:
                level = logging.WARNING if reason in _WARNED_OF else logging.INFO
                self._gather(_STOPPED[reason], resource, level)
            case act.Joined(member):
                self._joined(member)
            case act.Left() if self._member:
                self._say("left" + (f" after {seconds(now - self._leaves_since)}" if self._leaves_since else ""))

    def _joined(self, member: str) -> None:
        instance = f", instance id {cut(self._own.instance_id)}" if self._own.instance_id else ""
        again = " again" if self._member else ""
        self._member = member
        self._say(f"joined{again} as {member} on {self._label}, capacity {self._own.capacity}{instance}")

    def _gather(self, words: str, resource: str, level: int = logging.INFO) -> None:
        self._gathered.setdefault(words, _Gathered(level)).add(resource)

    def _say(self, words: str) -> None:
        self._write_all()
        log.info("group %s: %s", self._group, words)

    @property
    def due_at(self) -> int | None:
        """When :meth:`write` has something to write."""
        return self._next_at if self._gathered else None

    def write(self, now: int) -> None:
        """Writes the combined lines, unless something was written a moment ago."""
        if self._gathered and now >= self._next_at:
            self._write_all()
            self._next_at = now + GATHERED_MS

    def _write_all(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for words, what in gathered.items():
            log.log(what.level, "group %s: %s", self._group, words.replace("{}", str(what)))


def cut(name: str) -> str:
    """Shortens a name to fit into a line."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def seconds(ms: int) -> str:
    return f"{max(0, ms) / 1000:.1f} s"
