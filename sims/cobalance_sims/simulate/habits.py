"""How the work of a process behaves. Times are ranges in ms, drawn uniformly, or distributions; ``None`` is never."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import attrs

from cobalance_sims.simulate.distributions import Distribution

Times = tuple[int, int] | Distribution
Span = Times | None


def draw(span: Times, random: Random) -> int:
    """Draws one time from a range or a distribution."""
    if not isinstance(span, tuple):
        return span.sample(random)
    low, high = span
    return low + int(random.random() * (high - low + 1))


@attrs.frozen(kw_only=True)
class Habits:
    """Habits of one process's handlers."""

    handle_ms: Times = (5, 40)
    """Time for one message, where there are messages."""
    drain_ms: Span = (5, 60)
    """From being asked until ``on_revoked`` runs, where there are no messages."""
    drain_ms_of: Mapping[str, Span] = attrs.field(factory=dict, eq=False)
    """The same, for resources that have a distribution of their own."""
    fails_ms_of: Mapping[str, Times] = attrs.field(factory=dict, eq=False)
    """Resources that cannot be worked: from their start until they are given up, where there are no messages."""
    fails_as: Mapping[str, str] = attrs.field(factory=dict, eq=False)
    """The reason with which some of them are given up."""
    close_ms: Times = (1, 3)
    """Time for ``on_revoked`` itself."""
    stop_ms: Span = (0, 2)
    """From an abort until the work has really stopped. Never: a blocking call that cannot be cancelled."""
    prefetch: int = 10
    ack_every: int = 50
    """Acks are sent when this many messages are finished (or all that were prefetched), …"""
    ack_interval_ms: int = 50
    """… or at the next tick, whichever comes first, as ConsumerGroup does."""


QUICK = Habits()
SLOW = Habits(handle_ms=(300, 900), drain_ms=(1_000, 4_000), close_ms=(5, 50), stop_ms=(20, 200))
STUCK = Habits(handle_ms=(3_600_000, 3_600_000), drain_ms=None, stop_ms=(0, 5))
UNSTOPPABLE = Habits(handle_ms=(3_600_000, 3_600_000), drain_ms=None, stop_ms=None)
STUBBORN = Habits(handle_ms=(3_600_000, 3_600_000), drain_ms=None, stop_ms=(300, 4_000))
