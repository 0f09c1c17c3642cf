"""Compares what was observed with what simulated runs of a churn show.

The sampling interval of a figure is where it lies in 95 of 100 journals of the observed length, if the churn is right:
for a journal as long as a run these are the runs themselves, for a longer one means over as many runs as it is long. A
figure differs if it lies beyond 99 of 100 of these, and by more than matters. Nothing is assumed of how figures are
distributed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import attrs
import numpy as np

from cobalance.errors import CobalanceError
from cobalance_sims.calibrate.interval import Interval
from cobalance_sims.verify.figures import CAUSES, FIGURES, Figure

if TYPE_CHECKING:
    from cobalance_sims.verify.as_journal import Outcome

REPLICATES = 4_000
TOLERANCE = 0.25
"""How far beyond all that was predicted a figure may be, as a share, before it is a mismatch."""

SHOWN, ALL = 0.025, 0.005
"""Share beyond each bound of the interval that is shown, and of the one that has to be left."""

Agreement = Literal["agrees", "differs", "unknown"]


class NothingPredicted(CobalanceError):
    """No simulated run of the churn came to an end."""


@attrs.frozen(kw_only=True)
class Comparison:
    """One figure."""

    name: str
    unit: str
    observed: float | None
    predicted: Interval | None
    """Mean, and the interval of a journal of the observed length."""
    agreement: Agreement
    blamed: tuple[str, ...] = ()
    """For one that differs: the parameters to look at, the likeliest first."""


def compare(observed: Sequence[Outcome], predicted: Sequence[Outcome]) -> list[Comparison]:
    """Compares each of FIGURES; the parameters blamed for a figure are those of its cause, if that differs as well.

    Raises:
        NothingPredicted: there is nothing to compare with.
    """
    runs = [it for it in predicted if it["status"] == "ok" and it["observed_ms"] > 0]
    if not runs:
        error = next((it["error"] for it in predicted if it["error"]), "there was none")
        raise NothingPredicted(f"No simulated run of the churn came to an end: {error}")
    weights = _weights(observed, runs)
    causes = [it for it in CAUSES if _compare(it, observed, runs, weights).agreement == "differs"]
    roots = tuple(dict.fromkeys(name for it in causes for name in it.blamed))
    found = [_compare(it, observed, runs, weights) for it in FIGURES]
    return [attrs.evolve(it, blamed=_blamed(it, roots)) if it.agreement == "differs" else it for it in found]


def _blamed(it: Comparison, roots: tuple[str, ...]) -> tuple[str, ...]:
    own = next(figure for figure in FIGURES if figure.name == it.name)
    return own.blamed if own in CAUSES or not roots else roots


def _weights(observed: Sequence[Outcome], runs: Sequence[Outcome]) -> np.ndarray:
    """How often each run is in each replicate of the journal: one row for each replicate."""
    length_ms = sum(it["observed_ms"] for it in runs) / len(runs)
    many = max(1, round(sum(it["observed_ms"] for it in observed) / length_ms))
    return np.random.default_rng(0).multinomial(many, np.full(len(runs), 1 / len(runs)), size=REPLICATES)


def _compare(it: Figure, observed: Sequence[Outcome], runs: Sequence[Outcome], weights: np.ndarray) -> Comparison:
    seen, drawn = it.value(observed), _drawn(it, runs, weights)
    predicted = None
    agreement: Agreement = "unknown"
    if len(drawn):
        mean = sum(map(it.amount, runs)) / sum(map(it.exposure, runs))
        predicted = Interval(mean, float(np.quantile(drawn, SHOWN)), float(np.quantile(drawn, 1 - SHOWN)))
    if seen is not None and len(drawn) >= REPLICATES // 2:
        low, high, slack = np.quantile(drawn, ALL), np.quantile(drawn, 1 - ALL), it.trifle(observed)
        is_off = seen > high * (1 + TOLERANCE) + slack or seen < low * (1 - TOLERANCE) - slack
        agreement = "differs" if is_off else "agrees"
    return Comparison(name=it.name, unit=it.unit, observed=seen, predicted=predicted, agreement=agreement)


def _drawn(it: Figure, runs: Sequence[Outcome], weights: np.ndarray) -> np.ndarray:
    amounts, exposures = np.array([it.amount(run) for run in runs]), np.array([it.exposure(run) for run in runs])
    below = weights @ exposures
    return np.asarray((weights @ amounts)[below > 0] / below[below > 0])


def differing(found: Sequence[Comparison]) -> list[Comparison]:
    """Those that differ."""
    return [it for it in found if it.agreement == "differs"]


def most_to_blame(it: Comparison, bases: Mapping[str, str], most: int = 2) -> tuple[str, ...]:
    """The parameters to name for a mismatch: those that rest on little or nothing, else the likeliest."""
    weak = [name for name in it.blamed if bases.get(name) in ("assumed", "few")]
    return tuple((weak or list(it.blamed))[:most])
