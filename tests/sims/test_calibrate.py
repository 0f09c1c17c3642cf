"""Fits to a group's events: known truths are found again, and samples that are too small are reported as such."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from random import Random

import attrs
import numpy as np
import pytest

from cobalance_sims import histogram
from cobalance_sims.calibrate import durations, handling, lognormal, pauses
from cobalance_sims.calibrate.calibration import NothingToCalibrate, calibrate
from cobalance_sims.calibrate.deploys import sort_out
from cobalance_sims.calibrate.interval import poisson, share
from cobalance_sims.calibrate.membership import membership
from cobalance_sims.calibrate.parameter import rate
from cobalance_sims.calibrate.pauses import LatenessReports, Return
from cobalance_sims.calibrate.sample import DurationSample
from cobalance_sims.calibrate.survival import Survival
from cobalance_sims.calibrate.tallies import Handlers, Life, Observation, Tallies, agreed
from cobalance_sims.calibrate.written import page, write
from cobalance_sims.simulate.churn import CHURNS
from cobalance_sims.simulate.distributions import Empirical, LogNormal
from cobalance_sims.simulate.load import Load
from cobalance_sims.tune.source import find

SESSION_MS, HEARTBEAT_MS = 10_000, 3_000


def test_cut_short_drains_are_longer_than_they_look() -> None:
    """Half of the drains are cut short: the fit finds the truth, where the finished ones alone would mislead."""
    generator = np.random.default_rng(1)
    true_ms = generator.lognormal(math.log(4_000), 1.0, 600)
    timeout_ms = 4_000
    cut = true_ms > timeout_ms
    fit = lognormal.fit(DurationSample.of(np.floor(true_ms[~cut]), [timeout_ms] * int(cut.sum())))
    naive = lognormal.fit(DurationSample.of(np.floor(true_ms[~cut])))
    assert 4_000 in fit.median_ms
    assert 1.0 in fit.sigma
    assert naive.median_ms.high < 3_000


def test_drains_cut_short_far_beyond_all_others_are_not_lost() -> None:
    """Drains take 100 ms, and one in six is cut short after half a minute: no fit says that none takes longer."""
    found = durations.describe(DurationSample.of([100] * 100, [30_000] * 20))
    assert found.distribution is not None
    assert found.distribution.quantile(0.99) > 30_000
    assert "the tail is a guess" in found.note


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """Of 200 censored samples, the intervals of the median and of sigma contain the truth in at least nine of ten."""
    generator = np.random.default_rng(2)
    held = np.zeros(2)
    for _ in range(200):
        true_ms, cut_ms = generator.lognormal(math.log(800), 1.2, 150), generator.uniform(500, 4_000, 150)
        known = true_ms <= cut_ms
        fit = lognormal.fit(DurationSample.of(true_ms[known], cut_ms[~known]))
        held += [800 in fit.median_ms, 1.2 in fit.sigma]
    assert all(held >= 180)


def test_survival_counts_who_is_still_at_it() -> None:
    """Kaplan and Meier by hand: 1 of 4 ends at 10, one is censored at 20, and 1 of the last 2 ends at 40."""
    seen = Survival.of(DurationSample.of([10, 40], [20, 80]))
    assert seen.share == pytest.approx([3 / 4, 3 / 4 * 1 / 2])
    assert seen.known_to == pytest.approx(1 - 3 / 8)


def test_rates_and_shares_have_the_intervals_of_the_textbooks() -> None:
    """Ten events: 4.80 to 18.39 by the exact Poisson bounds; none: up to 3.69; 8 of 10: 0.49 to 0.94 by Wilson's."""
    ten, none, most = poisson(10, 1.0), poisson(0, 1.0), share(8, 10)
    assert (ten.low, ten.high) == pytest.approx((4.795, 18.39), rel=0.01)
    assert (none.low, none.high) == pytest.approx((0.0, 3.689), rel=0.01)
    assert (most.low, most.high) == pytest.approx((0.490, 0.943), abs=0.001)


