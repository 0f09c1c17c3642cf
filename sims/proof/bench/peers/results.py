"""What several stories of each peer come to: a table for people, a report, and figures to compare runs by."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import attrs
from rich.table import Table

from proof.bench.figures import Figure
from proof.bench.peers.judge import ChangeOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

KINDS = {"joins": "a 4th joins 3", "leaves": "one of 4 leaves", "killed": "one of 3 is killed"}
NOTHING = "none"
COLUMNS = (
    "", "peer", "moves ÷ minimum", "gap p50, ms", "p99, ms", "pause of what stays, ms", "even after, s", "duplicates", "by two", "lost",
)  # fmt: skip


@attrs.frozen
class Played:
    """One story of one peer."""

    peer: str
    title: str
    round: int
    load: list[float]
    """The machine's, when it had ended."""
    seconds: float
    published: int
    outcomes: list[ChangeOutcome]

    def outcome(self, kind: str) -> ChangeOutcome:
        return next(it for it in self.outcomes if it.kind == kind)


def table(played: Sequence[Played]) -> Table:
    """All peers under each change."""
    drawn = Table(title="One story on each: 12 partitions, 40 messages/s each, handlers of 2 ms, separate processes")
    for column in COLUMNS:
        drawn.add_column(column, justify="left" if column in {"", "peer"} else "right")
    for kind, words in KINDS.items():
        for place, row in enumerate(rows(played, kind)):
            drawn.add_row(words if place == 0 else "", *row)
        drawn.add_section()
    return drawn


def markdown(played: Sequence[Played]) -> str:
    """The same for a README."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|---|" + "---:|" * (len(COLUMNS) - 2)]
    for kind, words in KINDS.items():
        for place, row in enumerate(rows(played, kind)):
            lines.append("| " + " | ".join([words if place == 0 else "", *row]) + " |")
    return "\n".join(lines)


def read(report: Mapping[str, Any]) -> list[Played]:
    """The stories of a report that `--json` has written."""
    return [
        Played(**{**it, "outcomes": [ChangeOutcome(**outcome) for outcome in it["outcomes"]]})
        for it in report["peers"]["played"]
    ]


def rows(played: Sequence[Played], kind: str) -> Iterator[list[str]]:
    """A row for each peer, without its first column."""
    for title in dict.fromkeys(it.title for it in played):
        yield [title, *_cells([it.outcome(kind) for it in played if it.title == title])]


def _cells(outcomes: Sequence[ChangeOutcome]) -> list[str]:
    gaps = sorted(gap for it in outcomes for gap in it.gaps_ms)
    pauses = [it.pause_ms for it in outcomes if it.pause_ms is not None]
    stalled = sum(it.stalled for it in outcomes)
    return [
        f"{sum(it.moves for it in outcomes)} / {sum(it.minimum for it in outcomes)}"
        + (f", {stalled} not worked" if stalled else ""),
        f"{percentile(gaps, 50):,.0f}" if gaps else NOTHING,
        f"{percentile(gaps, 99):,.0f}" if gaps else NOTHING,
        f"{max(pauses):,.0f}" if pauses else NOTHING,
        _even([it.even_s for it in outcomes]),
        str(sum(it.duplicates for it in outcomes)),
        str(sum(it.overlapping for it in outcomes)),
        str(sum(it.lost for it in outcomes)),
    ]


def _even(times: Sequence[float | None]) -> str:
    known = [it for it in times if it is not None]
    if not known:
        return "never"
    said = f"{statistics.median(known):.2f}"
    return said if len(known) == len(times) else f"{said}, {len(times) - len(known)} of {len(times)} never"


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The nearest rank: of fewer than a hundred values, the 99th percentile is the largest."""
    return ordered[max(0, -(-len(ordered) * percent // 100).__int__() - 1)]


def figures(played: Sequence[Played]) -> Iterator[Figure]:
    """Ours, for `--compare`: against RabbitMQ alone where that moves anything, else as they are."""
    for kind_of_queue in ("classic", "quorum"):
        ours = [it for it in played if it.peer == f"cobalance-{kind_of_queue}"]
        raw = [it for it in played if it.peer == f"rabbitmq-{kind_of_queue}"]
        for kind, words in KINDS.items():
            if ours:
                name = f"peers, {kind_of_queue} queues, {words}: "
                mine = [it.outcome(kind) for it in ours]
                yield _gap(name, mine, [it.outcome(kind) for it in raw])
                yield _alone(name + "moves ÷ minimum", "", [it.moves / max(1, it.minimum) for it in mine])
                yield _alone(name + "longest pause of what stays", "ms", [it.pause_ms or 0.0 for it in mine])
                yield _alone(name + "even after", "s", [it.waited_s if it.even_s is None else it.even_s for it in mine])
                yield _total(name + "duplicates", mine, lambda it: it.duplicates)
                yield _total(name + "lost", mine, lambda it: it.lost)
                yield _total(name + "by two at once", mine, lambda it: it.overlapping)
                yield _total(name + "out of order", mine, lambda it: it.reordered)


def _gap(name: str, ours: Sequence[ChangeOutcome], raw: Sequence[ChangeOutcome]) -> Figure:
    mine = [statistics.median(it.gaps_ms) for it in ours if it.gaps_ms]
    theirs = [statistics.median(it.gaps_ms) for it in raw if it.gaps_ms]
    if not theirs:
        return _alone(name + "gap", "ms", mine or [0.0])
    ratios = [a / b for a, b in zip(mine, theirs, strict=False)]
    return Figure(
        name=name + "gap ÷ RabbitMQ alone",
        unit="ms",
        ours=statistics.median(mine),
        peer=statistics.median(theirs),
        ratio=statistics.median(ratios),
        rounds=len(ratios),
        each=tuple(ratios),
    )


def _alone(name: str, unit: str, values: Sequence[float]) -> Figure:
    return Figure(name=name, unit=unit, ours=statistics.median(values), rounds=len(values), each=tuple(values))


def _total(name: str, outcomes: Sequence[ChangeOutcome], count: Callable[[ChangeOutcome], int]) -> Figure:
    """A mean: one lost message in one round must not vanish in a median."""
    mean = sum(map(count, outcomes)) / len(outcomes)
    return Figure(name=name, unit="a round", ours=mean, rounds=len(outcomes))
