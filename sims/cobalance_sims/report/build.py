"""Assembles a report: a section for each source, and in each what its figures say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from cobalance.errors import counted
from cobalance_sims import histogram
from cobalance_sims.records import SIM
from cobalance_sims.report.before_after import before_after
from cobalance_sims.report.choices import CheckedFigure, CostInterval, Tuned
from cobalance_sims.report.effects import SETTING_WORDS, effects
from cobalance_sims.report.page import Section, Table, Tile, page
from cobalance_sims.report.sensitivity import sensitivity
from cobalance_sims.report.sources import Material
from cobalance_sims.report.spread import Spread, spreads
from cobalance_sims.report.story import tell
from cobalance_sims.report.theme import Chart, png
from cobalance_sims.report.timeline import timeline
from cobalance_sims.report.tradeoff import front
from cobalance_sims.report.words import duration, number, share


def sections(materials: Sequence[Material]) -> list[Section]:
    """Recommendations first, then what they were made from."""
    tuned = [Tuned.read(it.tuned) for it in materials if it.tuned]
    found = [section for it in tuned for section in (*([_mismatch(it)] if it.mismatches else []), _recommendation(it))]
    observed = [it for it in materials if not it.tuned]
    found += [section for it in observed for section in _observed(it)]
    return [_distinct(section, at) for at, section in enumerate(found)]


def document(materials: Sequence[Material], title: str | None = None) -> str:
    """The page. Without a title, it has the finding for one."""
    return page(title or headline(materials), "; ".join(it.label for it in materials), sections(materials))


def headline(materials: Sequence[Material]) -> str:
    """What was found, in a line."""
    tuned = [Tuned.read(it.tuned) for it in materials if it.tuned]
    if not tuned:
        return "Handovers under churn"
    it = tuned[0]
    if it.mismatches:
        return "The churn does not do what its journal shows"
    gain = _gain(it)
    if it.decision == "change" and gain:
        return f"Other settings would cost {gain} less a day"
    return {"keep": "Today's settings are as good as any"}.get(
        it.decision, _DECISIONS.get(it.decision, "Recommendation")
    )


def _gain(it: Tuned) -> str:
    """In per cent of what today's settings cost; empty if there is none, or if it is not known."""
    today = it.today.total.value
    if it.gain is None or not isfinite(today) or not 0 < it.gain.value <= today:
        return ""
    return share(it.gain.value, today)


