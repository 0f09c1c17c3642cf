"""Which settings matter: the weighted cost over one of them, the others as chosen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any

from cobalance_sims.report.choices import Sensitivity, Tuned
from cobalance_sims.report.effects import SETTING_WORDS
from cobalance_sims.report.theme import Chart, Theme, canvas
from cobalance_sims.report.words import duration, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def sensitivity(tuned: Tuned) -> Chart | None:
    """Draws the effect of one setting alone. None if that was not tried."""
    found = [it for it in tuned.sensitivity if sum(isfinite(cost.value) for _, cost in it.points) > 1]
    if not found:
        return None
    spans = {it.setting: _worst_over_best(it) for it in found}
    most = max(found, key=lambda it: spans[it.setting])
    least = min(found, key=lambda it: spans[it.setting])
    return Chart(
        name="sensitivity",
        title="Which settings matter",
        alt=f"Small multiples of the weighed cost over {', '.join(_words(it.setting) for it in found)}, each with an interval, the chosen value marked.",
        caption=f"With all others as chosen, the worst value tried of the {_words(most.setting)} costs {number(spans[most.setting])} times its best; "
        f"of the {_words(least.setting)} {number(spans[least.setting])} times. Bands are 95 % intervals.",
        draw=partial(_draw_sensitivity, found),
    )


def _worst_over_best(it: Sensitivity) -> float:
    values = [cost.value for _, cost in it.points if isfinite(cost.value)]
    return max(values) / max(min(values), 1e-9)


def _words(setting: str) -> str:
    return SETTING_WORDS.get(setting, setting.removesuffix("_ms").replace("_", " "))


def _draw_sensitivity(found: Sequence[Sensitivity], theme: Theme) -> Canvas:
    columns = min(3, len(found))
    figure, grid = canvas(
        11, 2.7 * -(-len(found) // columns) + 0.2, -(-len(found) // columns), columns, squeeze=False, sharey=True
    )
    for it, axes in zip(found, grid.flat, strict=False):
        at = [max(value, 1.0) for value, _ in it.points]
        axes.fill_between(
            at,
            [cost.low for _, cost in it.points],
            [cost.high for _, cost in it.points],
            color=theme.plain,
            alpha=0.2,
            linewidth=0,
        )
        axes.plot(at, [cost.value for _, cost in it.points], color=theme.plain, marker="o", markersize=5, linewidth=1.8)
        if it.chosen is not None:
            axes.axvline(max(it.chosen, 1.0), color=theme.good, linewidth=1.4, linestyle=(0, (4, 2)))
            axes.annotate(
                duration(it.chosen),
                (max(it.chosen, 1.0), 1),
                xycoords=("data", "axes fraction"),
                xytext=(4, -11),
                textcoords="offset points",
                fontsize=8.5,
                color=theme.good,
            )
        _ticks(axes, at, [value for value, _ in it.points])
        axes.set_title(_words(it.setting).capitalize(), fontsize=10)
        axes.grid(axis="y", linewidth=0.6, alpha=0.7)
        axes.set_ylim(bottom=0)
    for axes in list(grid.flat)[len(found) :]:
        axes.set_visible(False)
    grid[0, 0].set_ylabel("weighed cost")
    return figure


def _ticks(axes: Any, at: Sequence[float], values: Sequence[float]) -> None:
    from matplotlib.ticker import NullLocator

    if max(at) / min(at) > 4:
        axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    step = -(-len(at) // 5)
    axes.set_xticks(at[::step], [duration(value) for value in values[::step]])
