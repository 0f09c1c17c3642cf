"""Opens a Spark session: here, on a cluster, or over Spark Connect. One URL decides which, never code.

A cluster is configured by its users, so nothing is set for it except what our results depend on. A local session gets
defaults that suit one machine: it talks to itself alone, opens no web page and keeps its logs to itself.
"""

from __future__ import annotations

import os
import re
import socket
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import attrs

from cobalance.errors import UsageError
from cobalance_sims.spark.errors import INSTALL, ClusterUnreachable, SparkMissing, SparkTooOld, spark_errors
from cobalance_sims.spark.java import find_java
from cobalance_sims.spark.worker_python import worker_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
_PORTS = {"sc": 15002, "spark": 7077}
ANSWER_S = 5.0
"""How long a master or Connect server may take to accept a connection."""

ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}
"""For every session, since what we write and say depends on it."""


BRIEF_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that lives for minutes: the better compiler, and a collector with threads of its own, would take more from our
Python workers than they give.
"""


@attrs.frozen
class SparkTarget:
    """Where Spark runs."""

    url: str
    """Empty if it was chosen elsewhere: by spark-submit, or a Spark configuration of the user's."""

    @property
    def connect(self) -> bool:
        """Whether it is reached over Spark Connect, on a running server."""
        return self.url.startswith("sc://")

    @property
    def local(self) -> bool:
        """Whether it runs on this machine alone, in processes of this one."""
        return self.url.startswith("local")

    @property
    def in_driver(self) -> bool:
        """Whether it is one JVM of ours, whose Python workers import what this process imports."""
        return self.local and not self.url.startswith("local-cluster")

    @property
    def name(self) -> str:
        """For people: a Connect URL without its parameters, which may include a token."""
        return self.url.partition(";")[0] or "Spark as it is configured"


@contextmanager
def spark_session(master: str | None = None, *, config: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session for the length of a ``with``. One that runs in this process already is used, and left running.

    Raises:
        SparkMissing, JavaMissing, ClusterUnreachable: there can be none; the message says what to do.
        UsageError: another Spark than the one asked for runs in this process.
    """
    running = _running(master)
    if running is not None:
        yield running
        return
    spark = open_session(master, config=config)
    try:
        yield spark
    finally:
        with spark_errors("stopping it"):
            spark.stop()


def open_session(master: str | None = None, *, config: Mapping[str, str] | None = None) -> SparkSession:
    """Opens a session that the caller stops; see ``spark_session``."""
    builder_of = imported_spark()
    target = find_target(master, os.environ)
    if not target.connect:
        os.environ["JAVA_HOME"] = str(find_java().home)
    _await_answer(target)
    builder = builder_of.builder.appName("cobalance")
    for key, value in {**(_local_defaults() if target.local else {}), **ALWAYS, **(config or {})}.items():
        builder = builder.config(key, value)
    if master:
        os.environ.pop("SPARK_REMOTE", None)  # Spark refuses both, and the argument takes precedence
        os.environ.pop("MASTER", None)
    if target.url and "SPARK_REMOTE" not in os.environ:
        builder = builder.remote(target.url) if target.connect else builder.master(target.url)
    with spark_errors(f"connecting to {target.name}"), warnings.catch_warnings():
        # A Connect server of this process has them already, and rejects them.
        warnings.filterwarnings("ignore", "Failed to set spark", UserWarning)
        spark = builder.getOrCreate()
        if not target.in_driver:
            from cobalance_sims.spark.shipping import ship

            ship(spark)
    return spark


def find_target(master: str | None, environment: Mapping[str, str]) -> SparkTarget:
    """Where Spark runs: as the argument says, else as the environment does, else on all cores of this machine."""
    url = master or environment.get("SPARK_REMOTE") or environment.get("MASTER")
    if url:
        return SparkTarget(url)
    chosen = any(name in environment for name in ("PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR", "SPARK_HOME"))
    return SparkTarget("" if chosen else "local[*]")


def imported_spark() -> type[SparkSession]:
    """PySpark's class of sessions.

    Raises:
        SparkMissing: it, or what it needs of Python's, is not installed.
    """
    try:
        import pandas as pd  # noqa: F401
        import pyarrow as pa  # noqa: F401
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkMissing(f"Spark cannot be loaded ({error}): {INSTALL}") from None
    return SparkSession


STREAMS_SINCE = (4, 2)
"""The first PySpark whose Python sources are given the start of a batch, and how much it may take."""


def check_streams() -> None:
    """Checks that this PySpark can read journals as a stream.

    Raises:
        SparkMissing: there is none.
        SparkTooOld: it cannot; the message says what it can do.
    """
    imported_spark()
    import pyspark

    version = pyspark.__version__
    if tuple(int(word) for word in re.findall(r"\d+", version)[:2]) < STREAMS_SINCE:
        raise SparkTooOld(
            f"Journals are read as a stream, which cobalance sims journal does, too, by PySpark 4.2 or newer, and this is {version}: "
            'update it, or read batches with spark.read.format("cobalance").'
        )


def _running(master: str | None) -> SparkSession | None:
    """The session of this process, if there is one."""
    active = imported_spark().getActiveSession()
    if active is None or not master or master.startswith("sc://"):
        return active
    known = active.conf.get("spark.master", "")
    if known != master:
        raise UsageError(
            f"This process already runs Spark on {known}, so --master {master} cannot be used: leave it out, or stop that one."
        )
    return active


def _local_defaults() -> dict[str, str]:
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    os.environ.setdefault("PYSPARK_PYTHON", worker_python())  # workers would take whatever python3 is on PATH
    logging = Path(__file__).with_name("log4j2.properties")
    return {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()} {BRIEF_JAVA}",
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 1)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _await_answer(target: SparkTarget) -> None:
    """Checks that something listens, since Spark would try for minutes before it says so."""
    scheme, separator, rest = target.url.partition("://")
    if not separator or scheme not in _PORTS:
        return
    problems = [_problem(address, scheme) for address in re.split("[/;]", rest)[0].split(",")]
    if all(problems):
        raise ClusterUnreachable(
            f"Nobody answers at {target.name} ({problems[0]}). Is it running, and are name and port right?"
        )


def _problem(address: str, scheme: str) -> str:
    """Why there is no connection to HOST or HOST:PORT; empty if there is one."""
    parts = urlsplit(f"//{address}")
    try:
        socket.create_connection((parts.hostname or "", parts.port or _PORTS[scheme]), ANSWER_S).close()
    except (OSError, ValueError) as error:
        return str(error) or type(error).__name__
    return ""
