"""How a cost depends on what a calibration leaves open, from runs of which each has a churn of its own.

The mean over many churns is soon known precisely. But the group has one life, and its cost lies as far from that mean
as its churn lies from what was calibrated. So the spread over churns has to be separated from the chance within each run,
which is often larger. A regression does: the logarithm of the expected cost is taken to be linear in the logarithms of
rates, medians and spreads (a quasi-Poisson model), with elasticities as they are expected to be (calibrate/drawing.py)
unless the runs say otherwise. Where runs are few they stay as uncertain as they are, and make intervals wider.
"""

from __future__ import annotations

import attrs
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ROUNDS = 30
STEP = 2.0
"""The greatest step of an elasticity in one round."""

FARTHEST = 12.0
"""The greatest logarithm of a ratio of costs that is drawn."""


@attrs.frozen(eq=False)
class Leaning:
    """What the seeds' churns differ in, and what other churns do that the data may as well have come from."""

    seen: Floats
    """One row for each run, one column for each thing, less its mean."""
    drawn: Floats
    """The same, one row for each draw."""
    expected: Floats
    spread: Floats
    """The elasticity of a cost in each, and its standard deviation, before any run was seen."""
    noise: Floats
    """Standard normal numbers, one row for each draw: the same for all costs, so that comparisons are fair."""

    @classmethod
    def of(cls, seen: Floats, others: Floats, elasticities: Floats, draws: int) -> Leaning | None:
        """``None`` if nothing differs. ``elasticities`` has a row for what is expected, and one for its standard deviation."""
        middle = np.vstack((seen, others)).mean(axis=0)
        varied = np.vstack((seen, others)).std(axis=0) > 1e-9
        if not varied.any():
            return None
        random = np.random.default_rng(1)
        picked = random.integers(len(others), size=draws)
        noise = random.standard_normal((draws, int(varied.sum())))
        expected, spread = elasticities[:, varied]
        return cls((seen - middle)[:, varied], (others - middle)[picked][:, varied], expected, spread, noise)

    def factors(self, amounts: Floats, exposures: Floats) -> Floats:
        """For each draw, the cost under its churn as a multiple of the mean over the runs."""
        slopes, open_ = self._fit(amounts, exposures)
        ours = np.exp(
            np.clip(self.drawn @ slopes + (self.drawn * (self.noise @ open_.T)).sum(axis=1), -FARTHEST, FARTHEST)
        )
        base = exposures @ np.exp(np.clip(self.seen @ slopes, -FARTHEST, FARTHEST)) / exposures.sum()
        return np.asarray(ours / max(float(base), 1e-12))

    def _fit(self, amounts: Floats, exposures: Floats) -> tuple[Floats, Floats]:
        """The elasticities, and a root of their covariance."""
        z, slopes, prior = self.seen, self.expected, np.diag(self.spread**-2.0)
        curvature = prior
        for _ in range(ROUNDS):
            each = exposures * np.exp(np.clip(z @ slopes, -FARTHEST, FARTHEST))
            likely = each * (amounts.sum() / each.sum())
            wild = float(((amounts - likely) ** 2 / np.maximum(likely, 1e-12)).sum()) / max(len(z) - 1, 1)
            middle = (likely @ z) / max(float(likely.sum()), 1e-12)
            around, wild = z - middle, max(wild, 1e-12)
            curvature = around.T @ (around * likely[:, None]) / wild + prior
            step = np.linalg.solve(curvature, z.T @ (amounts - likely) / wild - prior @ (slopes - self.expected))
            slopes = slopes + np.clip(step, -STEP, STEP)
            if np.abs(step).max() < 1e-6:
                break
        along, across = np.linalg.eigh(curvature)
        return slopes, across / np.sqrt(np.maximum(along, 1e-3))
