"""The parameters of a churn that are about work: drains, messages, and members that freeze."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance_sims.calibrate import handling, pauses
from cobalance_sims.calibrate.interval import short
from cobalance_sims.calibrate.parameter import Basis, Parameter

if TYPE_CHECKING:
    from cobalance_sims.calibrate.durations import Durations
    from cobalance_sims.calibrate.handling import HandlingTimes
    from cobalance_sims.calibrate.pauses import Pauses
    from cobalance_sims.simulate.churn import Churn

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
        ),
        Parameter(
            name="pause_ms",
            value=found.length.text,
            basis=basis,
            observations=found.late,
            interval=found.median_ms,
            note=note,
        ),
    ]


def drains(pooled: Durations, own: dict[str, Durations], base: Churn) -> list[Parameter]:
    """How long resources take to drain."""
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
        )
    ]
    different = [it for it in own.values() if it.distribution and _differs(it, pooled)]
    longest = sorted(different, key=lambda it: -it.distribution.quantile(0.99) if it.distribution else 0.0)[:MOST_OWN]
    if longest:
        table = {f"r{number}": it.distribution.text for number, it in enumerate(longest) if it.distribution}
        found.append(
            Parameter(
                name="drain_ms_of",
                value=table,
                basis="measured",
                observations=sum(it.count for it in longest),
                note=f"{len(longest)} resources drain otherwise than all together",
            )
        )
    return found


def _differs(it: Durations, pooled: Durations) -> bool:
    return bool(
        it.median_ms and pooled.median_ms and not (it.median_ms.low <= pooled.median_ms.value <= it.median_ms.high)
    )


def prefetch(given: int | None, base: Churn) -> Parameter:
    """How many messages a consumer has at once, which no journal tells."""
    if given is not None:
        return Parameter(name="prefetch", value=given, basis="measured", observations=0, note="as given")
    note = "no journal tells it: give --prefetch, on which duplicates hang"
    return Parameter(name="prefetch", value=base.prefetch, basis="assumed", observations=0, note=note)


def messages(found: HandlingTimes, base: Churn) -> list[Parameter]:
    """How many messages there are, and how long one takes."""
    need = f"{found.tenures} tenures told of their messages: {handling.ENOUGH} are needed"
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
        Parameter(name="messages_per_s", value=round(found.per_s, 4), basis="measured", observations=found.handled),
    ]
