"""Turns journal entries, a page at a time, into Arrow batches of events; and adds rows for missing entries.

Arrow does the work, so that there is no Python object for a field, of which a page has some 50,000.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cobalance.errors import CobalanceError
from cobalance_sims.records import EVENT, JOURNAL
from cobalance_sims.spark.journal_position import not_ours
from cobalance_sims.spark.schemas import arrow_schema

if TYPE_CHECKING:
    from cobalance_sims.spark.journal_options import OnGap
    from cobalance_sims.spark.journal_slices import Slice

GAP = "gap"
"""The kind of a row that stands for entries that are gone; its seq is that of the last of them."""

SCHEMA = pa.schema(
    [field.with_nullable(it.nullable) for field, it in zip(arrow_schema(EVENT), EVENT.columns, strict=True)]
)
"""Spark compares nullability here, too."""

_STORED = {"deadline_ms": "deadline"}
"""Columns that have another name in the journal."""

_EFFORT = ("handled", "busy_ms", "late_ms")
"""Columns that share one field, ``effort``: three numbers with slashes between them, each possibly empty."""

_REQUIRED = frozenset({"seq", "kind", "at_ms"})

ALL = frozenset(EVENT.names)


class JournalIncomplete(CobalanceError):
    """Entries are gone, and the query was to fail in this case."""


class Rows:
    """The events of one slice, with gaps."""

    def __init__(self, piece: Slice, on_gap: OnGap, schema: pa.Schema = SCHEMA) -> None:
        """`schema` has the columns that are wanted; only they are decoded, and what shows a gap."""
        self._piece, self._on_gap, self._schema = piece, on_gap, schema
        self._names = frozenset(schema.names)
        self._last_seq = piece.start.seq
        self._last_ms = piece.start.ms

    def page(self, fields: Fields) -> Iterator[pa.RecordBatch]:
        """One page as batches: a single one, unless there are gaps."""
        batch = decode(self._piece.group, fields, self._names)
        wanted, done = self._wanted(batch), 0
        for at in self._jumps(batch):
            yield wanted.slice(done, at - done)
            yield self._gap(batch["seq"][at].as_py(), batch["at_ms"][at].as_py(), self._seq_before(batch, at))
            done = at
        self._last_seq = batch["seq"][-1].as_py()
        self._last_ms = batch["at_ms"][-1].as_py()
        yield wanted.slice(done)

    def _wanted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([batch[name] for name in self._schema.names], schema=self._schema)

    def end(self) -> Iterator[pa.RecordBatch]:
        """What is missing at the end, when everything is read: perhaps the whole slice."""
        if self._last_seq < self._piece.end.seq:
            yield self._gap(self._piece.end.seq + 1, max(self._last_ms, self._piece.end.ms), self._last_seq)

    def _jumps(self, batch: pa.RecordBatch) -> list[int]:
        """Where the seq is not the next one. An incarnation continues above what its members saw, or starts again."""
        seqs = batch["seq"].to_numpy()
        suspects = np.flatnonzero(np.diff(seqs, prepend=self._last_seq) != 1)
        return [int(at) for at in suspects if batch["kind"][int(at)].as_py() != "incarnation"]

    def _seq_before(self, batch: pa.RecordBatch, at: int) -> int:
        return int(batch["seq"][at - 1].as_py() if at else self._last_seq)

    def _gap(self, before_seq: int, at_ms: int, after_seq: int) -> pa.RecordBatch:
        """In a history that started again, everything before its first entry is missing."""
        first = after_seq + 1 if before_seq > after_seq else 1
        missing = f"{first} to {before_seq - 1}"
        group = self._piece.group
        if self._on_gap == "fail":
            raise JournalIncomplete(
                f"The journal of the group {group} lacks the entries {missing}: Redis trimmed them (the group's journal_length) or "
                "lost them. Read from a later time on (since), or let gaps be reported as rows (onGap=report); read more often, "
                "or raise journal_length, so that it does not happen again."
            )
        values = {
            "run": group,
            "source": JOURNAL,
            "seq": before_seq - 1,
            "kind": GAP,
            "at_ms": at_ms,
            "reason": missing,
        }
        row = dict(zip(EVENT.names, EVENT.row(values), strict=True))
        return pa.RecordBatch.from_pylist([{name: row[name] for name in self._schema.names}], self._schema)


class Fields(Protocol):
    """The fields of a page of entries, one column each."""

    def __len__(self) -> int:
        """How many entries there are."""

    def ids(self) -> pa.Array:
        """The ids of the entries, in bytes."""

    def column(self, name: str) -> pa.Array:
        """A field's values in bytes, null where an entry does not have it; the last one where it has several."""

    def entries(self) -> list[list[Any]]:
        """Each entry as an id and a list of words."""


