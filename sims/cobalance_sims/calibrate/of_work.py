"""The parameters of a churn that are about work: drains, messages, and members that freeze."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING

from cobalance.errors import counted
from cobalance_sims.calibrate import durations, handling, pauses
from cobalance_sims.calibrate.drawing import spread_of
from cobalance_sims.calibrate.interval import Z95, Interval, short
from cobalance_sims.calibrate.parameter import Basis, Parameter, open_rate
from cobalance_sims.calibrate.sample import DurationSample

if TYPE_CHECKING:
    from cobalance_sims.calibrate.durations import Durations
    from cobalance_sims.calibrate.handling import HandlingTimes
    from cobalance_sims.calibrate.pauses import Pauses
    from cobalance_sims.simulate.churn import Churn

ENOUGH_OF_ONE = durations.ENOUGH
"""With this many exact drains, a resource may have a distribution of its own, besides the one of all together."""

BY_CHANCE = 0.05
"""How often some resource of a group is said to drain otherwise, although all drain alike."""

ROUNDS = 3
"""Leaving out those that drain otherwise shows more of them: a few rounds find all."""

MOST_OWN = 200
"""How many resources get a drain time of their own: those with the longest ones."""


def stops(found: Pauses, base: Churn) -> list[Parameter]:
    """How members freeze, or are cut off."""
    if found.length is None:
        note = f"{found.late} late heartbeats in {short(found.covered_hours)} member-hours: {pauses.FEW} are needed for their rate, {pauses.ENOUGH} for their length"
        return [
            Parameter(
                name="pauses_per_member_hour",
                value=base.pauses_per_member_hour,
                basis="assumed",
                observations=found.late,
                interval=found.per_member_hour,
                note=note,
                open=open_rate(found.late, max(found.noticing_hours, 1e-9), base.pauses_per_member_hour),
            ),
            Parameter(name="pause_ms", value=base.pause_ms.text, basis="assumed", observations=found.late, note=note),
        ]
    basis: Basis = "measured" if found.is_fitted else "few"
    note = (
        ""
        if found.is_fitted
        else f"{found.late} late heartbeats: {pauses.ENOUGH} are needed for a sure length of pauses"
    )
    return [
        Parameter(
            name="pauses_per_member_hour",
            value=round(min(found.per_member_hour.value, 100_000), 6),
            basis=basis,
            observations=found.late,
            interval=found.per_member_hour,
            note=note,
            open={
                "mean": min(found.per_member_hour.value, 100_000.0),
                "shape": float(max(found.late, 1)),
                "noticed_by_median": found.noticed_by[0],
                "noticed_by_sigma": found.noticed_by[1],
            },
        ),
        Parameter(
            name="pause_ms",
            value=found.length.text,
            basis=basis,
            observations=found.late,
            interval=found.median_ms,
            note=note,
            open={
                "samples": float(max(found.late, 1)),
                "log_median": spread_of(found.median_ms),
                "log_sigma": spread_of(found.sigma),
            },
        ),
    ]


def apart(samples: Mapping[str, DurationSample]) -> tuple[Durations, dict[str, Durations]]:
    """All resources together, besides those that surely drain otherwise: so surely that it is so of none of that many by
    chance. Those are described one by one.
    """
    own = {resource: durations.describe(it) for resource, it in samples.items() if it.count >= ENOUGH_OF_ONE}
    pooled = durations.describe(sum(samples.values(), DurationSample()))
    sigmas = NormalDist().inv_cdf(1 - BY_CHANCE / 2 / max(len(own), 1))
    different: dict[str, Durations] = {}
    for _ in range(ROUNDS):
        different = {resource: it for resource, it in own.items() if _differs(it, pooled, sigmas)}
        rest = [it for resource, it in samples.items() if resource not in different]
        pooled = durations.describe(sum(rest, DurationSample()))
        if pooled.distribution is None:
            return durations.describe(sum(samples.values(), DurationSample())), {}
    return pooled, different


def _differs(it: Durations, pooled: Durations, sigmas: float) -> bool:
    if it.median_ms is None or pooled.median_ms is None:
        return False
    spread = math.hypot(*(math.log(each.high / each.value) / Z95 for each in (it.median_ms, pooled.median_ms)))
    return abs(math.log(it.median_ms.value / pooled.median_ms.value)) > sigmas * spread


def drains(pooled: Durations, own: Mapping[str, Durations], base: Churn) -> list[Parameter]:
    """How long resources take to drain; ``own`` are those that drain otherwise than the others together."""
    if pooled.distribution is None:
        return [
            Parameter(
                name="drain_ms", value=base.drain_ms.text, basis="assumed", observations=pooled.count, note=pooled.note
            )
        ]
    found = [
        Parameter(
            name="drain_ms",
            value=pooled.distribution.text,
            basis="measured",
            observations=pooled.count,
            interval=pooled.median_ms,
            note=pooled.note,
            open=open_length(pooled),
        )
    ]
    known = [(it, it.distribution) for it in own.values() if it.distribution is not None]
    longest = sorted(known, key=lambda it: -it[1].quantile(0.99))[:MOST_OWN]
    if longest:
        found.append(
            Parameter(
                name="drain_ms_of",
                value={f"r{number}": it.text for number, (_, it) in enumerate(longest)},
                basis="measured",
                observations=sum(it.count for it, _ in longest),
                interval=longest[0][0].median_ms,
                note=f"drains unlike all others together: {counted(len(longest), 'resource')}; the interval is of r0",
            )
        )
    return found


def open_length(it: Durations) -> dict[str, float]:
    """What the number of durations leaves open."""
    spreads = {"log_median": spread_of(it.median_ms), "log_sigma": spread_of(it.sigma)}
    return {"samples": float(it.count), **spreads}


def prefetch(given: int | None, base: Churn) -> Parameter:
    """How many messages a consumer has at once, which no journal tells."""
    if given is not None:
        return Parameter(name="prefetch", value=given, basis="measured", observations=0, note="as given")
    note = "no journal tells it: give --prefetch, on which duplicates depend"
    return Parameter(name="prefetch", value=base.prefetch, basis="assumed", observations=0, note=note)


def messages(found: HandlingTimes, base: Churn) -> list[Parameter]:
    """How many messages there are, and how long one takes."""
    need = f"{counted(found.tenures, 'tenure')} with counts of messages: {handling.ENOUGH} are needed"
    handle = Parameter(
        name="handle_ms", value=base.handle_ms.text, basis="assumed", observations=found.tenures, note=need
    )
    if found.length is not None:
        handle = Parameter(
            name="handle_ms",
            value=found.length.text,
            basis="measured",
            observations=found.handled,
            interval=found.mean_ms,
        )
    if found.per_s is None or found.tenures < handling.ENOUGH:
        return [
            handle,
            Parameter(
                name="messages_per_s", value=base.messages_per_s, basis="assumed", observations=found.tenures, note=need
            ),
        ]
    return [
        handle,
        Parameter(
            name="messages_per_s",
            value=round(found.per_s, 4),
            basis="measured",
            observations=found.handled,
            interval=_by_tenures(found.per_s, found.tenures),
            open={"log": 1 / math.sqrt(found.tenures)},
        ),
    ]


def _by_tenures(per_s: float, tenures: int) -> Interval:
    """What waits when a tenure ends is counted with another, or with none: a rate is as sure as their number makes it."""
    spread = Z95 / math.sqrt(tenures)
    return Interval(per_s, per_s * math.exp(-spread), per_s * math.exp(spread))
