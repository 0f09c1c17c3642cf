"""``cobalance group repair``, run as people run it, on a real Redis."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

import attrs
import pytest
import redis
from tests.cli_process import Outcome, cobalance
from tests.names import unique
from tests.redis_user import USER, as_published_user

from cobalance import servers
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.keys import NAMES, group_keys
from cobalance.coordinator.requests import Header, Join, Request, SetResources
from cobalance.coordinator.transport import open_transport
from cobalance.errors import ServerError
from cobalance.settings import GroupSettings

SETTINGS = GroupSettings(session_timeout_ms=600_000, revocation_timeout_ms=600_000)


@attrs.frozen
class Place:
    """A group of one member that holds three resources, and who may do anything to it."""

    group: str
    url: str
    admin: redis.Redis
    coordinator: Coordinator

    def cli(self, *words: str) -> Outcome:
        """Runs a command of ``cobalance group`` on it."""
        verb, *rest = words
        return cobalance("group", verb, self.group, *rest, environment={"COBALANCE_REDIS_URL": self.url})

    def key(self, name: str) -> str:
        """Of the group."""
        return group_keys(self.group)[NAMES.index(name)]

    def state(self) -> dict[str, str]:
        """Its totals."""
        found = self.coordinator.state()
        return {name: found[name] for name in ("classes", "total", "owned", "free", "members")}


@pytest.fixture
def place(private_redis: servers.OwnRedis) -> Iterator[Place]:
    """On a Redis of its own, as the published user."""
    url, name = as_published_user(private_redis.url), unique("repair")
    transport = open_transport(url)
    coordinator = Coordinator(transport, name)
    coordinator.create(SETTINGS)
    coordinator.execute(Request(Header("m.1", 1), Join(settings=SETTINGS)))
    incarnation = int(coordinator.state()["incarnation"])
    declared = SetResources(version=1, digest="1", names=("r0", "r1", "r2"))
    coordinator.execute(Request(Header("m.1", 2, incarnation), declared))
    with redis.Redis.from_url(private_redis.url) as admin:
        yield Place(name, url, admin, coordinator)
    transport.close()


def test_what_a_call_left_that_died_is_said_to_be_mended(place: Place) -> None:
    """The permission to write indices is withdrawn while a list is declared, and given back; nobody has called since."""
    before = place.state()
    incarnation = int(place.coordinator.state()["incarnation"])
    place.admin.execute_command("ACL", "SETUSER", USER, "-zadd")  # type: ignore[no-untyped-call]
    with suppress(ServerError):
        more = SetResources(version=2, digest="2", names=("r0", "r1", "r2", "r3"))
        place.coordinator.execute(Request(Header("m.1", 3, incarnation), more))
    place.admin.execute_command("ACL", "SETUSER", USER, "+zadd")  # type: ignore[no-untyped-call]

    mended = place.cli("repair")
    assert (mended.code, mended.err) == (0, "")
    assert mended.out == f"{place.group} is made anew from its records; a call had died half-way and is mended.\n"
    assert place.state() == before
    again = place.cli("repair")
    assert again.out == f"{place.group} is made anew from its records; nothing was out of place.\n"
    kinds = [(it["kind"], it["reason"]) for it in json.loads(place.cli("history", "--json").out)]
    assert [reason.split()[0] for kind, reason in kinds if kind == "repaired"][-3:] == ["torn", "asked", "asked"]


def test_totals_that_were_out_of_place_are_shown(place: Place) -> None:
    """Somebody has written into the group's keys."""
    before = place.state()
    place.admin.hset(place.key("state"), mapping={"total": 9, "classes": "1=4"})
    place.admin.delete(place.key("owned"))
    mended = place.cli("repair")
    assert mended.out.splitlines() == [
        f"{place.group} is made anew from its records; this has changed:",
        "  classes: 1=4 → 1=1",
        "  total: 9 → 3",
        "  owned: 0 → 3",
    ]
    assert place.state() == before


def test_a_group_that_does_not_exist_is_not_made(place: Place) -> None:
    """Nor does anything else change."""
    before = sorted(place.admin.keys("*"))
    found = cobalance("group", "repair", "nosuch", environment={"COBALANCE_REDIS_URL": place.url})
    assert (found.code, found.out) == (1, "")
    assert "group 'nosuch' does not exist in this Redis" in found.err
    assert sorted(place.admin.keys("*")) == before
