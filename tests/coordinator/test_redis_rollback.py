"""A Redis that was demoted, overwritten with older data and promoted again: the same process, but another history."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
import redis as redis_py

from cobalance import servers
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.replies import CoordinatorReply
from cobalance.coordinator.requests import Claim, Header, Heartbeat, Join, Request, SetResources, Tick
from cobalance.settings import GroupSettings

SETTINGS = GroupSettings()

Connect = Callable[[], Coordinator]


@pytest.fixture
def connect(private_redis: servers.OwnRedis) -> Iterator[Connect]:
    """Opens another connection to the group."""
    with ExitStack() as stack:
        yield lambda: Coordinator(stack.enter_context(closing(open_transport(private_redis.url))), "g")


def join(coordinator: Coordinator, member: str, **how: Any) -> CoordinatorReply:
    return coordinator.execute(Request(Header(member, 1), Join(settings=SETTINGS, **how)))


def roll_back(admin: redis_py.Redis, backup: dict[Any, Any]) -> None:
    """What a demotion and a promotion leave behind: older data, the previous run id, another replication id."""
    before = admin.info()
    admin.replicaof("127.0.0.1", "1")
    admin.replicaof("NO", "ONE")
    admin.flushall()
    for key, contents in backup.items():
        admin.restore(key, 0, contents)
    after = admin.info()
    assert after["run_id"] == before["run_id"]
    assert after["master_replid"] != before["master_replid"]


@pytest.mark.parametrize("connected", ["after", "before"])
def test_a_newcomer_is_granted_nothing_that_a_forgotten_member_works(
    connect: Connect, admin: redis_py.Redis, connected: str
) -> None:
    """It is the first to call, and cannot know that the data is old, whether its connection is older or newer. The
    member that can know has its connection from before: it is asked to check again, and starts no incarnation of its
    own.
    """
    standby, worker = connect(), connect()
    standby.create(SETTINGS)
    founded = join(standby, "standby", capacity=0)
    declared = SetResources(version=1, digest="d", to="r", names=("r",))
    standby.execute(Request(Header("standby", 2, founded.incarnation), declared))
    backup = {key: admin.dump(key) for key in admin.scan_iter()}
    (held,) = join(worker, "worker").changes
    assert held.kind == "hold"

    coordinator = connect()
    if connected == "before":
        coordinator.settings()
    roll_back(admin, backup)
    newcomer = join(coordinator, "newcomer")
    assert newcomer.changes == ()
    assert newcomer.recovering_ms > 0
    beat = worker.execute(Request(Header("worker", 2, founded.incarnation), Heartbeat()))
    assert (beat.status, beat.incarnation) == ("REJOIN", newcomer.incarnation)
    claimed = join(worker, "worker-2", previous="worker", claims=(Claim("r", held.token),))
    assert claimed.results == ("KEPT",)
    assert claimed.incarnation == newcomer.incarnation


def test_a_repair_ends_although_older_connections_know_the_server_by_another_name(
    connect: Connect, admin: redis_py.Redis
) -> None:
    """A replica was attached, or was gone for an hour, and the replication id changed under open connections."""
    older, names = connect(), tuple(f"r{n:03}" for n in range(200))
    found = join(older, "a", last_page=True)
    declared = SetResources(version=1, digest="d", to=names[-1], names=names)
    older.execute(Request(Header("a", 2, found.incarnation, found.version), declared))
    admin.replicaof("127.0.0.1", "1")
    admin.replicaof("NO", "ONE")
    newer = connect()
    admin.delete("cobalance:1:{g}:names")
    calls = itertools.cycle([newer, older])
    tick = Request(Header("-", 0), Tick())
    assert any(next(calls)._run(tick).status != "REPAIRING" for _ in range(100))
