"""Before and after: the costs of today's settings next to those of the recommended ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING

import attrs

from cobalance.errors import counted
from cobalance_sims.report.choices import CostInterval, Tuned, span
from cobalance_sims.report.theme import Chart, Theme, canvas
from cobalance_sims.report.words import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


@attrs.frozen
class _Pair:
    name: str
    before: CostInterval
    after: CostInterval


def before_after(tuned: Tuned) -> Chart | None:
    """Draws both costs, each as a share of the larger one. None without a recommendation."""
    if tuned.recommended is None:
        return None
    pairs = [
        _Pair(name, tuned.today.costs[name], tuned.recommended.costs[name])
        for name in tuned.recommended.costs
        if name in tuned.today.costs
    ]
    pairs = [
        it
        for it in pairs
        if max(it.before.value, it.after.value) > 0 and isfinite(it.before.value) and isfinite(it.after.value)
    ]
    if not pairs:
        return None
    return Chart(
        name="before-after",
        title="Before and after",
        alt=f"Paired bars of {counted(len(pairs), 'cost')}, today's settings against the recommended ones.",
        caption="; ".join(_pair_words(it, tuned.units) for it in pairs) + ".",
        draw=partial(_draw_pairs, pairs, tuned.units),
    )


def _pair_words(it: _Pair, units: Mapping[str, str]) -> str:
    change = it.after.value / it.before.value - 1 if it.before.value else float("inf")
    words = f" ({change:+.0%})" if isfinite(change) else ""
    return f"{it.name.replace('_', ' ')} {number(it.before.value)} → {number(it.after.value)} {units.get(it.name, '')}{words}".replace(
        "  ", " "
    )


def _draw_pairs(pairs: Sequence[_Pair], units: Mapping[str, str], theme: Theme) -> Canvas:
    figure, axes = canvas(11, 0.8 + 0.72 * len(pairs))
    for row, it in enumerate(pairs):
        most = max(it.before.value, it.after.value)
        for shift, cost, colour, label in (
            (-0.19, it.before, theme.soft, "today"),
            (0.19, it.after, theme.good, "recommended"),
        ):
            axes.barh(row + shift, cost.value / most, 0.34, color=colour, label=label if row == 0 else None)
            axes.errorbar(
                cost.value / most,
                row + shift,
                xerr=[[span(cost)[0][0] / most], [span(cost)[1][0] / most]],
                color=theme.ink,
                elinewidth=1,
                capsize=2,
            )
            end = (min(cost.high, 3 * most) if isfinite(cost.high) else cost.value) / most
            axes.annotate(
                number(cost.value),
                (max(end, cost.value / most), row + shift),
                xytext=(6, 0),
                textcoords="offset points",
                va="center",
                fontsize=9,
                color=theme.ink,
            )
    names = [f"{it.name.replace('_', ' ')}\n{units.get(it.name, '')}" for it in pairs]
    axes.set_yticks(range(len(pairs)), names)
    axes.set_ylim(len(pairs) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, axes.get_xlim()[1] * 1.1)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.legend(loc="lower right", fontsize=9)
    return figure
