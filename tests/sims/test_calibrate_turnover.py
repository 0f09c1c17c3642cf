"""Who took whose place, what was scaled, and between which sizes: each estimator on lives of known making."""

from __future__ import annotations

from random import Random

import attrs
import numpy as np
import pytest
from tests.sims.test_calibrate import HEARTBEAT_MS, SESSION_MS, life, window

from cobalance_sims.calibrate import of_work, pauses
from cobalance_sims.calibrate.deploys import Turnover, sort_out
from cobalance_sims.calibrate.membership import membership
from cobalance_sims.calibrate.pauses import LatenessReports, Return
from cobalance_sims.calibrate.sample import DurationSample
from cobalance_sims.calibrate.scaling import capacities, limits
from cobalance_sims.calibrate.tallies import Life
from cobalance_sims.simulate.churn_faults import ScaleOut
from cobalance_sims.simulate.distributions import LogNormal
from cobalance_sims.simulate.scenario import QUICKENED
from cobalance_sims.simulate.world import World

HOUR_MS = 3_600_000


def sorted_out(lives: list[Life], hours: float) -> Turnover:
    """What they are taken for."""
    group = membership(lives, [window(int(hours * HOUR_MS))])
    return sort_out(group, SESSION_MS, HEARTBEAT_MS)


def autoscaled(seed: int, hours: float, per_hour: float, most: int = 100) -> list[Life]:
    """A group of ten that an autoscaler makes larger and smaller at random times, by members that leave for good."""
    random, there, over, at, made = Random(seed), [f"f{n}" for n in range(10)], {}, 0.0, 0
    joined = dict.fromkeys(there, 10)
    while (at := at + random.expovariate(2 * per_hour) * HOUR_MS) < hours * HOUR_MS:
        if random.random() < 0.5:
            if len(there) < most:
                made += 1
                there.append(f"s{made}")
                joined[f"s{made}"] = int(at) + SESSION_MS + 10
        elif len(there) > 2:
            over[there.pop(random.randrange(len(there)))] = int(at) + SESSION_MS + 10
    return [life(name, at_ms, over.get(name)) for name, at_ms in joined.items()]


def test_an_autoscaler_does_not_replace_whom_it_removes() -> None:
    """Twenty come and twenty go an hour, each at any time: that one comes soon after another has gone is chance."""
    found = sorted_out(autoscaled(1, 10.0, 20.0), 10.0)
    assert (found.replaced_ms, found.deploys) == ([], [])
    assert found.scaled_out / 10.0 == pytest.approx(20.0, rel=0.15)
    assert found.scaled_in / 10.0 == pytest.approx(20.0, rel=0.15)


def test_replacements_are_told_from_those_who_came_by_chance() -> None:
    """Thirty members are replaced after about four seconds while an autoscaler works: they are found, and hardly any other."""
    random, lives = Random(2), autoscaled(3, 10.0, 6.0)
    for number in range(30):
        at = 900_000 + number * 1_100_000
        lives += [
            life(f"o{number}", 10, at),
            life(f"n{number}", at + int(4_000 * random.lognormvariate(0, 0.4))),
        ]
    found = sorted_out(lives, 10.0)
    assert len(found.replaced_ms) == pytest.approx(30, abs=3)
    assert np.median(found.replaced_ms) == pytest.approx(4_000, rel=0.2)


def test_departures_that_chance_brings_together_are_no_deploy() -> None:
    """Members of a group of four are replaced twelve times an hour, each at any time; now and then half of it within minutes."""
    random, lives, at = Random(4), [], 0.0
    there = [(f"f{n}", 10) for n in range(4)]
    for number in range(120):
        at += random.expovariate(12) * HOUR_MS
        old, joined = there.pop(0)
        lives.append(life(old, joined, int(at) + 30_000))
        there.append((f"n{number}", int(at) + 34_000))
    found = sorted_out([*lives, *(life(name, joined) for name, joined in there)], at / HOUR_MS + 1)
    assert found.deploys == []
    assert len(found.replaced_ms) >= 110


def surge(begun_ms: int) -> list[Life]:
    """Each new process takes 3 s to join; 8 s later its old one begins to leave, which takes a second; 8 s later the next is
    ordered.
    """
    steps = [begun_ms + 20_000 * n for n in range(4)]
    return [
        *(life(f"a{n}", 10, at + 3_000 + 8_000 + 1_000) for n, at in enumerate(steps)),
        *(life(f"b{n}", at + 3_000) for n, at in enumerate(steps)),
    ]