def write_pngs(materials: Sequence[Material], folder: Path) -> list[Path]:
    """Writes every figure to a file of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for section in sections(materials):
        for figure in section.figures:
            written.append(folder / f"{figure.name}.png")
            png(figure, str(written[-1]))
    return written


def _distinct(section: Section, at: int) -> Section:
    """Names of figures are unique on the page."""
    import attrs

    renamed = tuple(attrs.evolve(it, name=f"{it.name}-{at}" if at else it.name) for it in section.figures)
    return attrs.evolve(section, figures=renamed)


def _there(*figures: Chart | None) -> tuple[Chart, ...]:
    return tuple(it for it in figures if it is not None)


# -- what was observed -------------------------------------------------------------------------------------------------


def _observed(it: Material) -> list[Section]:
    story = tell(it.events[0].run, it.events) if it.events else None
    overview = Section(title=it.label, tiles=_tiles(it), figures=_there(timeline(story) if story else None))
    found = [overview, _lengths(it)]
    effect = effects(it.outcomes) if it.source == SIM else None
    if effect is not None:
        found.append(Section(title="What the settings do", figures=(effect,)))
    failed = [row for row in it.outcomes if row["status"] != "ok"]
    return [*found, *([_failed(failed)] if failed else [])]


def _lengths(it: Material) -> Section:
    drains, gaps, heals = (Spread(label, it.histograms.get(name, {})) for label, name in _LENGTHS)
    text = (
        "Draining, the holder finishes what it has begun and nothing new is started; behind it is a gap, until the resource is "
        "granted to the next owner. Everything else goes on meanwhile."
    )
    if gaps.total == gaps.counts.get(histogram.ZERO, 0) > 0:
        text += f" There was no gap: all {gaps.total:,} resources that were taken over were granted in the same moment."
    start = "its crash" if it.source == SIM else "its expiry"
    return Section(
        title="How long handovers take",
        text=text,
        figures=_there(
            spreads("drains", "Drains", "drain time", [drains], _limits(it.outcomes)),
            spreads("gaps", "Gaps", "time without an owner", [gaps], {}),
            spreads("heals", "Healing", f"time from {start} until all that a member had is owned again", [heals], {}),
        ),
    )


_LENGTHS = (("drain", "drain_hist"), ("gap", "gap_hist"), ("crash", "heal_hist"))


def _limits(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    timeouts = {row["revocation_timeout_ms"] for row in rows} - {None}
    return {"revocation timeout": float(timeouts.pop())} if len(timeouts) == 1 else {}


def _tiles(it: Material) -> tuple[Tile, ...]:
    def total(name: str) -> int:
        return sum(row[name] or 0 for row in it.outcomes)

    moves, least, cut = total("moves"), total("minimum_moves"), total("deadline_moves")
    expiries, false = total("expiries"), total("false_expiries")
    resource_ms = 3.6e6 * sum(row["resource_hours"] for row in it.outcomes)
    gaps, heal = it.histograms.get("gap_hist", {}), it.histograms.get("heal_hist", {})
    missing = total("missing_events")
    tiles = [
        Tile(
            f"{total('handovers'):,}",
            f"handovers in {duration(total('observed_ms'))}, {counted(len(it.outcomes), 'run' if it.source == SIM else 'group')}",
        ),
        Tile(
            duration(histogram.percentile(gaps, 0.5)),
            f"median time without an owner; 99 % within {duration(histogram.percentile(gaps, 0.99))}",
        ),
        Tile(share(total("unavailable_resource_ms"), resource_ms), "of all resource time had no owner that could work"),
        Tile(
            f"{cut:,}",
            f"drains cut short, {share(cut, total('handovers'))} of the handovers",
            "alarm" if cut else "good",
        ),
        Tile(f"{moves:,}", f"moves; {least:,} were the fewest with which each change could be followed at once"),
        Tile(
            f"{false:,}",
            f"of {counted(expiries, 'expired session')} were of a live process",
            "alarm" if false else "good",
        ),
    ]
    if heal:
        tiles.append(
            Tile(
                duration(histogram.percentile(heal, 0.5)),
                f"median time {'from a crash' if it.source == SIM else 'from the expiry of a dead member'} until all it had is owned again; 99 % within {duration(histogram.percentile(heal, 0.99))}",
            )
        )
    if missing:
        tiles.append(Tile(f"{missing:,}", "journal entries are missing: they were trimmed or lost", "alarm"))
    return tuple(tiles)


def _failed(rows: Sequence[Mapping[str, Any]]) -> Section:
    shown = tuple((str(row["run"]), str(row["error"] or "")) for row in rows[:20])
    more = f"{len(rows) - 20:,} more are in the table outcomes." if len(rows) > 20 else ""
    return Section(
        title=f"{counted(len(rows), 'run')} broke a promise",
        tables=(Table("Failed runs", ("run", "error"), shown, more),),
    )


# -- what is recommended -----------------------------------------------------------------------------------------------

_DECISIONS = {
    "change": "Change the settings",
    "keep": "Keep today's settings",
    "refused": "No recommendation: the evidence does not reach",
}


def _recommendation(tuned: Tuned) -> Section:
    text = " ".join([*tuned.trade, *tuned.reasons, *(["What would help:"] if tuned.collect else []), *tuned.collect])
    return Section(
        title=_DECISIONS.get(tuned.decision, "Recommendation"),
        text=text,
        code=tuned.command,
        tiles=_decision_tiles(tuned),
        figures=_there(before_after(tuned), front(tuned), sensitivity(tuned)),
        tables=(_settings_table(tuned), _costs_table(tuned), *([_check_table(tuned)] if tuned.figures else [])),
    )


def _decision_tiles(tuned: Tuned) -> tuple[Tile, ...]:
    """The gain with its interval, how the churn fared, and what others' defaults cost."""
    tiles, today = [], tuned.today.total.value
    if (gain := _gain(tuned)) and tuned.gain is not None:
        whose = "the best that was found" if tuned.decision == "refused" else "the recommendation"
        low, high = (number(100 * it / today) for it in (tuned.gain.low, tuned.gain.high))
        sure = "good" if tuned.gain.low > 0 else ""
        tiles.append(
            Tile(
                gain, f"less a day than today's settings cost, for {whose}; {low} to {high} % with 95 % certainty", sure
            )
        )
    if tuned.figures:
        agree, known = (
            sum(it.agreement in which for it in tuned.figures) for which in (("agrees",), ("agrees", "differs"))
        )
        tiles.append(
            Tile(
                f"{agree} of {known}",
                "figures of the journal are as its churn predicts",
                "good" if agree == known else "alarm",
            )
        )
    tiles += [
        Tile(f"{it.total.value / today:.2g} times", f"as much as today's: {it.name}'s defaults")
        for it in tuned.peers
        if isfinite(today) and today > 0
    ]
    return tuple(tiles)


