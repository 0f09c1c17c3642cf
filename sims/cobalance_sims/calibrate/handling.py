"""How long a handler takes for one message, from the totals of tenures.

A tenure reports how many messages it handled and how long that took, but not single messages. For n messages with mean
m and variance v, the total has mean n·m and variance n·v, so m is the ratio of the sums, and v follows from how far the
totals are from n·m. Where messages of one tenure are alike, this overestimates v: the tail is on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import attrs

from cobalance_sims.calibrate.interval import Z95, Interval
from cobalance_sims.simulate.distributions import LogNormal

if TYPE_CHECKING:
    from cobalance_sims.calibrate.tallies import Handlers

ENOUGH = 20
"""The least number of tenures from which a variance is computed."""


@attrs.frozen(kw_only=True)
class HandlingTimes:
    """The description of message handling."""

    tenures: int
    handled: int
    mean_ms: Interval | None
    length: LogNormal | None
    """``None`` if there are too few."""
    per_s: float | None
    """Messages a second and resource; ``None`` if no tenure was seen from its beginning to its end."""


def describe(tallies: Iterable[Handlers]) -> HandlingTimes:
    """Describes one resource's tallies, or those of all."""
    them = list(tallies)
    tenures, handled = sum(it.tenures for it in them), sum(it.handled for it in them)
    held_s = sum(it.held_ms for it in them) / 1000
    per_s = sum(it.held_handled for it in them) / held_s if held_s > 0 else None
    if tenures < ENOUGH or handled <= tenures:
        return HandlingTimes(tenures=tenures, handled=handled, mean_ms=None, length=None, per_s=per_s)
    busy, squares = sum(it.busy_ms for it in them), sum(it.squares for it in them)
    mean = max(busy / handled, 0.01)
    variance = max(squares - busy**2 / handled, 0.0) / (tenures - 1)
    error = Z95 * math.sqrt(variance / handled)
    sigma2 = math.log1p(variance / mean**2)
    return HandlingTimes(
        tenures=tenures,
        handled=handled,
        mean_ms=Interval(mean, max(mean - error, 0.0), mean + error),
        length=LogNormal(round(mean * math.exp(-sigma2 / 2), 3), round(math.sqrt(sigma2), 4)),
        per_s=per_s,
    )
