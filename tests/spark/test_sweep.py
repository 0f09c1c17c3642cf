"""Sweeps on a local Spark: exact, resumable, and robust against a failing run, a dying worker and a damaged file."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.spark.sweeping import WORDS, check_complete, dying, raising, sweep, tiny

from cobalance.cli.app import run as main
from cobalance.errors import UsageError
from cobalance_sims.simulate.kernel import RowResult, run_row
from cobalance_sims.spark.balance import slots
from cobalance_sims.spark.errors import CorruptParquet, NotASweep, WorkerDied, spark_errors
from cobalance_sims.spark.manifest import Manifest, only_writer
from cobalance_sims.spark.tables import read_sweep

FAILED = 1

pytestmark = [pytest.mark.campaign]


def test_work_is_spread_evenly() -> None:
    """Big runs among small ones: no task is more than a small run away from its share."""
    costs = [1.0] * 90 + [10.0] * 3
    loads = [0.0] * 6
    for cost, slot in zip(costs, slots(costs, cores=2), strict=True):
        loads[slot] += cost
    assert max(loads) - min(loads) <= 1.0
    assert set(slots([1.0, 1.0], cores=8)) == {0, 1}, "no task without a run"


def test_a_sweep_is_exact_and_a_repeated_one_adds_what_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    """All rows are as the kernel makes them; the same grid adds nothing, a larger one only what is new."""
    first = sweep(spark, tmp_path, tiny("1..3"), wave_s=0.2)
    assert (first.made, first.there, first.failed) == (6, 0, [])
    assert len(Manifest(spark, str(tmp_path)).waves()) > 1
    again = sweep(spark, tmp_path, tiny("1..3"))
    assert (again.made, again.there) == (0, 6)
    larger = sweep(spark, tmp_path, tiny("1..4"), events_share=1.0)
    assert (larger.made, larger.there) == (2, 6)
    check_complete(spark, tmp_path, tiny("1..4"))


def test_a_spark_that_keeps_nothing_is_swept_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As serverless ones do: each run is made once all the same, and its results wait in a folder of their own."""

    def refuse(*_: object) -> None:
        raise PySparkException("[NOT_SUPPORTED_WITH_SERVERLESS] PERSIST TABLE is not supported on serverless compute.")

    monkeypatch.setattr(type(spark.range(1)), "persist", refuse)
    counter = tmp_path / "made"

    def counted(params: dict[str, Any]) -> RowResult:
        with counter.open("a") as file:
            file.write("x")
        return run_row(params)

    assert sweep(spark, tmp_path / "out", tiny("1..1"), kernel=counted).made == 2
    assert counter.read_text() == "xx"
    assert list((tmp_path / "out" / "staged").glob("wave=*/*.parquet"))
    check_complete(spark, tmp_path / "out", tiny("1..1"))


def test_a_failing_run_is_told_and_does_not_sink_the_sweep(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its seed and command are named at the end, and again by a command that finds all runs there."""
    done = sweep(spark, tmp_path, tiny("1..2"), kernel=raising(2), events_share=0.0)
    assert (done.made, len(done.failed)) == (4, 2)
    made = read_sweep(spark, str(tmp_path))
    assert {(row.seed, row.status) for row in made.outcomes.collect()} == {(1, "ok"), (2, "failed")}
    assert made.events.count() == 0, "no events were wanted"
    assert main(["sims", "sweep", *WORDS, "--seeds", "1..2", "--out", str(tmp_path)]) == FAILED
    said = capsys.readouterr().out
    assert "0 runs made, 4 were there" in said
    assert "AssertionError: seed 2 broke a promise\nreplay: cobalance sims run --params '{" in said


def test_a_worker_that_dies_costs_one_wave(spark: SparkSession, tmp_path: Path) -> None:
    """What was finished is kept, the error says so, and the same sweep resumes from there."""
    sweep(spark, tmp_path, tiny("1..1"))
    with pytest.raises(WorkerDied, match=r"A worker died while simulating a wave of 2 runs.* kept"):
        sweep(spark, tmp_path, tiny("1..2"), kernel=dying(2))
    rest = sweep(spark, tmp_path, tiny("1..2"))
    assert (rest.made, rest.there) == (2, 2)
    check_complete(spark, tmp_path, tiny("1..2"))


def test_a_damaged_file_is_named_and_its_wave_made_again(spark: SparkSession, tmp_path: Path) -> None:
    """In the manifest and in a table: the error says which folder to remove, and doing so is enough."""
    sweep(spark, tmp_path, tiny("1..1"))
    (wave,) = (tmp_path / "manifest").glob("wave=*")
    for folder in ("outcomes", "manifest"):
        for part in (tmp_path / folder / wave.name).glob("*.parquet"):
            part.write_bytes(b"PAR1 this is not what was written PAR1")
            part.with_name(f".{part.name}.crc").unlink()
        with pytest.raises(CorruptParquet) as refused, spark_errors("counting"):
            read_sweep(spark, str(tmp_path)).outcomes.groupBy("status").count().collect()
        assert f"{tmp_path}/{folder}/{wave.name}/part-" in str(refused.value)
        assert f"Remove {wave} and run the same sweep again" in str(refused.value)
    for file in wave.iterdir():
        file.unlink()
    wave.rmdir()
    assert sweep(spark, tmp_path, tiny("1..1")).made == 2
    check_complete(spark, tmp_path, tiny("1..1"))


def test_a_folder_that_cannot_be_used_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """One of another kind, one that is a file, one in which another sweep is running, one that holds none."""
    spark.range(3).write.parquet(str(tmp_path / "other" / "manifest"))
    with pytest.raises(NotASweep, match="is not a manifest of this version"):
        sweep(spark, tmp_path / "other", tiny())
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written to"):
        sweep(spark, tmp_path / "file", tiny())
    with only_writer(str(tmp_path / "busy")), pytest.raises(UsageError, match="Another command is at work"):
        sweep(spark, tmp_path / "busy", tiny())
    with pytest.raises(NotASweep, match="holds no finished wave"):
        read_sweep(spark, str(tmp_path / "none"))
