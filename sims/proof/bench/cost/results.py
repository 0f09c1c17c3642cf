"""What the changes come to: tables for people, slopes over the sizes, and figures to compare runs by."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from typing import TYPE_CHECKING

import attrs
from rich.table import Table

from proof.bench.cost.changes import KINDS, ChangeCost, Memory
from proof.bench.figures import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LONGEST_MS = 5.0
MOST_TIMES = 300
"""The longest call, in times of `EVALSHA return 1` of the same run."""
REST_PERCENT = 20.0
"""Of a core, while 10,000 members send a heartbeat a second each."""
SLOPE = 0.2
"""Redis's CPU grows with the group's size to the power of this, for a change that remains the same."""


@attrs.define
class Costs:
    """Everything measured so far."""

    one_us: float
    """Redis's CPU for `EVALSHA return 1`, in the same run."""
    changes: list[ChangeCost] = attrs.Factory(list)
    memory: list[Memory] = attrs.Factory(list)
    yardstick_us: list[float] = attrs.Factory(list)
    """Redis's CPU for a fixed script, each time; between the groups."""
    last: ChangeCost | Memory | None = None

    def add(self, it: ChangeCost | Memory) -> None:
        self.last = it
        if isinstance(it, ChangeCost):
            self.changes.append(it)
        else:
            self.memory.append(it)

    def of(self, kind: str) -> list[ChangeCost]:
        return [it for it in self.changes if it.kind == kind]


def slope(
    changes: list[ChangeCost], along: Callable[[ChangeCost], int], within: Callable[[ChangeCost], int]
) -> float | None:
    """To which power of a size Redis's CPU grows: of a line through logarithms, with a level of its own for each other size.

    None where there are not two sizes to compare.
    """
    lines = defaultdict(list)
    for it in changes:
        lines[within(it)].append((math.log(along(it)), math.log(it.redis_ms)))
    products = squares = 0.0
    for points in lines.values():
        x_mean, y_mean = statistics.mean(x for x, _ in points), statistics.mean(y for _, y in points)
        products += sum((x - x_mean) * (y - y_mean) for x, y in points)
        squares += sum((x - x_mean) ** 2 for x, _ in points)
    return products / squares if squares else None


def slopes(costs: Costs) -> Iterator[tuple[str, str, float]]:
    """Of the same change in groups of all sizes: what happens, along which size, and the power."""
    for kind in ("ten come", "ten go"):
        found = costs.of(kind)
        over_members = slope(found, lambda it: it.members, lambda it: it.resources)
        over_resources = slope(found, lambda it: it.resources, lambda it: it.members)
        for size, power in (("members", over_members), ("resources", over_resources)):
            if power is not None:
                yield KINDS[kind], size, power


