"""A window of a group's past, as small as it gets: names and sentences stand once, spans are lists of numbers."""

from __future__ import annotations

from typing import Any

import attrs

from cobalance.dashboard.handovers import Handovers, overlapping
from cobalance.names import validate_name
from cobalance.redact import redact

MOST_SPANS = 40_000
"""In one answer. Of a window with more, the newest."""

MOST_HAPPENINGS = 2_000

COLUMNS = ("resource", "state", "owner", "token", "from_ms", "to_ms", "why", "end")
"""What the numbers of a span are. resource, state, owner, why and end are positions in the lists beside it; an owner
of -1 is nobody, and so on.
"""


class _Words:
    """Each text once, and its position."""

    def __init__(self) -> None:
        self.position: dict[str, int] = {}

    def __call__(self, word: str | None) -> int:
        return -1 if word is None else self.position.setdefault(word, len(self.position))


def timeline(past: Handovers, from_ms: int, to_ms: int, after_seq: int = 0) -> dict[str, Any]:
    """The spans between two moments, in group time; with `after_seq` only those that have changed since that entry, or
    all if the group was created again since. Call it with the lock of `past`.
    """
    after_seq = after_seq if after_seq <= past.seq else 0
    found = [
        (name, span)
        for name, track in past.tracks.items()
        for span in overlapping(track, from_ms, to_ms)
        if span.seq > after_seq
    ]
    is_cut = len(found) > MOST_SPANS
    if is_cut:
        found.sort(key=lambda it: it[1].from_ms)
        found = found[-MOST_SPANS:]
    resources, states, owners, whys, ends = (_Words() for _ in range(5))
    spans = [
        [
            resources(name),
            states(it.state),
            owners(it.owner),
            it.token,
            it.from_ms,
            it.to_ms,
            whys(it.why),
            ends(it.end),
        ]
        for name, it in found
    ]
    return {
        "from_ms": found[0][1].from_ms if is_cut else from_ms,
        "to_ms": to_ms,
        "first_ms": past.first_ms,
        "seq": past.seq,
        "columns": COLUMNS,
        "resources": [*resources.position],
        "states": [*states.position],
        "owners": [_owner(past, it) for it in owners.position],
        "whys": [redact(it) for it in whys.position],
        "ends": [*ends.position],
        "spans": spans,
        "happenings": _happenings(past, from_ms, to_ms, after_seq),
    }


def history(past: Handovers, resource: str) -> list[dict[str, Any]]:
    """All that is known of one resource, newest first. Call it with the lock of `past`."""
    track = past.tracks.get(validate_name("partition", resource), [])
    return [
        attrs.asdict(span)
        | {"who": past.who(span.owner), "number": past.numbers.get(span.owner or ""), "why": redact(span.why)}
        for span in overlapping(track, 0, 1 << 62)
    ]


def _owner(past: Handovers, member: str) -> dict[str, str | int | None]:
    return {
        "id": member,
        "label": past.label(member),
        "instance_id": past.instance_id(member),
        "number": past.numbers.get(member),
    }


def _happenings(past: Handovers, from_ms: int, to_ms: int, after_seq: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for it in reversed(past.happenings):
        if it.at_ms < from_ms or len(found) == MOST_HAPPENINGS:
            break
        if it.at_ms <= to_ms and it.seq > after_seq:
            found.append(attrs.asdict(it))
    return found
