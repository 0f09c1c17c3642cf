"""How often a group is scaled, and between which sizes: from when it was.

An autoscaler at its limit still decides to add or remove a process, and does nothing. The size of the group shows when
that was: the time at a limit is no exposure. The largest size that was seen is a limit if the group stayed at it for so
long that it would have grown otherwise.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs

from cobalance.settings import HOUR_MS

if TYPE_CHECKING:
    from cobalance_sims.calibrate.deploys import Turnover
    from cobalance_sims.calibrate.membership import SessionHistory

SURELY = 3.0
"""A group that would have been scaled so often, at a size, and was not, was at its limit: one time in twenty by chance."""


@attrs.frozen(kw_only=True)
class ScalingLimits:
    """What the sizes of the group tell."""

    least: int
    most: int
    """The smallest and the largest that were seen."""
    is_least: bool
    is_most: bool
    """Whether they are limits."""
    hours_to_leave: float
    hours_to_join: float
    """For how long the group was not at that limit."""


def limits(turnover: Turnover, group: SessionHistory) -> ScalingLimits:
    """Follows the intended size of the group, by what changed it."""
    at: dict[int, float] = {}
    for span in group.spans:
        size, since = max(span.members, 1), span.from_ms
        for it in turnover.sizes:
            if it.run == span.run:
                at[size] = at.get(size, 0.0) + (it.at_ms - since) / HOUR_MS
                size, since = max(size + it.by, 1), it.at_ms
        at[size] = at.get(size, 0.0) + (span.to_ms - since) / HOUR_MS
    least, most = min(at, default=1), max(at, default=1)
    is_least = least < most and _is_limit(turnover.scaled_in, group.hours, at[least])
    is_most = least < most and _is_limit(turnover.scaled_out, group.hours, at[most])
    return ScalingLimits(
        least=least,
        most=most,
        is_least=is_least,
        is_most=is_most,
        hours_to_leave=group.hours - (at[least] if is_least else 0.0),
        hours_to_join=group.hours - (at[most] if is_most else 0.0),
    )


def _is_limit(count: int, hours: float, there: float) -> bool:
    elsewhere = hours - there
    return elsewhere > 0 and count / elsewhere * there >= SURELY


def capacities(hours: dict[int, float], members: int) -> tuple[int, ...]:
    """The capacities of this many processes, in turn, from the hours that members with each were there."""
    total = sum(hours.values())
    if total <= 0:
        return (1,)
    counts = {capacity: round(it / total * members) for capacity, it in sorted(hours.items())}
    common = math.gcd(*counts.values()) or 1
    return tuple(capacity for capacity, count in counts.items() for _ in range(count // common)) or (1,)
