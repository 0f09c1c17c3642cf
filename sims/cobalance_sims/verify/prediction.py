"""Simulates a calibrated churn as its journal would show it: a churn drawn from the fits for each run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.errors import counted
from cobalance_sims.calibrate.drawing import of_calibration
from cobalance_sims.calibrate.membership import SETTLING_MS
from cobalance_sims.records import OUTCOME
from cobalance_sims.verify.as_journal import Outcome, simulated_journal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cobalance.settings import GroupSettings
    from cobalance_sims.calibrate.calibration import Calibration
    from cobalance_sims.simulate.churn import Churn

MOST_RUNS, LEAST_RUNS = 100, 40
"""What none of a hundred runs shows is beyond 98 of 100 journals."""

EVENTS = 20_000
"""Events of all runs together, about: each costs a millisecond. Longer journals are compared with several runs each."""

LEAST_MS, SHORTEST_MS = 10_000, 120_000
GUESS_S = 0.5
"""CPU seconds of a run."""


def warm_ms(settings: GroupSettings) -> int:
    """How long a group that has just been created is given to settle."""
    return SETTLING_MS + settings.revocation_timeout_ms


def rows(calibration: Calibration, settings: GroupSettings, seen: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Parameters of the runs with which the outcomes of a journal are compared. Each run lasts as long as the journal, or
    as the number of events allows.
    """
    churns = of_calibration(calibration)
    churn = churns.churn
    observed_ms = max(sum(it["observed_ms"] for it in seen), 1)
    events_per_ms = max(sum(it["observed_events"] for it in seen) / observed_ms, 1e-9)
    wanted_ms = max(EVENTS / MOST_RUNS / events_per_ms, SHORTEST_MS, _deploy_ms(churn))
    length_ms = int(max(LEAST_MS, min(observed_ms, wanted_ms)))
    runs = min(max(int(EVENTS / (events_per_ms * length_ms)), LEAST_RUNS), MOST_RUNS)
    return [
        {
            "churn": churns.drawn(seed).changed(length_ms=length_ms + warm_ms(settings)).table(),
            "seed": seed,
            "run": f"{churn.name}-check-{seed}",
            "checks": "none",
            **attrs.asdict(settings),
        }
        for seed in range(runs)
    ]


def _deploy_ms(churn: Churn) -> float:
    """Three times as long as a deploy takes, so that few are cut off by the end of a run."""
    if churn.deploy == "none":
        return 0.0
    one_ms = churn.startup_ms.mean_ms + churn.deploy_pause_ms
    return 3 * one_ms * (1 if churn.deploy == "all_at_once" else churn.members)


def in_process(given: list[dict[str, Any]], settings: GroupSettings) -> list[Outcome]:
    """One run after the other."""
    results = [simulated_journal(row, warm_ms=warm_ms(settings)) for row in given]
    return [dict(zip(OUTCOME.names, it.outcome, strict=True)) for it in results]


def on_spark(spark: SparkSession, given: list[dict[str, Any]], settings: GroupSettings) -> list[Outcome]:
    """All of them, in one job."""
    from cobalance_sims.spark.balance import slots
    from cobalance_sims.spark.errors import spark_errors
    from cobalance_sims.spark.schemas import maps_read
    from cobalance_sims.spark.simulation import simulated
    from cobalance_sims.spark.sweep import core_count

    tasks = slots([GUESS_S] * len(given), core_count(spark))
    kernel = partial(simulated_journal, warm_ms=warm_ms(settings))
    with spark_errors(f"simulating {counted(len(given), 'run')} of the calibrated churn"):
        found = simulated(spark, given, tasks, [False] * len(given), kernel).select("outcome.*")
        return [maps_read(OUTCOME, row) for row in found.toArrow().to_pylist()]
