"""What is recorded while the demo runs. The verdict is based on this alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, Self

import attrs

from cobalance.journal import JournalEntry
from cobalance.settings import Mode

ChangeKind = Literal["join", "leave", "crash"]


@attrs.frozen
class ProcessedMessage:
    """One processed message: a line of a worker's log, written when its handler ends and before the message is
    acknowledged.
    """

    key: str
    counter: int
    """1, 2, 3 … within its key, as published."""
    partition: str
    token: int
    member: str
    begun_ns: int
    """On the machine's monotonic clock, which all processes share."""
    ended_ns: int
    redelivered: bool

    def line(self) -> bytes:
        """Formats a log line."""
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
        """Parses a log line."""
        key, counter, partition, token, member, begun_ns, ended_ns, redelivered = line.split("\t")
        return cls(
            key, int(counter), partition, int(token), member, int(begun_ns), int(ended_ns), redelivered.strip() == "1"
        )


class LogReader:
    def __init__(self, path: Path) -> None:
        self._path, self._position = path, 0

    def new(self) -> Iterator[ProcessedMessage]:
        """Yields the complete lines since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as log:
            log.seek(self._position)
            for line in log:
                if not line.endswith(b"\n"):
                    return  # being written, or its writer was killed; then the message was not acknowledged either
                self._position += len(line)
                yield ProcessedMessage.read(line.decode())


@attrs.frozen(kw_only=True)
class ObservedChange:
    """A process came or went in a quiet group, and the group became quiet again."""

    kind: ChangeKind
    name: str
    """A description, for display."""
    since_seq: int
    """The journal's last entry before the change."""
    at_ms: int
    """When the change was made, in group time."""
    until_seq: int
    """The journal's last entry before the next change."""


@attrs.frozen(kw_only=True)
class Evidence:
    """Everything the verdict is based on."""

    mode: Mode
    partitions: tuple[str, ...]
    published: Mapping[str, int]
    """Key → number of its messages confirmed by RabbitMQ; their counters are 1 … that number."""
    records: tuple[ProcessedMessage, ...]
    entries: tuple[JournalEntry, ...]
    """The journal from its beginning."""
    changes: tuple[ObservedChange, ...]
    killed: str | None
    """The id of the killed member."""
    left_in_queues: int = 0
    """Messages still in RabbitMQ after all members have left: they would be redelivered."""
