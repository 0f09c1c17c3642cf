"""Real servers for the tests. One that cannot be found or started is an error, never a skip."""

import logging
import os
import signal
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import suppress

import pytest
from tests.chromium import find_chromium
from tests.consumers import Place, place
from tests.faults.secured import Secured
from tests.redis_user import as_published_user, published_user

from cobalance import servers
from cobalance.servers.find import find_rabbitmq, find_redis
from cobalance.threads import log_lines


def pytest_configure() -> None:
    """A shell makes background jobs ignore Ctrl-C, and a process passes ignored signals on to its children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs what is marked `both_loops` on asyncio, and for `make thorough` on trio."""
    if "anyio_backend" in metafunc.fixturenames and metafunc.definition.get_closest_marker("both_loops"):
        metafunc.parametrize("anyio_backend", ["asyncio", pytest.param("trio", marks=pytest.mark.thorough)])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that is skipped has failed."""
    report = yield
    if report.skipped:
        report.outcome, report.longrepr = "failed", f"{item.nodeid} was skipped: {report.longrepr}"
    return report


SERVERS = {
    "redis_server",
    "private_redis",
    "rabbitmq_server",
    "private_rabbitmq",
    "secured_rabbitmq",
    "impatient_rabbitmq",
    "chromium",
} | {
    *(
        "client",
        "tls",
        "sentinels",
        "nodes",
        "limited",
        "frugal_rabbitmq",
        "hashing_rabbitmq",
        "strict_rabbitmq",
    )  # of single files
}
ON_SERVERS = {"redis", "cluster", "rabbitmq", "tcp", "unix"}
"""Parameters of tests that run in this process, too."""


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Marks what takes a server, before `-m` is looked at. Then the files that wait most begin, those on servers and on
    Spark, and each kind with the files of most tests, so that short files without a wait are left for the end.
    """
    for item in items:
        given = getattr(item, "callspec", None)
        parameters = {it for it in given.params.values() if isinstance(it, str)} if given else set()
        if ON_SERVERS & parameters or SERVERS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.server)
    yield
    tests = Counter(item.path for item in items)
    waiting = {it.path for it in items if it.get_closest_marker("server") or "spark" in getattr(it, "fixturenames", ())}
    items.sort(key=lambda it: (it.path not in waiting, -tests[it.path], it.path))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Installs what the chosen tests need before the first of them begins: no test's timeout is meant for that."""
    needed = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    with suppress(servers.ServerUnavailable):  # The fixture will report it for each test that needs it.
        if needed & {"redis_server", "private_redis"} and find_redis() is None:
            servers.private_redis().close()
        if (
            needed & {"rabbitmq_server", "private_rabbitmq", "secured_rabbitmq", "impatient_rabbitmq"}
            and find_rabbitmq() is None
        ):
            servers.private_rabbitmq().close()
        if "chromium" in needed:
            find_chromium()


@pytest.fixture
def anyio_backend() -> str:
    """One event loop, unless a test is marked `both_loops`."""
    return "asyncio"


@pytest.fixture(scope="session")
def chromium() -> str:
    """The program of a browser."""
    return find_chromium()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[servers.RedisServer]:
    """The Redis all tests share; a test that stops or empties its server takes `private_redis`."""
    given = os.environ.get("COBALANCE_REDIS_URL")
    server = servers.redis_server() if given else servers.private_redis(published_user())
    yield server
    server.close()


@pytest.fixture(scope="session")
def redis_url(redis_server: servers.RedisServer) -> str:
    """The shared Redis as the user of the README's ACL line, which must do for everything that we do."""
    return as_published_user(redis_server.url)


@pytest.fixture(scope="session")
def redis_admin_url(redis_server: servers.RedisServer) -> str:
    """The same Redis without limits: to inspect, to damage, to clean up."""
    return redis_server.url


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[servers.RabbitMQServer]:
    """The RabbitMQ all tests share, with its management API if we start it; see `private_rabbitmq` for the others."""
    given, often = os.environ.get("COBALANCE_AMQP_URL"), {"collect_statistics_interval": "500"}
    server = servers.rabbitmq_server() if given else servers.private_rabbitmq(management=True, settings=often)
    yield server
    server.close()


@pytest.fixture(scope="session")
def amqp_url(rabbitmq_server: servers.RabbitMQServer) -> str:
    """The URL of the shared RabbitMQ."""
    return rabbitmq_server.url


class Written(pytest.LogCaptureFixture):  # type: ignore[misc]  # it is not meant to have subclasses
    """Waits for what members have logged."""

    @property
    def records(self) -> list[logging.LogRecord]:
        log_lines.flush()
        return super().records

    @property
    def text(self) -> str:
        log_lines.flush()
        return super().text


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Other threads than those that log write the log."""
    caplog.__class__ = Written
    return caplog


@pytest.fixture
def here(amqp_url: str) -> Iterator[Place]:
    """The shared RabbitMQ and a group in memory."""
    with place(amqp_url) as it:
        yield it


@pytest.fixture
def private_redis() -> Iterator[servers.OwnRedis]:
    """A Redis for one test, to stop, freeze, kill or empty. Its URL is an administrator's; see `as_published_user`."""
    server = servers.private_redis(published_user())
    yield server
    server.close()


@pytest.fixture(scope="session")
def private_rabbitmq() -> Iterator[servers.OwnRabbitMQ]:
    """A RabbitMQ for one test at a time, to stop, freeze, kill, starve or add users to; leave it running and as it was."""
    server = servers.private_rabbitmq()
    yield server
    server.close()


@pytest.fixture(scope="module")
def impatient_rabbitmq() -> Iterator[servers.OwnRabbitMQ]:
    """A RabbitMQ with a consumer timeout of two seconds, checked twice a second."""
    server = servers.private_rabbitmq(settings={"consumer_timeout": "2000"})
    server.control("eval", "application:set_env(rabbit, channel_tick_interval, 500).")  # not in rabbitmq.conf
    yield server
    server.close()


@pytest.fixture(scope="session")
def secured_rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A RabbitMQ that also speaks TLS, for tests that need this; see `private_rabbitmq`."""
    made = Secured(tmp_path_factory.mktemp("tls"))
    yield made
    made.server.close()
