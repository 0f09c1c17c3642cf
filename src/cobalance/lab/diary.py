"""What a member process records: lines that are written at once, so that they survive SIGKILL.

Tabs separate the fields of a line. All times are of the machine's monotonic clock, which its processes share.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from cobalance.lab.message import NumberedMessage

if TYPE_CHECKING:
    from cobalance.rabbitmq.partition.delivery import Delivery


@attrs.frozen(kw_only=True)
class HandlerRun:
    """A handler had a message: from its first line to its last, or to the death of its process."""

    process: str
    message: NumberedMessage
    partition: str
    """The queue that the message came from."""
    token: int
    member: str = ""
    """The member id of its process."""
    redelivered: bool = False
    offset: int | None = None
    """Only for streams."""
    begun_ns: int
    ended_ns: int | None = None
    """Just before the acknowledgement. None: it was cancelled, or its process was killed."""


@attrs.frozen
class DiaryEntry:
    """Any other event of a member process, such as: assigned, revoked, lost."""

    process: str
    kind: str
    at_ns: int
    partition: str = ""
    token: int = 0
    position: int = 0
    member: str = ""


class Diary:
    """The file that a member process writes to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)

    def begin(self, number: int, delivery: Delivery, member: str) -> None:
        """A handler begins with a message; `number` is its own, for :meth:`end`."""
        offset = "-" if delivery.offset is None else delivery.offset
        source = (delivery.queue, delivery.token, member, int(delivery.redelivered), offset)
        self._write("begin", number, *source, delivery.body.decode())

    def end(self, number: int) -> None:
        """The handler has finished; the acknowledgement has not been sent yet."""
        self._write("end", number)

    def note(self, kind: str, partition: str = "", token: int = 0, position: int = 0, member: str = "") -> None:
        """Records an event that happens now."""
        self._write(kind, partition, token, position, member)

    def close(self) -> None:
        self._file.close()

    def _write(self, kind: str, *words: object) -> None:
        self._file.write(("\t".join(map(str, (kind, time.monotonic_ns(), *words))) + "\n").encode())


class DiaryReader:
    """Reads a diary while it is written."""

    def __init__(self, path: Path, process: str) -> None:
        self._path, self._process, self._position = path, process, 0
        self._runs: dict[str, HandlerRun] = {}
        self._begun: dict[str, tuple[int, list[str]]] = {}
        self.entries: list[DiaryEntry] = []

    @property
    def runs(self) -> list[HandlerRun]:
        """In the order of their beginnings."""
        return list(self._runs.values())

    def look(self) -> list[HandlerRun]:
        """Reads what was written since the last look; returns what has ended."""
        ended = []
        for kind, at_ns, *words in self._lines():
            if kind == "begin":
                number, *rest = words
                self._begun[number] = int(at_ns), rest
                self._runs[number] = self._run(int(at_ns), rest)
            elif kind == "end":
                (number,) = words
                self._runs[number] = self._run(*self._begun.pop(number), int(at_ns))
                ended.append(self._runs[number])
            else:
                partition, token, position, member = words
                known = (partition, int(token), int(position), member)
                self.entries.append(DiaryEntry(self._process, kind, int(at_ns), *known))
        return ended

    def _run(self, at_ns: int, words: list[str], ended_ns: int | None = None) -> HandlerRun:
        partition, token, member, redelivered, offset, body = words
        return HandlerRun(
            process=self._process,
            message=NumberedMessage.read(body.encode()),
            partition=partition,
            token=int(token),
            member=member,
            redelivered=redelivered == "1",
            offset=None if offset == "-" else int(offset),
            begun_ns=at_ns,
            ended_ns=ended_ns,
        )

    def _lines(self) -> Iterator[list[str]]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # being written, or its writer was killed; then the message was not acknowledged either
                self._position += len(line)
                yield line.decode().rstrip("\n").split("\t")


def time_of_day_ms(monotonic_ns: int) -> float:
    """Converts a time of the monotonic clock to the machine's wall clock, which is also that of its Redis and so of a group."""
    return (monotonic_ns + time.time_ns() - time.monotonic_ns()) / 1e6


def repeats(runs: Iterable[HandlerRun]) -> Iterator[tuple[HandlerRun, HandlerRun]]:
    """Each run for a message after its first one, with the one before it."""
    last: dict[NumberedMessage, HandlerRun] = {}
    for run in runs:
        if run.message in last:
            yield last[run.message], run
        last[run.message] = run
