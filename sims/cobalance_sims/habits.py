"""How the work of a process behaves. Times are ranges in ms, drawn uniformly; ``None`` is never."""

from __future__ import annotations

from random import Random

import attrs

Span = tuple[int, int] | None


def draw(span: tuple[int, int], random: Random) -> int:
    """One time of a range."""
    low, high = span
    return low + int(random.random() * (high - low + 1))


@attrs.frozen(kw_only=True)
class Habits:
    """Of one process's handlers."""

    handle_ms: tuple[int, int] = (5, 40)
    """One message, where there are messages."""
    drain_ms: Span = (5, 60)
    """From being asked until ``on_revoked`` runs, where there are no messages."""
    close_ms: tuple[int, int] = (1, 3)
    """``on_revoked`` itself."""
    stop_ms: Span = (0, 2)
    """From an abort until the work has really stopped. Never: a blocking call that cannot be cancelled."""
    prefetch: int = 10


QUICK = Habits()
SLOW = Habits(handle_ms=(300, 900), drain_ms=(1_000, 4_000), close_ms=(5, 50), stop_ms=(20, 200))
STUCK = Habits(handle_ms=(3_600_000, 3_600_000), drain_ms=None, stop_ms=(0, 5))
UNSTOPPABLE = Habits(handle_ms=(3_600_000, 3_600_000), drain_ms=None, stop_ms=None)
STUBBORN = Habits(handle_ms=(3_600_000, 3_600_000), drain_ms=None, stop_ms=(300, 4_000))
