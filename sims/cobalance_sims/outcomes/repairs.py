"""Journal lines that a repair took back: a script wrote them and died before it wrote the records.

The last line of a repair names the last line before that script's (``torn after 41``); the lines before it give the
true state of each resource and member that the script mentioned. Records of members are written one by one, like their
lines. The record of a resource is written at the end, so either everything the script reported about it happened, or
nothing did. The group's own records are written last of all, so nothing that was reported about them happened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from cobalance_sims.outcomes.event import Event

AFTER = r"\bafter (\d+)\b"
"""Text of a repair's last line."""

_STAGES = {"gone": 0, "active": 1, "leaving": 2, "graced": 3}
_CAME_TO = {"joined": 1, "leaving": 2, "graced": 3, "left": 4, "expired_member": 4}
_OVER = 4
"""How far a member has come; it never goes back."""

_OWNED = frozenset({"granted", "held", "pending"})


def undone(events: Sequence[Event]) -> frozenset[int]:
    """Returns the ``seq`` of each line that a repair took back, given the events of one run in order."""
    found: set[int] = set()
    for at, event in enumerate(events):
        after = since(event)
        if after is not None:
            found.update(_taken_back(_behind(events, at, after)))
    return frozenset(found)


def _behind(events: Sequence[Event], at: int, after: int) -> list[Event]:
    """The lines after ``after``, newest first."""
    return list(takewhile(lambda it: it.seq > after, (events[number] for number in range(at - 1, -1, -1))))


def since(event: Event) -> int | None:
    """Returns the ``after`` of a repair's last line: the dead script's lines follow it. ``None`` for any other line,
    and where the script had written none.
    """
    said = re.search(AFTER, event.reason or "") if event.kind == "repaired" else None
    return int(said.group(1)) if said else None


def _taken_back(newest_first: list[Event]) -> Iterator[int]:
    """A repair may have died as well; the last one counts."""
    said: dict[str, Event] = {}
    torn: dict[str, list[Event]] = {}
    for event in newest_first:
        if event.kind == "repaired":
            said.setdefault(_about(event), event)
        else:
            torn.setdefault(_about(event), []).append(event)
    for about, lines in torn.items():
        yield from (line.seq for line in _not_on_record(lines, said.get(about)))


def _about(event: Event) -> str:
    return event.resource or f"={event.member or ''}"  # no name of a resource looks like this


def _not_on_record(newest_first: list[Event], record: Event | None) -> list[Event]:
    if record is None:
        return newest_first
    if record.resource is None:
        stage = _STAGES.get(record.reason or "", _OVER)
        return [line for line in newest_first if _CAME_TO.get(line.kind, _OVER + 1) > stage]
    changes = [line for line in newest_first if line.kind != "refused"]
    is_kept = bool(changes) and _is_on_record(changes[0], record)
    return [line for line in newest_first if line.kind == "refused"] if is_kept else newest_first


def _is_on_record(line: Event, record: Event) -> bool:
    """Whether the last line reported for a resource matches its record."""
    status, _, rest = (record.reason or "").partition(" ")
    return {
        "granted": (line.member, line.token) == (record.member, record.token),
        "claimed": (line.member, line.token) == (record.member, record.token),
        "revoking": status == "pending",
        "cancelled": status in _OWNED - {"pending"},
        "halted": status == "halted",
        "resumed": status != "halted",
        "added": status != "gone" and not rest,
        "removing": rest == "removing",
        "removed": status == "gone",
    }.get(line.kind, status not in _OWNED)