class ListFields:
    """The fields of entries as a parser of the protocol gives them."""

    def __init__(self, entries: list[list[Any]]) -> None:
        counts = np.fromiter((len(words) for _, words in entries), np.int64, len(entries)) // 2
        words = list(chain.from_iterable(words for _, words in entries))
        names = pa.array(words[0::2], pa.binary()).dictionary_encode()
        self._values = pa.array(words[1::2], pa.binary())
        self._codes = names.indices.to_numpy()
        self._known = {name.as_py(): code for code, name in enumerate(names.dictionary)}
        self._rows = np.repeat(np.arange(len(entries)), counts)
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def ids(self) -> pa.Array:
        return pa.array([entry[0] for entry in self._entries], pa.binary())

    def column(self, name: str) -> pa.Array:
        code = self._known.get(name.encode())
        if code is None:
            return pa.nulls(len(self), pa.binary())
        found = np.flatnonzero(self._codes == code)
        places = np.full(len(self), -1)
        places[self._rows[found]] = found
        return self._values.take(pa.array(places, mask=places < 0))

    def entries(self) -> list[list[Any]]:
        return self._entries


def decode(group: str, fields: Fields, names: frozenset[str] = ALL) -> pa.RecordBatch:
    """Decodes a page into events: the columns of these names, and those that every entry has.

    Raises:
        ProtocolMismatch: an entry is not of our form; the message names it.
    """
    try:
        return _batch(group, fields, names | _REQUIRED)
    except pa.ArrowInvalid:
        pass
    entries = fields.entries()
    if len(entries) > 1:
        for entry in entries:  # One of them is the culprit.
            decode(group, ListFields([entry]), names)
    raise not_ours(group, entries[0][0].decode())


def _batch(group: str, fields: Fields, names: frozenset[str]) -> pa.RecordBatch:
    schema = pa.schema([field for field in SCHEMA if field.name in names])
    effort = _effort(fields.column("effort")) if names.intersection(_EFFORT) else {}
    known = {"run": pa.repeat(group, len(fields)), "source": pa.repeat(JOURNAL, len(fields)), **effort}
    for field in schema:
        if field.name == "id":
            known["id"] = _text(fields.ids())
        elif field.name not in known:
            known[field.name] = _converted(fields.column(_STORED.get(field.name, field.name)), field.type)
    if any(known[name].null_count for name in _REQUIRED):
        raise pa.ArrowInvalid("a field that every entry has is missing")
    if "deadline_ms" in known:
        known["deadline_ms"] = _null_where(known["deadline_ms"], 0)
    return pa.RecordBatch.from_arrays([known[name] for name in schema.names], schema=schema)


def _converted(words: pa.Array, kind: pa.DataType) -> pa.Array:
    if words.null_count == len(words):
        return pa.nulls(len(words), kind)
    if pa.types.is_string(kind):
        return _text(words)
    text = words.view(pa.string())
    try:
        return text.cast(kind)
    except pa.ArrowInvalid:  # An empty one is not known; any other that is no number is refused again.
        return _null_where(text, "").cast(kind)


def _text(words: pa.Array) -> pa.Array:
    try:
        return words.cast(pa.string())
    except pa.ArrowInvalid:  # A reason may hold anything.
        found = words.to_pylist()
        return pa.array([None if word is None else word.decode(errors="replace") for word in found], pa.string())


def _null_where(array: pa.Array, value: str | int) -> pa.Array:
    equal = pc.equal(array, value)
    return pc.if_else(equal, pa.scalar(None, array.type), array) if pc.any(equal).as_py() else array


def _effort(words: pa.Array) -> dict[str, pa.Array]:
    if words.null_count == len(words):
        return {name: pa.nulls(len(words), pa.int64()) for name in _EFFORT}
    pattern = "/".join(rf"(?P<{name}>\d*)" for name in _EFFORT)
    found = pc.extract_regex(_text(words), rf"^{pattern}$")
    return {name: _converted(pc.struct_field(found, name), pa.int64()) for name in _EFFORT}


def read_slice(
    piece: Slice, pages: Iterator[Fields], on_gap: OnGap, schema: pa.Schema = SCHEMA
) -> Iterator[pa.RecordBatch]:
    """All batches of a slice, with the columns of the schema."""
    rows = Rows(piece, on_gap, schema)
    for fields in pages:
        yield from (batch for batch in rows.page(fields) if batch.num_rows)
    yield from rows.end()
