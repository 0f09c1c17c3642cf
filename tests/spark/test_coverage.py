"""The study of coverage in its short form: it runs from a truth to a table, and what it says is not absurd."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cobalance.settings import HOUR_MS
from proof.studies.coverage.command import study
from proof.studies.coverage.judgement import COSTS, Effort
from proof.studies.coverage.table import table
from proof.studies.coverage.truths import Truth, truth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]

EFFORT = Effort(seeds=4, true_runs=4, grid_runs=2, longest_ms=600_000)


def test_truths_are_drawn_from_all_families() -> None:
    """Forty of them have every kind of pause, drain and deploy; each is always the same, and shows something of itself."""
    truths = [truth(number) for number in range(40)]
    families = {it for each in truths for it in each.families}
    pauses = {"no pauses", "lognormal pauses", "uniform pauses"}
    drains = {"lognormal drains", "uniform drains", "bimodal drains"}
    deploys = {f"deploys: {shape}" for shape in ("none", "rolling", "surge", "all_at_once")}
    assert families == pauses | drains | deploys | {"scaled"}
    assert truths == [truth(number) for number in range(40)]


def test_a_truth_is_calibrated_tuned_and_judged(spark: SparkSession) -> None:
    """Two small groups that crash and are deployed: unworked time is predicted within a factor of four, and nothing that is
    recommended costs twice as much as the defaults.
    """
    truths = [
        Truth(number, truth(number).churn.changed(members=3, resources=3, crashes_per_member_hour=6.0), HOUR_MS, ())
        for number in (1, 3)
    ]
    rows = study(spark, truths, EFFORT)
    assert [row["number"] for row in rows] == [1, 3]
    for row in rows:
        assert set(row["costs"]["shipped"]) == set(COSTS)
        told = row["costs"]["shipped"]["unavailable"]
        assert told["said"]["low"] <= told["said"]["value"] <= told["said"]["high"]
        assert told["true"] / 4 < told["said"]["value"] < told["true"] * 4
        assert row["loss"]["share"] < 1.0
    assert "all of these together" in table(rows)
