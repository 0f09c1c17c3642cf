"""Side by side: each figure of the real runs, and the simulator's result for as many runs, for each seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import attrs

from proof.fidelity.figures import Figures

CLOSE = 0.10
"""Relative difference that counts as the same."""

RESOLUTION_MS = 1.0
"""The simulator's clock has whole milliseconds."""

BAND = (0.05, 0.95)

Statistic = Callable[[Sequence[Figures]], float | None]


def quantile(values: Sequence[float], share: float) -> float | None:
    """Returns the quantile by nearest rank; ``None`` if there are no values."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@attrs.frozen
class Kind:
    """A figure to compare."""

    name: str
    unit: str
    of: Statistic


def _pooled(attribute: str, share: float) -> Statistic:
    """A quantile over all runs together."""
    return lambda runs: quantile([it for run in runs for it in getattr(run, attribute)], share)


def _mean(name: str) -> Statistic:
    """Mean of a count over the runs."""
    return lambda runs: statistics.fmean(run.counts[name] for run in runs) if runs else None


KINDS: tuple[Kind, ...] = (
    Kind("drain, p50", "ms", _pooled("drains_ms", 0.5)),
    Kind("drain, p95", "ms", _pooled("drains_ms", 0.95)),
    Kind("handover gap in the journal (end of a tenure → grant), p50", "ms", _pooled("gaps_ms", 0.5)),
    Kind("the same, p95", "ms", _pooled("gaps_ms", 0.95)),
    Kind("handover gap for user code (`on_revoked` → `on_assigned`), p50", "ms", _pooled("pauses_ms", 0.5)),
    Kind("the same, p95", "ms", _pooled("pauses_ms", 0.95)),
    Kind("time to heal a crash, p50", "ms", _pooled("heals_ms", 0.5)),
    Kind("the same, longest", "ms", _pooled("heals_ms", 1.0)),
    Kind("moves", "", _mean("moves")),
    Kind("minimum moves", "", _mean("minimum_moves")),
    Kind("forced by the coordinator", "", _mean("forced")),
    Kind("cut short at the deadline", "", _mean("deadline_moves")),
    Kind("false expiries", "", _mean("false_expiries")),
    Kind("messages begun again (duplicates)", "", _mean("duplicates")),
)


@attrs.frozen
class ComparedFigure:
    """One figure on both sides."""

    name: str
    unit: str
    real: float | None
    simulated: float | None
    """The median over the seeds."""
    low: float | None
    high: float | None
    """Nine in ten seeds lie between ``low`` and this."""
    stock: float | None
    """The same with the simulator's own latencies instead of this machine's."""

    @property
    def difference(self) -> float | None:
        """Difference of the real figure from the simulated one, as a share of the latter."""
        if self.real is None or self.simulated is None:
            return None
        return (self.real - self.simulated) / self.simulated if self.simulated else None

    @property
    def verdict(self) -> str:
        """The comparison in a few words."""
        if self.real is None or self.simulated is None or self.low is None or self.high is None:
            return "not seen"
        if self.real == self.simulated:
            return "the same"
        if self.difference is not None and abs(self.difference) <= CLOSE:
            return "within 10 %"
        if self.unit == "ms" and abs(self.real - self.simulated) <= RESOLUTION_MS:
            return "within a millisecond"
        if self.low <= self.real <= self.high:
            return "within the seeds"
        return "**differs**"


def compare(
    real: Sequence[Figures], simulated: Sequence[Sequence[Figures]], stock: Sequence[Sequence[Figures]]
) -> list[ComparedFigure]:
    """Returns a row for each figure. ``simulated`` and ``stock`` have as many runs for each seed as ``real`` has."""
    return [_row(kind, real, simulated, stock) for kind in KINDS]


def _row(
    kind: Kind, real: Sequence[Figures], simulated: Sequence[Sequence[Figures]], stock: Sequence[Sequence[Figures]]
) -> ComparedFigure:
    values = [value for runs in simulated if (value := kind.of(runs)) is not None]
    stocked = [value for runs in stock if (value := kind.of(runs)) is not None]
    return ComparedFigure(
        kind.name,
        kind.unit,
        kind.of(real),
        statistics.median(values) if values else None,
        quantile(values, BAND[0]),
        quantile(values, BAND[1]),
        statistics.median(stocked) if stocked else None,
    )
