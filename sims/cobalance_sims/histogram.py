"""Log histograms: a map bin → count whose percentiles are right within 1 %, and which merge by adding counts.

Bin 0 holds the zeros (immediate handovers are common, and no logarithm has a place for them), bin 1 values up to 1 ms,
and bin n > 1 the values in (BASE^(n-2), BASE^(n-1)] ms, which are reported as the middle of their bin. A century is bin
1,455.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

BASE = 1.02
"""Ratio of the edges of a bin: its middle is less than 1 % from either, and so is any percentile from the exact one."""

ZERO = 0
"""The bin of the zeros."""

_LOG_BASE = math.log(BASE)

Histogram = dict[int, int]
"""Bin → count."""


def bin_of(value: float) -> int:
    """Returns the bin of a value (≥ 0, ms). Values between 0 and 1 count as 1.

    Raises:
        ValueError: the value is negative.
    """
    if value < 0:
        raise ValueError(f"{value!r} is negative: durations are not")
    return 1 + math.ceil(math.log(max(value, 1.0)) / _LOG_BASE - 1e-9) if value > 0 else ZERO


def value_of(bin_: int) -> float:
    """Returns the value for a bin, ms: the harmonic middle of its edges, relatively as far from one as the other."""
    if bin_ == ZERO:
        return 0.0
    return BASE ** (bin_ - 1) * 2 / (1 + BASE) if bin_ > 1 else 1.0


def histogram(values: Iterable[float]) -> Histogram:
    return dict(Counter(map(bin_of, values)))


def merge(histograms: Iterable[Mapping[int, int]]) -> Histogram:
    """Returns the histogram of all their values together."""
    total: Counter[int] = Counter()
    for it in histograms:
        total.update(it)
    return dict(total)


def percentile(counts: Mapping[int, int], share: float) -> float | None:
    """Returns the value that this share (0 to 1) of all values does not exceed; ``None`` if there are no values."""
    rank, seen = math.ceil(share * sum(counts.values())), 0
    for bin_ in sorted(counts):
        seen += counts[bin_]
        if seen >= max(rank, 1):
            return value_of(bin_)
    return None


def percentiles(counts: Mapping[int, int], shares: Iterable[float]) -> list[float | None]:
    return [percentile(counts, share) for share in shares]


def mean(counts: Mapping[int, int]) -> float | None:
    """The mean, right within 1 %; ``None`` if there are no values."""
    total = sum(counts.values())
    return sum(value_of(bin_) * count for bin_, count in counts.items()) / total if total else None


def sql(column: str) -> str:
    """Returns the bin of a column of whole ms as a Spark SQL expression: the same as :func:`bin_of`."""
    log = f"ceil(ln(greatest({column}, 1)) / {_LOG_BASE!r} - 1e-9)"
    return f"CASE WHEN {column} > 0 THEN CAST(1 + {log} AS INT) ELSE {ZERO} END"