def _mismatch(tuned: Tuned) -> Section:
    """Stands before the recommendation, since it decides whether that is worth anything."""
    text = "Simulated under the settings that were in force, the churn shows other figures than the journal it was calibrated from."
    return Section(
        title="Do not trust this: the churn does not do what its journal shows",
        text=" ".join([text, *tuned.mismatches]),
        tiles=tuple(_checked_tile(it) for it in tuned.figures if it.agreement == "differs"),
    )


def _checked_tile(it: CheckedFigure) -> Tile:
    predicted = "" if it.predicted is None else f"; the churn shows {_with_interval(it.predicted)}"
    return Tile(
        number(it.observed or 0.0), f"{it.name.replace('_', ' ')}, {it.unit}, in the journal{predicted}", "alarm"
    )


_AGREEMENTS = {"agrees": "agrees", "differs": "differs", "unknown": "too few to tell"}


def _check_table(tuned: Tuned) -> Table:
    rows = tuple(
        (
            f"{it.name.replace('_', ' ')}, {it.unit}",
            "" if it.observed is None else number(it.observed),
            "" if it.predicted is None else _with_interval(it.predicted),
            _AGREEMENTS.get(it.agreement, it.agreement),
        )
        for it in tuned.figures
    )
    return Table(
        "The churn beside its journal",
        ("", "journal", "churn", ""),
        rows,
        "The churn was simulated under the settings in force; intervals hold 95 of 100 journals of this length.",
    )


def _with_interval(it: CostInterval) -> str:
    return number(it.value) if it.low == it.high else f"{number(it.value)} ({number(it.low)} to {number(it.high)})"


def _settings_table(tuned: Tuned) -> Table:
    names = [name for name in SETTING_WORDS if any(name in it.settings for it in tuned.named)]
    rows = tuple(
        (SETTING_WORDS[name], *(duration(it.settings[name]) if name in it.settings else "" for it in tuned.named))
        for name in names
    )
    return Table("Settings", ("", *(it.name for it in tuned.named)), rows)


def _costs_table(tuned: Tuned) -> Table:
    def cell(choice: Any, name: str) -> str:
        cost = choice.costs.get(name)
        if cost is None:
            return ""
        return _with_interval(cost)

    names = list(tuned.today.costs)
    rows = tuple(
        (f"{name.replace('_', ' ')}, {tuned.units.get(name, '')}".rstrip(", "), *(cell(it, name) for it in tuned.named))
        for name in names
    )
    return Table(
        "Costs on the same churn",
        ("", *(it.name for it in tuned.named)),
        rows,
        "With 95 % intervals; less is better in every row.",
    )
