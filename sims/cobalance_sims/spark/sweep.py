"""A sweep: the missing runs of a grid are simulated wave by wave, each of which is kept as soon as it is finished."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa

from cobalance.errors import counted
from cobalance_sims.simulate.kernel import VERSION
from cobalance_sims.spark.balance import Costs, slots
from cobalance_sims.spark.errors import SparkFailed, spark_errors
from cobalance_sims.spark.grid import Grid, Point
from cobalance_sims.spark.kept import kept
from cobalance_sims.spark.manifest import Manifest, absolute, only_writer, wave_number
from cobalance_sims.spark.simulation import Kernel, simulated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cobalance_sims.spark.progress import SweepProgress

PILOT_S, WAVE_S = 10.0, 120.0
"""Duration of the first wave, which shows what runs cost, and of the others."""

MOST_IN_WAVE = 50_000
GUESS_S = 0.1
"""CPU seconds of a run, until the first wave shows them."""

FILES = 2
"""Files of each table in a wave: a run's rows are in one of them."""


@attrs.frozen
class PlannedRun:
    """One run to be made."""

    id: str
    point: Point
    seed: int


@attrs.frozen
class Done:
    """How a sweep ended."""

    made: int
    there: int
    """Runs that were there already."""
    failed: list[dict[str, Any]]
    """All that failed, now or before, with run, error and replay."""


