"""Make runs: in this process, for few, or on Spark. Both give the same outcomes for the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.errors import counted
from cobalance.settings import GroupSettings
from cobalance_sims.calibrate.drawing import DrawnChurns, churns_of
from cobalance_sims.records import OUTCOME
from cobalance_sims.simulate.churn import Churn
from cobalance_sims.simulate.kernel import run_row
from cobalance_sims.tune.trials import Asked, Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUESS_S = 0.2
"""CPU seconds of a run, before any was made."""

JOB_S = 15.0
"""How long a job takes, about: an interruption loses the one that runs, and each costs Spark about half a second."""


def row_of(churn: Churn, settings: GroupSettings, seed: int) -> dict[str, Any]:
    """The parameters of a run, as the kernel takes them."""
    return {"churn": churn.table(), "seed": seed, "run": f"{churn.name}-{seed}", **attrs.asdict(settings)}


@attrs.frozen
class InProcess:
    """One run after the other."""

    churns: DrawnChurns = attrs.field(converter=churns_of)
    at_once: int = 1

    def __call__(self, asked: Sequence[Asked]) -> list[Outcome]:
        outcomes = (run_row(row_of(self.churns.drawn(seed), settings, seed)).outcome for settings, seed in asked)
        return [dict(zip(OUTCOME.names, outcome, strict=True)) for outcome in outcomes]


@attrs.define
class OnSpark:
    """On the session's Spark, in one job for each request."""

    churns: DrawnChurns = attrs.field(converter=churns_of)
    spark: SparkSession
    _cores: int = attrs.field(default=0, init=False)
    _cost_s: float = attrs.field(default=GUESS_S, init=False)

    @property
    def at_once(self) -> int:
        """As many runs as fill a job."""
        return max(4, int(JOB_S * max(self._cores, 1) / self._cost_s))

    def __call__(self, asked: Sequence[Asked]) -> list[Outcome]:
        from cobalance_sims.spark.balance import slots
        from cobalance_sims.spark.errors import spark_errors
        from cobalance_sims.spark.schemas import maps_read
        from cobalance_sims.spark.simulation import simulated
        from cobalance_sims.spark.sweep import core_count

        self._cores = self._cores or core_count(self.spark)
        rows = [row_of(self.churns.drawn(seed), settings, seed) for settings, seed in asked]
        tasks = slots([self._cost_s] * len(rows), self._cores)
        with spark_errors(f"simulating {counted(len(rows), 'run')}"):
            results = simulated(self.spark, rows, tasks, [False] * len(rows))
            found = results.select("outcome.*").toArrow().to_pylist()
        self._cost_s = sum(row["cpu_s"] or 0.0 for row in found) / max(len(found), 1) or GUESS_S
        return [maps_read(OUTCOME, row) for row in found]
