"""Output of commands that read: aligned columns with Kafka's names, or JSON. Remarks go to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cobalance.redact import printable

Cell = str | int | None

UNKNOWN = "-"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, within: int | None = None) -> None:
    """Prints columns as wide as their contents, or narrowed to this line width, the widest first. Unknown values are a
    dash, never a zero.
    """
    for line in table_lines(columns, rows, within=within):
        sys.stdout.write(line + "\n")


def table_lines(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, within: int | None = None) -> Iterator[str]:
    """The lines of such a table."""
    lines = [list(columns), *([_text(cell) for cell in row] for row in rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    if within is not None:
        widths = _narrowed(widths, [len(column) for column in columns], within - len(columns) + 1)
    for line in lines:
        padded = (_cut(cell, width).ljust(width) for cell, width in zip(line, widths, strict=True))
        yield " ".join(padded).rstrip()


def print_json(value: Any, *, line: bool = False) -> None:
    """Prints one JSON document, or one line; unknown values are null."""
    sys.stdout.write(json.dumps(value, indent=None if line else 2) + "\n")
    sys.stdout.flush()


def remark(text: str) -> None:
    """Prints a remark for people, beside the output."""
    sys.stderr.write("".join(f"{printable(line)}\n" for line in text.split("\n")))


def seconds(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else f"{milliseconds / 1000:.1f}s"


def remark_waiting() -> None:
    """Explains why nothing happens."""
    remark("waiting for the sessions of members that went silent to end")


def _narrowed(widths: Sequence[int], least: Sequence[int], most: int) -> list[int]:
    """Narrows the columns to fit; headings stay whole."""
    narrowed = list(widths)
    while sum(narrowed) > most:
        can_give = [n for n, width in enumerate(narrowed) if width > least[n]]
        if not can_give:
            break
        narrowed[max(can_give, key=narrowed.__getitem__)] -= 1
    return narrowed


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _text(cell: Cell) -> str:
    """In one line: a message's id, for one, is its publisher's."""
    return UNKNOWN if cell is None else printable(str(cell))
