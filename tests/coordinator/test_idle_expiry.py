"""On real servers, an unused group expires with all its keys, and one with members does not."""

from __future__ import annotations

import time
from collections.abc import Iterator

import anyio
import attrs
import pytest
import redis
from tests.faults.eventually import eventually
from tests.faults.redis_servers import cluster
from tests.names import unique

from cobalance import Group, GroupSettings, Tenure
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.keys import NAMES, group_keys
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.redis.cluster import ClusterTransport
from cobalance.coordinator.redis.transport import RedisTransport
from cobalance.coordinator.requests import Header, Repair, Request
from cobalance.errors import InvalidSettings

pytestmark = pytest.mark.anyio

IDLE_MS = 700
DAY_MS = 86_400_000
SETTINGS = GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=250, rejoin_grace_ms=0, gather_ms=0)
RESOURCES = ["films", "photos"]


@pytest.fixture(scope="module", params=["redis", "cluster"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """As the user published in the README."""
    if request.param == "redis":
        yield str(request.getfixturevalue("redis_url"))
    else:
        with cluster() as nodes:
            yield nodes.url


async def commit_until_revoked(tenure: Tenure) -> None:
    """Each commit writes, and each write exercises a whole script."""
    done = tenure.committed or 0
    while tenure.active:
        done += 1
        await tenure.commit(done)
        await anyio.lowlevel.checkpoint()


@pytest.mark.thorough
async def test_an_idle_group_is_gone_and_a_living_one_stays(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that work for several times as long keep their offsets. The minimum of an hour would be too long here."""
    monkeypatch.setattr("cobalance.settings.HOUR_MS", IDLE_MS)
    name = unique("idle")
    transport = open_transport(url)
    assert isinstance(transport, RedisTransport | ClusterTransport)
    coordinator = Coordinator(transport, name)
    settings = attrs.evolve(SETTINGS, idle_expiry_ms=IDLE_MS)
    coordinator.create(settings)
    until = time.monotonic() + 3 * IDLE_MS / 1000
    async with Group(name, RESOURCES, redis_url=url, settings=settings, work=commit_until_revoked) as first:
        await first.wait_held()
        async with Group(name, RESOURCES, redis_url=url, settings=settings, work=commit_until_revoked) as second:
            await second.wait_held()
            await eventually(lambda: time.monotonic() > until)
            assert all(row.committed for row in coordinator.resources())
    await eventually(lambda: not transport.list_keys(f"*{{{name}}}*"))
    assert name not in transport.list_groups()
    transport.close()


async def test_all_keys_end_at_one_moment(redis_url: str, redis_admin_url: str) -> None:
    """Days away while there is a member, and at the configured time once there is none."""
    name = unique("idle")
    transport = open_transport(redis_url)
    Coordinator(transport, name).create(GroupSettings(idle_expiry_ms=DAY_MS))
    with redis.Redis.from_url(redis_admin_url) as admin:

        def ends() -> set[int]:
            return {int(admin.pexpiretime(key)) for key in group_keys(name) if admin.exists(key)}

        async with Group(name, RESOURCES, redis_url=redis_url) as member:
            await member.wait_held(*RESOURCES)
            await member.commit("films", 7)
            (at,) = ends()
            assert at > time.time() * 1000 + 7 * DAY_MS
        (at,) = ends()
        assert abs(at - time.time() * 1000 - DAY_MS) < 60_000
        Coordinator(transport, name).configure(idle_expiry_ms=0)
        assert ends() == {-1}
        assert len([key for key in group_keys(name) if admin.exists(key)]) < len(NAMES)  # Redis drops empty keys
    transport.close()


async def test_what_an_interrupted_repair_has_made_ends_with_the_rest(redis_url: str, redis_admin_url: str) -> None:
    """Or the next group of that name finds an index of what is gone."""
    name = unique("idle")
    transport = open_transport(redis_url)
    Coordinator(transport, name).create(GroupSettings(idle_expiry_ms=DAY_MS))
    many = [f"film-{number}" for number in range(300)]
    async with Group(name, many, redis_url=redis_url) as member:
        await member.wait_held(*many)
    with redis.Redis.from_url(redis_admin_url) as admin:
        reply = Coordinator(transport, name)._run(Request(Header(member="-", number=0), Repair()))
        assert reply.status == "REPAIRING"
        assert len({int(admin.pexpiretime(key)) for key in group_keys(name) if admin.exists(key)}) == 1
    transport.close()


@pytest.mark.thorough
def test_less_than_an_hour_is_refused() -> None:
    """A deployment that takes a few minutes must not cost the offsets."""
    with pytest.raises(InvalidSettings, match=r"idle_expiry_ms is 60000: give 0, which is never, or .* \(an hour\)"):
        GroupSettings(idle_expiry_ms=60_000)
