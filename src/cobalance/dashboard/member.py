"""One member: what it does, what it has, and what it had, also after it is gone."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.dashboard.handovers import Handovers, Span, overlapping
from cobalance.dashboard.values import plain
from cobalance.errors import UsageError, counted
from cobalance.operate.member_past import MemberPast
from cobalance.operate.wording import duration
from cobalance.redact import redact

if TYPE_CHECKING:
    from cobalance.dashboard.feed import View
    from cobalance.description import GroupDescription, MemberDescription

MOST_PARTITIONS = 500
"""In one answer: those that need attention first."""

MOST_SPANS = 200
"""In one answer: the newest."""

MOST_NAMED = 5

_ALWAYS = 1 << 62


def member_answer(view: View, past: Handovers, member: str) -> dict[str, Any]:
    """All that is known of a member. Call it with the lock of `past`.

    Raises:
        UsageError: neither the group nor its journal knows it.
    """
    group = view.group
    present = next((it for it in group.members if it.id == member), None)
    known = past.members.get(member)
    if present is None and known is None:
        raise UsageError(f"group {group.name!r} has no member {member!r}, nor does its journal name one")
    rows = [row for _, row in view.rows.values() if row["owner"] == member]
    page = _Member(group, present, known or MemberPast(), past.who(member) if present is None else _who(present), rows)
    return {
        "at_ms": group.at_ms,
        "id": member,
        "who": page.name,
        "number": past.numbers.get(member),
        "member": plain(attrs.evolve(present, resources=())) if present is not None else None,
        "is_coordinator": group.coordinator == member,
        "session_timeout_ms": group.settings.session_timeout_ms,
        "sentences": [redact(it) for it in page.sentences()],
        "partitions": sorted(rows, key=_urgency)[:MOST_PARTITIONS],
        "partition_count": len(rows),
        **page.sums(),
        "history": _history(past, member),
    }


@attrs.frozen
class _Member:
    group: GroupDescription
    present: MemberDescription | None
    past: MemberPast
    name: str
    rows: list[dict[str, Any]]

    def sums(self) -> dict[str, int | None]:
        """What is left to do of what it holds. A sum of which a part is unknown is unknown."""
        lags, sent = ([row["backlog"][key] for row in self.rows] for key in ("lag", "in_flight"))
        ages = [age for row in self.rows if (age := row["backlog"]["oldest_ms"]) is not None]
        return {
            "lag": None if None in lags else sum(lags),
            "in_flight": None if None in sent else sum(sent),
            "oldest_ms": max(ages, default=None),
        }

    def sentences(self) -> Iterator[str]:
        if self.present is None:
            yield self._how_it_ended()
        else:
            yield from self._how_it_is(self.present)
            yield from self._what_waits()
        yield from self._what_it_did()

    def _how_it_ended(self) -> str:
        ended = self.past.ended
        if ended is None:
            return f"{self.name} is gone; the journal does not say how that came."
        ago = duration(self.group.at_ms - ended.at_ms)
        ways = {
            "grace": "its rejoin grace was over, and its process had not come back",
            "crashed": "it was seen to be dead",
            "expired": "it was silent for longer than the session timeout",
            "replaced": "its process had come back as another member",
            "inherited": "its process had come back as another member",
            "created": "the group was created again",
            "recovering": "Redis lost data of the group, and it did not join again",
        }
        how = ways.get(ended.reason, "it left" if ended.kind == "left" else "it was found dead")
        return f"{self.name} has been gone for {ago}: {how}."

    def _how_it_is(self, it: MemberDescription) -> Iterator[str]:
        joined = self.past.joined_ms
        since = f" It joined {duration(self.group.at_ms - joined)} ago." if joined is not None else ""
        states = {
            "active": "is at work",
            "leaving": "is leaving: it finishes what it holds",
            "graced": "is gone; what it held is kept for its instance id",
            "silent": "has been silent for longer than its session, and nobody is there to act on that",
            "dead": "is dead; what it held is being given to others",
        }
        yield f"{self.name} {states.get(it.state, it.state)}.{since}"
        least, most = it.quota
        share = f"{least}" if least == most else f"{least} to {most}"
        standby = " It is a standby (capacity 0)." if not it.capacity else ""
        yield f"It holds {len(it.resources)} of {counted(len(self.group.resources), 'partition')}; its share is {share}.{standby}"
        if self.group.coordinator == it.id:
            yield "It is the group's coordinator: it finds resources, and acts at once on what is due."

    def _what_waits(self) -> Iterator[str]:
        pending = [row for row in self.rows if row["state"] == "pending"]
        if pending:
            names = ", ".join(row["name"] for row in pending[:MOST_NAMED])
            more = f" and {len(pending) - MOST_NAMED} more" if len(pending) > MOST_NAMED else ""
            due = [row["deadline_in_ms"] for row in pending if row["deadline_in_ms"] is not None]
            limit = f"; by force in {duration(min(due))}" if due else ""
            yield f"It is handing over {names}{more}{limit}."
        ages = [(row["backlog"]["oldest_ms"], row["name"]) for row in self.rows if row["backlog"]["oldest_ms"]]
        if ages:
            age, name = max(ages)
            yield f"Its oldest message in flight, of {name}, has been with it for {duration(age)}."
        stalled = [row["name"] for row in self.rows if row["verdict"] == "STALL"]
        if stalled:
            yield f"STALL: nothing gets done of {', '.join(stalled[:MOST_NAMED])}: its handler may hang."

    def _what_it_did(self) -> Iterator[str]:
        past = self.past
        if past.handled:
            each = f", each for {past.busy_ms / past.handled:.1f} ms on average" if past.busy_ms is not None else ""
            yield f"In tenures that have ended, its handlers ran {counted(past.handled, 'time')}{each}."
        if past.cut_short:
            yield f"{past.cut_short} of its {counted(past.finished, 'tenure')} ended early: by force, or given up."
        if past.late_ms is not None:
            yield (
                f"Its heartbeats were at most {past.late_ms} ms late."
                if past.late_ms
                else "Its heartbeats were never late."
            )


def _who(it: MemberDescription) -> str:
    return f"{it.instance_id} on {it.label}" if it.instance_id else it.label or it.id


_ORDER = {"STOP": 0, "STALL": 1, "WARN": 2, None: 3, "OK": 4}


def _urgency(row: dict[str, Any]) -> tuple[int, int, int]:
    return (_ORDER[row["verdict"]], -(row["state"] == "pending"), -(row["backlog"]["lag"] or 0))


def _history(past: Handovers, member: str) -> list[dict[str, Any]]:
    """What it had, newest first."""

    def found() -> Iterator[tuple[str, Span]]:
        for name, track in past.tracks.items():
            for span in overlapping(track, 0, _ALWAYS):
                if span.owner == member:
                    yield name, span

    newest = heapq.nlargest(MOST_SPANS, found(), key=lambda it: (it[1].from_ms, it[0]))
    return [attrs.asdict(span) | {"partition": name, "why": redact(span.why)} for name, span in newest]
