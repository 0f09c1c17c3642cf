"""The messages of resources without a broker: how many a tenure handled, and how many were in flight when it ended.

Each resource has a queue: messages arrive at random at a rate, are handled one after the other, and wait while the
resource has no owner. Between two observations it is modelled as a fluid; the content of the prefetch buffer at one
moment is drawn from a queue played out over the last messages before it. A sweep cannot play out every message: that
would take most of its time.
"""

from __future__ import annotations

import math
from random import Random

import attrs

from cobalance_sims.simulate.distributions import Distribution

PLAYED_OUT = 50
"""Messages to play out: a queue that is not overloaded has forgotten its start by then."""


@attrs.define(eq=False)
class Load:
    """Load of all resources of a world."""

    per_s: float
    """Messages a second and resource."""
    handle: Distribution
    prefetch: int
    random: Random
    handlers: Random = attrs.Factory(lambda: Random(0))
    """What draws the times of handlers: they do not disturb the rest."""
    _waiting: dict[str, tuple[float, int]] = attrs.field(factory=dict, init=False)
    """Resource → messages that waited, and when."""

    def effort(self, resource: str, since: int, now: int) -> tuple[int, int]:
        """Returns what a tenure that ends now has done: messages handled, and ms for which its handler was busy."""
        waited, at = self._waiting.get(resource, (0.0, since))
        mean_ms = max(self.handle.mean_ms, 0.001)
        offered = waited + self.per_s / 1000 * max(0, now - at)
        handled = min(offered, (now - since) / mean_ms)
        self._waiting[resource] = (offered - handled, now)
        whole = int(handled + self.random.random())
        return whole, int(min(self._busy_ms(whole, mean_ms), now - since) + 0.5)

    def _busy_ms(self, count: int, mean_ms: float) -> float:
        """The time of this many handlers. The mean and the variance are those of this many; only ``PLAYED_OUT`` are drawn."""
        if not count:
            return 0.0
        drawn = min(count, PLAYED_OUT)
        apart = sum(self.handle.sample(self.handlers) for _ in range(drawn)) - drawn * mean_ms
        return max(count * mean_ms + math.sqrt(count / drawn) * apart, 0.0)

    def unacked(self, resource: str, since: int, now: int) -> int:
        """Returns the number of messages that its consumer has and has not acknowledged at this moment."""
        waited, at = self._waiting.get(resource, (0.0, since))
        offered = waited + self.per_s / 1000 * max(0, now - at)
        backlog = offered - (now - since) / max(self.handle.mean_ms, 0.001)
        return min(self.prefetch, max(int(backlog), self._in_queue(now - since)))

    def _in_queue(self, most_ms: int) -> int:
        """The length of a queue that was empty some time ago."""
        if self.per_s <= 0:
            return 0
        gap_ms, random, left = 1000 / self.per_s, self.random, []
        span = min(most_ms, PLAYED_OUT * gap_ms)
        at = free_at = 0.0
        while (at := at + random.expovariate(1 / gap_ms)) < span:
            free_at = max(at, free_at) + self.handle.sample(random)
            left.append(free_at)
        return sum(through > span for through in left)
