"""What few runs can show: bounds that hold, a front that is never empty, and refusals that say what would help."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs
import numpy as np
import pytest
from tests.sims.test_tune import REVOCATION, TODAY, Known, outcome, refused, tuned

from cobalance.settings import GroupSettings
from cobalance_sims import histogram
from cobalance_sims.calibrate.interval import Interval, short
from cobalance_sims.tune import pareto
from cobalance_sims.tune.bootstrap import Draws, Quantile
from cobalance_sims.tune.costs import estimates
from cobalance_sims.tune.preferences import Preferences
from cobalance_sims.tune.trials import Asked, Outcome
from cobalance_sims.tune.tuning import tune
from cobalance_sims.tune.verdict import difference, more_seeds


def quantile_of(runs: list[np.ndarray], share: float = 0.99) -> Quantile:
    """Each value in a column of its own."""
    values = np.unique(np.concatenate(runs))
    counts = np.zeros((len(runs), len(values)))
    for row, run in zip(counts, runs, strict=True):
        row[np.searchsorted(values, run)] = 1
    return Quantile(counts, values, share)


@pytest.mark.parametrize("per_run", [2, 20, 40])
def test_the_bound_of_a_quantile_holds_for_few_durations_too(per_run: int) -> None:
    """The longest of 32 crashes bounds the 99th percentile one time in four: the interval has to reach further."""
    generator, truth, held = np.random.default_rng(8), -math.log(0.01) * 1_000, 0
    for number in range(60):
        found = quantile_of([generator.exponential(1_000, per_run) for _ in range(16)])
        held += found.interval(Draws.of(16, count=100, random_seed=number)).high >= truth
    assert held >= 56


def test_a_quantile_is_not_drawn_down_by_runs_without_any() -> None:
    """One crash in eight runs: draws without that run say nothing about how long healing takes."""
    found = quantile_of([np.array([9.0]), *[np.array([])] * 7]).interval(Draws.of(8))
    assert (found.value, found.low) == (9.0, 9.0)


def healed(seed: int, times: int, ms: int, unhealed_ms: list[int]) -> Outcome:
    """A run in which crashes healed after this many ms, and some had not at its end."""
    rest = {"unhealed": len(unhealed_ms), "unhealed_ms": unhealed_ms}
    return outcome(TODAY, seed, heal_hist={histogram.bin_of(ms): times}, **rest)


def test_healing_that_was_not_seen_to_end_may_have_been_about_to() -> None:
    """Three crashes in a hundred were a second old when their run ended: they say nothing of how long healing takes."""
    found = estimates([healed(seed, 97, 9_000, [1_000] * 3) for seed in range(8)], TODAY)["heal"].interval(Draws.of(8))
    assert (found.value, found.low) == pytest.approx((9.0, 9.0), rel=0.01)
    assert math.isfinite(found.high)


def test_healing_that_takes_longer_than_any_that_ended_is_no_less_than_that() -> None:
    """Three in a hundred had waited for a minute: so long it takes at least, and what the promises allow bounds the rest."""
    found = estimates([healed(seed, 97, 9_000, [60_000] * 3) for seed in range(8)], TODAY)["heal"].interval(Draws.of(8))
    assert found.value == pytest.approx(60.0, rel=0.01)
    assert 60.0 <= found.high * 1.01 < math.inf


@pytest.mark.parametrize("session_ms", [10_000, 60_000])
def test_a_few_crashes_are_bounded_by_what_is_promised(session_ms: int) -> None:
    """Of 24 crashes no rank bounds the 99th percentile: the promise does, which is two session timeouts if Redis is silent
    meanwhile. What is kept for a return may wait for longer: the grace, and a session timeout more for an heir.
    """
    settings = attrs.evolve(TODAY, session_timeout_ms=session_ms, revocation_timeout_ms=session_ms)
    rows = [healed(seed, 3, 5_000, []) for seed in range(8)]
    assert estimates(rows, settings)["heal"].interval(Draws.of(8)).high == pytest.approx(2 * session_ms / 1000)
    kept = estimates([{**row, "inherited": 1} for row in rows], settings)["heal"].interval(Draws.of(8))
    assert kept.high == pytest.approx((3 * session_ms + settings.rejoin_grace_ms) / 1000)


def test_a_front_is_never_empty() -> None:
    """Of three choices each surely beats the next in one cost, and chance hides the rest: the cheapest stays."""
    noise = np.random.default_rng(10).normal(0, 0.6, (3, 3, 500))
    a, b, c = (np.array(row)[:, None] + noise[at] for at, row in enumerate(([0, 1, 2], [2, 0, 1], [1, 2, 0])))
    assert pareto.beats(a, b)
    assert pareto.beats(b, c)
    assert pareto.beats(c, a)
    assert 1 in pareto.front([a, b, c], totals=[3.1, 3.0, 3.2])


def test_a_limit_of_nothing_cannot_be_shown_to_be_kept() -> None:
    """No number of runs without a duplicate rules one out: the message says so, and does not ask for more seeds."""
    verdict = refused(tuned(Known(duplicates=0.0), Preferences({"duplicates": 0.0})))
    assert "--seeds" not in " ".join(verdict.collect)
    assert "give a small number instead of 0" in " ".join(verdict.collect)


def test_a_limit_of_healing_needs_crashes() -> None:
    """Where no run has a crash, more seeds have none either: the message says that the churn lacks them."""

    class Calm(Known):
        def _run(self, settings: GroupSettings, seed: int) -> Outcome:
            return {**super()._run(settings, seed), "heal_hist": {}}

    verdict = refused(tuned(Calm(), Preferences({"heal": 60.0})))
    assert "--seeds" not in " ".join(verdict.collect)
    assert "crashes_per_member_hour" in " ".join(verdict.collect)


def test_keeping_a_limit_may_cost_more_and_the_words_say_so() -> None:
    """At most 30 duplicates a day require a timeout that is dearer than today's: more is never called less."""
    found = tune(
        Limited(),
        GroupSettings(revocation_timeout_ms=200_000),
        REVOCATION,
        Preferences({"duplicates": 100.0}),
        seeds=16,
    )
    assert found.verdict.decision == "change"
    assert "resource-seconds a day more than today's settings" in found.verdict.reasons[-1]
    assert "-" not in found.verdict.reasons[-1].replace("resource-", "")


