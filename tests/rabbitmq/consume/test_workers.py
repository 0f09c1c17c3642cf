"""What a member says of its work: how many messages it has done, and how much of all that it can do that took."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from cobalance import Batch, ConsumerGroup
from cobalance.rabbitmq.consume import workers as module
from cobalance.rabbitmq.consume.workers import Workers


@attrs.define
class Worker:
    """As far as it is counted."""

    acknowledged: int = 0
    busy_ms: int = 0
    acked_at: int = 0


class Processor:
    """The time that the process has had it, and a clock by which so much passes from one look to the next."""

    s, passes_s = 5.0, 100.0
    now = 0.0

    def process_time(self) -> float:
        return self.s

    def monotonic(self) -> float:
        self.now += self.passes_s
        return self.now


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Processor:
    found = Processor()
    monkeypatch.setattr(module, "time", found)
    monkeypatch.setattr(module, "LIMIT", Path("/nonesuch"))
    return found


def test_handlers_that_wait_take_their_places(processor: Processor) -> None:
    """Also in tenures that are over, and of a worker that was replaced. What was before the first look counts, too."""
    workers: Any = Workers()
    workers["a"], workers["b"] = Worker(3, 400), Worker(4, 200)
    processor.s += 0.01
    assert (workers.acknowledged, workers.occupied_ms(places=2)) == (7, 300)
    del workers["a"]
    workers["b"] = Worker(1, 50)
    assert (workers.acknowledged, workers.occupied_ms(places=1)) == (8, 350)


def test_the_last_ack_is_that_of_any_tenure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of one that is over; it is unknown where there was none, and not 0."""
    monkeypatch.setattr(module, "monotonic_ms", lambda: 1_000)
    workers: Any = Workers()
    workers["a"], workers["b"] = Worker(), Worker()
    told = [workers.last_ack_ago_ms]
    workers["a"].acked_at, workers["b"].acked_at = 300, 400
    told.append(workers.last_ack_ago_ms)
    del workers["b"]
    told.append(workers.last_ack_ago_ms)
    workers["a"].acked_at = 900
    assert [*told, workers.last_ack_ago_ms] == [None, 600, 600, 100]


def test_handlers_that_compute_take_the_processor(processor: Processor) -> None:
    """However many of them there are, Python has one at a time. Of each time between two looks the longer one counts."""
    workers: Any = Workers()
    workers["a"] = Worker(3, 400)
    processor.s += 0.3
    assert workers.occupied_ms(places=4) == 300
    workers["a"].busy_ms += 800
    assert workers.occupied_ms(places=4) == 500


def test_it_is_never_full_for_longer_than_time_passes(processor: Processor) -> None:
    """Though handlers compute on four processors, or most places have gone since; nor is a handler counted twice."""
    workers: Any = Workers()
    processor.passes_s = 1.0
    processor.s += 4
    assert workers.occupied_ms(places=4) == 1_000
    workers["a"] = Worker(3, 12_000)
    assert workers.occupied_ms(places=1) == 2_000
    workers["a"].busy_ms = 11_000
    assert workers.occupied_ms(places=1) == 2_000
    workers["a"].busy_ms = 12_100
    assert workers.occupied_ms(places=1) == 2_100


@pytest.mark.parametrize(
    ("limit", "occupied_ms"), [("25000 100000\n", 800), ("400000 100000\n", 200), ("max 100000\n", 200), (None, 200)]
)
def test_a_container_may_have_less_than_a_processor(
    processor: Processor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str | None, occupied_ms: int
) -> None:
    """Then that is all that it can do."""
    monkeypatch.setattr(module, "LIMIT", tmp_path / "cpu.max")
    if limit is not None:
        (tmp_path / "cpu.max").write_text(limit)
    workers = Workers()
    processor.s += 0.2
    assert workers.occupied_ms(places=1) == occupied_ms


async def _handle(_: Any) -> None: ...


@pytest.mark.parametrize(
    ("options", "places"),
    [
        ({}, 12),
        ({"max_in_flight": 5}, 5),
        ({"batch": Batch(4, within_ms=1), "max_in_flight": 9}, 2),
        ({"order": "key"}, 64),
        ({"order": "key", "concurrency": 300, "max_in_flight_per_partition": 2}, 24),
        ({"order": "key", "concurrency": 30, "max_in_flight_per_partition": 5, "batch": Batch(4, within_ms=1)}, 12),
    ],
)
def test_how_many_handlers_run_side_by_side(options: Any, places: int) -> None:
    """One in each partition, or by key as many as were asked for; if there is room for what they are given."""
    assert ConsumerGroup("g", "orders", _handle, **options).partitions._places_of(12) == places
