"""What is recorded during a run; the verdict depends on this and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

import attrs

from cobalance.journal import JournalEntry


@attrs.frozen(order=True)
class Message:
    """Identifies a message. Within a partition they are published in this order, and each is published once."""

    partition: str
    epoch: int
    """Rises when the publisher loses its connection: unconfirmed messages are published again, as new ones."""
    seq: int
    dawdle: int | None = attrs.field(default=None, eq=False, order=False)
    """A numbered order to its handler: keep working until :func:`hurry` exists."""

    def body(self) -> bytes:
        """The body as published."""
        order = "" if self.dawdle is None else f" slow {self.dawdle}"
        return f"{self.partition} {self.epoch} {self.seq}{order}".encode()

    @classmethod
    def read(cls, body: bytes) -> Self:
        partition, epoch, seq, *order = body.decode().split(" ")
        return cls(partition, int(epoch), int(seq), int(order[1]) if order else None)


def hurry(folder: Path, number: int) -> Path:
    """The file whose creation ends the dawdling of this number."""
    return folder / f"hurry-{number}"


@attrs.frozen(kw_only=True)
class Handling:
    """A handler had a message: from its first line to its last, or to the death of its process."""

    process: str
    message: Message
    token: int
    begun_ns: int
    """On the machine's monotonic clock, which all its processes share."""
    ended_ns: int | None = None
    """Just before the acknowledgement. None: it was cancelled, or its process was killed."""
    offset: int | None = None
    """Only for streams."""


@attrs.frozen(kw_only=True)
class Event:
    """Any other event of a member process: assigned, revoked, lost, fenced, committed."""

    process: str
    kind: str
    at_ns: int
    partition: str = ""
    token: int = 0
    position: int = 0


@attrs.frozen(kw_only=True)
class Trouble:
    """A fault, from its beginning to its end, and its target."""

    kind: str
    process: str = ""
    """Empty means all processes."""
    since_ns: int
    until_ns: int


@attrs.frozen(kw_only=True)
class History:
    """Everything there is to judge."""

    partitions: tuple[str, ...]
    confirmed: frozenset[Message]
    """Messages that RabbitMQ has confirmed."""
    attempted: frozenset[Message]
    """All messages ever sent; a superset."""
    handlings: tuple[Handling, ...]
    """In the order of their beginnings."""
    events: tuple[Event, ...]
    entries: tuple[JournalEntry, ...]
    """What was read from the journals of all lives of Redis, one after the other."""
    troubles: tuple[Trouble, ...]
    epoch_ns: int = 0
    """The Unix epoch on the machine's monotonic clock: entries carry the time of day."""
    left_in_queues: int = 0
    """Messages that RabbitMQ still has after there was time to handle them all. Not counted for streams."""
    failed: tuple[str, ...] = ()
    """Processes that ended by themselves, with their last output."""


class Diary:
    """The file a member process writes to, line by line: unbuffered, so that what was written survives SIGKILL."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)

    def write(self, *words: object) -> None:
        self._file.write(("\t".join(map(str, words)) + "\n").encode())


def read_diary(process: str, path: Path) -> tuple[list[Handling], list[Event]]:
    """Reads what a process wrote. A last line without a line end was cut off by SIGKILL and does not count."""
    begun: dict[str, Handling] = {}
    events: list[Event] = []
    for kind, *words in _lines(path):
        if kind == "begin":
            key, body, token, at_ns, offset = words
            begun[key] = Handling(
                process=process,
                message=Message.read(body.encode()),
                token=int(token),
                begun_ns=int(at_ns),
                offset=int(offset) if offset != "-" else None,
            )
        elif kind == "end":
            key, at_ns = words
            begun[key] = attrs.evolve(begun[key], ended_ns=int(at_ns))
        else:
            partition, token, position, at_ns = words
            events.append(
                Event(
                    process=process,
                    kind=kind,
                    partition=partition,
                    token=int(token),
                    position=int(position),
                    at_ns=int(at_ns),
                )
            )
    return list(begun.values()), events


def _lines(path: Path) -> Iterator[list[str]]:
    if not path.exists():
        return
    for line in path.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):
            yield line.decode().rstrip("\n").split("\t")


def in_order(handlings: Iterable[Handling]) -> tuple[Handling, ...]:
    """Sorts by beginning."""
    return tuple(sorted(handlings, key=lambda it: it.begun_ns))
