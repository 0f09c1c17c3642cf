"""Several hosts in a URL, some of which answer nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.faults.proxy import HOST, FaultProxy, black_holes
from tests.names import unique

from cobalance.errors import Unreachable
from cobalance.rabbitmq.topics import admin
from cobalance.rabbitmq.topics.admin import connected
from cobalance.rabbitmq.wire import connection, hosts
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.parameters import connection_parameters

LIVING = "living"


@pytest.fixture
def url() -> str:
    """Five hosts, that no other test knows."""
    return "amqp://" + ",".join([LIVING, *(unique("silent") for _ in range(4))])


def tried(url: str) -> list[str]:
    """The hosts that were tried until one worked."""
    names: list[str] = []

    def attempt(single: str, _: int) -> None:
        names.append(urlsplit(single).hostname or "")
        if names[-1] != LIVING:
            raise Unreachable("it says nothing")

    hosts.first_that_works(url, attempt, 1_000)
    return names


def test_hosts_that_have_just_failed_come_last(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs the others its timeout once; after a while it is tried as before, so that clients spread."""
    now = [1_000.0]
    monkeypatch.setattr(hosts, "time", SimpleNamespace(monotonic=lambda: now[0]))
    failed: set[str] = set()
    while len(failed) < 4:  # the order is random; the timeout of the test is the limit
        *silent, living = tried(url)
        assert living == LIVING
        assert failed.isdisjoint(silent)
        failed.update(silent)
    assert [tried(url) for _ in range(20)] == 20 * [[LIVING]]
    now[0] += hosts.LATER_S
    while tried(url) == [LIVING]:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Time that passes only in attempts."""
    clock = SimpleNamespace(ms=1_000_000)
    monkeypatch.setattr(hosts, "time", SimpleNamespace(monotonic=lambda: clock.ms / 1000))
    monkeypatch.setattr(hosts, "monotonic_ms", lambda: clock.ms)
    return clock


REFUSES, SILENT = 0, 1 << 30


def calls_until_connected(url: str, needs_ms: Callable[[str], int], clock: SimpleNamespace) -> int:
    """How many calls of five seconds it takes, if a host needs so long; a second passes between them."""

    def attempt(single: str, given_ms: int) -> None:
        needed_ms = needs_ms(urlsplit(single).hostname or "")
        clock.ms += min(needed_ms, given_ms)
        if needed_ms > given_ms or needed_ms == REFUSES:
            raise Unreachable("it does not work")

    for number in range(1, 20):
        until = clock.ms + 5_000
        try:
            hosts.first_that_works(url, attempt, 5_000)
        except Unreachable as error:
            why = str(error)
        else:
            return number
        assert "None of the 5 hosts" in why
        assert clock.ms <= until
        clock.ms += 1_000
    pytest.fail("it never connects")


@pytest.mark.parametrize("slow_ms", [1_900, 4_900])
def test_slow_hosts_are_given_the_time_they_need(url: str, clock: SimpleNamespace, slow_ms: int) -> None:
    """None of them does with its share. They have failed then, and one of them is given the whole time."""
    assert calls_until_connected(url, lambda _: slow_ms, clock) == 2


def test_each_slow_host_has_its_turn(url: str, clock: SimpleNamespace) -> None:
    """Four of the five answer nothing."""
    assert calls_until_connected(url, lambda it: 4_900 if it == LIVING else SILENT, clock) <= 1 + 5


def test_a_slow_host_is_given_the_time_of_those_that_refuse(url: str, clock: SimpleNamespace) -> None:
    """They cost none."""
    assert calls_until_connected(url, lambda it: 4_900 if it == LIVING else REFUSES, clock) <= 2


def ask(url: str, timeout_ms: int) -> None:
    with connected(url, timeout_ms):
        pass


def connect(url: str, timeout_ms: int) -> None:
    connection = BrokerConnection(url, "shared")
    connection.connect(timeout_ms)
    connection.close()


@pytest.mark.parametrize(("module", "use"), [(admin, ask), (connection, connect)], ids=["ask", "connect"])
def test_the_time_to_connect_is_shared(
    amqp_url: str, monkeypatch: pytest.MonkeyPatch, module: Any, use: Callable[[str, int], None]
) -> None:
    """The caller says how long that may take, and not how often."""
    given: list[int] = []

    def noted(url: str, name: str, heartbeat_s: int, timeout_ms: int) -> object:
        given.append(timeout_ms)
        return connection_parameters(url, name, heartbeat_s, timeout_ms)

    monkeypatch.setattr(module, "connection_parameters", noted)
    monkeypatch.setattr(hosts, "LEAST_MS", 10)
    port = urlsplit(amqp_url).port
    assert port is not None
    with black_holes(4, port) as silent:
        url = amqp_url.replace(f"{HOST}:{port}", ",".join(f"{HOST}:{it}" for it in silent))
        with pytest.raises(Unreachable, match="None of the 4 hosts"):
            use(url, 800)
    assert len(given) == 4
    assert 100 < given[0] <= 200
    assert sum(given) <= 800


@pytest.mark.parametrize("use", [ask, connect])
def test_slow_hosts_are_connected_to(
    amqp_url: str, monkeypatch: pytest.MonkeyPatch, use: Callable[[str, int], None]
) -> None:
    """A handshake takes six delays, which is more than a host's share."""
    monkeypatch.setattr(hosts, "LEAST_MS", 10)
    port = urlsplit(amqp_url).port
    assert port is not None
    with ExitStack() as stack:
        slow = [stack.enter_context(FaultProxy(port)) for _ in range(3)]
        for proxy in slow:
            proxy.delay(100)
        url = amqp_url.replace(f"{HOST}:{port}", ",".join(f"{HOST}:{it.port}" for it in slow))
        with pytest.raises(Unreachable, match="None of the 3 hosts"):
            use(url, 1_500)
        for _ in range(5):  # one does, unless this machine is busy
            with suppress(Unreachable):
                return use(url, 1_500)
        pytest.fail("it never connects")
