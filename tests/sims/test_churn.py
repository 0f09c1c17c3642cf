"""Churn and distributions as data."""

from __future__ import annotations

import json
from random import Random
from statistics import median
from typing import Any

import pytest

from cobalance.settings import GroupSettings
from cobalance_sims.outcomes import Event
from cobalance_sims.records import OUTCOME
from cobalance_sims.simulate.churn import CHURNS, BadChurn, Churn
from cobalance_sims.simulate.distributions import BadDistribution, empirical, parse
from cobalance_sims.simulate.idle import Idle
from cobalance_sims.simulate.kernel import run_row

FORMS = ["constant:40", "uniform:5:60", "exponential:500", "lognormal:200:1", "empirical:0,12,30,80,2000"]


@pytest.mark.parametrize("text", FORMS)
def test_a_distribution_is_what_its_text_says(text: str) -> None:
    """It equals the one parsed from its own text, and its samples lie where its quantiles say."""
    distribution, random = parse(text), Random(1)
    assert distribution.text == text
    assert parse(distribution.text) == distribution
    samples = [distribution.sample(random) for _ in range(4_000)]
    assert median(samples) == pytest.approx(distribution.quantile(0.5), rel=0.1, abs=1)
    assert sum(samples) / len(samples) == pytest.approx(distribution.mean_ms, rel=0.1, abs=1)


def test_what_was_observed_is_a_distribution() -> None:
    """Its quantiles are those of the samples."""
    it = empirical([float(ms) for ms in range(1_001)])
    assert it.quantile(0.25) == pytest.approx(250)
    assert it.quantile(1.0) == 1_000


@pytest.mark.parametrize(
    "text", ["lognormal:200", "normal:1:2", "uniform:9:3", "constant:-1", "empirical:5", "exponential:x"]
)
def test_a_distribution_that_is_none_is_refused(text: str) -> None:
    """The message says what would be valid."""
    with pytest.raises(BadDistribution):
        parse(text)


@pytest.mark.parametrize("name", CHURNS)
def test_a_churn_survives_being_written_down(name: str) -> None:
    """As TOML and JSON carry it, and calibration writes it."""
    churn = CHURNS[name]
    assert Churn.of(json.loads(json.dumps(churn.table()))) == churn
    assert churn.scenario(GroupSettings()).skips_idle


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"member": 4}, "a churn has no member"),
        ({"members": 0}, "members is 0"),
        ({"members": 2.5}, "members is 2.5"),
        ({"crashes_per_member_hour": -1}, "crashes_per_member_hour is -1"),
        ({"deploy": "canary"}, "deploy is 'canary'"),
        ({"deploy": "surge", "instances": True}, "one instance id"),
        ({"least_members": 9}, "least_members (9)"),
        ({"capacities": []}, "capacities is ()"),
        ({"base": "quiet"}, "no churn 'quiet'"),
        ({"instances": "yes"}, "instances is 'yes'"),
        ({"capacities": 5}, "capacities is 5"),
        ({"base": ["steady"]}, "a churn is ['steady']"),
    ],
)
def test_an_impossible_churn_is_refused(table: dict[str, object], says: str) -> None:
    """Each message names the parameter."""
    with pytest.raises(BadChurn) as refusal:
        Churn.of(table)
    assert says in str(refusal.value)


def test_leaving_out_idle_time_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the timing of heartbeats does not matter, the story is the same with and without idle time, to the ms."""
    params = {
        "churn": "autoscaled",
        "seed": 6,
        "length_ms": 900_000,
        "deploy": "rolling",
        "deploy_every_ms": 400_000,
        "latency_ms": "constant:2",
    }
    skipped = run_row(params)
    monkeypatch.setattr(Idle, "_is_stationary", lambda _: False)
    whole = run_row(params)
    assert len(skipped.events) > 150
    assert list(map(_but_what_differs, skipped.events)) == list(map(_but_what_differs, whole.events))


def _but_what_differs(event: Event) -> Event:
    """Tokens count the microseconds of the simulated server, which lived less long; fewer heartbeats are late."""
    return event._replace(token=None, handover_id=None, late_ms=None)


def test_an_expiry_is_found_as_late_with_and_without_idle_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaving out idle time makes no session longer or shorter than it can be."""
    params = {"churn": {"crashes_per_member_hour": 20, "length_ms": 300_000}, "members": 4, "resources": 4, "seed": 3}
    params |= {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 3_000}
    heals = [*_heals(run_row(params).outcome)]
    monkeypatch.setattr(Idle, "_is_stationary", lambda _: False)
    heals += _heals(run_row(params).outcome)
    assert len(heals) > 4
    assert all(10_000 - 3_000 - 100 <= ms <= 10_000 + 3_000 for ms in heals)


def _heals(outcome: tuple[Any, ...]) -> list[int]:
    return list(outcome[OUTCOME.names.index("heal_ms")])
