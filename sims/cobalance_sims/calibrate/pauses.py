"""How often members freeze or are cut off, and for how long: from how late their heartbeats were.

At the end of a tenure a member reports its longest silence beyond a heartbeat interval since its last report. A pause
of length D that begins v before the next heartbeat is due makes it late by D - v, where v is anything up to the
interval. So heartbeats that are late by more than x come at the rate

    L(x) = rate · (C(x) - C(x + interval)) / interval,   C(x) = E[max(D - x, 0)],

which has a closed form, and the longest of a time t is x or less with probability exp(-L(x)·t). This gives the
likelihood of all reports; its maximum over rate, median and sigma is the estimate. Pauses are lognormal, or uniform
where that is far likelier. Few reports are taken together with what was assumed, which they move as far as they
contradict it. Lateness below ``NOTICED_MS`` is put down to the network.

A member that expired and came back was silent until it was back, and for the session timeout before it expired, unless
its closed connections ended its session at once. Its successor would report that, unless it ends first; so the expiry
itself is the report, and of the successor's only the time counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

import attrs
import numpy as np

from cobalance.settings import HOUR_MS
from cobalance_sims import histogram
from cobalance_sims.calibrate.curvature import around_log, covariance
from cobalance_sims.calibrate.interval import Z95, Interval, poisson
from cobalance_sims.calibrate.lognormal import above
from cobalance_sims.simulate.distributions import LogNormal, Uniform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

NOTICED_MS = 100
"""Heartbeats that are less late say nothing about pauses."""

ENOUGH = 30
"""From this many late heartbeats on, they alone say how long pauses are."""

FEW = 5
"""From this many late heartbeats on, rate and length are fitted, with what was assumed; below, only a bound is known."""

ASSUMED_WITHIN = (1.5, 0.5)
"""How far the true median and sigma may be from what is assumed: standard deviations of their logarithms."""

FAR_LIKELIER = 3.0
"""A difference of the logarithms of likelihoods, from which on pauses are uniform rather than lognormal."""


@attrs.frozen
class LatenessReports:
    """Reports with the same longest lateness (one bin): how many, and the time they cover, ms."""

    count: int
    covered_ms: int


@attrs.frozen
class Return:
    """A member that expired, and came back."""

    covered_ms: int
    """From its last report, or its join, until it was back."""
    behind_ms: int
    """From its expiry until it was back."""
    was_seen: bool = False
    """Whether its closed connections ended its session at once, rather than a silence as long as the session timeout."""


@attrs.frozen(kw_only=True)
class Pauses:
    """The description of pauses."""

    late: int
    """Number of late heartbeats that it rests on."""
    covered_hours: float
    """Member-hours that the reports cover."""
    per_member_hour: Interval
    length: LogNormal | Uniform | None
    """``None`` if there are too few."""
    is_fitted: bool = False
    """Whether the length rests on the reports alone."""
    median_ms: Interval | None = None
    sigma: Interval | None = None
    noticing_hours: float = 0.0
    """Member-hours in which a pause of the assumed length would have been noticed, if there are too few."""
    noticed_by: tuple[float, float] = (0.0, 0.0)
    """How the logarithm of the share that is noticed rises with the logarithms of the median and of sigma."""


def with_returns(
    lateness: Mapping[int, LatenessReports], returns: Iterable[Return], session_ms: int, interval_ms: int
) -> dict[int, LatenessReports]:
    """The reports, with one for each member that expired and came back.

    Its time ended because of that pause. So nothing else in it was as late as makes a session expire; to say that nothing
    was as late as that pause would leave out most of the time that long ones had to happen in.
    """
    most = histogram.bin_of(max(session_ms - interval_ms, 0))
    found: dict[int, LatenessReports] = {}
    for bin_, it in lateness.items():
        _add(found, bin_, it.count, 0)
        _add(found, min(bin_, most), 0, it.covered_ms)
    for back in returns:
        late = histogram.bin_of(max((0 if back.was_seen else session_ms) + back.behind_ms - interval_ms, 0))
        _add(found, late, 1, 0)
        _add(found, min(late, most), 0, back.covered_ms)
    return found


def _add(found: dict[int, LatenessReports], bin_: int, count: int, covered_ms: int) -> None:
    before = found.get(bin_, LatenessReports(0, 0))
    found[bin_] = LatenessReports(before.count + count, before.covered_ms + covered_ms)


def describe(lateness: Mapping[int, LatenessReports], interval_ms: int, assumed: LogNormal) -> Pauses:
    """Describes pauses from the reports by the bin of their lateness (histogram.py).

    Args:
        interval_ms: between heartbeats, as it was set.
        assumed: the length of pauses, for where there are too few to be sure of it.
    """
    data = _Data.of(lateness, interval_ms)
    hours = sum(it.covered_ms for it in lateness.values()) / HOUR_MS
    if data.late < FEW:
        bound = poisson(data.late, max(hours, 1e-9))
        noticing = data.exposure(_Lognormal(math.log(assumed.median_ms), max(assumed.sigma, 0.05))) / HOUR_MS
        return Pauses(late=data.late, covered_hours=hours, per_member_hour=bound, length=None, noticing_hours=noticing)
    few = data.late < ENOUGH
    prior = (math.log(assumed.median_ms), math.log(max(assumed.sigma, 0.05))) if few else None
    top = _maximise(lambda mu, log_sigma: data.likelihood(mu, log_sigma) + _log_prior(mu, log_sigma, prior))
    uniform = _uniform(data, data.likelihood(*top))
    if uniform is not None:
        return attrs.evolve(uniform, covered_hours=hours, is_fitted=not few)
    mu, sigma = top[0], math.exp(top[1])
    known = covariance(lambda a, b: data.likelihood(a, b) + _log_prior(a, b, prior), (mu, top[1]), (0.02 * sigma, 0.02))
    return Pauses(
        late=data.late,
        covered_hours=hours,
        per_member_hour=_rate(data, mu, sigma, known),
        noticed_by=_noticed_by(data, mu, sigma),
        length=LogNormal(round(math.exp(mu), 2), round(sigma, 4)),
        is_fitted=not few,
        median_ms=around_log(mu, known[0, 0]),
        sigma=around_log(math.log(sigma), known[1, 1]),
    )


def _log_prior(mu: float, log_sigma: float, prior: tuple[float, float] | None) -> float:
    if prior is None:
        return 0.0
    apart = ((mu - prior[0]) / ASSUMED_WITHIN[0], (log_sigma - prior[1]) / ASSUMED_WITHIN[1])
    return -(apart[0] ** 2 + apart[1] ** 2) / 2


def _uniform(data: _Data, lognormal: float) -> Pauses | None:
    """Uniform pauses, if they are far likelier than lognormal ones."""
    top = _maximise(data.of_uniform)
    if data.of_uniform(*top) < lognormal + FAR_LIKELIER:
        return None
    low, high = _bounds(*top)
    length = Uniform(round(low), round(high))
    apart = Z95 / 2 / math.sqrt(data.late)
    return Pauses(
        late=data.late,
        covered_hours=0.0,
        per_member_hour=poisson(data.late, data.exposure(_Uniform(low, high)) / HOUR_MS),
        length=length,
        median_ms=Interval(*(length.quantile(min(max(0.5 + it, 0.0), 1.0)) for it in (0.0, -apart, apart))),
    )


def _bounds(log_high: float, log_odds: float) -> tuple[float, float]:
    """Of uniform pauses, from two numbers that may be anything."""
    high = math.exp(log_high)
    return high / (1 + math.exp(min(-log_odds, 50.0))), high


def _noticed_by(data: _Data, mu: float, sigma: float) -> tuple[float, float]:
    h = 0.01

    def noticed(a: float, b: float) -> float:
        return math.log(data.exposure(_Lognormal(mu + a, sigma * math.exp(b))))

    return (noticed(h, 0) - noticed(-h, 0)) / (2 * h), (noticed(0, h) - noticed(0, -h)) / (2 * h)


def _rate(data: _Data, mu: float, sigma: float, known: Floats) -> Interval:
    """The number of pauses, including unnoticed ones, depends on how long pauses are: so does its interval."""
    slope = np.array(_noticed_by(data, mu, sigma))
    variance = math.inf if math.isinf(known[0, 0]) else 1 / data.late + float(slope @ known @ slope)
    return around_log(math.log(data.late / data.exposure(_Lognormal(mu, sigma)) * HOUR_MS), variance)


@attrs.frozen(eq=False)
class _Data:
    """Lateness and number of late reports; lateness of all, at least ``NOTICED_MS``, and the time covered."""

    lateness: Floats
    counts: Floats
    bounds: Floats
    covered_ms: Floats
    interval_ms: float

    @classmethod
    def of(cls, lateness: Mapping[int, LatenessReports], interval_ms: int) -> _Data:
        late = sorted(bin_ for bin_ in lateness if histogram.value_of(bin_) >= NOTICED_MS)
        covered = {max(histogram.value_of(bin_), NOTICED_MS): 0.0 for bin_ in lateness}
        for bin_, it in lateness.items():
            covered[max(histogram.value_of(bin_), NOTICED_MS)] += it.covered_ms
        return cls(
            np.array([histogram.value_of(bin_) for bin_ in late]),
            np.array([float(lateness[bin_].count) for bin_ in late]),
            np.array(list(covered)),
            np.array(list(covered.values())),
            float(interval_ms),
        )

    @property
    def late(self) -> int:
        return int(self.counts.sum())

    def exposure(self, length: _Length) -> float:
        """The expected number of late heartbeats at a rate of one pause a millisecond."""
        more = length.excess(self.bounds) - length.excess(self.bounds + self.interval_ms)
        return max(float(more @ self.covered_ms) / self.interval_ms, 1e-12)

    def likelihood(self, mu: float, log_sigma: float) -> float:
        """The logarithm of the likelihood of lognormal pauses, at the best rate for this median and sigma."""
        return self._likelihood(_Lognormal(mu, math.exp(log_sigma)))

    def of_uniform(self, log_high: float, log_odds: float) -> float:
        """The same of uniform ones."""
        return self._likelihood(_Uniform(*_bounds(log_high, log_odds)))

    def _likelihood(self, length: _Length) -> float:
        density = length.above(self.lateness) - length.above(self.lateness + self.interval_ms)
        known = float(self.counts @ np.log(np.maximum(density, 1e-300)))
        return known - self.late * math.log(self.exposure(length))


class _Length(Protocol):
    """How long pauses are."""

    def above(self, x: Floats) -> Floats:
        """The share that is longer."""

    def excess(self, x: Floats) -> Floats:
        """E[max(D - x, 0)]."""


@attrs.frozen
class _Lognormal:
    mu: float
    sigma: float

    def above(self, x: Floats) -> Floats:
        return above((np.log(x) - self.mu) / self.sigma)

    def excess(self, x: Floats) -> Floats:
        z = (np.log(x) - self.mu) / self.sigma
        return np.asarray(math.exp(self.mu + self.sigma**2 / 2) * above(z - self.sigma) - x * above(z))


@attrs.frozen
class _Uniform:
    low: float
    high: float

    def above(self, x: Floats) -> Floats:
        return np.clip((self.high - x) / max(self.high - self.low, 1.0), 0.0, 1.0)

    def excess(self, x: Floats) -> Floats:
        inner = np.clip(self.high - np.maximum(x, self.low), 0.0, None) ** 2 / (2 * max(self.high - self.low, 1.0))
        return np.asarray(inner + np.clip(self.low - x, 0.0, None))


def _maximise(likelihood: Callable[[float, float], float]) -> tuple[float, float]:
    """Searches ever finer grids around the best point: two parameters need nothing cleverer."""
    best, wide = (math.log(1_000), math.log(0.8)), (math.log(50), math.log(6))
    steps = np.linspace(-1, 1, 5)
    for _ in range(22):
        grid = [(best[0] + wide[0] * a, best[1] + wide[1] * b) for a in steps for b in steps]
        best = max(grid, key=lambda it: likelihood(*it))
        wide = (wide[0] * 0.6, wide[1] * 0.6)
    return best
