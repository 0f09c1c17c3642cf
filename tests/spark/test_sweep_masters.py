"""The same sweep over Spark Connect, on two workers, and on a Spark that is killed: only one URL differs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from pyspark.sql import SparkSession
from tests.faults.eventually import eventually
from tests.spark.sweeping import WORDS, check_complete, sweep, tiny

from cobalance_sims.spark.manifest import Manifest

COMMAND = [sys.executable, "-m", "cobalance.cli", "sims", "sweep", *WORDS]
TIMEOUT_S = 280.0

# Each starts a Spark of its own, which takes a busy machine a minute.
pytestmark = [pytest.mark.long_campaign]


def run(*words: str) -> str:
    """The command's stdout, run as people run it: in a process and a Spark of its own."""
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_over_spark_connect(spark: SparkSession, connect_url: str, tmp_path: Path) -> None:
    """The client has no JVM; the server is given our code."""
    assert "8 runs made, 0 were there" in run("--seeds", "1..4", "--out", str(tmp_path), "--master", connect_url)
    check_complete(spark, tmp_path, tiny())


def test_on_two_workers(spark: SparkSession, tmp_path: Path) -> None:
    """Executors in processes of their own, which are given our code."""
    said = run("--seeds", "1..4", "--out", str(tmp_path), "--master", "local-cluster[2,1,1024]")
    assert "8 runs made, 0 were there" in said
    check_complete(spark, tmp_path, tiny())


def test_a_killed_sweep_goes_on_where_it_was(spark: SparkSession, tmp_path: Path, without_java: dict[str, str]) -> None:
    """SIGKILL in the middle of a wave, on a machine without a Java but the wheel's: nothing is lost or made twice."""
    words = ["--seeds", "1..40", "--wave", "200ms", "--out", str(tmp_path), "--master", "local[1]"]
    with subprocess.Popen([*COMMAND, *words], stderr=subprocess.PIPE, text=True, env=without_java) as killed:
        assert killed.stderr is not None
        try:
            assert any(line.startswith("wave 1:") for line in iter(killed.stderr.readline, ""))
            another = (tmp_path / "events").glob  # being written
            anyio.run(eventually, lambda: len(list(another("wave=*"))) > 1, TIMEOUT_S)
        finally:
            killed.send_signal(signal.SIGKILL)
    done = Manifest(spark, str(tmp_path)).runs()
    assert done is not None
    before = done.count()
    assert 0 < before < 80
    rest = sweep(spark, tmp_path, tiny("1..40"))
    assert (rest.made, rest.there) == (80 - before, before)
    check_complete(spark, tmp_path, tiny("1..40"))


@pytest.fixture
def without_java(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment whose PATH has everything except a Java."""
    folder, names = tmp_path_factory.mktemp("path"), {"java"}
    for place in os.get_exec_path():
        for program in Path(place).glob("*"):
            if program.name not in names:
                names.add(program.name)
                (folder / program.name).symlink_to(program)
    hidden = {name: value for name, value in os.environ.items() if name not in {"JAVA_HOME", "SPARK_LOCAL_IP"}}
    return {**hidden, "PATH": str(folder)}
