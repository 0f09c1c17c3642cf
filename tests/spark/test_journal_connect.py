"""Journals over Spark Connect: the client has no JVM; the server has Cobalance, and Redis's URL in a file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from tests.spark.journals import everything_in, exported, write

# Each client is a process of its own, and so is each stream at the server.
pytestmark = [pytest.mark.long_campaign]

BATCH = """\
import json, sys
from cobalance_sims.spark.session import spark_session
master, group, address = sys.argv[1:]
with spark_session(master) as spark:
    frame = spark.read.format("cobalance").options(groups=group, redisUrlFile=address, partitionEntries=20).load()
    frame.explain(extended=True)
    print(json.dumps(sorted(frame.select("seq").toArrow()["seq"].to_pylist())))
"""


def run(*words: str, code: int = 0) -> str:
    """The stdout of a client, or the stderr if it has to fail."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def test_a_batch(connect_url: str, admin: redis.Redis, stem: str, address: str) -> None:
    """All entries, in several partitions; the plan, which the client shows, has no password."""
    write(admin, stem, 1, 70)
    said = run("-c", BATCH, connect_url, stem, address)
    assert json.loads(said.splitlines()[-1]) == [*range(1, 71)]
    assert Path(address).read_text() not in said


def test_an_export(connect_url: str, admin: redis.Redis, stem: str, address: str, tmp_path: Path) -> None:
    """Written by the server, from where the last one stopped. An error comes back in our words."""
    out = tmp_path / "out"
    words = ["-m", "cobalance.cli", "sims", "journal", "--master", connect_url]
    words += ["--out", str(out), "--redis-url-file", address]
    write(admin, stem, 1, 70)
    assert f"{stem}: 70 events" in run(*words, "--group", stem, "--max-entries", "40")
    write(admin, stem, 71, 90)
    assert f"{stem}: 90 events" in run(*words, "--group", stem)
    assert exported(out) == {stem: [*range(1, 91)]}
    assert Path(address).read_text() not in everything_in(out)
    said = run(*words, "--group", f"{stem}-none", code=1)
    assert f"UnknownGroup: There is no group {stem}-none in this Redis" in said.splitlines()[-1]
