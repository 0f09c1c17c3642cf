"""The search, its judgement and its refusals, on costs whose truth is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from cobalance.cli.app import run as main
from cobalance.cli.sims.tune import REFUSED, Wishes
from cobalance.settings import GroupSettings
from cobalance_sims import histogram
from cobalance_sims.simulate.churn import Churn
from cobalance_sims.tune import pareto
from cobalance_sims.tune.axes import Chosen, choose
from cobalance_sims.tune.bootstrap import Draws, Quantile, Ratio
from cobalance_sims.tune.preferences import BadPreference, Preferences, parse
from cobalance_sims.tune.runners import InProcess
from cobalance_sims.tune.source import ChurnSource
from cobalance_sims.tune.space import AXES, coarse_grid, neighbours
from cobalance_sims.tune.trials import Asked, Outcome, RunsFailed
from cobalance_sims.tune.tuning import Tuning, tune
from cobalance_sims.tune.verdict import Verdict
from cobalance_sims.tune.written import as_json, command, page

DAY_MS = 86_400_000
TODAY = GroupSettings()
REVOCATION = Chosen((AXES["revocation_timeout_ms"],), {})


def outcome(settings: GroupSettings, seed: int, **costs: Any) -> Outcome:
    """The outcome of a run of one day."""
    nothing = dict.fromkeys(
        (
            "unavailable_resource_ms",
            "draining_resource_ms",
            "duplicates_at_risk",
            "moves",
            "deadline_moves",
            "false_expiries",
            "unhealed",
        ),
        0,
    )
    return {
        **attrs.asdict(settings),
        "seed": seed,
        "status": "ok",
        "observed_ms": DAY_MS,
        "heal_hist": {},
        **nothing,
        **costs,
    }


@attrs.frozen
class Known:
    """Costs with a known best: drains cost in proportion to the revocation timeout, duplicates fall with it."""

    noise: float = 0.05
    duplicates: float = 1_000.0

    def __call__(self, asked: Sequence[Asked]) -> list[Outcome]:
        """The least of v + 1000·40/v, with v in seconds, is at v = 200."""
        return [self._run(settings, seed) for settings, seed in asked]

    def _run(self, settings: GroupSettings, seed: int) -> Outcome:
        hard = np.random.default_rng(seed).lognormal(0, self.noise)
        timeout_s = settings.revocation_timeout_ms / 1_000
        return outcome(
            settings,
            seed,
            draining_resource_ms=int(timeout_s * 1_000 * hard),
            duplicates_at_risk=int(self.duplicates * 40 / timeout_s * hard),
            heal_hist=histogram.histogram([settings.session_timeout_ms * hard]),
        )


def tuned(runner: Known, preferences: Preferences = Preferences(), *, seeds: int = 16) -> Tuning:  # noqa: B008 -- frozen
    """A search of the revocation timeout."""
    return tune(runner, TODAY, REVOCATION, preferences, seeds=seeds)


def test_the_bootstrap_holds_the_truth_as_often_as_it_says() -> None:
    """Skewed counts of clustered events: of 300 intervals from 24 runs each, about 95 in 100 contain the truth."""
    generator = np.random.default_rng(5)
    held = 0
    for number in range(300):
        bursts = generator.poisson(3, 24)
        amounts = np.array([generator.geometric(0.25, count).sum() for count in bursts], dtype=float)
        held += 12.0 in Ratio(amounts, np.ones(24)).interval(Draws.of(24, count=400, random_seed=number))
    assert 0.92 <= held / 300 <= 0.99


@pytest.mark.thorough
def test_the_bootstrap_of_a_quantile_holds_the_truth() -> None:
    """The 99th percentile of exponential times, from histograms of 24 runs of 200 each."""
    generator, truth, held = np.random.default_rng(6), -np.log(0.01) * 1_000, 0
    for number in range(40):
        runs = [histogram.histogram(generator.exponential(1_000, 200)) for _ in range(24)]
        bins = sorted({bin_ for run in runs for bin_ in run})
        counts = np.array([[run.get(bin_, 0) for bin_ in bins] for run in runs], dtype=float)
        values = np.array([histogram.value_of(bin_) for bin_ in bins])
        found = Quantile(counts, values, 0.99).interval(Draws.of(24, count=200, random_seed=number))
        held += found.low / 1.01 <= truth <= found.high * 1.01
    assert held >= 36


def test_what_never_happened_may_still_happen() -> None:
    """No forced move in ten days means less than 0.37 a day, not none."""
    found = Ratio(np.zeros(10), np.ones(10)).interval(Draws.of(10))
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(0.369, rel=0.01)


def test_the_front_is_blind_to_chance() -> None:
    """B is surely worse than A in one cost, equal in the other, and off; C differs by noise alone, and stays."""
    noise = np.random.default_rng(7).normal(0, 1, (2, 500))
    a = np.vstack((10 + 0.1 * noise[0], 5 + 0.1 * noise[1]))
    b = a + np.array([[3.0], [0.0]])
    c = a + np.array([[0.01], [0.01]]) * noise[::-1]
    assert pareto.front([a, b, c], totals=[15.0, 18.0, 15.0]) == [0, 2]


def test_the_known_best_is_found_and_recommended() -> None:
    """The cheapest is 200 s: the search comes within its finest step, surely better than today's 30 s."""
    found = tuned(Known())
    assert found.verdict.decision == "change"
    assert found.verdict.choice is not None
    assert 140_000 <= found.verdict.choice.settings.revocation_timeout_ms <= 280_000
    assert found.verdict.choice.total.high < found.today.total.low
    words = command("shop", TODAY, found.verdict.choice.settings)
    assert words.startswith("cobalance group configure shop --revocation-timeout ")


