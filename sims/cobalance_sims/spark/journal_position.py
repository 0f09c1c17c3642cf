"""A place in a journal, and how many entries lie between two: the contiguous ``seq`` shows it, without reading them."""

from __future__ import annotations

from typing import cast

import attrs

from cobalance.errors import ProtocolMismatch

LAST_IN_MS = 2**64 - 1
"""The greatest second half of a stream's ids."""


@attrs.frozen(order=True)
class StreamId:
    """``ms-seq`` of Redis, in order."""

    ms: int
    number: int

    @classmethod
    def parse(cls, text: str) -> StreamId:
        """Parses Redis's form."""
        ms, _, number = text.partition("-")
        return cls(int(ms), int(number or 0))

    def __str__(self) -> str:
        return f"{self.ms}-{self.number}"


def before_ms(at_ms: int) -> StreamId:
    """The last id before a time."""
    return StreamId(at_ms - 1, LAST_IN_MS) if at_ms > 0 else StreamId(0, 0)


@attrs.frozen
class Position:
    """The place after one entry."""

    id: str
    seq: int
    """The entry's own seq: not to be confused with the second half of the id."""

    @classmethod
    def of(cls, group: str, entry: list[object]) -> Position:
        """The place of an entry as Redis sends it.

        Raises:
            ProtocolMismatch: it has no seq, as every entry of ours has.
        """
        id_, words = cast("bytes", entry[0]).decode(), cast("list[bytes]", entry[1])
        fields = dict(zip(words[::2], words[1::2], strict=False))
        seq = fields.get(b"seq", b"")
        if not seq.isdigit():
            raise not_ours(group, id_)
        return cls(id_, int(seq))

    @property
    def ms(self) -> int:
        """When it was written, by Redis's clock."""
        return StreamId.parse(self.id).ms

    def is_after(self, other: Position) -> bool:
        """Compares by id."""
        return StreamId.parse(self.id) > StreamId.parse(other.id)


BEGINNING = Position("0-0", 0)
"""Before everything: a group's first entry has the seq 1."""


def not_ours(group: str, id_: str) -> ProtocolMismatch:
    """The error for an entry that cannot be understood."""
    return ProtocolMismatch(
        f"Entry {id_} in the journal of the group {group} is not of the form that this version reads: was it written by another "
        "version of Cobalance, or by another program? Read it with that version, or from a later time on (since)."
    )
