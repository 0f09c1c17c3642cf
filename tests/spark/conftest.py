"""One Spark session for all tests of a process: starting one costs seconds. It answers Spark Connect clients, too."""

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from cobalance_sims.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def connect_port() -> int:
    """Where the shared session answers Connect clients."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@pytest.fixture(scope="session")
def spark(connect_port: int) -> Iterator["SparkSession"]:
    """Two cores of this machine. Leave it running, and its settings as they are."""
    plugin = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.port": str(connect_port),
        "spark.sql.artifact.isolation.enabled": "true",
        "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
        "spark.sql.shuffle.partitions": "2",
    }
    session = open_session("local[2]", config=plugin)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connect_url(spark: "SparkSession", connect_port: int) -> str:
    """The shared session for Connect clients, which are processes of their own."""
    assert spark is not None
    return f"sc://127.0.0.1:{connect_port}"
