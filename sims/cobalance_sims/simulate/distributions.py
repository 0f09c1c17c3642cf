"""Distributions of durations, as data with a text form: ``lognormal:200:1.0``, ``exponential:500``, ``uniform:5:60``,
``constant:40`` and ``empirical:0,12,30,80,2000``. All in ms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from statistics import NormalDist
from typing import Protocol

import attrs

from cobalance.errors import UsageError

LONGEST_MS = 86_400_000 * 30
"""No sample is longer: what takes a month never ends, as far as a group is concerned."""

_NORMAL = NormalDist()


class BadDistribution(UsageError):
    """The text or the numbers are not a valid distribution; the message says what is accepted."""


class Distribution(Protocol):
    """A distribution of durations."""

    def sample(self, random: Random) -> int:
        """Draws one duration, whole ms."""

    def quantile(self, share: float) -> float:
        """Returns the duration, ms, that this share (0 to 1) of all durations does not exceed."""

    @property
    def mean_ms(self) -> float: ...

    @property
    def text(self) -> str:
        """The text form, from which :func:`parse` makes it."""


def _number(value: float) -> str:
    return f"{value:.10g}"


def _whole(ms: float) -> int:
    return int(min(ms, LONGEST_MS) + 0.5)


def _check(low: float, value: float, what: str) -> None:
    if not (math.isfinite(value) and value >= low):
        raise BadDistribution(f"{what} is {value!r}: give a number of at least {low:g}")


@attrs.frozen
class Constant:
    """Always the same duration."""

    ms: float

    def __attrs_post_init__(self) -> None:
        _check(0, self.ms, "the duration of constant")

    def sample(self, _: Random) -> int:
        return _whole(self.ms)

    def quantile(self, _: float) -> float:
        return self.ms

    @property
    def mean_ms(self) -> float:
        return self.ms

    @property
    def text(self) -> str:
        """``constant:MS``."""
        return f"constant:{_number(self.ms)}"


@attrs.frozen
class Uniform:
    """Every duration between two bounds is equally likely."""

    low_ms: float
    high_ms: float

    def __attrs_post_init__(self) -> None:
        _check(0, self.low_ms, "the lower end of uniform")
        _check(self.low_ms, self.high_ms, "the upper end of uniform")

    def sample(self, random: Random) -> int:
        return _whole(self.low_ms + random.random() * (self.high_ms - self.low_ms))

    def quantile(self, share: float) -> float:
        return self.low_ms + share * (self.high_ms - self.low_ms)

    @property
    def mean_ms(self) -> float:
        return (self.low_ms + self.high_ms) / 2

    @property
    def text(self) -> str:
        """``uniform:LOW:HIGH``."""
        return f"uniform:{_number(self.low_ms)}:{_number(self.high_ms)}"


@attrs.frozen
class Exponential:
    """Durations of something that ends at any moment with the same chance."""

    mean: float

    def __attrs_post_init__(self) -> None:
        _check(0, self.mean, "the mean of exponential")

    def sample(self, random: Random) -> int:
        return _whole(self.quantile(random.random()))

    def quantile(self, share: float) -> float:
        return -self.mean * math.log1p(-share) if share < 1 else LONGEST_MS

    @property
    def mean_ms(self) -> float:
        return self.mean

    @property
    def text(self) -> str:
        """``exponential:MEAN``."""
        return f"exponential:{_number(self.mean)}"


@attrs.frozen
class LogNormal:
    """A product of many factors, as handling and draining times tend to be: a median, and a long tail of sigma."""

    median_ms: float
    sigma: float
    """Standard deviation of the natural logarithm: at 1.0, one in a hundred takes ten medians."""

    def __attrs_post_init__(self) -> None:
        _check(0, self.median_ms, "the median of lognormal")
        _check(0, self.sigma, "the sigma of lognormal")

    def sample(self, random: Random) -> int:
        return _whole(self.median_ms * math.exp(min(random.gauss(0.0, self.sigma), 60.0)))

    def quantile(self, share: float) -> float:
        if share <= 0:
            return 0.0
        return self.median_ms * math.exp(self.sigma * _NORMAL.inv_cdf(share)) if share < 1 else LONGEST_MS

    @property
    def mean_ms(self) -> float:
        """Above the median, because of the tail."""
        return self.median_ms * math.exp(self.sigma**2 / 2)

    @property
    def text(self) -> str:
        """``lognormal:MEDIAN:SIGMA``."""
        return f"lognormal:{_number(self.median_ms)}:{_number(self.sigma)}"


@attrs.frozen
class Empirical:
    """An observed distribution: quantiles at equal steps of the share, from 0 to 1, with straight lines between."""

    quantiles: tuple[float, ...]

    def __attrs_post_init__(self) -> None:
        if len(self.quantiles) < 2:
            raise BadDistribution("empirical needs two quantiles at least: the least and the greatest duration")
        for low, high in zip((0.0, *self.quantiles), self.quantiles, strict=False):
            _check(low, high, "a quantile of empirical, which must rise,")

    def sample(self, random: Random) -> int:
        return _whole(self.quantile(random.random()))

    def quantile(self, share: float) -> float:
        at = min(max(share, 0.0), 1.0) * (len(self.quantiles) - 1)
        step = min(int(at), len(self.quantiles) - 2)
        low, high = self.quantiles[step : step + 2]
        return low + (at - step) * (high - low)

    @property
    def mean_ms(self) -> float:
        """The mean of the straight lines."""
        inner = sum(self.quantiles) - (self.quantiles[0] + self.quantiles[-1]) / 2
        return inner / (len(self.quantiles) - 1)

    @property
    def text(self) -> str:
        """``empirical:Q0,Q1,…``."""
        return "empirical:" + ",".join(map(_number, self.quantiles))


_PLAIN: dict[str, tuple[Callable[..., Distribution], int]] = {
    "constant": (Constant, 1),
    "uniform": (Uniform, 2),
    "exponential": (Exponential, 1),
    "lognormal": (LogNormal, 2),
}

FORMS = "constant:MS, uniform:LOW:HIGH, exponential:MEAN, lognormal:MEDIAN:SIGMA or empirical:Q0,Q1,…"


def parse(text: str | float | Distribution) -> Distribution:
    """Parses the text form; a bare number is a constant, and a distribution is returned as it is.

    Raises:
        BadDistribution: the text is invalid.
    """
    if not isinstance(text, str):
        return Constant(text) if isinstance(text, int | float) else text
    name, _, rest = text.strip().partition(":")
    try:
        if name == "empirical":
            return Empirical(tuple(float(word) for word in rest.split(",")))
        make, count = _PLAIN[name]
        numbers = [float(word) for word in rest.split(":")]
    except (KeyError, ValueError) as error:
        raise BadDistribution(f"{text!r} is not a distribution: give {FORMS}, in ms") from error
    if len(numbers) != count:
        raise BadDistribution(f"{text!r} has {len(numbers)} numbers, {name} takes {count}: give {FORMS}, in ms")
    return make(*numbers)


def empirical(samples: list[float], steps: int = 100) -> Empirical:
    """Returns the distribution of observed samples as ``steps`` + 1 quantiles.

    Raises:
        BadDistribution: there are no samples.
    """
    if not samples:
        raise BadDistribution("no duration was observed, so there is no distribution")
    ordered = sorted(samples)
    last = len(ordered) - 1
    return Empirical(tuple(ordered[round(step / steps * last)] for step in range(steps + 1)))
