"""What is written down while the demo runs; the verdict is drawn from this and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, Self

import attrs

from cobalance.journal import JournalEntry
from cobalance.settings import Mode

ChangeKind = Literal["join", "leave", "crash"]


@attrs.frozen
class Record:
    """A message was processed: one line of a worker's log, written when its handler ends and before it is acknowledged."""

    key: str
    counter: int
    """1, 2, 3 … within its key, as published."""
    partition: str
    token: int
    member: str
    begun_ns: int
    """On the machine's monotonic clock, which all its processes share."""
    ended_ns: int
    redelivered: bool

    def line(self) -> bytes:
        """As it is written."""
        words = (
            self.key,
            self.counter,
            self.partition,
            self.token,
            self.member,
            self.begun_ns,
            self.ended_ns,
            int(self.redelivered),
        )
        return ("\t".join(map(str, words)) + "\n").encode()

    @classmethod
    def read(cls, line: str) -> Self:
        """From a line."""
        key, counter, partition, token, member, begun_ns, ended_ns, redelivered = line.split("\t")
        return cls(
            key, int(counter), partition, int(token), member, int(begun_ns), int(ended_ns), redelivered.strip() == "1"
        )


class LogReader:
    """Reads a worker's log as it grows."""

    def __init__(self, path: Path) -> None:
        self._path, self._position = path, 0

    def new(self) -> Iterator[Record]:
        """The complete lines since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as log:
            log.seek(self._position)
            for line in log:
                if not line.endswith(b"\n"):
                    return  # it is being written, or its writer was killed over it: then it was not acknowledged either
                self._position += len(line)
                yield Record.read(line.decode())


@attrs.frozen(kw_only=True)
class Change:
    """A process came or went, in a group that was quiet, and the group became quiet again."""

    kind: ChangeKind
    name: str
    """What it was, for people."""
    since_seq: int
    """The journal's last entry before it."""
    at_ms: int
    """When it was brought about, on the group's clock."""
    until_seq: int
    """The journal's last entry before the next change."""


@attrs.frozen(kw_only=True)
class Evidence:
    """All there is to judge."""

    mode: Mode
    partitions: tuple[str, ...]
    published: Mapping[str, int]
    """Key → how many messages of it RabbitMQ has confirmed; their counters are 1 … that many."""
    records: tuple[Record, ...]
    entries: tuple[JournalEntry, ...]
    """The journal from its beginning."""
    changes: tuple[Change, ...]
    killed: str | None
    """The member that was killed."""
    left_in_queues: int = 0
    """Messages that RabbitMQ still has after everybody has left: they would come again."""
