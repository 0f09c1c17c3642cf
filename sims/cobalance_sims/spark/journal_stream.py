"""The journals as a stream. Its offset says for each group which entry was read last, by id and seq.

The ids show where reading continues; the seqs show whether anything is missing there. A stream never goes backwards.
When Redis was emptied, or came back older than what was read, the stream waits for the group to continue (its members
rejoin and number their entries above what they have seen) and then reports what is missing; with ``onGap=fail`` it
fails at once. A Redis that does not answer is retried for ``retryS``; after that the query fails, and resumes from its
checkpoint when it is started again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from cobalance_sims.spark.journal import ALL_COLUMNS, Columns, JournalSlice, read_piece
from cobalance_sims.spark.journal_position import Position
from cobalance_sims.spark.journal_rows import JournalIncomplete
from cobalance_sims.spark.journal_server import JournalServer, is_pattern
from cobalance_sims.spark.journal_slices import Slice, behind, cut_all, length, limited, shares, start_of

if TYPE_CHECKING:
    import pyarrow as pa

    from cobalance_sims.spark.journal_options import JournalOptions

_DISCOVER_EVERY_S = 10.0
"""Looking for new groups scans all keys of Redis."""

Offset = dict[str, Any]
Places = dict[str, Position]


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process of the driver while the query runs; :meth:`read` runs in the tasks."""

    def __init__(self, options: JournalOptions, columns: Columns = ALL_COLUMNS) -> None:
        self._options, self._columns = options, columns
        self._server: JournalServer | None = None
        self._target: Places | None = None
        self._seen: Places = {}
        self._groups: list[str] = []
        self._discovered_s: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks open connections of their own."""
        return {**self.__dict__, "_server": None}

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's names, here and below
        """Nothing is read yet. `since` is resolved now and kept: "two hours ago" must mean the same after a restart."""
        return {"since_ms": self._options.since_ms, "groups": {}}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of one micro-batch."""
        most = self._options.max_entries_per_batch
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Everything up to now is read, and nothing that comes later."""
        self._target = self._newest(self._connected(), self._discovered({}))

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """How far the next micro-batch goes."""
        server, read = self._connected(), places(start)
        self._seen = self._newest(server, self._discovered(read)) if self._target is None else self._target
        self._check_lost(read, self._seen)
        pending = self._pending(server, read, self._seen, start["since_ms"])
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return _offset(start, {**read, **_ends(server, pending, most)})

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802
        """The newest entries when they were last looked up, for the query's progress."""
        return {"groups": _shown(self._seen)} if self._seen else None

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The slices between two offsets, the same after a restart: the end has what `since` meant at planning time."""
        server = self._connected()
        wholes = self._pending(server, places(start), places(end), end["since_ms"])
        return [JournalSlice(piece) for piece in cut_all(server, wholes, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_piece(self._options, partition, self._columns)

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    def _connected(self) -> JournalServer:
        if self._server is None:
            self._server = JournalServer(self._options)
        return self._server

    def _discovered(self, read: Places) -> list[str]:
        """The groups to read. One that was read before may be missing for a while, after Redis lost its data."""
        wanted = tuple(word for word in self._options.groups if word not in read and word not in self._groups)
        due = self._discovered_s is None or time.monotonic() - self._discovered_s > _DISCOVER_EVERY_S
        if wanted and (due or not all(map(is_pattern, wanted))):
            found = self._connected().groups(wanted) if not read else self._found_later(wanted)
            self._groups = sorted({*self._groups, *found})
            self._discovered_s = time.monotonic()
        return sorted({*self._groups, *filter(self._is_wanted, read)})

    def _is_wanted(self, group: str) -> bool:
        """A checkpoint may know other groups, which an earlier query has read."""
        return any(fnmatchcase(group, word) for word in self._options.groups)

    def _found_later(self, wanted: tuple[str, ...]) -> list[str]:
        """While the stream runs, a pattern may match nothing."""
        names = tuple(word for word in wanted if not is_pattern(word))
        patterns = tuple(word for word in wanted if is_pattern(word))
        server = self._connected()
        return [*(server.groups(names) if names else ()), *server.matching(patterns)]

    @staticmethod
    def _newest(server: JournalServer, groups: list[str]) -> Places:
        found = {group: server.newest(group) for group in groups}
        return {group: place for group, place in found.items() if place is not None}

    def _check_lost(self, read: Places, newest: Places) -> None:
        for group, place in read.items():
            if self._options.on_gap != "fail" or not self._is_wanted(group):
                continue
            if group not in newest or behind(newest[group], place):
                raise JournalIncomplete(
                    f"The journal of the group {group} was read up to the entry {place.id} (seq {place.seq}), and Redis no longer has "
                    "that: it lost its data, came back older, or is another server. With onGap=report the stream would wait for the "
                    "group to go on, and report what is missing; to start over, use another checkpoint."
                )

    @staticmethod
    def _pending(server: JournalServer, read: Places, ends: Places, since_ms: int | None) -> list[Slice]:
        begin = {group: read.get(group) or start_of(server, group, since_ms) for group in ends}
        return [Slice(group, begin[group], end) for group, end in sorted(ends.items()) if behind(begin[group], end)]


def _ends(server: JournalServer, pending: list[Slice], most: int | None) -> Places:
    if most is None:
        return {piece.group: piece.end for piece in pending}
    waiting = {piece.group: length(server, piece) for piece in pending}
    allowed = shares(waiting, most)
    return {piece.group: limited(server, piece, allowed[piece.group]) for piece in pending}


def places(offset: Offset) -> Places:
    """The places in an offset."""
    return {group: Position(place["id"], place["seq"]) for group, place in offset["groups"].items()}


def _offset(start: Offset, read: Places) -> Offset:
    return {"since_ms": start["since_ms"], "groups": _shown(read)}


def _shown(read: Places) -> dict[str, dict[str, str | int]]:
    return {group: {"id": place.id, "seq": place.seq} for group, place in sorted(read.items())}
