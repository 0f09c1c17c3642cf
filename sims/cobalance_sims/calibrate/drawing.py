"""Churns drawn from a calibration: each parameter within what its data leave open."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING, Any

from cobalance_sims.calibrate.interval import Z95
from cobalance_sims.simulate.distributions import Distribution, LogNormal

if TYPE_CHECKING:
    from cobalance_sims.calibrate.calibration import Calibration
    from cobalance_sims.calibrate.interval import Interval
    from cobalance_sims.calibrate.parameter import Parameter
    from cobalance_sims.simulate.churn import Churn

MOST_SIGMAS = 1.0
"""Widest standard deviation, of a logarithm, with which a parameter is drawn: a fit that leaves more open is no fit."""


def drawn(calibration: Calibration, random: Random) -> Churn:
    """A churn that the data may as well have come from. What was assumed stays as it was assumed."""
    churn = calibration.churn()
    values = {it.name: value for it in calibration.parameters if (value := _drawn(it, random)) is not None}
    values.update(_pauses(calibration, random))
    drains = calibration.drains
    if isinstance(churn.drain_ms, LogNormal) and drains.median_ms and drains.sigma:
        values["drain_ms"] = _lognormal(churn.drain_ms, drains.median_ms, drains.sigma, random)
    return churn.changed(**values)


def _drawn(it: Parameter, random: Random) -> Any:
    """A rate: what is left open by a Poisson count."""
    if it.basis == "assumed" or not it.name.endswith("_hour") or not it.value or it.name == "pauses_per_member_hour":
        return None
    shape = it.observations + (0.5 if it.basis == "few" else 0.0)
    return min(it.value * random.gammavariate(shape, 1 / shape), 100_000.0)


def _pauses(calibration: Calibration, random: Random) -> dict[str, Any]:
    """Their rate and length together: the shorter they are, the more there were that nobody noticed."""
    found = calibration.pauses
    rate = calibration.churn().pauses_per_member_hour
    if found.length is None or not rate:
        return {}
    shape = max(found.late, 1)
    rate *= random.gammavariate(shape, 1 / shape)
    if not isinstance(found.length, LogNormal) or found.median_ms is None or found.sigma is None:
        return {"pauses_per_member_hour": min(rate, 100_000.0)}
    by_median, by_sigma = random.gauss(0, _spread(found.median_ms)), random.gauss(0, _spread(found.sigma))
    length = LogNormal(found.length.median_ms * math.exp(by_median), found.length.sigma * math.exp(by_sigma))
    unnoticed = found.noticed_by[0] * by_median + found.noticed_by[1] * by_sigma
    return {"pause_ms": length, "pauses_per_member_hour": min(rate * math.exp(-unnoticed), 100_000.0)}


def _lognormal(it: LogNormal, median: Interval, sigma: Interval, random: Random) -> Distribution:
    factors = [math.exp(random.gauss(0, _spread(found))) for found in (median, sigma)]
    return LogNormal(it.median_ms * factors[0], it.sigma * factors[1])


def _spread(it: Interval) -> float:
    """Standard deviation of the logarithm."""
    if not (it.value > 0 and math.isfinite(it.high)):
        return 0.0
    return min(math.log(it.high / it.value) / Z95, MOST_SIGMAS)
