"""The machine that measures: what it is, and how busy others keep it."""

from __future__ import annotations

import os
import platform
import statistics
import time

YARDSTICK_ROUNDS = 9


def describe() -> dict[str, object]:
    """For a report."""
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": load(),
        "yardstick_ms": yardstick_ms(),
    }


def load() -> list[float]:
    """Means over 1, 5 and 15 minutes of how many processes run or want to."""
    return [round(it, 2) for it in os.getloadavg()]


def yardstick_ms() -> float:
    """CPU of a fixed piece of Python, a median: tells a slower machine from slower code."""
    return round(statistics.median(_fixed_work_ms() for _ in range(YARDSTICK_ROUNDS)), 3)


def _fixed_work_ms() -> float:
    began = time.thread_time()
    counts: dict[int, int] = {}
    for number in range(20_000):
        counts[number % 97] = counts.get(number % 97, 0) + number
    return (time.thread_time() - began) * 1000
