"""``cobalance sims day``: what autoscaling does in a day, beside fixed numbers of members."""

from __future__ import annotations

from typing import Annotated

import attrs
from cyclopts import App, Parameter

from cobalance.cli.desired_members import AS_USUAL, ScalingOptions
from cobalance.cli.options import Json, duration_option
from cobalance.cli.output import Cell, print_json, print_table

app = App(name="day")


@app.default
def day(
    *,
    mean: Annotated[float, Parameter(help="Messages a second, over the day.")] = 40.0,
    peak: Annotated[
        float, Parameter(help="At noon, as a multiple of that; what is more there is less at midnight.")
    ] = 1.8,
    unrest: Annotated[float, Parameter(help="By how much the load differs from that curve, as a share of it.")] = 0.1,
    each: Annotated[float, Parameter(help="Messages a second that a member gets done.")] = 10.0,
    partitions: Annotated[int, Parameter(help="How many the group has.")] = 24,
    length: Annotated[int, duration_option("length", "A part of the day, from midnight on.", "6h")] = 86_400_000,
    scaling: ScalingOptions = AS_USUAL,
    seed: int = 1,
    json: Json = False,
) -> None:
    """Simulate a day of a group: with the number of members that `desired-members` asks for, with as many all day as
    the peak takes, and with as many as the mean does.

    Age is how old messages are when they are done. Members cost from the moment they are ordered; they join after
    20 s or so. MOVES counts partitions that went to another member. The same seed gives the same day.
    """
    from cobalance_sims.simulate.day import Day

    simulated = Day(
        mean_per_s=mean,
        peak=peak,
        unrest=unrest,
        each_per_s=each,
        partitions=partitions,
        scaling=scaling.settings(),
        length_ms=length,
    )
    found = simulated.compare(seed)
    if json:
        print_json({"seed": seed, **{name: attrs.asdict(it) for name, it in found.items()}})
        return
    columns = ("", "MEMBERS", "MEMBER-HOURS", "CHANGES", "MOVES", "AGE-P50", "AGE-P99", "AGE-MAX", "LEFT")
    rows: list[list[Cell]] = [
        [
            name,
            str(it.least_members) if it.least_members == it.most_members else f"{it.least_members}-{it.most_members}",
            f"{it.member_hours:.0f}",
            it.changes,
            it.moves,
            *(f"{age:.1f}s" for age in (it.age_p50_s, it.age_p99_s, it.age_max_s)),
            it.left,
        ]
        for name, it in found.items()
    ]
    print_table(columns, rows)
