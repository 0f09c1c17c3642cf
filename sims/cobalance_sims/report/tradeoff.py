"""What can be had together: every choice that was tried by two costs, with the Pareto front and the named choices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from math import isfinite
from typing import TYPE_CHECKING, Any

from cobalance.errors import counted
from cobalance_sims.report.choices import Choice, Tuned, span
from cobalance_sims.report.theme import Chart, Theme, canvas
from cobalance_sims.report.words import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

SHAPES = {"recommended": "*", "today": "D", "Kafka": "^", "Iggy": "s"}
COLOURS = {"Kafka": "#cc79a7", "Iggy": "#e69f00"}
PREFERRED = (
    ("unavailable", "duplicates"),
    ("draining", "duplicates"),
    ("heal", "false_expiries"),
    ("unavailable", "moves"),
)


def front(tuned: Tuned) -> Chart | None:
    """Draws the figure. None if fewer than two choices can be compared."""
    choices = [*tuned.front, *tuned.others, *tuned.named]
    pair = _pair(choices)
    if pair is None:
        return None
    return Chart(
        name="front",
        title="What can be had together",
        alt=f"Scatter plot of {counted(len(choices), 'choice')} of settings by {pair[0]} and {pair[1]}, both better when less, with the Pareto front and named choices marked.",
        caption=_front_caption(tuned, pair),
        draw=partial(_draw_front, tuned, pair),
    )


def _pair(choices: Sequence[Choice]) -> tuple[str, str] | None:
    """Two costs that differ among the choices: a pair that people ask for, or else the one that diverges most."""
    values = {name: [it.costs[name].value for it in choices] for name in (choices[0].costs if choices else ())}
    needed = min(4, len(choices) - 1)
    varied = [name for name, found in values.items() if len({it for it in found if isfinite(it)}) >= needed]
    wanted = [pair for pair in PREFERRED if set(pair) <= set(varied)]
    pairs = sorted(combinations(varied, 2), key=lambda pair: _agreement(values[pair[0]], values[pair[1]]))
    return next(iter(wanted or pairs), None)


def _agreement(a: Sequence[float], b: Sequence[float]) -> int:
    """For how many more pairs of choices the two costs agree which is better than disagree."""
    return sum(
        (x < z) - (x > z) if y < w else (x > z) - (x < z)
        for (x, y), (z, w) in combinations(zip(a, b, strict=True), 2)
        if y != w
    )


def _nondominated(choices: Sequence[Choice], pair: tuple[str, str]) -> list[Choice]:
    ordered = sorted(choices, key=lambda it: (it.costs[pair[0]].value, it.costs[pair[1]].value))
    best, found = float("inf"), []
    for it in ordered:
        if it.costs[pair[1]].value < best:
            best = it.costs[pair[1]].value
            found.append(it)
    return found


def _front_caption(tuned: Tuned, pair: tuple[str, str]) -> str:
    def sentence(it: Choice) -> str:
        return f"{it.name}: {_cost(tuned, pair[0], it)} and {_cost(tuned, pair[1], it)}"

    count = len(tuned.front) + len(tuned.others) + len(tuned.named)
    limits = [
        f" The limit of {name}, {number(tuned.limits[name])} {tuned.units.get(name, '')}, is dashed where it is near."
        for name in pair
        if name in tuned.limits
    ]
    return (
        f"Of {count} choices, down and to the left is better. {'; '.join(map(sentence, tuned.named))}.{''.join(limits)}"
    )


def _cost(tuned: Tuned, name: str, it: Choice) -> str:
    unit = tuned.units.get(name, "")
    return f"{number(it.costs[name].value)} {unit} {name.replace('_', ' ')}".replace("  ", " ")


def _draw_front(tuned: Tuned, pair: tuple[str, str], theme: Theme) -> Canvas:
    figure, axes = canvas(11, 5.2)
    everything = [it for it in (*tuned.front, *tuned.others, *tuned.named) if _is_shown(it, pair)]
    line = _nondominated(everything, pair)
    axes.plot(
        *_places(line, pair), color=theme.good, linewidth=2, drawstyle="steps-post", zorder=1, label="best in these two"
    )
    axes.scatter(
        *_places(tuned.others, pair), s=26, color=theme.soft, alpha=0.55, linewidths=0, zorder=2, label="tried"
    )
    if tuned.front:
        axes.scatter(
            *_places(tuned.front, pair),
            s=44,
            color=theme.good,
            alpha=0.9,
            linewidths=0,
            zorder=2.5,
            label="Pareto front of all costs that count",
        )
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


def _is_shown(it: Choice, pair: tuple[str, str]) -> bool:
    return all(isfinite(it.costs[name].value) for name in pair)


def _places(choices: Sequence[Choice], pair: tuple[str, str]) -> tuple[list[float], list[float]]:
    shown = [it for it in choices if _is_shown(it, pair)]
    return [it.costs[pair[0]].value for it in shown], [it.costs[pair[1]].value for it in shown]


def _draw_named(axes: Any, it: Choice, pair: tuple[str, str], theme: Theme) -> None:
    x, y = it.costs[pair[0]], it.costs[pair[1]]
    if not _is_shown(it, pair):
        return
    colour = {"recommended": theme.good, "today": theme.plain, **COLOURS}.get(it.name, theme.ink)
    axes.errorbar(x.value, y.value, xerr=span(x), yerr=span(y), color=colour, elinewidth=1, capsize=2, zorder=3)
    axes.scatter(
        x.value,
        y.value,
        marker=SHAPES.get(it.name, "P"),
        s=230 if it.name == "recommended" else 90,
        color=colour,
        edgecolors=theme.paper,
        linewidths=1,
        zorder=5,
    )


def _draw_names(axes: Any, named: Sequence[Choice], pair: tuple[str, str], theme: Theme) -> None:
    """Next to their marks; below, and further below, where others are near."""
    (low, high), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    done: list[tuple[float, float]] = []
    for it in named:
        x, y = it.costs[pair[0]].value, it.costs[pair[1]].value
        near = sum(
            abs(x - other) < 0.1 * (high - low) and abs(y - another) < 0.08 * (top - bottom) for other, another in done
        )
        done.append((x, y))
        axes.annotate(
            it.name, (x, y), xytext=(9, 7 if not near else -4 - 13 * near), textcoords="offset points", fontsize=10,
            color=theme.ink, weight="bold", zorder=6,
        )  # fmt: skip


def _draw_limits(axes: Any, tuned: Tuned, pair: tuple[str, str], theme: Theme) -> None:
    """Only where they are among the choices: a limit far away would push those into a corner."""
    for name, draw, reach in ((pair[0], axes.axvline, axes.get_xlim()), (pair[1], axes.axhline, axes.get_ylim())):
        if reach[0] < tuned.limits.get(name, float("inf")) < 1.3 * reach[1]:
            draw(tuned.limits[name], color=theme.alarm, linestyle=(0, (4, 2)), linewidth=1.2, label=f"limit of {name}")


def _scale(axes: Any, axis: Any, values: Sequence[float]) -> None:
    """Logarithmic where values are of different orders of magnitude; zeros keep their place then."""
    positive = [value for value in values if value > 0]
    if positive and max(positive) / min(positive) > 30:
        least = min(positive)
        set_scale = axes.set_xscale if axis is axes.xaxis else axes.set_yscale
        set_scale("symlog", linthresh=least) if len(positive) < len(values) else set_scale("log")


def _axis(tuned: Tuned, name: str) -> str:
    unit = tuned.units.get(name, "")
    return f"{name.replace('_', ' ')}, {unit}" if unit else name.replace("_", " ")
