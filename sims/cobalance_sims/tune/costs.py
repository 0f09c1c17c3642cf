"""The costs of a choice of settings, from the outcomes of its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from cobalance.settings import HOUR_MS, GroupSettings
from cobalance_sims import histogram
from cobalance_sims.tune.bootstrap import Estimate, FixedValue, Quantile, Ratio

DAY_MS = 86_400_000

Outcomes = Sequence[Mapping[str, Any]]
"""Rows of OUTCOME (records.py), one for each run."""


@attrs.frozen
class Cost:
    """One cost. Less is better."""

    name: str
    unit: str
    meaning: str
    weight: float
    """The default: how many resource-seconds of standstill a user would give for one less."""
    estimate: Callable[[Outcomes, GroupSettings], Estimate]


def _per_day(column: str, factor: float = 1.0) -> Callable[[Outcomes, GroupSettings], Estimate]:
    def estimate(outcomes: Outcomes, _: GroupSettings) -> Estimate:
        amounts = np.array([(row[column] or 0) * factor for row in outcomes], dtype=float)
        return Ratio(amounts, np.array([row["observed_ms"] / DAY_MS for row in outcomes]))

    return estimate


def _heal_p99(outcomes: Outcomes, settings: GroupSettings) -> Estimate:
    unhealed = [histogram.histogram(row.get("unhealed_ms") or ()) for row in outcomes]
    bins = sorted({place for found in (*unhealed, *(row["heal_hist"] for row in outcomes)) for place in found})
    return Quantile(
        counts=np.array([[row["heal_hist"].get(place, 0) for place in bins] for row in outcomes], dtype=float),
        values=np.array([histogram.value_of(place) / 1000 for place in bins]),
        share=0.99,
        unfinished=np.array([[found.get(place, 0) for place in bins] for found in unhealed], dtype=float),
        at_most=_promised_s(settings, is_kept=any(row.get("inherited") for row in outcomes)),
    )


def _promised_s(settings: GroupSettings, *, is_kept: bool) -> float:
    """Within this time a crash is healed (L3), although Redis is silent meanwhile: two session timeouts. If what members
    with instance ids had is kept for them, it takes the rejoin grace more, and another session timeout if an heir comes.
    """
    kept_ms = settings.rejoin_grace_ms + settings.session_timeout_ms if is_kept else 0
    return (2 * settings.session_timeout_ms + kept_ms) / 1000


def _heartbeats(_: Outcomes, settings: GroupSettings) -> Estimate:
    return FixedValue(HOUR_MS / settings.heartbeat_interval_ms)


COSTS: dict[str, Cost] = {
    cost.name: cost
    for cost in (
        Cost("unavailable", "resource-s/day", "resources without an owner, or with one that is dead or frozen", 1.0, _per_day("unavailable_resource_ms", 0.001)),
        Cost("draining", "resource-s/day", "resources that are being handed over: what was begun is finished, nothing new is", 1.0, _per_day("draining_resource_ms", 0.001)),
        Cost("duplicates", "messages/day", "messages delivered and not acknowledged when their holder lost the resource", 1.0, _per_day("duplicates_at_risk")),
        Cost("moves", "moves/day", "resources that changed their owner", 0.1, _per_day("moves")),
        Cost("forced", "moves/day", "drains cut short by the revocation timeout", 0.0, _per_day("deadline_moves")),
        Cost("false_expiries", "members/day", "members taken for dead that were alive", 0.0, _per_day("false_expiries")),
        Cost("heal", "s", "from a crash until all it held is owned again, 99 of 100 times", 0.0, _heal_p99),
        Cost("heartbeats", "calls/member-h", "calls to Redis that only say 'I am here'", 0.0001, _heartbeats),
    )
}  # fmt: skip
"""By name. Costs of weight 0 are shown in the tables and may be limited; their effects are weighted in the others."""


def estimates(outcomes: Outcomes, settings: GroupSettings) -> dict[str, Estimate]:
    """Each cost of one candidate, with the runs in the order of their seeds."""
    ordered = sorted(outcomes, key=lambda row: int(row["seed"]))
    return {name: cost.estimate(ordered, settings) for name, cost in COSTS.items()}
