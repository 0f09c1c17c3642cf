"""Log histograms."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from cobalance_sims.histogram import ZERO, bin_of, histogram, mean, merge, percentile, value_of

DURATIONS = st.integers(min_value=0, max_value=10**12)


@settings(max_examples=60, deadline=None)
@given(st.lists(DURATIONS, min_size=1, max_size=200), st.floats(min_value=0, max_value=1))
def test_a_percentile_is_right_within_a_hundredth(values: list[int], share: float) -> None:
    """Any values and any percentile, against the exact one of the same rank."""
    exact = sorted(values)[max(1, math.ceil(share * len(values))) - 1]
    told = percentile(histogram(values), share)
    assert told is not None
    assert abs(told - exact) <= exact / 100


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(DURATIONS, max_size=50), max_size=6))
def test_merged_histograms_are_the_histogram_of_everything(parts: list[list[int]]) -> None:
    """Runs are counted separately and read together."""
    assert merge(map(histogram, parts)) == histogram([value for part in parts for value in part])


def test_immediate_handovers_have_a_bin_of_their_own() -> None:
    """No logarithm has a place for zero, and most handovers take none."""
    counts = histogram([0] * 90 + [100] * 10)
    assert counts[ZERO] == 90
    assert percentile(counts, 0.9) == 0.0
    assert percentile(counts, 0.91) == value_of(bin_of(100))
    told = mean(counts)
    assert told is not None
    assert abs(told - 10) < 0.1


def test_nothing_has_no_percentile() -> None:
    """No observation is not the same as zero."""
    assert percentile({}, 0.5) is None
    assert mean({}) is None