@attrs.frozen(kw_only=True)
class Sweep:
    """Simulates one grid into one folder."""

    spark: SparkSession
    out: str = attrs.field(converter=absolute)
    events_share: float = 1.0
    """The share of the runs whose events are kept."""
    wave_s: float = WAVE_S
    kernel: Kernel | None = None

    @property
    def manifest(self) -> Manifest:
        """The manifest of the folder."""
        return Manifest(self.spark, self.out)

    def run(self, grid: Grid, display: SweepProgress) -> Done:
        """Makes the missing runs. An error leaves every finished wave; the same call resumes from there.

        Raises:
            UsageError: the folder is in use, or holds something else.
            CorruptParquet, WorkerDied, ClusterUnreachable, SparkFailed: see errors.py.
        """
        with only_writer(self.out):
            runs = [PlannedRun(point.run(seed), point, seed) for point in grid.points for seed in grid.seeds]
            before = self.manifest.runs()
            missing = _shuffled(runs) if before is None else self._missing(runs, before)
            if missing:
                self._note(grid)
            with display.shown(len(missing)):
                failed = self._waves(missing, self._costs(before), display)
            if before is not None:
                failed += self._failed_before({it.id for it in runs} - {it.id for it in missing})
            return Done(len(missing), grid.runs - len(missing), failed)

    def _missing(self, runs: Sequence[PlannedRun], before: DataFrame) -> list[PlannedRun]:
        """The runs that are not done."""
        with spark_errors("reading the manifest"):
            asked = self.spark.createDataFrame(pa.table({"run": [it.id for it in runs]}))
            missing = set(asked.join(before, "run", "left_anti").toArrow()["run"].to_pylist())
        return _shuffled([it for it in runs if it.id in missing])

    def _waves(self, missing: Sequence[PlannedRun], costs: Costs, display: SweepProgress) -> list[dict[str, Any]]:
        """Makes them; returns those that failed."""
        failed: list[dict[str, Any]] = []
        cores, left = core_count(self.spark) if missing else 1, iter(missing)
        while wave := _take(left, costs, cores * (self.wave_s if costs.learnt else min(PILOT_S, self.wave_s))):
            display.begins(len(wave))
            begun = time.monotonic()
            made = self._wave(wave, costs, cores)
            bad = [row for row in made if row["status"] != "ok"]
            display.finished(len(made), len(bad), time.monotonic() - begun)
            failed += bad
            for row in made:
                costs.learn(row["shape"], 1, row["cpu_s"])
        return failed

    def _wave(self, wave: Sequence[PlannedRun], costs: Costs, cores: int) -> list[dict[str, Any]]:
        """Simulates each of its runs once, then writes the tables, and last of all the manifest."""
        number = wave_number()
        rows = [it.point.row(it.seed) for it in wave]
        tasks = slots([costs.expected_s(it.point.shape) for it in wave], cores)
        with spark_errors(f"simulating a wave of {counted(len(wave), 'run')}, wave={number}"):
            simulation = simulated(self.spark, rows, tasks, [self._kept(it) for it in wave], self.kernel)
            with kept(simulation, f"{self.out}/staged/wave={number}") as results:
                made = self._counted(results, wave)
                self._write(results, number, cores)
                self.manifest.commit(number, made)
        return made

    def _counted(self, results: DataFrame, wave: Sequence[PlannedRun]) -> list[dict[str, Any]]:
        """The first pass over the results, which starts the simulation; they stay in place for the second pass."""
        shapes = {it.id: it.point.shape for it in wave}
        columns = [f"outcome.{name}" for name in ("run", "status", "error", "replay")]
        rows = results.select(*columns, results.cost_s.alias("cpu_s")).toArrow().to_pylist()
        if sorted(row["run"] for row in rows) != sorted(shapes):
            raise SparkFailed(
                f"{counted(len(wave), 'run')} asked for, {len(rows):,} came back: nothing of them is kept."
            )
        return [{**row, "shape": shapes[row["run"]]} for row in rows]

    def _write(self, results: DataFrame, number: int, cores: int) -> None:
        tables = {
            "events": results.selectExpr("inline(events)"),
            "handovers": results.selectExpr("inline(handovers)"),
            "outcomes": results.selectExpr("outcome.*"),
        }
        for name, table in tables.items():
            table.coalesce(max(FILES, cores)).write.mode("overwrite").parquet(f"{self.out}/{name}/wave={number}")

    def _kept(self, run: PlannedRun) -> bool:
        return int(run.id[:8], 16) < self.events_share * 2**32

    def _costs(self, before: DataFrame | None) -> Costs:
        costs = Costs(GUESS_S)
        if before is not None:
            with spark_errors("reading the manifest"):
                known = before.groupBy("shape").agg({"*": "count", "cpu_s": "sum"}).toArrow()
            for shape, runs, cpu_s in zip(*(column.to_pylist() for column in known.columns), strict=True):
                costs.learn(shape, runs, cpu_s)
        return costs

    def _failed_before(self, runs: set[str]) -> list[dict[str, Any]]:
        """Only of these runs, although others may share the folder."""
        return [row for row in self.manifest.failed() if row["run"] in runs]

    def _note(self, grid: Grid) -> None:
        with spark_errors("noting the grid"):
            self.manifest.note_grid(
                {
                    "points": [dict(it.params) for it in grid.points],
                    "seeds": list(grid.seeds),
                    "skipped": len(grid.skipped),
                    "cobalance": version("cobalance"),
                    "kernel": VERSION,
                    "begun": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                }
            )


def _shuffled(runs: list[PlannedRun]) -> list[PlannedRun]:
    """A meaningless order, so that each wave has some of everything."""
    random.Random(0).shuffle(runs)
    return runs


def core_count(spark: SparkSession) -> int:
    """How many tasks run at a time. If the master does not say, it is the number of partitions of a plain range."""
    from pyspark.sql import functions as F  # noqa: N812

    with spark_errors("asking how many cores there are"):
        local = re.fullmatch(r"local\[(\d+)\]", spark.conf.get("spark.master", "") or "")
        if local:
            return int(local[1])
        return spark.range(100_000).select(F.spark_partition_id().alias("part")).distinct().count()


def _take(runs: Iterator[PlannedRun], costs: Costs, cpu_s: float) -> list[PlannedRun]:
    """The next runs that cost this much together."""
    found = []
    for run in runs:
        found.append(run)
        cpu_s -= costs.expected_s(run.point.shape)
        if cpu_s <= 0 or len(found) >= MOST_IN_WAVE:
            break
    return found
