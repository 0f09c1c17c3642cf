"""Cuts journals into pieces of about equal size, by a search over ids that reads only a handful of entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import attrs

from cobalance_sims.spark.journal_position import BEGINNING, Position, StreamId, before_ms

if TYPE_CHECKING:
    from cobalance_sims.spark.journal_options import JournalOptions


LEAST = 20_000
"""Entries in a task: its start takes as long as reading that many."""


@attrs.frozen
class Slice:
    """What one task reads: of one group, after `start` and up to `end`. Plans contain it, so it holds no address."""

    group: str
    start: Position
    end: Position


class Places(Protocol):
    """What a search asks of the server."""

    def first(self, group: str, at_ms: int = 0) -> Position | None:
        """The first entry from a time on."""

    def next(self, group: str, place: Position) -> Position | None:
        """The first entry after a place."""

    def newest(self, group: str, until_ms: int | None = None) -> Position | None:
        """The newest entry, or the newest before a time."""

    def last_within_ms(self, group: str, start: Position, count: int) -> Position:
        """The entry at most `count` after one, within the same millisecond."""


def start_of(places: Places, group: str, since_ms: int | None) -> Position:
    """Where to start reading a group that was not read before: at the beginning, or at a time.

    If what is left begins after that time, entries of interest may have been trimmed, and it is read from "the
    beginning", so that they are reported.
    """
    if since_ms is None:
        return BEGINNING
    found, oldest = places.first(group, since_ms), places.first(group)
    if found is None:
        newest = places.newest(group)
        return Position(str(before_ms(since_ms)), newest.seq) if newest else BEGINNING
    return BEGINNING if found == oldest else Position(str(before_ms(since_ms)), found.seq - 1)


def cut_all(places: Places, wholes: Sequence[Slice], options: JournalOptions) -> Iterator[Slice]:
    """Cuts slices into pieces of at most about ``partition_entries``, and into ``min_partitions`` of them, unless these
    would be small.
    """
    share = sum(length(places, whole) for whole in wholes) // options.min_partitions
    for whole in wholes:
        yield from cut(places, whole, min(options.partition_entries, max(share, LEAST)))


def length(places: Places, piece: Slice) -> int:
    """About how many entries it has: at least one."""
    head = places.next(piece.group, piece.start)
    return max(1, piece.end.seq - head.seq + 1) if head else 1


def cut(places: Places, whole: Slice, entries: int) -> Iterator[Slice]:
    """Cuts a slice into adjacent pieces of about this many entries. The last one may be half as long again."""
    rest, end = whole, whole.end
    while (middle := limited(places, rest, entries + entries // 2, take=entries)) != end:
        yield attrs.evolve(rest, end=middle)
        rest = attrs.evolve(rest, start=middle)
    yield rest


def limited(places: Places, whole: Slice, most: int, take: int | None = None) -> Position:
    """The end of the slice if it has at most ``most`` entries; else a place about `take` (else `most`) entries after
    its start.

    If a history started again in between, seq falls and does not help: then it is the end.
    """
    head = places.next(whole.group, whole.start)
    if head is None or not whole.end.is_after(head) or whole.end.seq - head.seq < most:
        return whole.end
    return _seek(places, whole.group, head, whole.end, head.seq - 1 + (take or most))


def _seek(places: Places, group: str, low: Position, high: Position, seq: int) -> Position:
    """The last entry up to a seq, between two entries: first the millisecond by bisection, then the entry in it."""
    high_ms = high.ms
    while high_ms - low.ms > 1:
        middle_ms = (low.ms + high_ms) // 2
        found = places.first(group, middle_ms)
        if found is not None and found.seq <= seq:
            low = found
        else:
            high_ms = middle_ms
    return places.last_within_ms(group, low, seq - low.seq)


def shares(pending: Mapping[str, int], most: int) -> dict[str, int]:
    """How many entries of each group a micro-batch takes: in proportion to what waits, and at least one."""
    total = sum(pending.values())
    return {group: max(1, count * most // total) if total > most else count for group, count in pending.items()}


def behind(place: Position, other: Position | None) -> bool:
    """Whether there is something to read after a place."""
    return other is not None and StreamId.parse(other.id) > StreamId.parse(place.id)
