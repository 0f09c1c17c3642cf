"""Intervals by resampling the runs.

Events within one run depend on each other: one crash delays many resources. So whole runs are drawn, with replacement,
never single events. Every candidate was run with the same seeds, and every draw takes the same seeds for all of them:
what makes a seed hard is common to both sides of a comparison, and cancels.

With few runs the middle 95 of 100 draws contain the truth too seldom, because runs drawn from themselves vary too
little. The tails are therefore cut where Student's t would cut them (Hesterberg 2014, "expanded percentiles"); a test
counts how often they hold.

Where each run has a churn of its own (calibrate/drawing.py), every draw has one as well, in which a cost is what
:mod:`.sensitivity` makes of it.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import attrs
import numpy as np
from numpy.typing import NDArray

from cobalance_sims.calibrate.interval import Interval, poisson
from cobalance_sims.tune.sensitivity import Leaning

DRAWS = 1_000

BEYOND = 0.025
"""The share of samples in which the truth is above an upper bound: intervals of 95 in 100."""


@attrs.frozen(eq=False)
class Draws:
    """How often each run is in each draw: one row for each draw, one column for each run."""

    weights: np.ndarray
    leaning: Leaning | None = None
    """How the churns of the runs differ, if each has one of its own."""
    beyond: float = BEYOND
    """The share of samples in which the truth is above an upper bound, and below a lower one."""

    @classmethod
    def of(
        cls,
        runs: int,
        *,
        count: int = DRAWS,
        random_seed: int = 0,
        churns: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
        beyond: float = BEYOND,
    ) -> Draws:
        """The same arguments give the same draws. ``churns`` are the features of the runs' churns, those of others,
        and how costs are expected to depend on them (calibrate/drawing.py).
        """
        generator = np.random.default_rng(random_seed)
        weights = generator.multinomial(runs, np.full(runs, 1 / runs), size=count).astype(float)
        return cls(weights, Leaning.of(*churns, count) if churns else None, beyond)

    @property
    def runs(self) -> int:
        """How many there are to draw from."""
        return int(self.weights.shape[1])

    @property
    def z(self) -> float:
        """The bound of a standard normal that belongs to ``beyond``."""
        return NormalDist().inv_cdf(1 - self.beyond)

    @property
    def tail(self) -> float:
        """The share of the draws beyond each bound of an interval."""
        if self.runs < 2:
            return 0.0
        free = self.runs - 1
        z = self.z
        student = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
        return NormalDist().cdf(-student * math.sqrt(self.runs / free))

    def bounds(self, drawn: np.ndarray) -> tuple[float, float]:
        """The bounds of the interval."""
        low = np.quantile(drawn, self.tail, method="lower")
        high = np.quantile(drawn, 1 - self.tail, method="higher")
        return float(low), float(high)


@attrs.frozen(eq=False)
class Ratio:
    """A count in each run over its exposure, such as forced moves and days: the ratio of their sums."""

    amounts: NDArray[np.float64]
    exposures: NDArray[np.float64]

    @property
    def value(self) -> float:
        """Over all runs."""
        return float(self.amounts.sum() / self.exposures.sum())

    def drawn(self, draws: Draws) -> np.ndarray:
        """The ratio in each draw of the bootstrap, under a churn of its own if the runs have such."""
        found = np.asarray((draws.weights @ self.amounts) / (draws.weights @ self.exposures))
        if draws.leaning is None or not self.amounts.any():
            return found
        return found * draws.leaning.factors(self.amounts, self.exposures)

    def interval(self, draws: Draws) -> Interval:
        """What never happened may still happen: its upper bound is that of a Poisson count of 0."""
        if not self.amounts.any():
            return poisson(0, float(self.exposures.sum()), draws.z)
        return _around(self.value, draws.bounds(self.drawn(draws)))


@attrs.frozen(eq=False)
class Quantile:
    """A quantile of what was measured in all runs, each of which has a histogram: one row for each run, one column for
    each value.

    What was still unfinished when its run was over is only known to have taken longer (Kaplan and Meier). Beyond the
    longest of all nothing is known, so that is the quantile if its share is not reached.
    """

    counts: np.ndarray
    values: np.ndarray
    """Values of the columns, ascending."""
    share: float
    unfinished: np.ndarray | None = None
    """How many were unfinished, in the columns of how long they had taken by then."""
    at_most: float = math.inf
    """What is never exceeded, as far as is known otherwise: the bound where measurements are too few for one."""

    @property
    def value(self) -> float:
        """Over all runs; 0 if nothing was measured."""
        return float(self._of(np.ones((1, len(self.counts))))[0])

    def drawn(self, draws: Draws) -> np.ndarray:
        """In each draw."""
        return self._of(draws.weights)

    def interval(self, draws: Draws) -> Interval:
        """Unbounded if nothing was measured, and no narrower than the number of measurements allows: no draw has
        anything longer than the longest that was seen.
        """
        if not self.counts.any():
            return Interval(self.value, 0.0, math.inf)
        low, high = draws.bounds(self._of(draws.weights[(draws.weights @ self.counts).any(axis=1)]))
        return _around(self.value, (low, max(high, self._beyond(draws.beyond))))

    def _beyond(self, beyond: float) -> float:
        """What the quantile does not exceed in all but this share of such samples of any distribution: a measured value,
        by rank. What was unfinished may be above any.
        """
        counts = self.counts.sum(axis=0)
        unfinished = 0 if self.unfinished is None else int(self.unfinished.sum())
        above = most_above(int(counts.sum()) + unfinished, self.share, beyond)
        if above is None or above < unfinished:
            return max(self.at_most, self._longest()) if math.isfinite(self.at_most) else math.inf
        return float(self.values[np.searchsorted(np.cumsum(counts), counts.sum() - (above - unfinished))])

    def _longest(self) -> float:
        seen = self.counts if self.unfinished is None else self.counts + self.unfinished
        return float(self.values[seen.any(axis=0)].max())

    def _of(self, weights: np.ndarray) -> np.ndarray:
        if not self.counts.size:
            return np.zeros(len(weights))
        ended = weights @ self.counts
        dropped = np.zeros_like(ended) if self.unfinished is None else weights @ self.unfinished
        both = ended + dropped
        at_risk = both.sum(axis=1, keepdims=True) - np.cumsum(both, axis=1) + both
        gone = 1 - np.cumprod(1 - ended / np.maximum(at_risk, 1e-9), axis=1)
        reached = gone >= self.share - 1e-9
        last = both.shape[1] - 1 - (both[:, ::-1] > 0).argmax(axis=1)
        place = np.where(reached.any(axis=1), reached.argmax(axis=1), last)
        return np.where(both.any(axis=1), self.values[place], 0.0)


@attrs.frozen
class FixedValue:
    """A value that follows from the settings alone."""

    value: float

    def drawn(self, draws: Draws) -> np.ndarray:
        """The same in each draw."""
        return np.full(len(draws.weights), self.value)

    def interval(self, _: Draws) -> Interval:
        """No wider than itself."""
        return Interval(self.value, self.value, self.value)


Estimate = Ratio | Quantile | FixedValue


def most_above(count: int, share: float, beyond: float = BEYOND) -> int | None:
    """How many of ``count`` values may be above an upper bound of their quantile (order statistics: that number is
    binomial).

    ``None`` if they are too few for any bound: even the longest is exceeded by the quantile more often than ``beyond``.
    """
    rest = 1 - share
    chance = count * math.log(share)  # its logarithm, that none is above the quantile
    total, above = 0.0, 0
    while (total := total + math.exp(chance)) <= beyond and above < count:
        chance += math.log((count - above) / (above + 1) * rest / share)
        above += 1
    return above - 1 if above else None


def _around(value: float, bounds: tuple[float, float]) -> Interval:
    return Interval(value, min(bounds[0], value), max(bounds[1], value))
