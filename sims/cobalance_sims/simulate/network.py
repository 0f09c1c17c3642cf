"""What lies between a process and Redis: latencies, and what gets lost."""

from __future__ import annotations

from random import Random
from typing import Literal

import attrs

from cobalance_sims.simulate.distributions import Distribution

Fate = Literal["ok", "lost", "no_reply", "late"]
"""Of one attempt of a call: it never arrives; it runs and its reply is lost; it runs after everybody has given it up."""


@attrs.frozen(kw_only=True)
class Network:
    """The ways of one process's packets. Probabilities are of one call, or of one hint."""

    latency_ms: tuple[int, int] = (1, 4)
    """One way, uniformly between the two."""
    slow: float = 0.01
    """How many of the ways take ten times as long."""
    one_way: Distribution | None = None
    """Instead of these two, a distribution."""
    lost: float = 0.0
    no_reply: float = 0.0
    late: float = 0.0
    hint_lost: float = 0.0
    hint_late: float = 0.0
    """How many of the hints take a second longer."""

    trouble: float = attrs.field(init=False)
    """How many of the calls are not answered in time."""

    @trouble.default
    def _sum(self) -> float:
        return self.lost + self.no_reply + self.late

    def latency(self, random: Random) -> int:
        """Of one way, ms."""
        if self.one_way is not None:
            return self.one_way.sample(random)
        low, high = self.latency_ms
        ms = low + int(random.random() * (high - low + 1))
        return ms * 10 if random.random() < self.slow else ms

    def hint_latency(self, random: Random) -> int:
        """Of a hint, from the script that sent it to the session that hears it, ms."""
        return self.latency(random)

    def fate(self, random: Random) -> Fate:
        """Of the next attempt."""
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
