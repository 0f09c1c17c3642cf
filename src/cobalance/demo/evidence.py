"""What is recorded while the demo runs. The verdict is based on this alone."""

from __future__ import annotations

from typing import Literal

import attrs

from cobalance.journal import JournalEntry
from cobalance.lab.diary import HandlerRun
from cobalance.lab.message import NumberedMessage
from cobalance.settings import Mode

ChangeKind = Literal["join", "leave", "crash"]


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
    published: frozenset[NumberedMessage]
    """Those confirmed by RabbitMQ."""
    runs: tuple[HandlerRun, ...]
    """Handler runs that have ended, by their beginnings."""
    entries: tuple[JournalEntry, ...]
    """The journal from its beginning."""
    changes: tuple[ObservedChange, ...]
    killed: str | None
    """The id of the killed member."""
    left_in_queues: int = 0
    """Messages still in RabbitMQ after all members have left: they would be redelivered."""