def reported(draw: Callable[[int], np.ndarray], reports: int, per_hour: float) -> dict[int, LatenessReports]:
    """What members report every ten minutes if they pause so often, for as long as ``draw`` says."""
    generator = np.random.default_rng(3)
    told: dict[int, LatenessReports] = {}
    for _ in range(reports):
        count = generator.poisson(per_hour / 6)
        late = draw(count) - generator.uniform(0, HEARTBEAT_MS, count)
        bin_ = histogram.bin_of(max([3.0, *late]))
        before = told.get(bin_, LatenessReports(0, 0))
        told[bin_] = LatenessReports(before.count + 1, before.covered_ms + 600_000)
    return told


def test_pauses_are_read_from_late_heartbeats() -> None:
    """Ten pauses an hour, many hidden by heartbeats every three seconds: rate, median and sigma are recovered."""
    generator = np.random.default_rng(4)
    told = reported(lambda count: generator.lognormal(math.log(1_500), 1.2, count), 600, 10)
    found = pauses.describe(told, HEARTBEAT_MS, LogNormal(1_000, 1.0))
    assert found.median_ms is not None
    assert found.sigma is not None
    assert 10 in found.per_member_hour
    assert 1_500 in found.median_ms
    assert 1.2 in found.sigma
    assert found.is_fitted


def test_pauses_that_no_lognormal_fits_are_no_lognormal() -> None:
    """Freezes of 4 to 12 s, all equally likely: neither short ones nor much longer ones are made of them."""
    generator = np.random.default_rng(5)
    told = reported(lambda count: generator.uniform(4_000, 12_000, count), 400, 2)
    found = pauses.describe(told, HEARTBEAT_MS, LogNormal(400, 0.8))
    assert 2 in found.per_member_hour
    assert found.length is not None
    assert found.length.quantile(0.5) == pytest.approx(8_000, rel=0.15)
    assert found.length.quantile(0.01) > 2_500
    assert found.length.quantile(0.999) < 14_000


def test_a_few_long_pauses_are_not_taken_for_the_short_ones_that_were_assumed() -> None:
    """A dozen heartbeats were late by many seconds: too few for a sure length, but enough to know that it is not 0.4 s."""
    generator = np.random.default_rng(6)
    told = reported(lambda count: generator.uniform(6_000, 12_000, count), 12, 6)
    found = pauses.describe(told, HEARTBEAT_MS, LogNormal(400, 0.8))
    assert pauses.FEW <= found.late < pauses.ENOUGH
    assert not found.is_fitted
    assert found.length is not None
    assert found.length.quantile(0.5) > 4_000
    assert 6 in found.per_member_hour


def test_false_expiries_prove_long_pauses() -> None:
    """Members that expired came back after two to nine seconds: each was silent for the session timeout and that, and none
    of these pauses is in a report of the one that expired.
    """
    returns = [Return(covered_ms=600_000 + SESSION_MS, behind_ms=behind) for behind in (2_000, 5_000, 9_000)]
    told = pauses.with_returns({0: LatenessReports(20, 12_000_000)}, returns, SESSION_MS, HEARTBEAT_MS)
    late = {bin_: it.count for bin_, it in told.items() if bin_ and it.count}
    assert late == histogram.histogram([SESSION_MS - HEARTBEAT_MS + behind for behind in (2_000, 5_000, 9_000)])
    assert sum(it.covered_ms for it in told.values()) == 12_000_000 + 3 * (600_000 + SESSION_MS)


def test_a_false_crash_proves_a_pause_without_a_session_timeout_before_it() -> None:
    """Its connections were closed when it fell silent, and its session ended at once."""
    returns = [Return(covered_ms=600_000, behind_ms=9_000, was_seen=True)]
    told = pauses.with_returns({}, returns, SESSION_MS, HEARTBEAT_MS)
    assert {bin_: it.count for bin_, it in told.items()} == histogram.histogram([9_000 - HEARTBEAT_MS])


def test_handlers_are_read_from_totals() -> None:
    """Tenures report how many messages they handled and how long that took: mean, tail and arrival rate follow."""
    generator = np.random.default_rng(4)
    counts = generator.poisson(200, 300)
    totals = [generator.lognormal(math.log(20), 1.0, count).sum() for count in counts]
    found = handling.describe(
        [
            Handlers(
                tenures=300,
                handled=int(counts.sum()),
                busy_ms=int(sum(totals)),
                squares=float(sum(total**2 / count for total, count in zip(totals, counts, strict=True))),
                held_ms=300 * 100_000,
                held_handled=int(counts.sum()),
            )
        ]
    )
    assert found.mean_ms is not None
    assert found.length is not None
    assert 20 * math.exp(0.5) in found.mean_ms
    assert found.length.median_ms == pytest.approx(20, rel=0.1)
    assert found.length.sigma == pytest.approx(1.0, rel=0.1)
    assert found.per_s == pytest.approx(2.0, rel=0.02)


