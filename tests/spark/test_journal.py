"""Journals through Spark: in a batch, as a stream over a restart and a SIGKILL, and exported to Parquet."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from pyspark.errors import AnalysisException
from pyspark.sql.functions import spark_partition_id
from tests.redis_user import PASSWORD
from tests.spark.journals import everything_in, export, exported, write

from cobalance.coordinator.keys import journal_key
from cobalance.coordinator.open import open_transport
from cobalance.errors import AuthenticationRefused, UnknownGroup, UsageError
from cobalance.journal import Journal
from cobalance_sims.outcomes.event import of_entry
from cobalance_sims.spark import session
from cobalance_sims.spark.journal_export import exported_there
from cobalance_sims.spark.journal_folder import exported_here, holds_everything
from cobalance_sims.spark.journal_options import JournalOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.campaign


def no_spark(*_: object, **__: object) -> None:
    raise AssertionError("Spark is started")


def test_a_batch_is_what_the_journals_hold(
    spark: SparkSession, admin: redis.Redis, stem: str, address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two groups found by a pattern, in several partitions, match cobalance.journal; no plan holds the password."""
    groups = [f"{stem}-a", f"{stem}-b"]
    for group, count in zip(groups, (70, 30), strict=True):
        write(admin, group, 1, count)
    reader = spark.read.format("cobalance").options(groups=f"{stem}-*", redisUrlFile=address, partitionEntries=20)
    frame = reader.load()
    found = [row.asDict() for row in frame.withColumn("partition", spark_partition_id()).collect()]
    with closing(open_transport(Path(address).read_text())) as transport:
        expected = [of_entry(it, group)._asdict() for group in groups for it in Journal(transport, group).entries()]
    assert len({row.pop("partition") for row in found}) == 4
    found.sort(key=lambda row: (row["run"], row["seq"]))
    assert [{**row, "reason": row["reason"] or ""} for row in found] == expected
    frame.explain(extended=True)
    assert "cobalance" in (plan := capfd.readouterr().out)
    assert PASSWORD not in plan


def test_a_schema_chooses_columns(spark: SparkSession, admin: redis.Redis, stem: str, address: str) -> None:
    """Only these are read. One that there is not, or not of this type, is refused with those that there are."""
    write(admin, stem, 1, 3)
    reader = spark.read.format("cobalance").options(groups=stem, redisUrlFile=address)
    found = reader.schema("kind string, seq bigint").load()
    assert [tuple(row) for row in found.collect()] == [("granted", 1), ("granted", 2), ("granted", 3)]
    for schema in ("colour string", "seq string"):
        with pytest.raises(AnalysisException, match=r"has no column .* it has run string NOT NULL"):
            reader.schema(schema).load().collect()


def test_an_export_goes_on_where_it_stopped(
    spark: SparkSession, admin: redis.Redis, stem: str, address: str, tmp_path: Path
) -> None:
    """A second run takes new entries and groups, and reports trimmed entries; no file holds the password."""
    assert spark is not None
    out, words = tmp_path / "out", ("--group", f"{stem}-*", "--max-entries", "40")
    write(admin, f"{stem}-a", 1, 100)
    assert f"{stem}-a: 100 events" in export(out, address, *words)
    assert len(list((out / "events").iterdir())) >= 2, "the limit of a batch was not kept"
    write(admin, f"{stem}-a", 101, 130)
    write(admin, f"{stem}-b", 1, 20)
    admin.xtrim(journal_key(f"{stem}-a"), maxlen=20, approximate=False)
    said = export(out, address, *words)
    assert f"{stem}-a: 120 events" in said
    assert "MISSING: 101 to 110" in said
    assert exported(out) == {f"{stem}-a": [*range(1, 101), *range(110, 131)], f"{stem}-b": [*range(1, 21)]}
    assert PASSWORD not in everything_in(out)


def test_nothing_new_is_told_without_spark(
    spark: SparkSession, admin: redis.Redis, stem: str, address: str, tmp_path: Path
) -> None:
    """In what a start of Spark alone would take. An unfinished batch and a new entry need Spark again."""
    out, words = tmp_path / "out", ("--group", f"{stem}-*", "--max-entries", "40")
    write(admin, f"{stem}-a", 1, 50)
    write(admin, f"{stem}-b", 6, 30)
    said = export(out, address, *words)
    assert f"{stem}-b: 25 events" in said
    assert "MISSING: 1 to 5" in said
    assert exported_here(out) == exported_there(spark, str(out))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "spark_session", no_spark)
        assert export(out, address, *words) == said
        write(admin, f"{stem}-a", 51, 51)
        with pytest.raises(AssertionError, match="Spark is started"):
            export(out, address, *words)
    assert f"{stem}-a: 51 events" in export(out, address, *words)
    commits = out / "checkpoint" / "commits"
    (commits / str(max(int(file.name) for file in commits.iterdir() if file.name.isdigit()))).unlink()
    known = JournalOptions.read({"groups": f"{stem}-*", "redisUrlFile": address})
    assert not holds_everything(out, known)


