"""Two Redis masters at once: the effect on an unguarded resource, and how to prevent it.

A master is cut off from its replicas and Sentinels, which appoint another one, while a member still reaches the old
one.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import attrs
import pytest
from tests.faults.eventually import eventually
from tests.faults.redis_servers import Watched, wait_for, watched

from cobalance import Group, Tenure
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.redis.address import RedisAddress
from cobalance.coordinator.redis.sentinel import SentinelSource
from cobalance.coordinator.redis.transport import RedisTransport
from cobalance.coordinator.transport import Transport
from cobalance.settings import GroupSettings

pytestmark = [pytest.mark.anyio, pytest.mark.campaign, pytest.mark.timeout(900)]

SETTINGS = GroupSettings(
    session_timeout_ms=1_500, heartbeat_interval_ms=150, revocation_timeout_ms=3_000, gather_ms=0, rejoin_grace_ms=0
)
NAMES = ("r0", "r1", "r2", "r3")
LAG_S, DOWN_AFTER_MS = 2, 5_000
"""At least three seconds apart: Redis counts whole seconds, and checks once per second."""

CUT_S = 15.0
CAREFUL = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", str(LAG_S))


@attrs.frozen
class BesideTheWire:
    """The Sentinels' master, reached directly: a cut between servers does not affect this connection."""

    sentinels: SentinelSource
    servers: Watched

    @property
    def place(self) -> str:
        return self.sentinels.place

    @property
    def database(self) -> str:
        return self.sentinels.database

    def locate(self, timeout_ms: int) -> RedisAddress:
        """Where the server really is."""
        host, port = self.sentinels.locate(timeout_ms).address
        return self.sentinels.locate(timeout_ms).at(host, self.servers.ports[port])


class Side:
    """A member on one side of the cut, and what it worked when."""

    def __init__(self, name: str, transport: Transport) -> None:
        self.spans: list[tuple[str, float, float]] = []
        self.group = Group(name, NAMES, transport=transport, settings=SETTINGS, work=self.work)

    async def work(self, tenure: Tenure) -> None:
        """Works until it is asked to stop, or has to."""
        begun = time.monotonic()
        try:
            await tenure.wait_draining()
        finally:
            self.spans.append((tenure.resource, begun, time.monotonic()))


def double_work_s(one: Side, other: Side, name: str) -> float:
    """How long both worked a resource."""
    spans, its_spans = ([(begun, end) for it, begun, end in side.spans if it == name] for side in (one, other))
    return sum(
        max(0.0, min(end, its_end) - max(begun, its_begun)) for begun, end in spans for its_begun, its_end in its_spans
    )


@asynccontextmanager
async def sides(servers: Watched) -> AsyncIterator[tuple[Side, Side]]:
    """A member that keeps its connection to the old master, and one on the side of the others; each holds half."""
    name = f"split-{uuid.uuid4().hex[:8]}"
    old = RedisTransport(BesideTheWire(SentinelSource(servers.url), servers))
    new = open_transport(servers.url)
    Coordinator(new, name).create(SETTINGS)
    one, other = Side(name, old), Side(name, new)
    async with one.group, other.group:
        await eventually(lambda: [len(it.group.tenures) for it in (one, other)] == [2, 2])
        yield one, other


async def split(servers: Watched) -> float:
    """Seconds of double work, of the resource with most of it."""
    async with sides(servers) as (one, other):
        master = servers.present_master()
        master.wire.black_hole()
        await anyio.sleep(CUT_S)
        assert servers.present_master() is not master
        master.wire.heal()
        await anyio.to_thread.run_sync(lambda: wait_for(servers.is_whole))
        await eventually(lambda: len(one.group.tenures) + len(other.group.tenures) == len(NAMES))
    return max(double_work_s(one, other, name) for name in NAMES)


async def test_two_masters_let_two_members_work_one_resource() -> None:
    """That is the result without min-replicas-to-write, Redis's default; tokens could not prevent it."""
    with watched(replicas=2, down_after_ms=DOWN_AFTER_MS) as servers:
        double_s = await split(servers)
    print(f"without min-replicas-to-write: {double_s:.1f} s of double work")  # noqa: T201
    assert double_s > 1


async def test_a_master_that_needs_a_replica_does_not() -> None:
    """No resource is worked twice, not for a moment."""
    with watched(replicas=2, down_after_ms=DOWN_AFTER_MS, options=CAREFUL) as servers:
        double_s = await split(servers)
    print(f"with min-replicas-to-write 1: {double_s:.1f} s of double work")  # noqa: T201
    assert double_s == 0
