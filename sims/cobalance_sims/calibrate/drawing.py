"""Churns drawn from a calibration: each parameter within what its data leave open.

What a parameter's data leave open is a few numbers, which travel with it in calibration.json:

- ``mean`` and ``shape``: it is a rate, known as well as by this many events (a gamma distribution).
- ``log_median`` and ``log_sigma``: standard deviations of the logarithms of a distribution's median and spread.
- ``samples``: a distribution is known as well as by this many durations.
- ``log``: the standard deviation of the logarithm of a number.
- ``noticed_by_median`` and ``noticed_by_sigma``: how a rate depends on those of the pauses' length, since short ones are
  not noticed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from cobalance_sims.calibrate.interval import Z95
from cobalance_sims.simulate.churn import LONGEST_MS, Churn
from cobalance_sims.simulate.distributions import Distribution, LogNormal, Uniform, empirical

if TYPE_CHECKING:
    from cobalance_sims.calibrate.calibration import Calibration
    from cobalance_sims.calibrate.interval import Interval

MOST_SIGMAS = 1.0
"""Widest standard deviation, of a logarithm, with which a parameter is drawn: a fit that leaves more open is no fit."""

MOST_AN_HOUR = 100_000.0
MOST_SAMPLES = 1_000
"""More durations than this leave nothing open that matters."""

Open = Mapping[str, Mapping[str, float]]
"""By parameter: what its data leave open. A parameter that is not there stays as it is."""

_RATES = (
    "joins_per_hour",
    "leaves_per_hour",
    "crashes_per_member_hour",
    "replacements_per_member_hour",
    "pauses_per_member_hour",
    "messages_per_s",
)
_LENGTHS = ("startup_ms", "restart_ms", "pause_ms", "drain_ms")


@attrs.frozen
class DrawnChurns:
    """A churn for each seed, that the data may as well have come from. Without anything open, always the same."""

    churn: Churn
    open: Open = attrs.field(factory=dict)

    def drawn(self, seed: int) -> Churn:
        """The churn of this seed: always the same."""
        return drawn(self.churn, self.open, Random(f"{self.churn.name} {seed}")) if self.open else self.churn

    def features(self, seeds: Sequence[int]) -> np.ndarray:
        """What differs between the churns of these seeds: a row for each seed, a column for the logarithm of each rate,
        median and spread.
        """
        return np.array([_features(self.drawn(seed)) for seed in seeds])


def churns_of(it: Churn | DrawnChurns) -> DrawnChurns:
    """A churn for each seed; of one churn always that."""
    return DrawnChurns(it) if isinstance(it, Churn) else it


def open_of(calibration: Calibration) -> dict[str, dict[str, float]]:
    """What the data of its parameters leave open."""
    return {it.name: dict(it.open) for it in calibration.parameters if it.open}


def of_calibration(calibration: Calibration) -> DrawnChurns:
    """The churns that its journal may as well have come from."""
    return DrawnChurns(calibration.churn(), open_of(calibration))


def spread_of(it: Interval | None) -> float:
    """Standard deviation of the logarithm of what has this interval."""
    if it is None or not (it.value > 0 and math.isfinite(it.high)):
        return 0.0
    return min(math.log(it.high / it.value) / Z95, MOST_SIGMAS)


def drawn(churn: Churn, left_open: Open, random: Random) -> Churn:
    """One churn."""
    values: dict[str, Any] = {}
    moved: dict[str, tuple[float, float]] = {}
    for name in sorted(
        left_open, key=lambda it: (it in _RATES, it)
    ):  # lengths first: the rate of pauses depends on theirs
        it, value = left_open[name], getattr(churn, name)
        if "mean" in it:
            values[name] = _rate(it, moved, random)
        elif "log" in it:
            changed = value * math.exp(random.gauss(0, it["log"]))
            values[name] = min(max(int(changed), 1_000), LONGEST_MS) if isinstance(value, int) else changed
        else:
            values[name], moved[name] = _length(value, it, random)
    return churn.changed(**values)


def _rate(it: Mapping[str, float], moved: Mapping[str, tuple[float, float]], random: Random) -> float:
    rate = it["mean"] * random.gammavariate(it["shape"], 1 / it["shape"])
    by_median, by_sigma = moved.get("pause_ms", (0.0, 0.0))
    unnoticed = it.get("noticed_by_median", 0.0) * by_median + it.get("noticed_by_sigma", 0.0) * by_sigma
    return min(rate * math.exp(-unnoticed), MOST_AN_HOUR)


def _length(value: Distribution, it: Mapping[str, float], random: Random) -> tuple[Distribution, tuple[float, float]]:
    """A distribution of durations, and by how much the logarithms of its median and sigma were moved."""
    if isinstance(value, LogNormal):
        by_median, by_sigma = random.gauss(0, it.get("log_median", 0.0)), random.gauss(0, it.get("log_sigma", 0.0))
        return LogNormal(value.median_ms * math.exp(by_median), value.sigma * math.exp(by_sigma)), (by_median, by_sigma)
    count = max(int(it.get("samples", 0)), 1)
    if isinstance(value, Uniform):
        each = (value.high_ms - value.low_ms) / count
        low = value.low_ms - each * random.expovariate(1)
        return Uniform(max(low, 0.0), value.high_ms + each * random.expovariate(1)), (0.0, 0.0)
    ordered = sorted(value.quantile(random.random()) for _ in range(min(count, MOST_SAMPLES)))
    return empirical(ordered, min(100, max(10, count // 5))), (0.0, 0.0)


def elasticities() -> np.ndarray:
    """How a cost depends on each of the features, before any run was seen: what is expected, and its standard deviation.

    A cost is a sum over what happens, so it rises with each rate by a share of itself, and all of these shares together
    are no more than one. Lengths matter more, and most of all those of pauses, of which only the longest expire sessions.
    """
    rows = [(0.25, 0.4)] * len(_RATES) + [(-0.25, 0.4)]
    for name in _LENGTHS:
        rows += [(0.5, 1.5), (0.5, 1.5)] if name == "pause_ms" else [(0.25, 0.6), (0.1, 0.6)]
    return np.array(rows).T


def _features(churn: Churn) -> list[float]:
    found = [math.log(max(getattr(churn, name), 1e-9)) for name in _RATES]
    found.append(math.log(churn.deploy_every_ms))
    for name in _LENGTHS:
        length = getattr(churn, name)
        middle, long = max(length.quantile(0.5), 0.5), max(length.quantile(0.95), 0.5)
        found += [math.log(middle), math.log(long / middle)]
    return found