def test_the_same_arguments_give_the_same_answer() -> None:
    """To the last digit of every interval."""
    one, other = (as_json(tuned(Known()), churn={}, group="g") for _ in range(2))
    assert json.dumps(one) == json.dumps(other)


def test_a_limit_outweighs_what_is_cheaper() -> None:
    """With at most 100 duplicates a day, 200 s are not enough: 400 s are needed, with room for the interval."""
    choice = tuned(Known(), Preferences({"duplicates": 100.0})).verdict.choice
    assert choice is not None
    assert choice.settings.revocation_timeout_ms > 400_000
    assert choice.costs["duplicates"].high <= 100.0


def refused(found: Tuning) -> Verdict:
    """Returns the verdict, which must be a refusal."""
    assert found.verdict.decision == "refused"
    assert found.verdict.choice is None
    return found.verdict


def test_a_limit_that_no_timeout_can_keep_is_refused() -> None:
    """Healing takes a session timeout, which is not searched: 5 s cannot be had, and the message says so."""
    verdict = refused(tuned(Known(), Preferences({"heal": 5.0})))
    assert "heal: at least" in " ".join(verdict.reasons)
    assert "Raise the limit of heal" in " ".join(verdict.collect)


def test_overlapping_intervals_are_refused() -> None:
    """With runs that differ tenfold and few seeds nothing is sure; the message says how many seeds would do."""
    noisy = tune(_Noisy(), TODAY, REVOCATION, Preferences(), seeds=6)
    verdict = refused(noisy)
    assert "overlap too much" in verdict.reasons[0]
    assert "--seeds" in verdict.collect[0]


class _Noisy(Known):
    """A run's high cost has a different cause for each choice."""

    def _run(self, settings: GroupSettings, seed: int) -> Outcome:
        hard = np.random.default_rng((seed, settings.revocation_timeout_ms)).lognormal(0, 1.5)
        return outcome(settings, seed, draining_resource_ms=int(100_000 * hard))


def test_today_is_kept_where_nothing_is_surely_better() -> None:
    """For costs that no setting changes, no change is recommended."""

    class Flat(Known):
        def _run(self, settings: GroupSettings, seed: int) -> Outcome:
            return outcome(settings, seed, draining_resource_ms=1_000 + seed % 7)

    found = tuned(Flat())
    assert found.verdict.decision == "keep"
    assert found.verdict.choice is found.today


