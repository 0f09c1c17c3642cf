"""How often members freeze or are cut off, and for how long: from how late their heartbeats were.

At the end of a tenure a member reports its longest silence beyond a heartbeat interval since its last report. A pause
of length D that begins v before the next heartbeat is due makes it late by D - v, where v is anything up to the
interval. So heartbeats that are late by more than x come at the rate

    L(x) = rate · (C(x) - C(x + interval)) / interval,   C(x) = E[max(D - x, 0)],

which for lognormal pauses has a closed form, and the longest of a time t is x or less with probability exp(-L(x)·t).
This gives the likelihood of all reports; its maximum over rate, median and sigma is the estimate. Lateness below
``NOTICED_MS`` is put down to the network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs
import numpy as np

from cobalance.settings import HOUR_MS
from cobalance_sims import histogram
from cobalance_sims.calibrate.curvature import around_log, covariance
from cobalance_sims.calibrate.interval import Interval, poisson
from cobalance_sims.calibrate.lognormal import above
from cobalance_sims.simulate.distributions import LogNormal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

NOTICED_MS = 100
"""Heartbeats that are less late say nothing about pauses."""

ENOUGH = 30
"""From this many late heartbeats on, the length of pauses is fitted, too."""

FEW = 5
"""From this many late heartbeats on, their rate is fitted; below, only a bound of it is known."""


@attrs.frozen
class LatenessReports:
    """Reports with the same longest lateness (one bin): how many, and the time they cover, ms."""

    count: int
    covered_ms: int


@attrs.frozen(kw_only=True)
class Pauses:
    """The description of pauses."""

    late: int
    """Number of late heartbeats that it rests on."""
    covered_hours: float
    """Member-hours that the reports cover."""
    per_member_hour: Interval
    length: LogNormal | None
    """``None`` if there are too few."""
    median_ms: Interval | None = None
    sigma: Interval | None = None
    noticed_by: tuple[float, float] = (0.0, 0.0)
    """How the logarithm of the share that is noticed rises with the logarithms of the median and of sigma."""


def describe(told: Mapping[int, LatenessReports], interval_ms: int, assumed: LogNormal) -> Pauses:
    """Describes pauses from the reports by the bin of their lateness (histogram.py).

    Args:
        interval_ms: between heartbeats, as it was set.
        assumed: the length of pauses where there are enough to count, but too few to fit.
    """
    data = _Data.of(told, interval_ms)
    hours = sum(it.covered_ms for it in told.values()) / HOUR_MS
    if data.late < FEW:
        bound = poisson(data.late, max(hours, 1e-9))
        return Pauses(late=data.late, covered_hours=hours, per_member_hour=bound, length=None)
    if data.late < ENOUGH:
        mu, sigma = math.log(assumed.median_ms), max(assumed.sigma, 0.05)
        rate = poisson(data.late, data.exposure(mu, sigma) / HOUR_MS)
        return Pauses(late=data.late, covered_hours=hours, per_member_hour=rate, length=assumed)
    mu, sigma = _maximise(data)
    known = covariance(data.likelihood, (mu, math.log(sigma)), (0.02 * sigma, 0.02))
    return Pauses(
        late=data.late,
        covered_hours=hours,
        per_member_hour=_rate(data, mu, sigma, known),
        noticed_by=_noticed_by(data, mu, sigma),
        length=LogNormal(round(math.exp(mu), 2), round(sigma, 4)),
        median_ms=around_log(mu, known[0, 0]),
        sigma=around_log(math.log(sigma), known[1, 1]),
    )


def _noticed_by(data: _Data, mu: float, sigma: float) -> tuple[float, float]:
    h = 0.01
    by_mu = math.log(data.exposure(mu + h, sigma) / data.exposure(mu - h, sigma)) / (2 * h)
    by_sigma = math.log(data.exposure(mu, sigma * math.exp(h)) / data.exposure(mu, sigma * math.exp(-h))) / (2 * h)
    return by_mu, by_sigma


def _rate(data: _Data, mu: float, sigma: float, known: Floats) -> Interval:
    """The number of pauses, including unnoticed ones, depends on how long pauses are: so does its interval."""
    slope = np.array(_noticed_by(data, mu, sigma))
    variance = math.inf if math.isinf(known[0, 0]) else 1 / data.late + float(slope @ known @ slope)
    return around_log(math.log(data.late / data.exposure(mu, sigma) * HOUR_MS), variance)


@attrs.frozen(eq=False)
class _Data:
    """Lateness and number of late reports; lateness of all, at least ``NOTICED_MS``, and the time covered."""

    lateness: Floats
    counts: Floats
    bounds: Floats
    covered_ms: Floats
    interval_ms: float

    @classmethod
    def of(cls, told: Mapping[int, LatenessReports], interval_ms: int) -> _Data:
        late = sorted(bin_ for bin_ in told if histogram.value_of(bin_) >= NOTICED_MS)
        covered = {max(histogram.value_of(bin_), NOTICED_MS): 0.0 for bin_ in told}
        for bin_, it in told.items():
            covered[max(histogram.value_of(bin_), NOTICED_MS)] += it.covered_ms
        return cls(
            np.array([histogram.value_of(bin_) for bin_ in late]),
            np.array([float(told[bin_].count) for bin_ in late]),
            np.array(list(covered)),
            np.array(list(covered.values())),
            float(interval_ms),
        )

    @property
    def late(self) -> int:
        return int(self.counts.sum())

    def exposure(self, mu: float, sigma: float) -> float:
        """The expected number of late heartbeats at a rate of one pause a millisecond."""
        more = _excess(self.bounds, mu, sigma) - _excess(self.bounds + self.interval_ms, mu, sigma)
        return max(float(more @ self.covered_ms) / self.interval_ms, 1e-12)

    def likelihood(self, mu: float, log_sigma: float) -> float:
        """The logarithm of the likelihood, at the best rate for this median and sigma."""
        sigma = math.exp(log_sigma)
        density = _survival(self.lateness, mu, sigma) - _survival(self.lateness + self.interval_ms, mu, sigma)
        known = float(self.counts @ np.log(np.maximum(density, 1e-300)))
        return known - self.late * math.log(self.exposure(mu, sigma))


def _survival(x: Floats, mu: float, sigma: float) -> Floats:
    return above((np.log(x) - mu) / sigma)


def _excess(x: Floats, mu: float, sigma: float) -> Floats:
    """E[max(D - x, 0)] of a lognormal D."""
    z = (np.log(x) - mu) / sigma
    return np.asarray(math.exp(mu + sigma**2 / 2) * above(z - sigma) - x * above(z))


def _maximise(data: _Data) -> tuple[float, float]:
    """Searches ever finer grids around the best point: two parameters need nothing cleverer."""
    best, wide = (math.log(1_000), math.log(0.8)), (math.log(50), math.log(6))
    steps = np.linspace(-1, 1, 5)
    for _ in range(22):
        grid = [(best[0] + wide[0] * a, best[1] + wide[1] * b) for a in steps for b in steps]
        best = max(grid, key=lambda it: data.likelihood(*it))
        wide = (wide[0] * 0.6, wide[1] * 0.6)
    return best[0], math.exp(best[1])