def test_simulated_handlers_are_as_different_as_they_were_put_in() -> None:
    """Tenures of a simulated resource report handlers of 20 ms with a sigma of 1: both come out again."""
    load = Load(per_s=2.0, handle=LogNormal(20, 1.0), prefetch=10, random=Random(1))
    efforts = [load.effort("r", 100_000 * at, 100_000 * (at + 1)) for at in range(400)]
    found = handling.describe(
        [
            Handlers(
                tenures=len(efforts),
                handled=sum(count for count, _ in efforts),
                busy_ms=sum(busy for _, busy in efforts),
                squares=sum(busy**2 / count for count, busy in efforts),
                held_ms=400 * 100_000,
                held_handled=sum(count for count, _ in efforts),
            )
        ]
    )
    assert found.length is not None
    assert found.length.median_ms == pytest.approx(20, rel=0.1)
    assert found.length.sigma == pytest.approx(1.0, rel=0.1)


def test_a_prefetch_that_no_journal_tells_is_marked_as_assumed() -> None:
    """It is the base churn's, unless it is given; duplicates depend on it, so the page says what to give."""
    found = calibrate(thin(), CHURNS["gc_pauses"], name="shop", session_timeout_ms=20_000, heartbeat_interval_ms=5_000)
    assert (found.churn().prefetch, found.basis("prefetch")) == (10, "assumed")
    assert "prefetch is assumed, as in gc_pauses: no journal tells it: give --prefetch" in page(found)
    given = calibrate(
        thin(),
        CHURNS["gc_pauses"],
        name="shop",
        session_timeout_ms=20_000,
        heartbeat_interval_ms=5_000,
        prefetch=5,
    )
    assert (given.churn().prefetch, given.basis("prefetch")) == (5, "measured")


def test_what_no_lognormal_fits_keeps_its_own_quantiles() -> None:
    """Idle resources drain at once and busy ones in a second: two clusters, described by their quantiles."""
    found = durations.describe(DurationSample.of([1] * 300 + [1_000] * 300))
    assert isinstance(found.distribution, Empirical)
    assert found.distribution.quantile(0.25) == pytest.approx(1, rel=0.02)
    assert found.distribution.quantile(0.75) == pytest.approx(1_000, rel=0.02)
    assert "no lognormal" in found.note


def test_what_no_lognormal_fits_keeps_its_quantiles_although_some_are_cut_short() -> None:
    """Two clusters of drains, of which one in ten is cut short: what is known is kept, and only the rest is a guess."""
    found = durations.describe(DurationSample.of([10] * 300 + [4_000] * 240, [10_000] * 60))
    assert found.distribution is not None
    assert found.distribution.quantile(0.25) == pytest.approx(10, rel=0.1)
    assert found.distribution.quantile(0.75) == pytest.approx(4_000, rel=0.1)
    assert found.distribution.quantile(0.95) >= 10_000
    assert "the tail is a guess" in found.note


def test_too_few_are_said_to_be_too_few() -> None:
    """Twelve drains make no distribution, and three crashes no rate that contradicts the assumption."""
    found = durations.describe(DurationSample.of([100.0] * 12))
    assert found.distribution is None
    assert "30 are needed" in found.note
    few = rate("crashes_per_member_hour", 3, 100.0, 0.01, "crashes")
    assert (few.basis, few.value) == ("assumed", 0.01)
    contradicting = rate("crashes_per_member_hour", 3, 100.0, 5.0, "crashes")
    assert (contradicting.basis, contradicting.value) == ("few", 0.035)


