"""One kind of durations, fitted: which distribution, how well it fits, and on how much data it rests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

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
"""The share of durations that must be known exactly for quantiles to replace a fit that is not good."""

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
    """Fits a lognormal; if that is not good and nearly all is known exactly, takes the data's own quantiles."""
    count, cut = sample.count, sample.cut_short
    if count < ENOUGH:
        note = (
            f"{count} durations, {ENOUGH} are needed: collect about {short((count + cut) * ENOUGH / count)} handovers"
            if count
            else "none was observed"
        )
        return Durations(count=count, cut_short=cut, distribution=None, note=note)
    fit, seen = lognormal.fit(sample), Survival.of(sample)
    distance = seen.distance(fit.share_above)
    chosen: Distribution = LogNormal(round(fit.median_ms.value, 2), round(fit.sigma.value, 4))
    note = ""
    if distance > max(CLOSE, LILLIEFORS / count**0.5):
        chosen, note = _other(chosen, seen, count)
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


def _other(fit: Distribution, seen: Survival, count: int) -> tuple[Distribution, str]:
    if seen.known_to < WELL_KNOWN:
        return (
            fit,
            f"no lognormal fits well, and {1 - seen.known_to:.0%} are known to be longer than any seen: the tail is a guess",
        )
    steps = min(200, max(10, count // 5))
    found = seen.quantiles([step / steps for step in range(steps + 1)])
    quantiles: tuple[float, ...] = tuple([round(it, 1) for it in found])
    return Empirical(quantiles), "no lognormal fits well: the data's own quantiles are taken"


def _compare(seen: Survival, chosen: Distribution, shares: Sequence[float]) -> tuple[Quantiles, ...]:
    pairs = zip(shares, seen.quantiles(shares), strict=True)
    return tuple(
        [Quantiles(share, it if share <= seen.known_to else None, chosen.quantile(share)) for share, it in pairs]
    )
