"""A snapshot of the demo: plain values for the views."""

from __future__ import annotations

from typing import Literal

import attrs

Phase = Literal["starting", "member", "leaving", "left", "killed"]


@attrs.frozen
class WorkerScene:
    name: str
    phase: Phase
    held: tuple[int, ...]
    """Numbers of the partitions it works."""
    draining: tuple[int, ...]
    """Partitions that it has been asked for and is finishing."""
    processed: int
    rate: float
    """Messages per second, over the last second or so."""


@attrs.frozen
class Scene:
    step: str
    seconds: float
    published: int
    processed: int
    """Distinct messages."""
    free: int
    """Partitions without an owner."""
    workers: tuple[WorkerScene, ...]
