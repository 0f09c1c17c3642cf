"""Several hosts in a URL, some of which answer nothing."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.faults.proxy import HOST, black_holes
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


def ask(url: str, timeout_ms: int) -> None:
    with connected(url, timeout_ms):
        pass


def connect(url: str, timeout_ms: int) -> None:
    BrokerConnection(url, "shared").connect(timeout_ms)


@pytest.mark.parametrize(("module", "use"), [(admin, ask), (connection, connect)], ids=["ask", "connect"])
def test_the_time_to_connect_is_shared(
    amqp_url: str, monkeypatch: pytest.MonkeyPatch, module: Any, use: Callable[[str, int], None]
) -> None:
    """Who connects says how long that may take, and not how often."""
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
