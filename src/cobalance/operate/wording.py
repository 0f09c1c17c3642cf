"""Words for what a journal has: who did what, and why a resource moved. Explanations and the dashboard use the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from cobalance.coordinator.advice import command
from cobalance.operate.moves import TRIED_AGAIN
from cobalance.settings import STORED_NAMES

if TYPE_CHECKING:
    from cobalance.description import GroupDescription
    from cobalance.journal import JournalEntry
    from cobalance.operate.moves import Moves

GIVEN_UP = {
    "failed": "its handler failed",
    "hung": "its handler ran for longer than max_processing_ms",
    "deadline": "its drain had not finished in time",
    "cancelled": "the program cancelled it",
    "resigned": "the program resigned from it",
    "channel": "RabbitMQ closed its channel",
    "left": "its process was leaving",
    "blocked": "the event loop of its process was blocked",
    "fenced": "its process was cut off from Redis",
    "overlap": "its handler could not be stopped",
    "halted": "it was halted",
    "queue_missing": "its queue was missing",
    "unconnected": "its process was not connected to RabbitMQ",
    "still_unconnected": "its process was still not connected to RabbitMQ",
}
"""Reason of an ``abandoned`` entry, up to a colon and the type of an error → words."""

CAME_BACK = "came back under its instance id"

RESUMED = {"resumed": "resumed", "not_halted": "was not halted", "unknown": "no such partition"}
"""What became of a halted resource that was to be resumed → words."""


def of_group(group: GroupDescription, action: str, *names: str, **options: object) -> str:
    """A command of ``cobalance group`` for this group."""
    return command(f"group {action}", group.name, *names, key_prefix=group.key_prefix, **options)


@attrs.frozen
class Wording:
    """Puts entries of a journal into words."""

    who: Callable[[str | None], str]
    """A member id → how people know it."""

    def begun(self, moves: Moves, ago: str = "") -> str:
        """How the present tenure of a resource began; `ago` says when, such as "12 min ago"."""
        begun, ended = moves.begun, moves.ended
        if begun is None:
            return "The journal does not say how it came there"
        who, when = self.who(begun.member), ago and f" {ago}"
        if begun.kind == "claimed":
            return f"{who} has it from before {self.cause(moves.begun_after)}{ago and f', {ago}'}"
        if moves.resumed is not None and ended is not None:
            return f"It was given to {who}{when}, after it {resumed(moves.resumed)}; before that, {self.ended(moves, ended)}"
        if ended is None or ended.handover_id != begun.handover_id:
            return f"It was given to {who}{when}, after {self.cause(moves.begun_after)}"
        return f"It moved to {who}{when}: {self.ended(moves, ended)}"

    def ended(self, moves: Moves, ended: JournalEntry) -> str:
        """How a tenure ended, and why it did."""
        who = self.who(ended.member)
        is_asked = moves.revoked is not None and moves.revoked.handover_id == ended.handover_id
        asked = f", {self.asked_back(moves)}" if is_asked else ""
        after = f" after {duration(ended.drain_ms)}" if ended.drain_ms else ""
        wordings = {
            "released": f"{who} finished and released it{after}{asked}",
            "abandoned": f"{who} gave it up{asked}, since {given_up(ended.reason)}",
            "forced": f"{who} had not finished by the revocation timeout{asked}, so it was moved by force",
            "expired": f"{who} {expired(ended.reason)}",
            "inherited": f"{who} {CAME_BACK}",
            "withdrawn": f"it was taken back from {who} before that had heard of it",
        }
        return wordings[ended.kind]

    def asked_back(self, moves: Moves) -> str:
        """Why the holder was, or is, asked to release it."""
        reason = moves.revoked.reason if moves.revoked is not None else ""
        if reason == "leaving":
            return "because it was leaving"
        if reason == "removed":
            return "because no list named it any more"
        return f"to even out the shares after {self.cause(moves.revoked_after)}"

    def cause(self, entry: JournalEntry | None) -> str:
        """A change of the group, after which resources are assigned again."""
        if entry is None:
            return "something that the journal does not reach back to"
        who = self.who(entry.member)
        wordings = {
            "joined": f"{who} joined",
            "leaving": f"{who} began to leave",
            "left": f"{who} {CAME_BACK if entry.reason == 'inherited' else 'left'}",
            "graced": f"{who} {_graced(entry.reason)}",
            "expired_member": f"{who} was found dead"
            if entry.reason != "grace"
            else f"the rejoin grace of {who} was over",
            "added": "resources were added to the list",
            "removing": "resources were removed from the list",
            "resumed": f"{entry.resource} {resumed(entry)}",
            "incarnation": "the group was created" if entry.reason == "created" else "Redis lost data of the group",
            "recovered": "the group was created, and nobody held anything"
            if entry.reason == "created"
            else "the group had found out who held what",
        }
        return wordings[entry.kind]


def given_up(reason: str) -> str:
    """Why a holder gave a resource up."""
    kind, _, error = reason.partition(":")
    words = GIVEN_UP.get(kind, kind)
    return f"{words} ({error})" if error else words


def resumed(entry: JournalEntry) -> str:
    """By whom, to be put behind a name."""
    return "was tried again after a pause" if entry.reason == TRIED_AGAIN else f"was resumed{said_by(entry)}"


def halted(entry: JournalEntry) -> str:
    """Why nobody works it, to be put behind a name."""
    kind, _, error = entry.reason.partition(":")
    if kind == "paused":
        return "was given up again and again"
    return f"was halted ({error})" if error else "was halted"


def ordered(entry: JournalEntry) -> str:
    """What an administrator changed besides, and who that was."""
    if entry.kind == "reset":
        return f"Committed offsets were set{said_by(entry)}"
    words = entry.reason.split()
    changes = dict(zip(words[::2], words[1::2], strict=False))
    said = [f"{name} was set to {changes[stored]}" for name, stored in STORED_NAMES.items() if stored in changes]
    if "offsets_known" in changes:
        said.append("it was said that no committed offset is lost")
    return f"{', '.join(said) or 'the settings were changed'}{said_by(entry)}"


def said_by(entry: JournalEntry) -> str:
    """Who that was, to be put behind a sentence; "" if the journal does not have it."""
    user, _, place = (entry.by or "").rpartition("/")
    name, _, host = place.partition("@")
    if name != "dashboard":
        return f" by {entry.by}" if entry.by else ""
    return f"{user and f' by {user}'} in the dashboard on {host}"


def dashboard_user(user: str, host: str) -> str:
    """What the journal has of somebody who uses a dashboard on that machine; "" is a user without a name."""
    return f"{user}/dashboard@{host}" if user else f"dashboard@{host}"


def _graced(reason: str) -> str:
    wordings = {"left": "left its place to be kept", "replaced": "joined again under another member id"}
    return wordings.get(reason) or f"{expired(reason)}; its place is kept"


def expired(reason: str) -> str:
    """How a member's session ended that did not leave."""
    wordings = {
        "crashed": "was seen to be dead",
        "grace": "did not come back for it within the rejoin grace",
        "removed": "was gone when it was removed",
    }
    return wordings.get(reason, "was silent for longer than the session timeout")


def duration(milliseconds: int | None) -> str:
    """A duration for people, in the largest unit that tells something."""
    if milliseconds is None:
        return "an unknown time"
    if milliseconds < 1_000:
        return f"{max(0, milliseconds)} ms"  # clocks of servers differ
    seconds = milliseconds / 1000
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"
