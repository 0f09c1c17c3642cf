"""The network between a process and Redis: latencies and losses."""

from __future__ import annotations

from random import Random
from typing import Literal

import attrs

from cobalance_sims.simulate.distributions import Distribution

Fate = Literal["ok", "lost", "no_reply", "late"]
"""Of one attempt of a call: it never arrives; it runs and its reply is lost; it runs after the caller has given it up.
"""


@attrs.frozen(kw_only=True)
class Network:
    """The network of one process. Probabilities apply to one call, or to one hint."""

    latency_ms: tuple[int, int] = (1, 4)
    """One way, uniformly between the two."""
    slow: float = 0.01
    """Share of packets that take ten times as long."""
    one_way: Distribution | None = None
    """A distribution that replaces these two."""
    lost: float = 0.0
    no_reply: float = 0.0
    late: float = 0.0
    hint_lost: float = 0.0
    hint_late: float = 0.0
    """Share of hints that take a second longer."""

    trouble: float = attrs.field(init=False)
    """Share of calls that are not answered in time."""

    @trouble.default
    def _sum(self) -> float:
        return self.lost + self.no_reply + self.late

    def latency(self, random: Random) -> int:
        """Draws a one-way latency, ms."""
        if self.one_way is not None:
            return self.one_way.sample(random)
        low, high = self.latency_ms
        ms = low + int(random.random() * (high - low + 1))
        return ms * 10 if random.random() < self.slow else ms

    def hint_latency(self, random: Random) -> int:
        """Draws the latency of a hint, from the script that sends it to the session that receives it, ms."""
        return self.latency(random)

    def fate(self, random: Random) -> Fate:
        """Draws the fate of the next attempt."""
        if not self.trouble:
            return "ok"
        roll = random.random()
        for fate, share in (("lost", self.lost), ("no_reply", self.no_reply), ("late", self.late)):
            if roll < share:
                return fate  # type: ignore[return-value]  # the literals of the tuple
            roll -= share
        return "ok"


SOUND = Network()
BAD = Network(latency_ms=(1, 60), slow=0.1, lost=0.1, no_reply=0.2, late=0.05, hint_lost=0.3, hint_late=0.2)
DEAF = Network(hint_lost=1.0)
LAGGING = Network(latency_ms=(300, 450), slow=0.0, no_reply=0.2)
