"""Where a session runs, how it is configured, what it ships, and the message when there can be none."""

import argparse
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cobalance.cli.app import run as main
from cobalance.cli.sims.spark_options import SparkOptions
from cobalance.errors import UsageError
from cobalance_sims.spark.errors import ClusterUnreachable, SparkMissing, translated
from cobalance_sims.spark.session import SparkTarget, find_target, spark_session
from cobalance_sims.spark.shipping import packed

pytestmark = [pytest.mark.campaign]

FROM_ZIP = """\
import sys
sys.path.insert(0, sys.argv[1])
import cobalance, cobalance_sims
from cobalance_sims.simulate.kernel import run_row
assert all(it.__file__.startswith(sys.argv[1]) for it in (cobalance, cobalance_sims))
run_row({"churn": "steady", "members": 2, "resources": 2, "length_ms": 1_000, "run": "zip"})
"""


@pytest.mark.parametrize(
    ("master", "environment", "url"),
    [
        (None, {}, "local[*]"),
        (None, {"SPARK_REMOTE": "sc://host"}, "sc://host"),
        ("spark://host:7077", {"SPARK_REMOTE": "sc://host"}, "spark://host:7077"),
        (None, {"MASTER": "local[3]"}, "local[3]"),
        (None, {"PYSPARK_GATEWAY_PORT": "1"}, ""),
        (None, {"SPARK_CONF_DIR": "/etc/spark"}, ""),
    ],
)
def test_one_url_says_where(master: str | None, environment: dict[str, str], url: str) -> None:
    """The argument, else the environment, else spark-submit or a configuration of the user's, else this machine."""
    assert find_target(master, environment) == SparkTarget(url)


def test_a_local_session_talks_to_itself_alone(spark: SparkSession) -> None:
    """It listens on the loopback address, opens no web page, and counts time in UTC."""
    names = ("driver.host", "driver.bindAddress", "connect.grpc.binding.address", "ui.enabled", "sql.session.timeZone")
    assert [spark.conf.get(f"spark.{name}") for name in names] == ["127.0.0.1"] * 3 + ["false", "UTC"]


def test_a_session_that_runs_already_is_used_and_left_running(spark: SparkSession) -> None:
    """The code that started it may still need it. Another master is not possible beside it."""
    with spark_session() as used:
        assert used is spark
    assert spark.range(3).count() == 3
    with pytest.raises(UsageError, match=r"already runs Spark on local\[2\]"), spark_session("local[7]"):
        pass


@pytest.mark.parametrize("url", ["spark://127.0.0.1:{port}", "sc://127.0.0.1:{port}/;token=s3cret"])
def test_nobody_at_the_url_is_said_at_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would try for minutes. No token of a Connect URL is shown."""
    monkeypatch.setattr("cobalance_sims.spark.session._running", lambda _: None)
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr("cobalance_sims.spark.session.find_java", lambda: argparse.Namespace(home=""))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # without listening
        named = url.format(port=taken.getsockname()[1])
        with pytest.raises(ClusterUnreachable, match="Nobody answers at") as refused, spark_session(named):
            pass
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "command",
    ["sweep", "journal --group g", "calibrate events", "tune --churn steady"],
    ids=lambda it: it.split()[0],
)
def test_without_spark_it_is_said_what_to_install(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever a command reads, and before it is read."""
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    assert main(["sims", *command.split(), "--out", str(tmp_path / "out")]) == 1
    assert "pip install 'cobalance[spark]'" in capsys.readouterr().err


def test_options_of_spark_are_checked() -> None:
    """A word that is not a KEY=VALUE for Spark."""
    with pytest.raises(UsageError, match="give KEY=VALUE"), SparkOptions(conf=("driver.memory=4g",)).session():
        pass


def test_what_is_sent_to_workers_runs_from_the_zip(tmp_path: Path) -> None:
    """Python and Lua, the same bytes each time: a worker needs nothing of ours installed."""
    file = tmp_path / "code.zip"
    file.write_bytes(packed())
    assert packed() == file.read_bytes()
    subprocess.run([sys.executable, "-c", FROM_ZIP, str(file)], check=True, cwd=tmp_path)


def test_what_a_worker_lacks_is_named(spark: SparkSession) -> None:
    """A module that is not installed there, found out by a real worker."""

    def lacking() -> None:
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401

    from pyspark.sql.functions import udf

    with pytest.raises(Exception, match="no_such_module") as failed:
        spark.range(1).select(udf(lambda _: lacking())("id")).collect()
    clear = translated(failed.value, "testing")
    assert isinstance(clear, SparkMissing)
    assert "has no module 'no_such_module' (while testing): pip install 'cobalance[spark]' on every node" in str(clear)
