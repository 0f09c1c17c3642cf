"""How long handovers take: drains and gaps, on a logarithmic axis, with their percentiles."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.errors import counted
from cobalance_sims import histogram
from cobalance_sims.report.theme import OWNERS, Chart, Theme, canvas
from cobalance_sims.report.words import duration, share

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

SHARES = (0.5, 0.95, 0.99)
PER_BAR = 7
"""Bins of the data in one bar: their edges are 1.02 apart, bars' 1.15."""


@attrs.frozen
class Spread:
    """Durations of one kind, from one source."""

    label: str
    """What one of them is called, such as "drain"."""
    counts: Mapping[int, int]

    @property
    def total(self) -> int:
        """Number of durations."""
        return sum(self.counts.values())

    def at(self, share_: float) -> float:
        """A percentile, ms."""
        return histogram.percentile(self.counts, share_) or 0.0


def spreads(name: str, title: str, meaning: str, found: list[Spread], limits: Mapping[str, float]) -> Chart | None:
    """Draws one panel for each source; ``limits`` are marked, such as a timeout. None if nothing took any time."""
    found = [it for it in found if it.total > it.counts.get(histogram.ZERO, 0)]
    if not found:
        return None
    return Chart(
        name=name,
        title=title,
        alt=f"Histogram of {meaning} on a logarithmic axis, {', '.join(f'{it.label}s' for it in found)}, with the percentiles 50, 95 and 99 marked.",
        caption=" ".join(_sentence(it, limits) for it in found),
        draw=partial(_draw, found, meaning, limits),
    )


def _sentence(it: Spread, limits: Mapping[str, float]) -> str:
    zeros = it.counts.get(histogram.ZERO, 0)
    at_once = f" {share(zeros, it.total)} took no time at all." if zeros else ""
    beyond = ""
    for name, limit in limits.items():
        over = sum(amount for bin_, amount in it.counts.items() if histogram.value_of(bin_) >= limit * 0.99)
        beyond += f" {share(over, it.total).capitalize()} reached the {name} of {duration(limit)}."
    middle, most, tail = (duration(it.at(at)) for at in SHARES)
    return f"Of {counted(it.total, it.label)}, half took at most {middle}, 95 % at most {most} and 99 % at most {tail}.{at_once}{beyond}"


def _draw(found: list[Spread], meaning: str, limits: Mapping[str, float], theme: Theme) -> Canvas:
    figure, grid = canvas(11, 0.9 + 2.1 * len(found), len(found), 1, squeeze=False, sharex=True)
    for at, (it, axes) in enumerate(zip(found, grid[:, 0], strict=True)):
        _draw_one(axes, it, OWNERS[at % len(OWNERS)] if len(found) > 1 else theme.plain, theme)
        for name, limit in limits.items():
            axes.axvline(limit, color=theme.alarm, linewidth=1.2, linestyle=(0, (4, 2)))
            axes.annotate(
                f"{name} {duration(limit)}",
                (limit, 0.55),
                xycoords=("data", "axes fraction"),
                xytext=(-5, 0),
                textcoords="offset points",
                ha="right",
                fontsize=8,
                color=theme.alarm,
            )
    grid[-1, 0].set_xlabel(f"{meaning} (logarithmic)")
    return figure


def _draw_one(axes: Any, it: Spread, colour: str, theme: Theme) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator

    bars: dict[int, int] = {}
    for bin_, amount in it.counts.items():
        bar = -1 if bin_ == histogram.ZERO else (bin_ - 1) // PER_BAR
        bars[bar] = bars.get(bar, 0) + amount
    width = histogram.BASE**PER_BAR
    lefts = [width**bar if bar >= 0 else 0.35 for bar in bars]
    widths = [width**bar * (width - 1) if bar >= 0 else 0.3 for bar in bars]
    heights = [100 * amount / it.total for amount in bars.values()]
    axes.bar(lefts, heights, widths, align="edge", color=colour, edgecolor=theme.paper, linewidth=0.4, alpha=0.9)
    axes.set_xscale("log")
    axes.set_xlim(0.3, max(2e3, 1.6 * max(histogram.value_of(bin_) for bin_ in it.counts)))
    axes.set_ylim(0, max(heights) * 1.34)
    ticks = [0.5, *(10.0**power for power in range(8))]
    low, high = axes.get_xlim()
    axes.set_xticks([tick for tick in ticks if low <= tick <= high])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: "0" if value < 1 else duration(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axes.grid(axis="y", linewidth=0.6, alpha=0.7)
    axes.set_title(counted(it.total, it.label), fontsize=10)
    _draw_percentiles(axes, it, max(heights), theme)


def _draw_percentiles(axes: Any, it: Spread, top: float, theme: Theme) -> None:
    by_value: dict[float, list[str]] = {}
    for at in SHARES:
        by_value.setdefault(it.at(at), []).append(f"P{100 * at:g}")
    middle = axes.get_xlim()[1] ** 0.5
    for level, (value, names) in enumerate(by_value.items()):
        at, height, is_right = max(value, 0.5), top * (1.06 + 0.085 * level), value > middle * 20
        axes.plot([at, at], [0, height], color=theme.ink, linewidth=1.1)
        axes.annotate(
            f"{', '.join(names)}  {duration(value)}", (at, height), xytext=(-4 if is_right else 4, -3), textcoords="offset points",
            fontsize=8.5, color=theme.ink, ha="right" if is_right else "left",
        )  # fmt: skip
