"""Addresses that answer nothing: however many a URL or a cluster names, nobody loses its session over asking them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest
from tests.consumers import until
from tests.faults.proxy import HOST, black_holes
from tests.faults.redis_servers import ask, redis_program, wait_for
from tests.names import unique
from tests.redis_user import PASSWORD, USER, published_user

from cobalance import Group, GroupSettings
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.redis.cluster import ClusterTransport
from cobalance.coordinator.redis.transport import RedisTransport
from cobalance.errors import Unreachable
from cobalance.group.clock import monotonic_ms
from cobalance.servers.ports import free_port
from cobalance.servers.redis import PrivateRedis

pytestmark = pytest.mark.anyio

MANY = 8
SETTINGS = GroupSettings(session_timeout_ms=8_000, heartbeat_interval_ms=500, revocation_timeout_ms=8_000)
"""A call is given 1.3 s. An address that accepts and says nothing once took two of these, and there are many."""


@pytest.fixture
def master() -> Iterator[PrivateRedis]:
    """A cluster's only node."""
    own = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with PrivateRedis(redis_program(), options=(*published_user(), *own)) as node:
        ask(node.port, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_for(lambda: "cluster_state:ok" in ask(node.port, "CLUSTER", "INFO"))
        yield node


@pytest.fixture
def silent(master: PrivateRedis) -> Iterator[list[int]]:
    """The ports of former nodes: they accept, and say nothing."""
    with black_holes(MANY, master.port) as ports:
        yield ports


@contextmanager
def stopped(server: PrivateRedis) -> Iterator[None]:
    """It stands still."""
    server.pause()
    try:
        yield
    finally:
        server.resume()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ports of the nodes that were asked for the layout of the cluster."""
    ports: list[int] = []
    asks = RedisTransport.ask

    def noted(self: RedisTransport, *words: str, doing: str) -> object:
        ports.append(self._source.locate(0).address[1])
        return asks(self, *words, doing=doing)

    monkeypatch.setattr(RedisTransport, "ask", noted)
    return ports


def cluster_url(*ports: int) -> str:
    return f"redis+cluster://{USER}:{PASSWORD}@" + ",".join(f"{HOST}:{port}" for port in ports)


def test_a_call_asks_two_silent_nodes_at_most(master: PrivateRedis, silent: list[int], asked: list[int]) -> None:
    """The one that was right last is among them, so that it is found again as soon as it answers."""
    transport = ClusterTransport(cluster_url(master.port, *silent), call_timeout_ms=20_000)
    coordinator, rounds = Coordinator(transport, unique("group")), list[list[int]]()
    with closing(transport):
        coordinator.create(SETTINGS)
        transport.set_call_timeout(50)
        with stopped(master):
            for _ in range(MANY + 2):
                asked.clear()
                with pytest.raises(Unreachable):
                    coordinator.settings()
                rounds.append(asked[:])
    assert rounds[0] == []  # the call itself was not answered
    assert all(len(it) == 2 and it[1] == master.port for it in rounds[1:])
    assert {it[0] for it in rounds[1:]} == set(silent)


def test_the_listener_tries_silent_nodes_too(master: PrivateRedis, silent: list[int]) -> None:
    """One that answers hints may be gone for good by now, while the others were only out of reach when they were asked. It comes
    at every other turn still, so that no number of silent ones keeps hints away for long.
    """
    transport = ClusterTransport(cluster_url(master.port, *silent), call_timeout_ms=20_000)
    coordinator = Coordinator(transport, unique("group"))
    with closing(transport):
        coordinator.create(SETTINGS)
        transport.set_call_timeout(50)
        with stopped(master):
            for _ in range(1 + MANY):
                with pytest.raises(Unreachable):
                    coordinator.settings()
        while (HOST, master.port) in transport._silent:
            with suppress(Unreachable):
                coordinator.settings()
        tried = [transport.locate(0).address[1] for _ in range(2 * MANY)]
    assert tried.count(master.port) == MANY
    assert set(tried) == {master.port, *silent}


def test_nodes_that_are_gone_are_forgotten(master: PrivateRedis) -> None:
    """Their connections are closed at once. A few addresses are kept, since one may have been away only when it was asked."""
    transport = ClusterTransport(cluster_url(master.port), call_timeout_ms=20_000)
    coordinator, here = Coordinator(transport, unique("group")), (HOST, master.port)
    with closing(transport):
        coordinator.create(SETTINGS)
        gone = [(f"127.0.1.{number}", master.port) for number in range(1, 30)]
        for node in gone:
            slots: list[Any] = [[0, 16383, *([it[0].encode(), it[1]] for it in (here, node))]]
            transport._take_in(slots, here)
            transport._transport(node)
        transport._forget()
        coordinator.settings()
        assert transport._nodes == [here, *gone[-8:]]
        assert transport._transports.keys() == {here}


async def test_a_member_keeps_its_work_while_its_master_stands_still(
    master: PrivateRedis, silent: list[int], asked: list[int]
) -> None:
    """All other addresses are silent. It stands still until it has been asked beside one of them, and then answers in time."""
    name, url = unique("group"), cluster_url(master.port, *silent)
    with closing(ClusterTransport(url, call_timeout_ms=20_000)) as transport:
        Coordinator(transport, name).create(SETTINGS)
    async with Group(name, ["film"], redis_url=url, settings=SETTINGS) as group:
        (tenure,) = await group.wait_held("film")
        lease = group.membership.engine.session.lease
        asked.clear()
        with stopped(master):
            await until(lambda: len(asked) == 2)
        stood_until = monotonic_ms()
        await until(lambda: (lease.until or 0) > stood_until + SETTINGS.session_timeout_ms * 9 // 10)  # a call since
        assert group.tenures["film"] is tenure
        assert not tenure.lost