class Limited(Known):
    """Known costs with less noise."""

    noise: float = 0.01


def test_what_is_not_seen_to_end_is_ranked_by_what_was_seen() -> None:
    """If healing has a weight and never ends within a run, totals stay finite, and nothing is surely better."""

    class Endless(Known):
        def __call__(self, asked: Sequence[Asked]) -> list[Outcome]:
            waits = {"heal_hist": {}, "unhealed": 4, "unhealed_ms": [60_000] * 4}
            return [{**self._run(settings, seed), "draining_resource_ms": 0, "duplicates_at_risk": 0, **waits} for settings, seed in asked]  # fmt: skip

    found = tune(Endless(), TODAY, REVOCATION, Preferences({}, {"heal": 1.0}), seeds=8)
    gain = difference(found.today, found.judged[0], Draws.of(8))
    assert gain.low == pytest.approx(0.0, abs=1e-6)
    assert found.today.total.value < 1_000
    assert found.verdict.decision != "change"


def test_the_number_of_seeds_that_would_do_is_one_that_the_command_takes() -> None:
    """Always a whole number without an exponent. Amounts of some hundred thousand are readable, too."""
    assert more_seeds(999_999) == "Run it with more seeds: --seeds 1000000 would be about enough."
    assert str(Interval(131_950.0, 84_210.0, 187_000.0)) == "132,000 (84,200 to 187,000)"
    assert short(2.5e9) == "2.5e+09"
