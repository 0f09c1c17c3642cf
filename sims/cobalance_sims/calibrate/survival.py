"""How long things take, read off the data alone; and how far a fit is from it.

The estimate is Kaplan's and Meier's: a duration that is only known to have been longer counts among those still running
until then, and not afterwards. Beyond the last exact duration nothing is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np

from cobalance_sims.histogram import BASE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cobalance_sims.calibrate.sample import DurationSample


@attrs.frozen(eq=False)
class Survival:
    """For each observed duration, ascending: the share that takes longer."""

    ms: np.ndarray
    share: np.ndarray

    @classmethod
    def of(cls, sample: DurationSample) -> Survival:
        """The estimate for a sample."""
        values, ended = sample.exact_columns()
        longer, censored = sample.longer_columns()
        total = ended.sum() + censored.sum()
        gone = np.concatenate(([0.0], np.cumsum(ended)[:-1]))
        dropped = np.array([censored[longer < value].sum() for value in values])
        at_risk = total - gone - dropped
        return cls(values, np.cumprod(1 - ended / np.maximum(at_risk, 1e-9)))

    @property
    def known_to(self) -> float:
        """The share whose duration is known: the rest was always cut short."""
        return float(1 - self.share[-1]) if len(self.share) else 0.0

    def quantiles(self, shares: Sequence[float]) -> list[float]:
        """Durations below which these shares lie. Those beyond ``known_to`` get the longest known one."""
        below = 1 - self.share
        places = np.searchsorted(below, np.asarray(shares) - 1e-12)
        return [float(self.ms[min(place, len(self.ms) - 1)]) for place in places]

    def distance(self, share_above: Callable[[np.ndarray], np.ndarray]) -> float:
        """The Kolmogorov-Smirnov distance: the largest difference between a fit and the data, as a share.

        Durations come in bins and in whole milliseconds: what a fit has within a bin and a millisecond to either side
        counts as equal. But a step of many identical durations is a step, which no smooth fit may cut in half.
        """
        if not len(self.ms):
            return 0.0
        before = np.concatenate(([1.0], self.share[:-1]))
        too_short = before - share_above(self.ms / BASE - 1)
        too_long = share_above(self.ms * BASE + 1) - self.share
        return float(max(too_short.max(), too_long.max(), 0.0))
