"""One Spark session for all tests of a process: starting one costs seconds. It answers Spark Connect clients, too."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis
from tests.names import unique
from tests.redis_user import PASSWORD

from cobalance_sims.spark.session import BRIEF_JAVA, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def connect_port() -> int:
    """The port where the shared session answers Connect clients."""
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
        "spark.driver.extraJavaOptions": BRIEF_JAVA,
    }
    session = open_session("local[2]", config=plugin)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connect_url(spark: "SparkSession", connect_port: int) -> str:
    """The shared session for Connect clients, which are processes of their own."""
    assert spark is not None
    return f"sc://127.0.0.1:{connect_port}"


@pytest.fixture
def admin(redis_admin_url: str) -> Iterator[redis.Redis]:
    """The shared Redis without limits."""
    with redis.Redis.from_url(redis_admin_url) as client:
        yield client


@pytest.fixture
def stem(admin: redis.Redis) -> Iterator[str]:
    """The prefix of the names of this test's groups; all of them are removed afterwards."""
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
