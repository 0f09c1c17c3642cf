"""Durations as log histograms: those known exactly, and those only known to have been longer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
import numpy as np

from cobalance_sims import histogram

UNDER_A_MILLISECOND = 0.5
"""Stands for a duration of 0: times are whole milliseconds."""


@attrs.frozen
class DurationSample:
    """What is known of one kind of durations; see histogram.py for the bins."""

    exact: Mapping[int, int] = attrs.field(factory=dict)
    longer: Mapping[int, int] = attrs.field(factory=dict)
    """For durations that were cut short, how long they had taken by then."""

    @classmethod
    def of(cls, exact_ms: Iterable[float], longer_ms: Iterable[float] = ()) -> DurationSample:
        return cls(histogram.histogram(exact_ms), histogram.histogram(longer_ms))

    @property
    def count(self) -> int:
        """How many are known exactly."""
        return sum(self.exact.values())

    @property
    def cut_short(self) -> int:
        """How many were cut short."""
        return sum(self.longer.values())

    def __add__(self, other: DurationSample) -> DurationSample:
        return DurationSample(histogram.merge((self.exact, other.exact)), histogram.merge((self.longer, other.longer)))

    def exact_columns(self) -> tuple[np.ndarray, np.ndarray]:
        """Durations in ms, ascending, and how many of each."""
        return _columns(self.exact)

    def longer_columns(self) -> tuple[np.ndarray, np.ndarray]:
        """The same for those cut short."""
        return _columns(self.longer)


def _columns(counts: Mapping[int, int]) -> tuple[np.ndarray, np.ndarray]:
    bins = sorted(bin_ for bin_, count in counts.items() if count)
    values = [max(histogram.value_of(bin_), UNDER_A_MILLISECOND) for bin_ in bins]
    return np.array(values, dtype=float), np.array([counts[bin_] for bin_ in bins], dtype=float)