def disturbance(costs: Costs) -> str:
    """How much longer than usual a call may seem that always does the same."""
    spent = sorted(costs.yardstick_us) or [0.0]
    usual, rare, longest = spent[len(spent) // 2], spent[int(len(spent) * 0.999)], spent[-1]
    return (
        f"a script that always does the same took {usual / 1_000:.1f} ms, at p99.9 {rare / 1_000:.1f}, at most "
        f"{longest / 1_000:.1f} ({len(spent)} calls)"
    )


def figures(costs: Costs) -> Iterator[Figure]:
    """All of them, with their goals."""
    for it in costs.changes:
        name = f"{KINDS[it.kind]}, {it.members:,} x {it.resources:,}"
        yield Figure(
            name=f"{name}: longest call ÷ EVALSHA return 1",
            unit="ms",
            ours=it.longest_ms,
            peer=costs.one_us / 1_000,
            ratio=it.longest_ms * 1_000 / costs.one_us,
            goal=f"≤ {MOST_TIMES}",
            met=it.longest_ms * 1_000 <= MOST_TIMES * costs.one_us,
            detail=f"{it.measured} calls, {it.over_5_ms} over 5 ms",
        )
        yield Figure(
            name=f"{name}: p99.9 of calls",
            unit="ms",
            ours=it.p999_ms,
            goal=f"≤ {LONGEST_MS:g} ms",
            met=it.p999_ms <= LONGEST_MS,
        )
        yield Figure(name=f"{name}: Redis CPU", unit="ms", ours=it.redis_ms, detail=f"{it.moves:g} moves")
        yield Figure(name=f"{name}: calls", unit="calls", ours=it.calls)
        yield Figure(name=f"{name}: sent to members", unit="bytes", ours=it.bytes_sent)
        if it.kind == "rest" and it.members == 10_000:
            share = it.redis_ms / 10
            yield Figure(
                name=f"{name}: of a core", unit="%", ours=share, goal=f"≤ {REST_PERCENT:g} %", met=share <= REST_PERCENT
            )
    for memory in costs.memory:
        yield Figure(
            name=f"all have gone, {memory.members:,} x {memory.resources:,}: memory ÷ before they came",
            unit="bytes",
            ours=memory.founder_again,
            peer=memory.founder_alone,
            ratio=memory.founder_again / memory.founder_alone,
            detail=f"{memory.full} with all; {memory.left_over} more in Redis once the group is deleted",
        )
    for what, size, power in slopes(costs):
        yield Figure(
            name=f"{what}: power of {size} that Redis CPU grows with",
            unit="",
            ours=power,
            goal=f"≤ {SLOPE}",
            met=power <= SLOPE,
            detail="0 is not at all, 1 in proportion",
        )


def line(costs: Costs) -> str:
    """What was measured last."""
    match costs.last:
        case ChangeCost() as it:
            size, calls = (
                f"{it.members:,} x {it.resources:,}",
                f"{it.calls:.0f} calls, the longest {it.longest_ms:.2f} ms",
            )
            return f"{size}, {KINDS[it.kind]}: {it.redis_ms:.1f} ms in {calls}"
        case Memory() as it:
            return (
                f"{it.members:,} x {it.resources:,}: {it.full} bytes; {it.founder_again} when all but one have gone, "
                f"{it.founder_alone} before they came"
            )
        case None:
            return ""


COLUMNS = (
    "", "members", "resources", "moves", "calls", "Redis CPU, ms", "longest call, ms", "times `return 1`", "p99.9, ms", "over 5 ms", "sent, kB", "even after, s",
)  # fmt: skip


def rows(costs: Costs) -> Iterator[list[str]]:
    """One for each change at each size."""
    for kind, words in KINDS.items():
        for it in costs.of(kind):
            yield [
                words, f"{it.members:,}", f"{it.resources:,}", f"{it.moves:,.0f}", f"{it.calls:,.0f}", f"{it.redis_ms:,.1f}",
                f"{it.longest_ms:.1f}", f"{it.longest_ms * 1_000 / costs.one_us:.0f}", f"{it.p999_ms:.1f}",
                f"{it.over_5_ms:,} of {it.measured:,}", f"{it.bytes_sent / 1_000:,.0f}", f"{it.even_ms / 1_000:g}",
            ]  # fmt: skip


def table(costs: Costs) -> Table:
    """Everything, for people."""
    drawn = Table(title=f"Redis's CPU for changes of groups; EVALSHA return 1 takes {costs.one_us:.1f} µs of it")
    for column in COLUMNS:
        drawn.add_column(column, justify="left" if column == "" else "right")
    for row in rows(costs):
        drawn.add_row(*row)
    return drawn


def markdown(costs: Costs) -> str:
    """For a README: what grows with the group, by size. Redis's CPU, and the longest call."""
    resources = sorted({it.resources for it in costs.changes})
    lines = ["|  | members | " + " | ".join(f"{it:,} resources" for it in resources) + " |"]
    lines.append("|---|---:|" + "---:|" * len(resources))
    for kind, words in KINDS.items():
        found = costs.of(kind)
        for place, members in enumerate(sorted({it.members for it in found})):
            cells = {it.resources: f"{it.redis_ms:,.1f} · {it.longest_ms:.1f}" for it in found if it.members == members}
            lines.append(
                f"| {'' if place else words} | {members:,} | "
                + " | ".join(cells.get(it, "") for it in resources)
                + " |"
            )
    return "\n".join(lines)