def test_what_was_written_is_not_written_again(
    spark: SparkSession, admin: redis.Redis, stem: str, address: str, tmp_path: Path
) -> None:
    """After a crash between a wave and its commit, it is repeated; by then Redis may have trimmed its entries."""
    assert spark is not None
    out, words = tmp_path / "out", ("--group", stem, "--max-entries", "40")
    write(admin, stem, 1, 100)
    export(out, address, *words)
    commits = out / "checkpoint" / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    for file in (commits / str(last), commits / f".{last}.crc"):
        file.unlink()
    admin.xtrim(journal_key(stem), maxlen=1, approximate=False)
    assert f"{stem}: 100 events" in export(out, address, *words)
    assert exported(out) == {stem: [*range(1, 101)]}


def test_what_cannot_be_exported_is_said(
    spark: SparkSession, stem: str, address: str, tmp_path: Path, redis_url: str
) -> None:
    """An unknown group, an unreachable Redis, a missing checkpoint: our messages, without Spark's and the password."""
    assert spark is not None
    with pytest.raises(
        UnknownGroup, match=f"There is no group {stem}-none in this Redis.*exported before is kept"
    ) as refused:
        export(tmp_path / "none", address, "--group", f"{stem}-none")
    assert "Traceback" not in str(refused.value)
    Path(address).write_text(redis_url.replace(PASSWORD, f"{PASSWORD}x"))
    with pytest.raises(AuthenticationRefused, match="refused the user name or password") as denied:
        export(tmp_path / "none", address, "--group", stem)
    shown: list[Any] = [denied.value, denied.value.__cause__]
    assert not any(PASSWORD in str(it) for it in shown)
    (tmp_path / "torn" / "events").mkdir(parents=True)
    with pytest.raises(UsageError, match="holds events but no checkpoint"):
        export(tmp_path / "torn", address, "--group", stem)


@pytest.mark.long_campaign  # each start of Spark's has 10 s, which a busy machine may exceed
def test_following_takes_what_comes_until_ctrl_c(admin: redis.Redis, stem: str, address: str, tmp_path: Path) -> None:
    """Run as people run it: later entries, an end without a traceback, and no password in Spark's most verbose log."""
    write(admin, stem, 1, 30)
    words = ["--out", str(tmp_path / "out"), "--group", stem, "--follow", "--every", "1"]
    words += ["--redis-url-file", address, "--master", "local[1]"]
    arguments = [sys.executable, "-m", "cobalance.cli", "sims", "journal", *words]
    talkative = {**os.environ, "COBALANCE_SPARK_LOG": "info"}
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=talkative
    ) as process:
        assert process.stderr is not None
        said = [*takewhile(lambda line: line != "wave 0 is written\n", process.stderr)]
        write(admin, stem, 31, 40)
        said += takewhile(lambda line: line != "wave 1 is written\n", process.stderr)
        assert process.poll() is None, f"it ended by itself: {said[-9:]}"
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate()
    assert process.returncode == 0, rest
    assert f"{stem}: 40 events" in out
    assert exported(tmp_path / "out") == {stem: [*range(1, 41)]}
    assert "KeyboardInterrupt" not in rest
    assert any(" INFO MicroBatchExecution: " in line for line in said), "Spark logged nothing"
    assert Path(address).read_text() not in "".join([*said, rest])
    assert f":{PASSWORD}@" not in "".join([*said, rest, everything_in(tmp_path / "out")])


def test_a_killed_export_misses_and_repeats_nothing(
    spark: SparkSession, admin: redis.Redis, stem: str, address: str, tmp_path: Path
) -> None:
    """SIGKILL to the process group in the middle of the stream; after the next run every entry is there, once."""
    assert spark is not None
    out = tmp_path / "out"
    write(admin, stem, 1, 600)
    words = [
        "--out",
        str(out),
        "--group",
        stem,
        "--max-entries",
        "50",
        "--redis-url-file",
        address,
        "--master",
        "local[1]",
    ]
    arguments = [sys.executable, "-m", "cobalance.cli", "sims", "journal", *words]
    with subprocess.Popen(arguments, start_new_session=True, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = list(takewhile(lambda line: line != "wave 1 is written\n", process.stderr))
        assert process.poll() is None, f"it ended before it could be killed: {said[-9:]}"
        os.killpg(process.pid, signal.SIGKILL)
    before = sum(map(len, exported(out).values()))
    assert before < 600, "it was over before it could be killed"
    assert f"{stem}: 600 events" in export(out, address, "--group", stem, "--max-entries", "200")
    assert exported(out) == {stem: [*range(1, 601)]}
