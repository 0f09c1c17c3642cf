"""Splits a reply of Redis to XRANGE, as it came over the wire, into the fields of its entries: all at once, in numpy.

It is taken apart at its line ends, as if no value held a carriage return. Then every length that Redis has sent is
compared with what was found. Where all are equal, there is no other way to read the reply: each line begins where the
one before says that it does. Where one is not, :class:`Unclear` says so, and a parser of the protocol has to read it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

MARGIN = 8
"""Bytes that there must be after a reply: lines are compared four bytes at a time."""

_CARRIAGE_RETURN = 13

_SHORT = 100
"""Longer lines have their lengths compared one by one; entries of more words are left to the parser."""


class Unclear(Exception):
    """The reply cannot be split: a value holds a carriage return, an entry is very long, or this is no list of entries."""


class ReplyFields:
    """The fields of all entries of a reply."""

    def __init__(self, buffer: bytearray, length: int) -> None:
        """Splits what the buffer begins with, after which there are MARGIN bytes or more.

        Raises:
            Unclear: it cannot be split.
        """
        self._lines = _Lines(buffer, length)
        self._heads, counts = self._lines.entries()
        words = self._lines.words(self._heads, counts)
        self._names, self._values = words[0::2], words[1::2]
        self._rows = np.repeat(np.arange(len(self._heads)), counts // 2)
        self._keys = self._lines.keys(self._names)

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self._heads)

    def ids(self) -> pa.Array:
        """The ids of the entries, in bytes."""
        return self._lines.take(self._heads + 2)

    def column(self, name: str) -> pa.Array:
        """A field's values in bytes, null where an entry does not have it; the last one where it has several."""
        text = name.encode()
        found = np.flatnonzero(self._keys == _key(text))
        found = found[self._lines.hold(self._names[found], text)]
        if not len(found):
            return pa.nulls(len(self), pa.binary())
        places = np.full(len(self), -1, np.int64)
        places[self._rows[found]] = self._values[found]
        return self._lines.take(places)

    def entries(self) -> list[list[Any]]:
        """The same as a parser gives them: an id, and a list of words."""
        lines = self._lines.take(np.arange(len(self._lines.starts))).to_pylist()
        ends = [*self._heads[1:].tolist(), len(lines)]
        return [
            [lines[head + 2], lines[head + 5 : end : 2]] for head, end in zip(self._heads.tolist(), ends, strict=True)
        ]


class _Lines:
    """Where the lines of a buffer are, and what they begin with."""

    def __init__(self, buffer: bytearray, length: int) -> None:
        self._buffer = buffer
        whole = np.frombuffer(buffer, np.uint8)
        ends = np.flatnonzero(whole[:length] == _CARRIAGE_RETURN)
        if not len(ends) or ends[-1] != length - 2:
            raise Unclear
        self.starts = np.zeros(len(ends), np.int64)
        np.add(ends[:-1], 2, out=self.starts[1:])
        self._lengths = ends - self.starts
        self._four = np.ndarray((len(whole) - 3,), "<u4", buffer, strides=(1,))
        self._begins = self._four[self.starts]
        """The first four bytes of each line and of what follows."""
        bounds = np.empty(2 * len(ends) + 1, np.int32)
        bounds[0:-1:2], bounds[1::2], bounds[-1] = self.starts, ends, ends[-1]
        self._pieces = pa.Array.from_buffers(
            pa.binary(), 2 * len(ends), [None, pa.py_buffer(bounds), pa.py_buffer(buffer)]
        )
        """Each line, and the line end after it."""

    def entries(self) -> tuple[Any, Any]:
        """The first line of each entry, and how many words it has.

        An entry is a line ``*2``, its id, a line ``*14`` with the number of its words, and these; before the id and
        before each word is a line such as ``$5`` with its length.
        """
        heads = np.flatnonzero(self._begins == _PAIR)
        heads = heads[heads + 3 < len(self.starts)]
        heads = heads[self._begins[heads + 3] & 0xFF == _STAR]
        if not len(heads) or self._text(0) != b"*%d" % len(heads):
            raise Unclear
        counts = self._counts(heads + 3)
        after = heads + 4 + 2 * counts
        if heads[0] != 1 or after[-1] != len(self.starts) or (after[:-1] != heads[1:]).any():
            raise Unclear
        self._check_lengths(heads + 2)
        return heads, counts

    def words(self, heads: Any, counts: Any) -> Any:
        """The lines that hold the words of the entries: names and values in turn."""
        before = np.cumsum(counts) - counts
        found = np.repeat(heads + 5 - 2 * before, counts) + 2 * np.arange(int(counts.sum()))
        self._check_lengths(found)
        return found

    def _counts(self, lines: Any) -> Any:
        """The numbers in lines such as ``*14``, even ones."""
        begins = self._begins[lines]
        tens, ones = (begins >> 8 & 0xFF).astype(np.int64) - 48, (begins >> 16 & 0xFF).astype(np.int64) - 48
        counts = np.where(self._lengths[lines] == 3, 10 * tens + ones, tens)
        if (counts < 0).any() or (counts >= _SHORT).any() or (begins != _COUNTS[counts]).any() or (counts % 2).any():
            raise Unclear
        return counts

    def _check_lengths(self, lines: Any) -> None:
        """Compares the lengths of lines with those that the lines before them give."""
        lengths = self._lengths[lines]
        wrong = np.flatnonzero(self._begins[lines - 1] != _LENGTHS[np.minimum(lengths, _SHORT)])
        for line, length in zip(lines[wrong].tolist(), lengths[wrong].tolist(), strict=True):
            if length < _SHORT or self._text(line - 1) != b"$%d" % length:
                raise Unclear

    def _text(self, line: int) -> bytes:
        start = int(self.starts[line])
        return bytes(self._buffer[start : start + int(self._lengths[line])])

    def keys(self, lines: Any) -> Any:
        """The keys (see ``_key``) of these lines."""
        lengths = self._lengths[lines]
        return (self._begins[lines] & _MASKS[np.minimum(lengths, 4)]).astype(np.int64) | lengths << 32

    def hold(self, lines: Any, text: bytes) -> Any:
        """Which of these lines, all with the text's key, hold the text."""
        starts, found = self.starts[lines], np.full(len(lines), fill_value=True)
        for at in range(4, len(text), 4):
            begin = min(at, len(text) - 4)
            found &= self._four[starts + begin] == int.from_bytes(text[begin : begin + 4], "little")
        return found

    def take(self, lines: Any) -> pa.Array:
        """The contents of these lines, in bytes; null for a line below 0."""
        missing = lines < 0
        return self._pieces.take(pa.array(2 * lines, mask=missing if missing.any() else None))


def _key(text: bytes) -> int:
    """A number that differs where the length of two texts or one of their first four bytes does."""
    return int.from_bytes(text[:4], "little") | len(text) << 32


def _table(sign: bytes) -> Any:
    """How lines with the numbers from 0 begin, and as the last one what no line begins with."""
    texts = [sign + b"%d\r\n" % number for number in range(_SHORT)]
    return np.array([*(int.from_bytes(text[:4], "little") for text in texts), 0], np.uint32)


_STAR = ord("*")
_COUNTS, _LENGTHS = _table(b"*"), _table(b"$")
_PAIR = _COUNTS[2]
_MASKS = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF], np.uint32)
