"""Regular expressions that read what others wrote take time in proportion to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from cobalance.coordinator.keys import SCHEMA, place_of
from cobalance.coordinator.redis.failures import permission_missing
from cobalance.errors import CobalanceError
from cobalance.rabbitmq.wire.address import single_urls
from cobalance_sims.spark.errors import spark_errors
from cobalance_sims.spark.journal_export import own_words

FEW, MANY = 500, 4_000
"""Characters."""

TIMES = 4 * MANY / FEW
"""Going over all of the text at each character would take `MANY` / `FEW` times as long again."""


def fail_in_spark(text: str) -> None:
    """Spark quotes anything in its errors."""
    with spark_errors("testing"):
        raise ConnectionError(text)


def fail_in_worker(text: str) -> None:
    """An error of ours is found in Spark's."""
    with own_words("testing"):
        raise ConnectionError(text)


READERS: list[tuple[Callable[[str], object], str, str]] = [
    (place_of, f":{SCHEMA}:{{a}}", "!"),
    (single_urls, " ", "x"),
    (lambda text: permission_missing(ValueError(text), "h", "t"), "run the 'a", ""),
    (fail_in_spark, "FAILED_READ_FILE", ""),
    (fail_in_spark, "/a", " FAILED_READ_FILE"),
    (fail_in_spark, "a", " FAILED_READ_FILE"),
    (fail_in_worker, "cobalance.", "UNAVAILABLE"),
    (fail_in_worker, "cobalance.a.b", "UNAVAILABLE"),
]


def cost(read: Callable[[str], object], text: str) -> float:
    """Seconds of this thread, the least of three."""

    def once() -> float:
        before = time.thread_time()
        with suppress(CobalanceError):
            read(text)
        return time.thread_time() - before

    return min(once() for _ in range(3))


@pytest.mark.parametrize(("read", "unit", "end"), READERS)
def test_reading_takes_time_in_proportion_to_the_text(read: Callable[[str], object], unit: str, end: str) -> None:
    """Whatever is repeated in it."""
    few, many = (unit * (size // len(unit)) + end for size in (FEW, MANY))
    assert cost(read, many) < TIMES * max(cost(read, few), 0.000_1)
