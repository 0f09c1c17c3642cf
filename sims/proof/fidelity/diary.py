"""What a member process records, one line at a time: unbuffered, so that what was written survives SIGKILL.

Times are of the machine's wall clock, which is also the clock of its Redis and so of the group.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import attrs

Kind = Literal["ready", "member", "begin", "end", "assigned", "revoked", "lost"]


@attrs.frozen
class DiaryEntry:
    """Something that happened in a member process."""

    at_ms: float
    kind: Kind
    partition: int = -1
    number: int = 0
    """For begin and end, the message number; for assigned, revoked and lost, the token."""
    text: str = ""


class Diary:
    """The file a process writes to."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, kind: Kind, partition: int = -1, number: int = 0, text: str = "-") -> None:
        """Records an event that happens now."""
        self._file.write(f"{time.time_ns() / 1e6:.3f} {kind} {partition} {number} {text}\n".encode())


def read_diary(path: Path) -> Iterator[DiaryEntry]:
    """Reads all lines. A last line without a line end was cut off by SIGKILL and does not count."""
    if not path.exists():
        return
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            at_ms, kind, partition, number, text = line.decode().split()
            yield DiaryEntry(float(at_ms), kind, int(partition), int(number), text)  # type: ignore[arg-type]
