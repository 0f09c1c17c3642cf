"""The journals of groups through Spark: in a batch, as a stream over a restart and a SIGKILL, and exported to Parquet."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, redirect_stdout
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis
from pyspark.sql.functions import spark_partition_id
from tests.names import unique
from tests.redis_user import PASSWORD

from cobalance.coordinator.keys import journal_key
from cobalance.coordinator.transport import open_transport
from cobalance.errors import UsageError
from cobalance.journal import Journal
from cobalance_sims.commands import journal as command
from cobalance_sims.outcomes.event import of_entry
from cobalance_sims.spark.journal_export import JournalFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.campaign

START_MS = 1_790_000_000_000
LONG_S = 300
"""A busy machine takes minutes to start Spark, which needs seconds of CPU."""


@pytest.fixture
def admin(redis_admin_url: str) -> Iterator[redis.Redis]:
    """The shared Redis without limits."""
    with redis.Redis.from_url(redis_admin_url) as client:
        yield client


@pytest.fixture
def stem(admin: redis.Redis) -> Iterator[str]:
    """What the names of this test's groups begin with; all of them are removed afterwards."""
    name = unique("orders")
    yield name
    for key in admin.scan_iter(f"cobalance:1:{{{name}*"):
        admin.delete(key)


@pytest.fixture
def address(tmp_path: Path, redis_url: str) -> str:
    """A file with the URL of the published user, who has a password."""
    file = tmp_path / "redis-url"
    file.write_text(redis_url)
    assert PASSWORD in redis_url or "COBALANCE_REDIS_URL" in os.environ
    return str(file)


def write(admin: redis.Redis, group: str, first: int, last: int) -> None:
    """Entries from one seq to another, and what makes it a group."""
    pipeline = admin.pipeline(transaction=False)
    for seq in range(first, last + 1):
        fields: dict[Any, Any] = {
            "seq": seq,
            "kind": "granted",
            "at_ms": START_MS + seq,
            "resource": f"r{seq % 9}",
            "member": "m.1",
            "token": seq,
        }
        pipeline.xadd(journal_key(group), fields, id=f"{START_MS + seq}-0")
    pipeline.hset(f"cobalance:1:{{{group}}}:state", "version", last)
    pipeline.execute()


def export(out: Path, address: str, *words: str) -> str:
    """Runs the command in this process; what it said."""
    said = io.StringIO()
    with redirect_stdout(said):
        assert command.main(["--out", str(out), "--redis-url-file", address, *words]) == 0
    return said.getvalue()


def exported(out: Path) -> dict[str, list[int]]:
    """The seqs of each group that any reader of Parquet finds, in order; read without Spark."""
    import pyarrow.dataset as ds

    found: dict[str, list[int]] = {}
    for row in ds.dataset(out / "events", format="parquet").to_table(columns=["run", "seq"]).to_pylist():
        found.setdefault(row["run"], []).append(row["seq"])
    return {group: sorted(seqs) for group, seqs in found.items()}


def everything_in(folder: Path) -> str:
    """The text of all files that Spark has left there."""
    return "\n".join(file.read_bytes().decode(errors="replace") for file in folder.rglob("*") if file.is_file())


@pytest.mark.timeout(LONG_S)
def test_a_batch_is_what_the_journals_hold(
    spark: SparkSession, admin: redis.Redis, stem: str, address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two groups found by a pattern, in several partitions, are the entries that cobalance.journal reads; no plan holds the password."""
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


@pytest.mark.timeout(LONG_S)
def test_an_export_goes_on_where_it_stopped(
    spark: SparkSession, admin: redis.Redis, stem: str, address: str, tmp_path: Path
) -> None:
    """A second run takes what is new, a new group of the pattern included, and tells of trimmed entries; no file holds the password."""
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


@pytest.mark.timeout(LONG_S)
def test_what_cannot_be_exported_is_said(
    spark: SparkSession, stem: str, address: str, tmp_path: Path, redis_url: str
) -> None:
    """An unknown group, an unreachable Redis and a folder without its checkpoint: our words, without Spark's and the password."""
    assert spark is not None
    with pytest.raises(JournalFailed, match=f"There is no group {stem}-none in this Redis") as refused:
        export(tmp_path / "none", address, "--group", f"{stem}-none")
    assert "Traceback" not in str(refused.value)
    Path(address).write_text(redis_url.replace("redis://", "rediss://") + "?colour=red")
    with pytest.raises(JournalFailed, match="unknown option 'colour'") as refused:
        export(tmp_path / "none", address, "--group", stem)
    shown: list[Any] = [refused.value, refused.value.__cause__]
    assert not any(PASSWORD in str(it) for it in shown)
    (tmp_path / "torn" / "events").mkdir(parents=True)
    with pytest.raises(UsageError, match="holds events but no checkpoint"):
        export(tmp_path / "torn", address, "--group", stem)


@pytest.mark.timeout(LONG_S)
def test_a_killed_export_misses_and_repeats_nothing(
    spark: SparkSession, admin: redis.Redis, stem: str, address: str, tmp_path: Path
) -> None:
    """SIGKILL to the whole process group in the middle of the stream; the next run completes it: every entry is there, and once."""
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
    arguments = [sys.executable, "-m", "cobalance_sims", "journal", *words]
    with subprocess.Popen(arguments, start_new_session=True, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = list(takewhile(lambda line: line != "wave 1 is written\n", process.stderr))
        assert process.poll() is None, f"it ended before it could be killed: {said[-9:]}"
        os.killpg(process.pid, signal.SIGKILL)
    before = sum(map(len, exported(out).values()))
    assert before < 600, "it was over before it could be killed"
    assert f"{stem}: 600 events" in export(out, address, "--group", stem, "--max-entries", "200")
    assert exported(out) == {stem: [*range(1, 601)]}
