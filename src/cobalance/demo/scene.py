"""What is to be seen at a moment of the demo: plain values for the views."""

from __future__ import annotations

import attrs

from cobalance.demo.process import Phase


@attrs.frozen
class WorkerScene:
    """One process."""

    name: str
    phase: Phase
    held: tuple[int, ...]
    """Numbers of the partitions it works."""
    draining: tuple[int, ...]
    """Those it has been asked for and is finishing."""
    processed: int
    rate: float
    """Messages a second, over the last second or so."""


@attrs.frozen
class Scene:
    """All of it."""

    step: str
    seconds: float
    published: int
    processed: int
    """Distinct messages."""
    free: int
    """Partitions that nobody holds."""
    workers: tuple[WorkerScene, ...]
