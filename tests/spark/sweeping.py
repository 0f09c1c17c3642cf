"""Tiny sweeps for the tests: grids, kernels that misbehave, and what has to hold for any finished sweep."""

import io
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console

from cobalance_sims.records import OUTCOME
from cobalance_sims.simulate.kernel import RowResult, run_row
from cobalance_sims.spark.grid import Grid, make_grid
from cobalance_sims.spark.progress import SweepProgress
from cobalance_sims.spark.sweep import Done, Sweep
from cobalance_sims.spark.tables import read_sweep

CHURN = {"base": "crash_loop", "members": [2, 3], "resources": 3, "length": "5s"}
WORDS = ("--base", "crash_loop", "--members", "2", "3", "--resources", "3", "--length", "5s")
"""The same as arguments."""


def tiny(seeds: str = "1..4") -> Grid:
    """Two combinations, a few hundredths of a second for each run."""
    return make_grid({"seeds": seeds, "churn": CHURN})


def sweep(spark: SparkSession, out: Path, grid: Grid, **changes: Any) -> Done:
    """Sweeps into a folder; progress is discarded."""
    return Sweep(spark=spark, out=str(out), **changes).run(grid, SweepProgress(Console(file=io.StringIO())))


def raising(seed: int) -> Callable[[dict[str, Any]], RowResult]:
    """A kernel that fails at one seed."""

    def run(params: dict[str, Any]) -> RowResult:
        if params["seed"] == seed:
            raise AssertionError(f"seed {seed} broke a promise")
        return run_row(params)

    return run


def dying(seed: int) -> Callable[[dict[str, Any]], RowResult]:
    """A kernel whose process dies at one seed."""

    def run(params: dict[str, Any]) -> RowResult:
        if params["seed"] == seed:
            os._exit(7)
        return run_row(params)

    return run


def check_complete(spark: SparkSession, out: Path, grid: Grid) -> None:
    """Each run of the grid is there once and no other, and its rows are those that the kernel makes without Spark."""
    made = read_sweep(spark, str(out))
    asked = sorted(point.run(seed) for point in grid.points for seed in grid.seeds)
    assert sorted(row.run for row in made.outcomes.select("run").collect()) == asked
    for point, seed in ((grid.points[0], grid.seeds[0]), (grid.points[-1], grid.seeds[-1])):
        _check_run(made, point.run(seed))


def _check_run(made: Any, run: str) -> None:
    """Its own parameters give again what was stored."""
    (row,) = made.outcomes.where(made.outcomes.run == run).drop("wave").collect()
    plain = run_row(json.loads(row.params))
    outcome = dict(zip(OUTCOME.names, plain.outcome, strict=True))
    assert {**row.asDict(), "cpu_s": None} == {**outcome, "cpu_s": None}
    for name, expected in (("events", plain.events), ("handovers", plain.handovers)):
        table = getattr(made, name)
        assert _ordered(table.where(table.run == run).drop("wave").collect()) == _ordered(expected)


def _ordered(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in rows), key=repr)
