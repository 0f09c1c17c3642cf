"""The recommendation as pictures: what can be had together (the Pareto front), what each setting matters, and before against after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from math import isfinite
from typing import TYPE_CHECKING, Any

import attrs

from cobalance_sims.report.choices import Choice, Cost, Sensitivity, Tuned
from cobalance_sims.report.effects import SETTING_WORDS
from cobalance_sims.report.theme import Figure, Theme, canvas
from cobalance_sims.report.words import duration, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

SHAPES = {"recommended": "*", "today": "D", "Kafka": "^", "Iggy": "s"}
COLOURS = {"Kafka": "#cc79a7", "Iggy": "#e69f00"}
PREFERRED = (("unavailable", "duplicates"), ("draining", "duplicates"), ("heal", "false_expiries"), ("unavailable", "moves"))


def front(tuned: Tuned) -> Figure | None:
    """None where fewer than two choices can be compared."""
    choices = [*tuned.others, *tuned.named]
    pair = _pair(choices)
    if pair is None:
        return None
    return Figure(
        name="front",
        title="What can be had together",
        alt=f"Scatter plot of {len(choices)} choices of settings by {pair[0]} and {pair[1]}, both better when less, with the Pareto front and named choices marked.",
        caption=_front_caption(tuned, pair),
        draw=partial(_draw_front, tuned, pair),
    )


def _pair(choices: Sequence[Choice]) -> tuple[str, str] | None:
    """Two costs that differ among the choices: a pair that people ask for, or else the one that goes apart most."""
    values = {name: [it.costs[name].value for it in choices] for name in (choices[0].costs if choices else ())}
    needed = min(4, len(choices) - 1)
    varied = [name for name, found in values.items() if len({it for it in found if isfinite(it)}) >= needed]
    wanted = [pair for pair in PREFERRED if set(pair) <= set(varied)]
    pairs = sorted(combinations(varied, 2), key=lambda pair: _agreement(values[pair[0]], values[pair[1]]))
    return next(iter(wanted or pairs), None)


def _agreement(a: Sequence[float], b: Sequence[float]) -> int:
    """By how many pairs of choices more the two costs agree which is better than they disagree."""
    return sum((x < z) - (x > z) if y < w else (x > z) - (x < z) for (x, y), (z, w) in combinations(zip(a, b, strict=True), 2) if y != w)


def _nondominated(choices: Sequence[Choice], pair: tuple[str, str]) -> list[Choice]:
    ordered = sorted(choices, key=lambda it: (it.costs[pair[0]].value, it.costs[pair[1]].value))
    best, found = float("inf"), []
    for it in ordered:
        if it.costs[pair[1]].value < best:
            best = it.costs[pair[1]].value
            found.append(it)
    return found


def _front_caption(tuned: Tuned, pair: tuple[str, str]) -> str:
    def told(it: Choice) -> str:
        return f"{it.name}: {_cost(tuned, pair[0], it)} and {_cost(tuned, pair[1], it)}"

    count = len(tuned.others) + len(tuned.named)
    limits = [f" The limit of {name}, {number(tuned.limits[name])} {tuned.units.get(name, '')}, is dashed where it is near." for name in pair if name in tuned.limits]
    return f"Of {count} choices, down and to the left is better. {'; '.join(map(told, tuned.named))}.{''.join(limits)}"


def _cost(tuned: Tuned, name: str, it: Choice) -> str:
    unit = tuned.units.get(name, "")
    return f"{number(it.costs[name].value)} {unit} {name.replace('_', ' ')}".replace("  ", " ")


def _draw_front(tuned: Tuned, pair: tuple[str, str], theme: Theme) -> Canvas:
    figure, axes = canvas(11, 5.2)
    everything = [it for it in (*tuned.others, *tuned.named) if all(isfinite(it.costs[name].value) for name in pair)]
    line = _nondominated(everything, pair)
    axes.plot([it.costs[pair[0]].value for it in line], [it.costs[pair[1]].value for it in line], color=theme.good, linewidth=2, drawstyle="steps-post", zorder=1, label="Pareto front")
    rest = [it for it in everything if it.name not in SHAPES]
    axes.scatter([it.costs[pair[0]].value for it in rest], [it.costs[pair[1]].value for it in rest], s=26, color=theme.soft, alpha=0.55, linewidths=0, zorder=2, label="tried")
    for it in tuned.named:
        _draw_named(axes, it, pair, theme)
    _draw_limits(axes, tuned, pair, theme)
    _draw_names(axes, [it for it in tuned.named if it in everything], pair, theme)
    for axis, name in ((axes.xaxis, pair[0]), (axes.yaxis, pair[1])):
        _scale(axes, axis, [it.costs[name].value for it in everything])
    axes.set_xlabel(_axis(tuned, pair[0]))
    axes.set_ylabel(_axis(tuned, pair[1]))
    axes.grid(linewidth=0.6, alpha=0.7)
    axes.legend(loc="upper right", fontsize=8.5)
    return figure


def _draw_named(axes: Any, it: Choice, pair: tuple[str, str], theme: Theme) -> None:
    x, y = it.costs[pair[0]], it.costs[pair[1]]
    if not (isfinite(x.value) and isfinite(y.value)):
        return
    colour = {"recommended": theme.good, "today": theme.plain, **COLOURS}.get(it.name, theme.ink)
    axes.errorbar(x.value, y.value, xerr=_span(x), yerr=_span(y), color=colour, elinewidth=1, capsize=2, zorder=3)
    axes.scatter(x.value, y.value, marker=SHAPES.get(it.name, "P"), s=230 if it.name == "recommended" else 90, color=colour, edgecolors=theme.paper, linewidths=1, zorder=5)


def _draw_names(axes: Any, named: Sequence[Choice], pair: tuple[str, str], theme: Theme) -> None:
    """Beside their marks; below, and further below, where others are near."""
    (low, high), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    done: list[tuple[float, float]] = []
    for it in named:
        x, y = it.costs[pair[0]].value, it.costs[pair[1]].value
        near = sum(abs(x - other) < 0.1 * (high - low) and abs(y - another) < 0.08 * (top - bottom) for other, another in done)
        done.append((x, y))
        axes.annotate(
            it.name, (x, y), xytext=(9, 7 if not near else -4 - 13 * near), textcoords="offset points", fontsize=10,
            color=theme.ink, weight="bold", zorder=6,
        )  # fmt: skip


def _draw_limits(axes: Any, tuned: Tuned, pair: tuple[str, str], theme: Theme) -> None:
    """Where they are among the choices: a limit far away would push them into a corner."""
    for name, draw, reach in ((pair[0], axes.axvline, axes.get_xlim()), (pair[1], axes.axhline, axes.get_ylim())):
        if reach[0] < tuned.limits.get(name, float("inf")) < 1.3 * reach[1]:
            draw(tuned.limits[name], color=theme.alarm, linestyle=(0, (4, 2)), linewidth=1.2, label=f"limit of {name}")


def _span(cost: Cost) -> list[list[float]]:
    high = cost.high if isfinite(cost.high) else cost.value
    return [[max(cost.value - cost.low, 0.0)], [max(high - cost.value, 0.0)]]


def _scale(axes: Any, axis: Any, values: Sequence[float]) -> None:
    """Logarithmic where values are of different orders; zeros keep their place then."""
    positive = [value for value in values if value > 0]
    if positive and max(positive) / min(positive) > 30:
        least = min(positive)
        set_scale = axes.set_xscale if axis is axes.xaxis else axes.set_yscale
        set_scale("symlog", linthresh=least) if len(positive) < len(values) else set_scale("log")


def _axis(tuned: Tuned, name: str) -> str:
    unit = tuned.units.get(name, "")
    return f"{name.replace('_', ' ')}, {unit}" if unit else name.replace("_", " ")


def sensitivity(tuned: Tuned) -> Figure | None:
    """What one setting alone changes. None where that was not tried."""
    found = [it for it in tuned.sensitivity if len(it.points) > 1]
    if not found:
        return None
    spans = {it.setting: _worst_over_best(it) for it in found}
    most = max(found, key=lambda it: spans[it.setting])
    least = min(found, key=lambda it: spans[it.setting])
    return Figure(
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
    figure, grid = canvas(11, 2.7 * -(-len(found) // columns) + 0.2, -(-len(found) // columns), columns, squeeze=False, sharey=True)
    for it, axes in zip(found, grid.flat, strict=False):
        at = [max(value, 1.0) for value, _ in it.points]
        axes.fill_between(at, [cost.low for _, cost in it.points], [cost.high for _, cost in it.points], color=theme.plain, alpha=0.2, linewidth=0)
        axes.plot(at, [cost.value for _, cost in it.points], color=theme.plain, marker="o", markersize=5, linewidth=1.8)
        if it.chosen is not None:
            axes.axvline(max(it.chosen, 1.0), color=theme.good, linewidth=1.4, linestyle=(0, (4, 2)))
            axes.annotate(duration(it.chosen), (max(it.chosen, 1.0), 1), xycoords=("data", "axes fraction"), xytext=(4, -11), textcoords="offset points", fontsize=8.5, color=theme.good)
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


@attrs.frozen
class _Pair:
    name: str
    before: Cost
    after: Cost


def before_after(tuned: Tuned) -> Figure | None:
    """Today's costs against the recommendation's, each as a share of the larger one. None without a recommendation."""
    if tuned.recommended is None:
        return None
    pairs = [_Pair(name, tuned.today.costs[name], tuned.recommended.costs[name]) for name in tuned.recommended.costs if name in tuned.today.costs]
    pairs = [it for it in pairs if max(it.before.value, it.after.value) > 0 and isfinite(it.before.value) and isfinite(it.after.value)]
    if not pairs:
        return None
    return Figure(
        name="before-after",
        title="Before and after",
        alt=f"Paired bars of {len(pairs)} costs, today's settings against the recommended ones.",
        caption="; ".join(_pair_words(it, tuned.units) for it in pairs) + ".",
        draw=partial(_draw_pairs, pairs, tuned.units),
    )


def _pair_words(it: _Pair, units: Mapping[str, str]) -> str:
    change = it.after.value / it.before.value - 1 if it.before.value else float("inf")
    words = f" ({change:+.0%})" if isfinite(change) else ""
    return f"{it.name.replace('_', ' ')} {number(it.before.value)} → {number(it.after.value)} {units.get(it.name, '')}{words}".replace("  ", " ")


def _draw_pairs(pairs: Sequence[_Pair], units: Mapping[str, str], theme: Theme) -> Canvas:
    figure, axes = canvas(11, 0.8 + 0.72 * len(pairs))
    for row, it in enumerate(pairs):
        most = max(it.before.value, it.after.value)
        for shift, cost, colour, label in ((-0.19, it.before, theme.soft, "today"), (0.19, it.after, theme.good, "recommended")):
            axes.barh(row + shift, cost.value / most, 0.34, color=colour, label=label if row == 0 else None)
            axes.errorbar(cost.value / most, row + shift, xerr=[[_span(cost)[0][0] / most], [_span(cost)[1][0] / most]], color=theme.ink, elinewidth=1, capsize=2)
            end = (min(cost.high, 3 * most) if isfinite(cost.high) else cost.value) / most
            axes.annotate(number(cost.value), (max(end, cost.value / most), row + shift), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9, color=theme.ink)
    names = [f"{it.name.replace('_', ' ')}\n{units.get(it.name, '')}" for it in pairs]
    axes.set_yticks(range(len(pairs)), names)
    axes.set_ylim(len(pairs) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, axes.get_xlim()[1] * 1.1)
    axes.xaxis.set_visible(False)
    axes.spines["bottom"].set_visible(False)
    axes.legend(loc="lower right", fontsize=9)
    return figure