def test_a_surge_tells_its_pause_and_how_long_processes_take_to_start() -> None:
    """The pause comes twice in each step, and starting follows the second."""
    (deploy,) = sorted_out(surge(600_000), 1.0).deploys
    assert (deploy.shape, deploy.pause_ms, deploy.downs_ms) == ("surge", 8_000, [3_000] * 3)


def test_processes_that_begin_to_leave_together_are_deployed_all_at_once() -> None:
    """Some take long to leave, so that the first successors come before the last has gone: it is no rolling deploy."""
    told_ms = 600_000
    old = [attrs.evolve(life(f"a{n}", 10, told_ms + 2_000 * (n + 1)), leaving_at_ms=told_ms) for n in range(4)]
    new = [life(f"b{n}", told_ms + 2_000 * (n + 1) + 3_000) for n in range(4)]
    (deploy,) = sorted_out([*old, *new], 1.0).deploys
    assert (deploy.shape, deploy.downs_ms) == ("all_at_once", [3_000] * 4)


def test_the_time_at_a_limit_is_none_in_which_a_group_could_grow() -> None:
    """An autoscaler that may not exceed twelve: the limit is found, and its rate is that of the rest of the time."""
    lives = autoscaled(5, 40.0, 10.0, most=12)
    group = membership(lives, [window(40 * HOUR_MS)])
    turnover = sort_out(group, SESSION_MS, HEARTBEAT_MS)
    found = limits(turnover, group)
    assert (found.most, found.is_most) == (12, True)
    assert turnover.scaled_out / 40.0 < 9.5
    assert turnover.scaled_out / found.hours_to_join == pytest.approx(10.0, rel=0.1)


def test_a_size_that_was_hardly_reached_is_no_limit() -> None:
    """One process was added in an hour: nothing says that it was the last one possible."""
    group = membership([life(f"f{n}", 10) for n in range(3)] + [life("s", 1_800_000)], [window(HOUR_MS)])
    found = limits(sort_out(group, SESSION_MS, HEARTBEAT_MS), group)
    assert (found.most, found.is_most, found.hours_to_join) == (4, False, 1.0)


def test_capacities_come_in_turn() -> None:
    """Half of the hours with one, half with two: of eight members four have each, so they alternate."""
    assert capacities({1: 31.0, 2: 33.0}, 8) == (1, 2)
    assert capacities({1: 20.0, 3: 40.0}, 6) == (1, 3, 3)
    assert capacities({1: 64.0}, 8) == capacities({}, 3) == (1,)


def test_an_autoscaler_adds_processes_of_each_capacity() -> None:
    """Those that it adds without instance ids take the capacities in turn as well."""
    world = World(QUICKENED)
    added = ScaleOut(most=6, capacities=(1, 2))
    for _ in range(6):
        added.strike(world)
    assert [it.member_settings.capacity for it in world.living.values()] == [1, 2, 1, 2, 1, 2]


def test_pauses_that_expire_sessions_are_no_more_frequent_than_they_are() -> None:
    """Twelve pauses an hour, all of which expire their member: the time before each of them counts in full."""
    generator, told = np.random.default_rng(7), {0: LatenessReports(5, 100_000)}
    waits = generator.exponential(HOUR_MS / 12, 400)
    returns = [
        Return(int(wait), int(behind))
        for wait, behind in zip(waits, generator.uniform(1_000, 20_000, 400), strict=True)
    ]
    found = pauses.describe(
        pauses.with_returns(told, returns, SESSION_MS, HEARTBEAT_MS), HEARTBEAT_MS, LogNormal(400, 0.8)
    )
    assert 12 in found.per_member_hour
    assert found.per_member_hour.value == pytest.approx(12, rel=0.15)


def test_one_resource_that_drains_otherwise_is_told_from_many_that_do_not() -> None:
    """Of forty that drain alike and one that takes eight times as long, that one alone is named, and the others are fitted
    without it.
    """
    generator = np.random.default_rng(8)
    drains = {f"r{n}": DurationSample.of(generator.lognormal(np.log(1_000), 1.0, 60)) for n in range(40)}
    drains["slow"] = DurationSample.of(generator.lognormal(np.log(8_000), 0.5, 400))
    pooled, own = of_work.apart(drains)
    assert set(own) == {"slow"}
    assert pooled.median_ms is not None
    assert 1_000 in pooled.median_ms