def test_a_setting_that_gains_nothing_stays_as_it_is() -> None:
    """Gathering changes nothing but a little noise: with the revocation timeout it would be changed for nothing."""

    class Irrelevant(Known):
        def _run(self, settings: GroupSettings, seed: int) -> Outcome:
            noise = np.random.default_rng((seed, settings.gather_ms)).normal(0, 0.01)
            found = super()._run(settings, seed)
            return {**found, "draining_resource_ms": int(found["draining_resource_ms"] * (1 + noise))}

    axes = (AXES["revocation_timeout_ms"], AXES["gather_ms"])
    found = tune(Irrelevant(), attrs.evolve(TODAY, gather_ms=700), Chosen(axes, {}), Preferences(), seeds=16)
    assert found.verdict.decision == "change"
    assert found.verdict.choice is not None
    assert found.verdict.choice.settings.gather_ms == 700
    assert found.verdict.choice.settings.revocation_timeout_ms > 100_000


def test_the_trade_is_said_in_words() -> None:
    """Longer timeouts drain for longer, and cost fewer duplicates: both are given in per cent, the worse first."""
    found = tuned(Known())
    longer = found.around.settings.revocation_timeout_ms / TODAY.revocation_timeout_ms
    fewer = f"{1 - 1 / longer:.0%}".replace("%", " %")
    assert found.trade.endswith(f"more draining time, for {fewer} fewer duplicates")
    assert f"{found.trade[0].upper()}{found.trade[1:]}." in page(found, group="shop")


def test_a_refusal_shows_the_best_and_what_it_would_gain() -> None:
    """In the terminal and in the file: its settings, its gain with an interval and in per cent, and the trade."""
    found = tuned(Known(), Preferences({"heal": 5.0}))
    refused(found)
    told, written = page(found, group="shop"), as_json(found, churn={}, group="shop")
    assert "The best that was found (revocation_timeout_ms " in told
    assert "resource-seconds a day less" in told
    assert "fewer duplicates" in told
    assert "unbounded" not in told.split("SETTING")[0]
    assert written["best"]["settings"]["revocation_timeout_ms"] > 100_000
    assert written["gain"]["low"] > 0


def test_assumed_messages_stay_out_of_the_total() -> None:
    """A plain group has no messages: their duplicates count only if they are asked for."""
    plain = ChurnSource(churn=Churn(), bases={"messages_per_s": "assumed", "handle_ms": "assumed"})
    assert Wishes().preferences(plain).weight("duplicates") == 0
    assert Wishes(weight=("duplicates=2",)).preferences(plain).weight("duplicates") == 2
    assert Wishes(max_duplicates_per_day=5).preferences(plain).weight("duplicates") == 1
    assert Wishes().preferences(ChurnSource(churn=Churn())).weight("duplicates") == 1


def test_failed_runs_end_the_search_with_a_replay_command() -> None:
    """Where many runs break a promise, no figure is drawn from any."""

    class Broken(Known):
        def _run(self, settings: GroupSettings, seed: int) -> Outcome:
            return {**super()._run(settings, seed), "status": "failed", "error": "S1", "replay": "cobalance sims run …"}

    with pytest.raises(RunsFailed, match=r"S1.*cobalance sims run"):
        tuned(Broken())


def test_the_grid_and_its_neighbours_hold_no_contradiction() -> None:
    """Every choice is a set of valid settings; a longer session takes the revocation timeout along."""
    axes = list(AXES.values())
    assert len(coarse_grid(TODAY, axes)) > 50
    tight = GroupSettings(session_timeout_ms=10_000, revocation_timeout_ms=10_000)
    longer = [it for it in neighbours(tight, axes, 2.0) if it.session_timeout_ms == 20_000]
    assert [it.revocation_timeout_ms for it in longer] == [20_000]


def test_each_setting_is_varied_to_both_sides() -> None:
    """A session of four times its length contradicts the revocation timeout: the nearest that does not is taken."""
    today = attrs.evolve(TODAY, session_timeout_ms=10_000, revocation_timeout_ms=15_000)
    found = tune(Known(), today, Chosen((AXES["session_timeout_ms"],), {}), Preferences(), seeds=4)
    around = found.around.settings
    values = [it.value for it in found.varied]
    assert min(values) < around.session_timeout_ms < max(values)
    assert around.revocation_timeout_ms * 0.98 <= max(values) <= around.revocation_timeout_ms


