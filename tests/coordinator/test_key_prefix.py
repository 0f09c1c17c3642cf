"""Two environments on one Redis: groups under different key prefixes are unrelated."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import anyio.lowlevel
import pytest
import redis
from tests.names import unique
from tests.project.test_readme import acl_rules

from cobalance import BlockingGroup, Group, GroupSettings
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.errors import PermissionMissing, UsageError
from cobalance.journal import Journal

pytestmark = pytest.mark.anyio

SETTINGS = GroupSettings(session_timeout_ms=60_000, heartbeat_interval_ms=20_000, revocation_timeout_ms=60_000)
"""Heartbeats are too rare to bring news in time, so hints have to."""

NAMES = ["films", "photos"]


@pytest.fixture
def staging(redis_admin_url: str) -> Iterator[tuple[str, str]]:
    """A prefix, and a URL whose user may use nothing but keys with it."""
    prefix = unique("staging")
    rules = " ".join(acl_rules(prefix, "p4ss")).replace("cobalance:*", f"{prefix}:*").split()
    with redis.Redis.from_url(redis_admin_url) as admin:
        admin.execute_command(*rules)
        yield prefix, redis_admin_url.replace("redis://", f"redis://{prefix}:p4ss@")
        admin.acl_deluser(prefix)


def _create(url: str, name: str, prefix: str = "cobalance") -> None:
    transport = open_transport(url)
    Coordinator(transport, name, key_prefix=prefix).create(SETTINGS)
    transport.close()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_two_environments_share_a_redis(redis_url: str, staging: tuple[str, str]) -> None:
    """Groups of the same name, one per environment: each has all resources, its own offsets, hints, members and
    journal.
    """
    name, (prefix, staging_url) = unique("copies"), staging
    _create(redis_url, name)
    _create(staging_url, name, prefix)
    with anyio.fail_after(60):
        async with (
            Group(name, NAMES, redis_url=redis_url) as production,
            Group(name, NAMES, redis_url=staging_url, key_prefix=prefix) as first,
        ):
            await production.wait_held(*NAMES)
            await first.wait_held(*NAMES)
            await first.commit("films", 7)
            async with Group(name, NAMES, redis_url=staging_url, key_prefix=prefix) as second:
                while not (len(first.tenures) == len(second.tenures) == 1):
                    await anyio.lowlevel.checkpoint()
                assert len(production.tenures) == 2
    offsets = {}
    for url, its in ((redis_url, "cobalance"), (staging_url, prefix)):
        transport = open_transport(url)
        assert (name in transport.list_groups(its)) is True
        offsets[its] = next(Coordinator(transport, name, key_prefix=its).resources()).committed
        kinds = [entry.kind for entry in Journal(transport, name, key_prefix=its).entries()]
        assert kinds.count("joined") == (1 if its == "cobalance" else 2)
        transport.close()
    assert offsets == {"cobalance": None, prefix: 7}


def test_a_list_names_the_groups_of_one_prefix(redis_url: str) -> None:
    """Also in memory."""
    name = unique("copies")
    for url in (f"memory://{name}", redis_url):
        transport = open_transport(url)
        Coordinator(transport, name, key_prefix="cobalance").create(SETTINGS)
        assert name in transport.list_groups()
        assert name not in transport.list_groups("cobalance:other")
        transport.close()


def test_a_user_of_one_environment_cannot_touch_the_other(staging: tuple[str, str]) -> None:
    """The message names the keys."""
    _, url = staging
    with pytest.raises(PermissionMissing, match=r"cobalance:\*, or those of your key prefix"):
        _create(url, unique("copies"))


def test_a_prefix_is_a_name() -> None:
    """Braces would put a group's keys into different slots of a cluster, and a star would match those of others."""
    for make in (Group, BlockingGroup):
        with pytest.raises(UsageError, match="key prefix"):
            make("copies", NAMES, key_prefix="{x}*")
