"""An estimate with an interval that contains the truth 95 times in 100."""

from __future__ import annotations

import math

import attrs

Z95 = 1.959964


@attrs.frozen
class Interval:
    """An estimate with its lower and upper bound."""

    value: float
    low: float
    high: float

    def __contains__(self, truth: float) -> bool:
        return self.low <= truth <= self.high

    def scaled(self, factor: float) -> Interval:
        """The same in another unit."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)

    def __str__(self) -> str:
        return f"{short(self.value)} ({short(self.low)} to {short(self.high)})"


def short(number: float) -> str:
    """Three digits, without an exponent where that is readable."""
    if math.isinf(number):
        return "unbounded"
    if number == 0 or 0.001 <= abs(number) < 1e9:
        rounded = float(f"{number:.3g}")
        return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"
    return f"{number:.3g}"


def poisson(count: int, exposure: float, z: float = Z95) -> Interval:
    """The rate of something that happened ``count`` times, per unit of exposure, which is above 0.

    The bounds are Byar's, within one percent of the exact ones, and hold for a count of 0 as well.
    """
    low = count * (1 - 1 / (9 * count) - z / (3 * math.sqrt(count))) ** 3 if count else 0.0
    more = count + 1
    high = more * (1 - 1 / (9 * more) + z / (3 * math.sqrt(more))) ** 3
    return Interval(count, max(low, 0.0), high).scaled(1 / exposure)


def share(count: int, of: int) -> Interval:
    """The share ``count`` out of ``of``, with Wilson's score interval."""
    if of == 0:
        return Interval(0.0, 0.0, 1.0)
    p, z2 = count / of, Z95**2
    middle = (p + z2 / (2 * of)) / (1 + z2 / of)
    half = Z95 / (1 + z2 / of) * math.sqrt(p * (1 - p) / of + z2 / (4 * of**2))
    return Interval(p, max(middle - half, 0.0), min(middle + half, 1.0))


def mean(total: float, square: float, count: float) -> Interval:
    """The mean of values whose sum, sum of squares and number are known; ``count`` is above 0."""
    value = total / count
    if count < 2:
        return Interval(value, -math.inf, math.inf)
    error = math.sqrt(max(square / count - value**2, 0.0) / (count - 1))
    return Interval(value, value - Z95 * error, value + Z95 * error)
