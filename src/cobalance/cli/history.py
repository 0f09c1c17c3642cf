"""``cobalance group history``."""

from __future__ import annotations

import json as json_lines
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import attrs
from cyclopts import Parameter

from cobalance.cli.options import THIS_REDIS, Json, Name, RedisOptions
from cobalance.cli.output import Cell, seconds
from cobalance.cli.watching import Page, Watching, until_interrupted
from cobalance.cli.watching import watch as watch_pages
from cobalance.errors import UsageError, counted
from cobalance.journal import BEGINNING, Gap, Journal, JournalEntry, JournalFollower, with_gaps
from cobalance.operate.wording import said_by
from cobalance.redact import printable

COLUMNS = ("SEQ", "TIME", "KIND", "RESOURCE", "CONSUMER-ID", "TOKEN", "DRAIN", "COMMITTED", "REASON")

WATCHED = 20
"""Entries that --watch shows."""


def history(
    name: Name,
    /,
    *,
    last: Annotated[int | None, Parameter(help="Only the newest entries, this many.")] = None,
    follow: Annotated[bool, Parameter(negative="", help="Continue with new entries until Ctrl-C.")] = False,
    watch: Watching = False,
    json: Json = False,
    redis: RedisOptions = THIS_REDIS,
) -> None:
    """Show what happened in a group, and why, from its journal.

    With --follow, each entry comes when it is made, and --json writes one object per line. --watch shows the newest 20
    (or --last) in place.
    """
    if follow and watch:
        raise UsageError("Give one of --follow and --watch.")
    with redis.admin() as admin:
        journal = admin.journal(name)
        if follow:
            _follow(journal, json=json)
        if watch:
            newest = Newest(journal, last or WATCHED)
            watch_pages(lambda: _page(newest.read()), json=json)
        _page(deque(with_gaps(journal.entries()), last)).print(json=json)


class Newest:
    """The newest entries of a journal, of which only what is new is read."""

    def __init__(self, journal: Journal, count: int) -> None:
        self._follower, self._seq = JournalFollower(journal), 0
        self._kept: deque[JournalEntry | Gap] = deque(maxlen=count)

    def read(self) -> Sequence[JournalEntry | Gap]:
        for entry in with_gaps(self._follower.entries(), last_seq=self._seq):
            self._kept.append(entry)
            if isinstance(entry, JournalEntry):
                self._seq = entry.seq
        return tuple(self._kept)


def _page(entries: Iterable[JournalEntry | Gap]) -> Page:
    shown = tuple(entries)
    return Page(columns=COLUMNS, rows=[_row(it) for it in shown], json=[_object(it) for it in shown])


@until_interrupted()
def _follow(journal: Journal, *, json: bool) -> None:
    for entry in with_gaps(_endless(journal)):
        line = (
            json_lines.dumps(_object(entry)) if json else "\t".join(printable(str(cell or "-")) for cell in _row(entry))
        )
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _endless(journal: Journal) -> Iterator[JournalEntry]:
    return journal.follow(BEGINNING, threading.Event())


def _object(entry: JournalEntry | Gap) -> dict[str, Any]:
    if isinstance(entry, Gap):
        return {"kind": "gap", "missing": entry.missing, "after_seq": entry.after_seq, "before_seq": entry.before_seq}
    return attrs.asdict(entry)


def _row(entry: JournalEntry | Gap) -> tuple[Cell, ...]:
    if isinstance(entry, Gap):
        return None, None, "gap", *[None] * 5, f"{counted(entry.missing, 'entry', 'entries')} missing"
    return (
        entry.seq,
        datetime.fromtimestamp(entry.at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        entry.kind,
        entry.resource,
        entry.member,
        entry.token,
        seconds(entry.drain_ms),
        entry.committed,
        _who(entry) if entry.kind == "joined" else f"{entry.reason}{said_by(entry)}".strip() or None,
    )


def _who(entry: JournalEntry) -> str | None:
    """Identifies the process; the reason is its previous member id."""
    words = [
        entry.label,
        entry.instance_id and f"instance id {entry.instance_id}",
        None if entry.capacity is None else f"capacity {entry.capacity}",
        f"was {entry.reason}" if entry.reason not in {"", "-"} else None,
    ]
    return ", ".join(filter(None, words)) or None
