"""How precisely two parameters are known: from how sharply their likelihood falls off around its maximum."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from cobalance_sims.calibrate.interval import Z95, Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


def covariance(f: Callable[[float, float], float], top: tuple[float, float], steps: tuple[float, float]) -> Floats:
    """Their covariance: the inverse of the curvature, measured by small steps. Infinite where there is no maximum."""
    (x, y), (h, k) = top, steps
    middle = f(x, y)
    a = (2 * middle - f(x + h, y) - f(x - h, y)) / h**2
    b = (2 * middle - f(x, y + k) - f(x, y - k)) / k**2
    c = (f(x + h, y - k) + f(x - h, y + k) - f(x + h, y + k) - f(x - h, y - k)) / (4 * h * k)
    determinant = a * b - c * c
    if not (a > 0 and b > 0 and determinant > 0):
        return np.diag([math.inf, math.inf])
    return np.array([[b, -c], [-c, a]]) / determinant


def around_log(log_value: float, variance: float) -> Interval:
    """The interval of a quantity whose logarithm is known with this variance."""
    value, factor = math.exp(log_value), math.exp(min(Z95 * math.sqrt(variance), 700.0))
    return Interval(value, value / factor, value * factor)
