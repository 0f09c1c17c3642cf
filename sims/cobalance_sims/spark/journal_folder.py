"""The folder of an exported journal: its events, and how far they go."""

from __future__ import annotations

from cobalance.errors import UsageError

EVENTS, CHECKPOINT = "events", "checkpoint"


def lost_its_place(out: str) -> UsageError:
    """The error for a folder that would get events a second time."""
    return UsageError(
        f"{out} holds events but no {CHECKPOINT}, so it is not known where they end: name another folder, or bring it back."
    )
