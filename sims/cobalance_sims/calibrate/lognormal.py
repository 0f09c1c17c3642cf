"""The lognormal that best fits durations, some of which are only known to have been longer.

A drain that was forced, given up or cancelled would have taken longer than it was allowed. Leaving it out, or taking it
as it is, makes drains look shorter than they are, and then a timeout that forces many looks harmless. So each such
duration enters the likelihood as "longer than". The maximum is found by expectation and maximisation: each round
replaces the unknown by its expectation under the last round's fit. A round never lowers the likelihood (Dempster,
Laird, Rubin 1977).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import attrs
import numpy as np

from cobalance_sims.calibrate.curvature import around_log, covariance
from cobalance_sims.calibrate.interval import Interval

if TYPE_CHECKING:
    from cobalance_sims.calibrate.sample import DurationSample

ROUNDS = 5_000
PRECISION = 1e-10
NARROWEST = 0.01
"""The least sigma: identical durations have a sigma of 0, with which nothing could be computed."""

FAR = 30.0
"""From this many standard deviations on, the share above is too small for a number and is computed from its series."""

_erfc = np.frompyfunc(math.erfc, 1, 1)


def above(z: np.ndarray) -> np.ndarray:
    """The share of a standard normal above each value; never quite 0, so that it has a logarithm."""
    share = np.asarray(_erfc(z / math.sqrt(2)), dtype=float) / 2
    return np.maximum(share, 1e-300)


def log_above(z: np.ndarray) -> np.ndarray:
    """The logarithm of :func:`above`, for any distance."""
    far = np.maximum(z, FAR)
    return np.asarray(
        np.where(z > FAR, -far * far / 2 - np.log(far * math.sqrt(2 * math.pi)), np.log(above(np.minimum(z, FAR))))
    )


def _mills(z: np.ndarray) -> np.ndarray:
    """Density over the share above. Far out it is little more than z itself, where a quotient of zeros would give 0."""
    near, far = np.minimum(z, FAR), np.maximum(z, FAR)
    density = np.exp(-near * near / 2) / math.sqrt(2 * math.pi)
    return np.asarray(np.where(z > FAR, far + 1 / far, density / above(near)))


@attrs.frozen
class LognormalFit:
    median_ms: Interval
    sigma: Interval
    """Sigma of the logarithm."""

    def share_above(self, ms: np.ndarray) -> np.ndarray:
        """The share of durations that would take longer."""
        return above((np.log(np.maximum(ms, 1e-9)) - math.log(self.median_ms.value)) / self.sigma.value)


def fit(sample: DurationSample) -> LognormalFit:
    """Returns the best fit, with intervals from the curvature of the likelihood. The sample needs an exact duration.

    Raises:
        ValueError: it has none.
    """
    data = _Logs.of(sample)
    if not data.exact_weights.sum():
        raise ValueError("no duration is known exactly, so there is nothing to fit")
    mu, sigma = _maximise(data)
    known = covariance(data.likelihood, (mu, math.log(sigma)), (1e-3 * sigma, 1e-3))
    return LognormalFit(around_log(mu, known[0, 0]), around_log(math.log(sigma), known[1, 1]))


@attrs.frozen
class _Logs:
    exact: np.ndarray
    exact_weights: np.ndarray
    longer: np.ndarray
    longer_weights: np.ndarray

    @classmethod
    def of(cls, sample: DurationSample) -> _Logs:
        exact, exact_weights = sample.exact_columns()
        longer, longer_weights = sample.longer_columns()
        return cls(np.log(exact), exact_weights, np.log(longer), longer_weights)

    def likelihood(self, mu: float, log_sigma: float) -> float:
        """The logarithm of the likelihood."""
        sigma = math.exp(log_sigma)
        z = (self.exact - mu) / sigma
        known = float(self.exact_weights @ (-z * z / 2 - log_sigma))
        return known + float(self.longer_weights @ log_above((self.longer - mu) / sigma))


def _maximise(data: _Logs) -> tuple[float, float]:
    mu = float(np.average(data.exact, weights=data.exact_weights))
    sigma = max(math.sqrt(float(np.average((data.exact - mu) ** 2, weights=data.exact_weights))), NARROWEST)
    total = data.exact_weights.sum() + data.longer_weights.sum()
    for _ in range(ROUNDS):
        z = (data.longer - mu) / sigma
        mills = _mills(z)
        # For a normal above z, the mean is mu + sigma·mills, and the square around mu is sigma²·(1 + z·mills).
        first = data.exact_weights @ (data.exact - mu) + data.longer_weights @ (sigma * mills)
        second = data.exact_weights @ (data.exact - mu) ** 2 + data.longer_weights @ (sigma**2 * (1 + z * mills))
        step = float(first / total)
        widened = max(math.sqrt(max(float(second / total) - step**2, 0.0)), NARROWEST)
        done = abs(step) < PRECISION and abs(widened - sigma) < PRECISION
        mu, sigma = mu + step, widened
        if done:
            break
    return mu, sigma
