"""What a sweep says about each setting: two costs over the setting's values, with intervals over the runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from cobalance_sims.report.theme import OWNERS, Chart, Theme, canvas
from cobalance_sims.report.words import duration, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

VARIED = ("revocation_timeout_ms", "session_timeout_ms", "heartbeat_interval_ms", "rejoin_grace_ms", "gather_ms")
SETTING_WORDS = {name: name.removesuffix("_ms").replace("_", " ") for name in VARIED}
MARKERS = "osD^vP"
MOST_LINES, MOST_PANELS, DRAWS = 6, 3, 400

Rows = Sequence[Mapping[str, Any]]


@attrs.frozen
class Measure:
    """A cost, as an amount over an exposure: summed over many runs, one divided by the other."""

    words: str
    """The amount, and in the second line, per what."""
    amount: Callable[[Mapping[str, Any]], float]
    exposure: Callable[[Mapping[str, Any]], float]


MEASURES = (
    Measure(
        "seconds without a working owner\nresource-hour",
        lambda row: row["unavailable_resource_ms"] / 1000,
        lambda row: row["resource_hours"],
    ),
    Measure(
        "drains cut short\nthousand handovers", lambda row: 1000 * row["deadline_moves"], lambda row: row["handovers"]
    ),
)


@attrs.frozen
class EffectPoint:
    """A point of a line."""

    at: float
    value: float
    low: float
    high: float


def effects(rows: Rows) -> Chart | None:
    """Draws the figure. None if no setting has two values."""
    varied = [name for name in VARIED if len({row[name] for row in rows} - {None}) > 1][:MOST_PANELS]
    if not varied:
        return None
    churns = sorted({str(row["churn"]) for row in rows})[:MOST_LINES]
    lines = {
        (name, at, churn): _line([row for row in rows if str(row["churn"]) == churn], name, measure)
        for name in varied
        for at, measure in enumerate(MEASURES)
        for churn in churns
    }
    return Chart(
        name="effects",
        title="Costs by setting",
        alt=f"Small multiples: for {', '.join(SETTING_WORDS[it] for it in varied)} two costs over the setting's values, a line a churn, with 95 % intervals.",
        caption=_caption(lines, varied, churns),
        draw=partial(_draw, lines, varied, churns),
    )


def _line(rows: Rows, name: str, measure: Measure) -> list[EffectPoint]:
    by_value: dict[float, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row[name] is not None:
            by_value.setdefault(row[name], []).append(row)
    return [_point(value, found, measure) for value, found in sorted(by_value.items())]


def _point(at: float, rows: Rows, measure: Measure) -> EffectPoint:
    """The interval is drawn over whole runs, since events within one run depend on each other."""
    amounts = np.array([measure.amount(row) for row in rows], dtype=np.float64)
    exposures = np.array([measure.exposure(row) for row in rows], dtype=np.float64)
    picks = np.random.default_rng(0).integers(0, len(rows), (DRAWS, len(rows)))
    drawn = amounts[picks].sum(axis=1) / np.maximum(exposures[picks].sum(axis=1), 1e-9)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return EffectPoint(at, float(amounts.sum() / max(exposures.sum(), 1e-9)), float(low), float(high))


Lines = Mapping[tuple[str, int, str], list[EffectPoint]]


def _caption(lines: Lines, varied: list[str], churns: list[str]) -> str:
    parts = [words for name in varied if (words := _clearest(lines, name, churns))]
    return " ".join(
        [*(parts or ["No setting that was varied made a certain difference."]), "Bars are 95 % intervals over runs."]
    )


def _clearest(lines: Lines, name: str, churns: list[str]) -> str:
    """Where the ends of a line differ most, among those whose intervals do not touch."""
    found = [
        (abs(points[-1].value - points[0].value) / max(points[0].value, points[-1].value), at, churn)
        for churn in churns
        for at in range(len(MEASURES))
        if len(points := lines[name, at, churn]) > 1
        and (points[0].high < points[-1].low or points[-1].high < points[0].low)
    ]
    if not found:
        return ""
    _, at, churn = max(found)
    first, last = lines[name, at, churn][0], lines[name, at, churn][-1]
    words = MEASURES[at].words.replace("\n", " per ")
    return (
        f"Under {churn}, raising the {SETTING_WORDS[name]} from {duration(first.at)} to {duration(last.at)} took the {words} from "
        f"{number(first.value)} to {number(last.value)}."
    )


def _draw(lines: Lines, varied: list[str], churns: list[str], theme: Theme) -> Canvas:
    figure, grid = canvas(11, 5.6, 2, len(varied), squeeze=False, sharex="col", sharey="row")
    for column, name in enumerate(varied):
        for row, measure in enumerate(MEASURES):
            axes = grid[row, column]
            for at, churn in enumerate(churns):
                _draw_line(axes, lines[name, row, churn], at, churn, theme)
            axes.grid(axis="y", linewidth=0.6, alpha=0.7)
            axes.set_ylim(bottom=0)
            if column == 0:
                axes.set_ylabel(measure.words.replace("\n", "\nper "))
        values = sorted({point.at for churn in churns for point in lines[name, 0, churn]})
        _time_axis(grid[1, column], values)
        grid[0, column].set_title(SETTING_WORDS[name].capitalize(), fontsize=10)
    if len(churns) > 1:
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=6, fontsize=8.5)
    return figure


def _draw_line(axes: Any, points: list[EffectPoint], at: int, label: str, theme: Theme) -> None:
    if not points:
        return
    values = np.array([point.value for point in points])
    spans = np.array([[point.value - point.low, point.high - point.value] for point in points]).T.clip(min=0)
    colour = OWNERS[at % len(OWNERS)]
    axes.errorbar(
        [max(point.at, 1) for point in points], values, yerr=spans, color=colour, marker=MARKERS[at % len(MARKERS)], markersize=6,
        markeredgecolor=theme.paper, linewidth=1.8, elinewidth=1, capsize=2.5, label=label,
    )  # fmt: skip


def _time_axis(axes: Any, values: list[float]) -> None:
    from matplotlib.ticker import NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks([max(value, 1) for value in values], [duration(value) for value in values])