def test_rates_stay_within_what_a_churn_can_have() -> None:
    """Ten joins in 10 ms are not a rate of millions an hour; nor has a group more members than the maximum."""
    assert rate("joins_per_hour", 10, 0.01 / 3_600, 0.0, "joins").value == 100_000
    huge = [life(f"m{n}", 10) for n in range(4_000)]
    found = calibrate(
        attrs.evolve(thin(), lives=huge),
        CHURNS["steady"],
        name="huge",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    assert (found.churn().members, found.churn().most_members) == (4_000, 5_000)


def life(member: str, joined: int, gone: int | None = None, reason: str = "left", *, previous: str = "") -> Life:
    """One member of a group called g; it takes a second to leave."""
    how = "" if gone is None else "left" if reason == "left" else "expired_member"
    leaving = gone - 1_000 if gone is not None and how == "left" else None
    return Life(
        run="g",
        member=member,
        joined_at_ms=joined,
        leaving_at_ms=leaving,
        previous=previous,
        gone_at_ms=gone,
        gone=how,
        reason=reason,
        kept="",
    )


def window(to_ms: int) -> Observation:
    return Observation(
        run="g", source="journal", from_ms=0, to_ms=to_ms, events=99, missing=0, resources=12, is_whole=True
    )


def rolling_deploy(begun_ms: int) -> list[Life]:
    """Three members that are replaced one after the other, each new one four seconds after the old one."""
    old = [life(f"a{n}", 10, begun_ms + 10_000 * n) for n in range(3)]
    return [*old, *(life(f"b{n}", begun_ms + 10_000 * n + 4_000) for n in range(3))]


def test_a_rolling_deploy_is_told_from_crashes_and_scaling() -> None:
    """A deploy, a crash whose place is taken, a frozen member that comes back, and a member that only leaves."""
    lives = [
        *rolling_deploy(600_000),
        life("c", 10, 2_000_000, "expired"),
        life("d", 1_995_000),
        life("e", 10, 2_400_000, "expired"),
        life("f", 2_403_000, previous="e"),
        life("g", 10, 3_000_000),
    ]
    group = membership(lives, [window(3_600_000)])
    found = sort_out(group, SESSION_MS, HEARTBEAT_MS)
    assert [(it.shape, it.replaced, it.downs_ms, it.pause_ms) for it in found.deploys] == [
        ("rolling", 3, [4_000] * 3, 5_000)
    ]
    assert (found.crashes, found.restarted_ms) == (1, [5_000 - HEARTBEAT_MS // 2])
    assert len(group.ended("paused")) == 1
    assert (found.scaled_in, found.scaled_out, found.replaced_ms) == (1, 0, [])


def test_a_death_that_was_seen_at_once_is_a_crash_then() -> None:
    """Closed connections showed three deaths: they are dated when they were seen, not a session timeout before. A fourth
    process was alive and came back.
    """
    died_ms = (1_000_000, 1_500_000, 2_000_000)
    lives = [life(f"c{at}", 10, at, "crashed") for at in died_ms] + [life(f"d{at}", at + 4_000) for at in died_ms]
    lives[0] = attrs.evolve(lives[0], gone="graced")
    lives += [life("e", 10, 2_400_000, "crashed"), life("f", 2_403_000, previous="e")]
    group = membership(lives, [window(3_600_000)])
    assert [(it.how, it.is_static) for it in group.ends] == [
        ("crashed", True),
        ("crashed", False),
        ("crashed", False),
        ("paused", False),
    ]
    found = sort_out(group, SESSION_MS, HEARTBEAT_MS)
    assert (found.crashes, found.restarted_ms) == (3, [4_000] * 3)
    assert (found.deploys, found.scaled_in, found.scaled_out, found.replaced_ms) == ([], 0, 0, [])


@pytest.mark.parametrize(
    ("starts_ms", "shape"),
    [
        ((4_000, 14_000, 24_000), "rolling"),
        ((-3_000, 7_000, 17_000), "surge"),
        ((24_000, 24_500, 25_000), "all_at_once"),
    ],
)
def test_deploys_are_told_apart(starts_ms: tuple[int, ...], shape: str) -> None:
    """Three members go ten seconds apart; the times of the new ones show the kind of deploy, despite a crash."""
    old = [life(f"a{n}", 10, 600_000 + 10_000 * n) for n in range(3)]
    new = [life(f"b{n}", 600_000 + ms) for n, ms in enumerate(starts_ms)]
    crash = [life("c", 10, 575_000, "expired"), life("d", 580_000)]
    found = sort_out(membership([*old, *new, *crash], [window(3_600_000)]), SESSION_MS, HEARTBEAT_MS)
    assert [it.shape for it in found.deploys] == [shape]


def crash_loop(first_ms: int, count: int) -> list[Life]:
    """A process that dies every 15 s, half a heartbeat interval after it was last heard, and is back after four seconds."""
    joined, found = 10, []
    for number in range(count):
        died_ms = first_ms + 15_000 * number
        found.append(life(f"k{number}", joined, died_ms - HEARTBEAT_MS // 2 + SESSION_MS, "expired"))
        joined = died_ms + 4_000
    return [*found, life("k", joined)]


def test_crashes_during_a_deploy_keep_their_successors() -> None:
    """Kills every 15 s before, during and after a deploy of three: each is restarted after four seconds, as the deploy's
    own successors come after theirs.
    """
    lives = [*rolling_deploy(600_000), *crash_loop(555_700, 8)]
    found = sort_out(membership(lives, [window(3_600_000)]), SESSION_MS, HEARTBEAT_MS)
    assert found.restarted_ms == [4_000] * 8
    assert [(it.shape, it.replaced, it.downs_ms) for it in found.deploys] == [("rolling", 3, [4_000] * 3)]
    assert (found.scaled_in, found.scaled_out) == (0, 0)


def test_a_shutdown_after_a_deploy_is_none_of_it() -> None:
    """The new members are all stopped a minute after the last was deployed: the deploy is as it was, and they leave."""
    new = [life(f"b{n}", 600_000 + 10_000 * n + 4_000, 680_000 + 100 * n) for n in range(3)]
    lives = [*(it for it in rolling_deploy(600_000) if it.member.startswith("a")), *new]
    found = sort_out(membership(lives, [window(700_000)]), SESSION_MS, HEARTBEAT_MS)
    assert [(it.shape, it.replaced, it.downs_ms, it.pause_ms) for it in found.deploys] == [
        ("rolling", 3, [4_000] * 3, 5_000)
    ]
    assert (found.scaled_in, found.scaled_out, found.replaced_ms) == (3, 0, [])


def thin() -> Tallies:
    """An hour of a small group in which little happened."""
    return Tallies(
        windows=[window(3_600_000)],
        lives=rolling_deploy(600_000),
        drains={"r1": DurationSample.of([50.0] * 9)},
        handlers={},
        late={0: LatenessReports(6, 3_600_000)},
        settings={"session_timeout_ms": 20_000, "heartbeat_interval_ms": 5_000},
    )


def test_a_thin_journal_makes_a_churn_that_says_what_it_assumes(tmp_path: Path) -> None:
    """Observed values are taken, the rest assumed; the page says which is which and what to collect; tune reads it."""
    found = calibrate(thin(), CHURNS["gc_pauses"], name="shop", session_timeout_ms=20_000, heartbeat_interval_ms=5_000)
    assert found.churn().deploy == "rolling"
    assert found.churn().members == 3
    assert found.basis("members") == "measured"
    assert found.churn().drain_ms == CHURNS["gc_pauses"].drain_ms
    assert found.basis("drain_ms") == found.basis("pause_ms") == "assumed"
    write(found, tmp_path)
    assert "drain_ms is assumed, as in gc_pauses: 9 durations, 30 are needed" in page(found)
    source = find(str(tmp_path))
    assert (source.churn, source.group) == (found.churn(), "g")
    assert source.settings().session_timeout_ms == 20_000
    assert source.bases["drain_ms"] == "assumed"


def test_nothing_is_made_of_nothing() -> None:
    """Events without any member are refused with an explanation."""
    empty = Tallies(windows=[], lives=[], drains={}, handlers={}, late={}, settings={})
    with pytest.raises(NothingToCalibrate, match="right group"):
        calibrate(empty, CHURNS["steady"], name="x", session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS)


def test_settings_of_several_groups_are_those_that_all_have() -> None:
    """Where session timeouts differ, or one group's is unknown, there is no common one for several groups together."""
    told: dict[str, dict[str, int | str]] = {
        "a": {"session_timeout_ms": 20_000, "revocation_timeout_ms": 60_000},
        "b": {"session_timeout_ms": 30_000, "revocation_timeout_ms": 60_000, "gather_ms": 0},
    }
    assert agreed(told, ["a", "b"]) == {"revocation_timeout_ms": 60_000}
    assert agreed(told, ["a"]) == told["a"]
    assert agreed(told, ["a", "b", "silent"]) == agreed({}, []) == {}
