"""What is recorded during a run; the verdict depends on this and nothing else."""

from __future__ import annotations

import attrs

from cobalance.journal import JournalEntry
from cobalance.lab.diary import DiaryEntry, HandlerRun
from cobalance.lab.message import NumberedMessage


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
    confirmed: frozenset[NumberedMessage]
    """Messages that RabbitMQ has confirmed."""
    attempted: frozenset[NumberedMessage]
    """All messages ever sent; a superset."""
    runs: tuple[HandlerRun, ...]
    """In the order of their beginnings."""
    events: tuple[DiaryEntry, ...]
    """assigned, revoked, lost, fenced, committed."""
    entries: tuple[JournalEntry, ...]
    """What was read from the journals of all lives of Redis, one after the other."""
    troubles: tuple[Trouble, ...]
    epoch_ns: int = 0
    """The Unix epoch on the machine's monotonic clock: entries carry the time of day."""
    left_in_queues: int = 0
    """Messages that RabbitMQ still has after there was time to handle them all. Not counted for streams."""
    failed: tuple[str, ...] = ()
    """Processes that ended by themselves, with their last output."""
