"""A simulated day: the product's own autoscaling decides, and what it costs and brings is counted right."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import attrs
import pytest
from tests.cli_process import cobalance

from cobalance.operate.desired import Scaling, ScalingSettings
from cobalance.settings import GroupSettings
from cobalance_sims.histogram import percentile
from cobalance_sims.simulate.day import BadDay, Day, DayOutcome
from cobalance_sims.simulate.queues import Queues
from cobalance_sims.simulate.world import World

HOUR_MS = 3_600_000
SHORT = Day(
    length_ms=2 * HOUR_MS,
    day_ms=2 * HOUR_MS,
    scaling=ScalingSettings(in_after_ms=300_000),
)
"""With the load of a day in two hours, which is harder to follow."""


@pytest.fixture(scope="module")
def compared() -> dict[str, DayOutcome]:
    return SHORT.compare(seed=3)


@pytest.mark.thorough
def test_less_than_the_peaks_cost_and_none_of_the_means_lag(compared: dict[str, DayOutcome]) -> None:
    """What autoscaling is for. Its price is moves, and seconds of lag while members start."""
    scaled, peak, mean = compared["autoscaled"], compared["fixed for the peak"], compared["fixed for the mean"]
    assert {it.messages for it in compared.values()} == {scaled.messages}  # the same load
    assert (peak.least_members, peak.most_members, peak.member_hours) == (8, 8, 16.0)
    assert (mean.least_members, mean.most_members, mean.member_hours) == (4, 4, 8.0)
    assert scaled.member_hours < 0.8 * peak.member_hours
    assert scaled.age_max_s < SHORT.scaling.drain_within_ms / 1_000
    assert mean.age_max_s > 3 * scaled.age_max_s
    assert scaled.least_members <= 2  # by what its members say, before there was any burst
    assert scaled.moves > peak.moves
    assert scaled.changes > 0
    assert peak.changes == mean.changes == 0
    assert scaled.unworked_s < 60


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_day() -> None:
    """And another seed another one."""
    part = attrs.evolve(SHORT, length_ms=HOUR_MS // 6)
    first = part.play(seed=1)
    assert part.play(seed=1) == first
    assert part.play(seed=2) != first


def test_the_products_rule_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked, with what the product reads of the group: no copy of it is."""
    asked, judge = list[Any](), Scaling.judge

    def always_three(self: Scaling, group: Any) -> Any:
        asked.append(group)
        return attrs.evolve(judge(self, group), members=3)

    monkeypatch.setattr(Scaling, "judge", always_three)
    found = attrs.evolve(SHORT, length_ms=HOUR_MS // 6).play(seed=1)
    assert (found.least_members, found.most_members, found.changes) == (3, 8, 1)
    last = asked[-1]
    assert (last.state, len(last.members), len(last.resources)) == ("Stable", 3, 24)
    assert sum(it.handled for it in last.members) == pytest.approx(found.messages, rel=0.05)
    assert all(it.occupied_ms == pytest.approx(100 * it.handled, abs=100) for it in last.members)
    assert {it.owner for it in last.resources} == {it.id for it in last.members}
    assert last.at_ms - asked[0].at_ms == pytest.approx(HOUR_MS / 6 - 15_000, abs=15_000)  # time left out included


def queues(per_s: float, each_per_s: float) -> Queues:
    """One resource, worked from the beginning by a process that never ends."""
    world = World(GroupSettings(), traced=False)
    world.resources = ("r0",)
    found = Queues(world, lambda _: per_s, each_per_s, Random(1))
    worker, tenure = attrs.make_class("P", ["name"])("p1"), attrs.make_class("T", ["resource"])("r0")
    found.active(worker, tenure)
    return found


def test_what_waits_and_how_old_it_is() -> None:
    """Twice as much comes as gets done: half of it waits, and the last one that is done is half as old as the day."""
    found = queues(per_s=200, each_per_s=100)
    found.world.clock.now = 1_000_000
    found.pass_time()
    assert found.came == pytest.approx(200_000, rel=0.01)
    assert found.done_by["p1"] == pytest.approx(100_000)
    assert found.left == found.came - 100_000
    assert found.oldest_ms == pytest.approx(500_000, rel=0.01)
    assert percentile(found.ages, 0.5) == pytest.approx(250_000, rel=0.03)


def test_nothing_waits_where_there_is_time() -> None:
    """Then messages have no age. What comes while nobody is there is as old as that took."""
    found = queues(per_s=50, each_per_s=100)
    clock, resource = found.world.clock, found.queues["r0"]
    clock.now = 100_000
    found.pass_time()
    assert (found.left, found.oldest_ms) == (0, 0)
    worker, resource.worker = resource.worker, None
    clock.now = 110_000
    found.pass_time()
    assert found.unworked_ms == 10_000
    resource.worker = worker
    clock.now = 200_000
    found.pass_time()
    assert found.left == 0
    assert found.oldest_ms == pytest.approx(10_000, rel=0.15)
    assert sum(found.ages.values()) == pytest.approx(1_000 * found.came, rel=0.001)


def test_the_command_prints_each() -> None:
    """As a table, and as JSON; a value out of range is wrong usage."""
    few = ("sims", "day", "--length", "5m", "--partitions", "4")
    lines = cobalance(*few).out.splitlines()
    assert lines[0].split() == ["MEMBERS", "MEMBER-HOURS", "CHANGES", "MOVES", "AGE-P50", "AGE-P99", "AGE-MAX", "LEFT"]
    assert [line[:18].strip() for line in lines[1:]] == ["autoscaled", "fixed for the peak", "fixed for the mean"]
    found = json.loads(cobalance(*few, "--json").out)
    assert found["fixed for the mean"]["most_members"] == 4
    refused = cobalance("sims", "day", "--peak", "3")
    assert refused.code == 2
    assert "peak is 3" in refused.err
    with pytest.raises(BadDay, match="partitions is 0"):
        Day(partitions=0)