def test_what_the_journal_does_not_tell_is_not_searched() -> None:
    """Pauses that had to be assumed exclude session and heartbeat, with the reason; asking for them overrules that."""
    source = ChurnSource(
        churn=Churn(), bases={"pause_ms": "assumed"}, notes={"pause_ms": "0 late heartbeats: 5 are needed"}
    )
    chosen = choose(source)
    assert [axis.name for axis in chosen.axes] == ["revocation_timeout_ms", "gather_ms"]
    assert "5 are needed" in chosen.left["session_timeout_ms"]
    assert [axis.name for axis in choose(source, ["session-timeout"]).axes] == ["session_timeout_ms"]


def test_bad_preferences_are_refused_in_words() -> None:
    """An unknown cost, a negative limit, no number, and nothing to go by."""
    for limits in ({"happiness": 1.0}, {"moves": -1.0}):
        with pytest.raises(BadPreference):
            Preferences(limits)
    with pytest.raises(BadPreference, match="NAME=NUMBER"):
        parse(["moves:5"], "limit")
    with pytest.raises(BadPreference, match="All weights are 0"):
        Preferences({}, dict.fromkeys(("unavailable", "draining", "duplicates", "moves", "heartbeats"), 0.0))


DEPLOYS = Churn(
    name="known", members=3, resources=6, length_ms=300_000, deploy="rolling", deploy_every_ms=150_000, drain_ms="uniform:1000:5000", messages_per_s=20.0
)  # fmt: skip
"""Drains never take more than five seconds."""


@pytest.mark.thorough
def test_real_runs_are_given_the_time_that_their_drains_take() -> None:
    """A deadline of three seconds cuts drains of up to five short; one above five costs no message."""
    today = GroupSettings(
        session_timeout_ms=3_000, heartbeat_interval_ms=1_000, revocation_timeout_ms=3_000, gather_ms=0
    )
    axis = attrs.evolve(AXES["revocation_timeout_ms"], least=3_000, greatest=20_000, coarse=(3_000, 10_000))
    found = tune(
        InProcess(DEPLOYS), today, Chosen((axis,), {}), Preferences({"duplicates": 500.0}), seeds=4, tolerance=0.5
    )
    assert found.verdict.decision == "change"
    assert found.verdict.choice is not None
    assert found.verdict.choice.settings.revocation_timeout_ms > 5_000
    assert found.verdict.choice.costs["duplicates"].value == found.verdict.choice.costs["forced"].value == 0
    assert found.today.costs["duplicates"].low > 500


@pytest.mark.thorough
def test_the_command_refuses_with_an_exit_code_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A limit that cannot be kept: exit code 5, reasons on the page, and all in the file that the report reads."""
    (tmp_path / "churn.json").write_text(
        json.dumps({**DEPLOYS.table(), "length_ms": 60_000, "deploy_every_ms": 30_000})
    )
    words = [
        "--churn",
        str(tmp_path / "churn.json"),
        "--out",
        str(tmp_path / "tune.json"),
        "--in-process",
        "--seeds",
        "4",
    ]
    code = main(["sims", "tune", *words, "--search", "gather", "--limit", "moves=0.5", "--today", "gather=0s"])
    assert code == REFUSED
    assert "moves: at least" in capsys.readouterr().out
    found = json.loads((tmp_path / "tune.json").read_text())
    assert (found["decision"], found["recommended"], found["command"]) == ("refused", None, "")
    assert found["sensitivity"][0]["setting"] == "gather_ms"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--churn", "nowhere"], "There is no churn 'nowhere'"),
        (["--churn", "steady", "--seeds", "2"], "at least 4 --seeds"),
        (["--churn", "steady", "--limit", "joy=1"], "There is no cost 'joy'"),
        (["--churn", "steady", "--search", "luck"], "'luck' cannot be searched"),
        (["--churn", "steady", "--today", "session=soon"], "there is no setting"),
        (["--churn", "steady", "--redis-url", "redis://127.0.0.1:1/0"], "needs --group"),
    ],
)
def test_wrong_usage_is_told_before_anything_runs(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and what to give instead."""
    assert main(["sims", "tune", *words, "--in-process"]) == 2
    assert said in capsys.readouterr().err
