"""One kind of durations, fitted: which distribution, how well it fits, and on how much data it rests."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, cast

import attrs
import numpy as np

from cobalance.errors import counted
from cobalance_sims.calibrate import lognormal
from cobalance_sims.calibrate.interval import Interval, short
from cobalance_sims.calibrate.survival import Survival
from cobalance_sims.simulate.distributions import Distribution, Empirical, LogNormal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cobalance_sims.calibrate.sample import DurationSample

ENOUGH = 30
"""The least number of exact durations from which a distribution is fitted."""

CLOSE = 0.05
"""Kolmogorov-Smirnov distance up to which a fit counts as good, even if enough durations would refute it."""

LILLIEFORS = 0.886
"""Divided by the square root of their number: the distance of a fitted normal by chance alone, 95 times in 100."""

WELL_KNOWN = 0.99
"""The share of durations that must be known exactly for the rest not to be called a guess."""

NEARLY_ALL = 0.995
"""Beyond this share, quantiles of a guessed tail mean nothing."""

SHARES = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999)


@attrs.frozen
class Quantiles:
    """One line of the comparison of data and fit."""

    share: float
    data_ms: float | None
    """``None`` beyond what is known."""
    fit_ms: float


@attrs.frozen(kw_only=True)
class Durations:
    """The description of one kind of durations."""

    count: int
    cut_short: int
    distribution: Distribution | None
    """``None`` if there are too few."""
    median_ms: Interval | None = None
    sigma: Interval | None = None
    distance: float | None = None
    """Distance between the data and the lognormal: the largest difference of shares."""
    reliable_to: float = 0.0
    """The share up to which quantiles rest on ten durations or more."""
    quantiles: tuple[Quantiles, ...] = ()
    note: str = ""


def describe(sample: DurationSample) -> Durations:
    """Fits a lognormal; if that is not good, takes the data's own quantiles, as far as they are known."""
    count, cut = sample.count, sample.cut_short
    if count < ENOUGH:
        note = (
            f"{counted(count, 'duration')}, {ENOUGH} are needed: collect about {short((count + cut) * ENOUGH / count)} handovers"
            if count
            else "none was observed"
        )
        return Durations(count=count, cut_short=cut, distribution=None, note=note)
    fit, seen = lognormal.fit(sample), Survival.of(sample)
    distance = seen.distance(fit.share_above)
    found = LogNormal(round(fit.median_ms.value, 2), round(fit.sigma.value, 4))
    chosen, note = cast("Distribution", found), ""
    if distance > max(CLOSE, LILLIEFORS / count**0.5):
        chosen, note = _other(found, seen, sample)
    return Durations(
        count=count,
        cut_short=cut,
        distribution=chosen,
        median_ms=fit.median_ms,
        sigma=fit.sigma,
        distance=distance,
        reliable_to=max(0.0, min(1 - 10 / (count + cut), seen.known_to)),
        quantiles=_compare(seen, chosen, SHARES),
        note=note,
    )


def _other(fit: LogNormal, seen: Survival, sample: DurationSample) -> tuple[Distribution, str]:
    """The data's own quantiles as far as they are known, and the tail of the fit beyond what was cut short there."""
    steps = min(200, max(10, sample.count // 5))
    shares = [step / steps for step in range(steps + 1)]
    found = seen.quantiles(shares)
    if seen.known_to >= WELL_KNOWN:
        note = "no lognormal fits well: the data's own quantiles are taken"
    else:
        begins_ms = _cut_short_at(seen, sample)
        rest = [(share - seen.known_to) / (1 - seen.known_to) for share in shares]
        found = [known if part <= 0 else _beyond(fit, begins_ms, part) for known, part in zip(found, rest, strict=True)]
        note = (
            f"no lognormal fits well: the data's own quantiles are taken, and {1 - seen.known_to:.0%} are known to be longer than "
            "any seen: the tail is a guess"
        )
    quantiles: tuple[float, ...] = tuple([round(it, 1) for it in found])
    return Empirical(quantiles), note


def _cut_short_at(seen: Survival, sample: DurationSample) -> float:
    """How long those had taken, in the middle, of whom is only known that they take longer than any other."""
    values, counts = sample.longer_columns()
    last = float(seen.ms[-1])
    beyond = values >= last
    if not beyond.any():
        return last
    place = np.searchsorted(np.cumsum(counts[beyond]), counts[beyond].sum() / 2)
    return float(values[beyond][place])


def _beyond(fit: LogNormal, begins_ms: float, share: float) -> float:
    """A quantile of those that take longer than ``begins_ms``, by the fit."""
    above = 1 - NormalDist().cdf(math.log(begins_ms / fit.median_ms) / fit.sigma)
    left = above * (1 - min(share, NEARLY_ALL))
    return max(begins_ms, fit.quantile(1 - left)) if left > 1e-12 else begins_ms * (1 + share)


def _compare(seen: Survival, chosen: Distribution, shares: Sequence[float]) -> tuple[Quantiles, ...]:
    pairs = zip(shares, seen.quantiles(shares), strict=True)
    return tuple(
        [Quantiles(share, it if share <= seen.known_to else None, chosen.quantile(share)) for share, it in pairs]
    )
