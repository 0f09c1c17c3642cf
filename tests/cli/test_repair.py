"""``cobalance group repair``, run as users run it, on a real Redis."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import attrs
import pytest
import redis
from tests.cli_process import Outcome, cobalance
from tests.names import unique
from tests.redis_user import USER, as_published_user

from cobalance import servers
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.keys import group_keys
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.requests import Header, Heartbeat, Join, Request, SetResources
from cobalance.errors import ScriptFailed, ServerError
from cobalance.settings import GroupSettings

SETTINGS = GroupSettings(session_timeout_ms=600_000, revocation_timeout_ms=600_000)

REDIS_CLI = """
import os, sys, redis
client, words = redis.Redis(os.environ["HOST"], int(os.environ["PORT"]), decode_responses=True), sys.argv[1:]
if words[:2] == ["--scan", "--pattern"]:
    print(*client.scan_iter(words[2]), sep="\\n")
else:
    print(client.execute_command(*words))
"""
"""As much of redis-cli as errors ask for: it is valkey-cli where there is a Valkey, and in a container with Docker."""


@attrs.frozen
class Place:
    """A group of one member that holds three resources, with full access to its keys."""

    group: str
    url: str
    admin: redis.Redis
    coordinator: Coordinator
    incarnation: int

    def cli(self, *words: str) -> Outcome:
        """Runs a command of ``cobalance group`` on it."""
        verb, *rest = words
        return cobalance("group", verb, self.group, *rest, environment={"COBALANCE_REDIS_URL": self.url})

    def key(self, name: str) -> str:
        """A key of the group."""
        return f"{group_keys(self.group)[0].removesuffix('state')}{name}"

    def run_advice(self, said: str, folder: Path) -> None:
        """Runs the command that an error printed, as the administrator."""
        found = re.search(r"redis-cli --scan .* DEL", said)
        assert found
        program = folder / "redis-cli"
        program.write_text(f"#!{sys.executable}\n{REDIS_CLI}")
        program.chmod(0o755)
        where = self.admin.get_connection_kwargs()
        environment = {"PATH": f"{folder}:{os.environ['PATH']}", "HOST": where["host"], "PORT": str(where["port"])}
        command = ["bash", "-c", f"set -o pipefail; {found.group()}"]
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60)

    def state(self) -> dict[str, str]:
        found = self.coordinator.state()
        return {name: found[name] for name in ("classes", "total", "owned", "free", "members")}


@pytest.fixture
def place(private_redis: servers.OwnRedis) -> Iterator[Place]:
    """On a private Redis, as the published user."""
    url, name = as_published_user(private_redis.url), unique("repair")
    transport = open_transport(url)
    coordinator = Coordinator(transport, name)
    coordinator.create(SETTINGS)
    coordinator.execute(Request(Header("m.1", 1), Join(settings=SETTINGS)))
    incarnation = int(coordinator.state()["incarnation"])
    declared = SetResources(version=1, digest="1", names=("r0", "r1", "r2"))
    coordinator.execute(Request(Header("m.1", 2, incarnation), declared))
    with redis.Redis.from_url(private_redis.url) as admin:
        yield Place(name, url, admin, coordinator, incarnation)
    transport.close()


def test_what_a_call_left_that_died_is_said_to_be_mended(place: Place) -> None:
    """The permission to write indices is withdrawn while a list is declared, and restored; there was no call since."""
    before = place.state()
    place.admin.execute_command("ACL", "SETUSER", USER, "-zadd")  # type: ignore[no-untyped-call]
    with suppress(ServerError):
        more = SetResources(version=2, digest="2", names=("r0", "r1", "r2", "r3"))
        place.coordinator.execute(Request(Header("m.1", 3, place.incarnation), more))
    place.admin.execute_command("ACL", "SETUSER", USER, "+zadd")  # type: ignore[no-untyped-call]

    mended = place.cli("repair")
    assert (mended.code, mended.err) == (0, "")
    assert (
        mended.out
        == f"{place.group} has been rebuilt from its records; a call had died half-way, or a key was gone, and is mended.\n"
    )
    assert place.state() == before
    again = place.cli("repair")
    assert again.out == f"{place.group} has been rebuilt from its records; nothing was out of place.\n"
    kinds = [(it["kind"], it["reason"]) for it in json.loads(place.cli("history", "--json").out)]
    assert [reason.split()[0] for kind, reason in kinds if kind == "repaired"][-3:] == ["torn", "asked", "asked"]


def test_totals_that_were_out_of_place_are_shown(place: Place) -> None:
    """The group's keys were changed by hand, in a way that no call notices."""
    before = place.state()
    place.admin.hset(place.key("state"), mapping={"total": 2, "classes": "1=4"})
    place.admin.zremrangebyrank(place.key("owned"), 0, 0)
    mended = place.cli("repair")
    assert mended.out.splitlines() == [
        f"{place.group} has been rebuilt from its records; this has changed:",
        "  classes: 1=4 → 1=1",
        "  total: 2 → 3",
        "  owned: 2 → 3",
    ]
    assert place.state() == before


def test_resources_that_are_neither_owned_nor_free_are_mended_by_the_next_call(place: Place) -> None:
    """So there is nothing left to be repaired on demand."""
    before = place.state()
    place.admin.zremrangebyrank(place.key("owned"), 0, 0)
    assert place.state() == before
    again = place.cli("repair")
    assert again.out == f"{place.group} has been rebuilt from its records; nothing was out of place.\n"


def first_failure(place: Place) -> str:
    """The message of the first failing call: describe, then a verb that writes almost everywhere."""
    join = Request(Header("n.1", 1), Join(settings=SETTINGS))
    looks = (
        place.coordinator.tick,
        lambda: list(place.coordinator.resources()),
        lambda: place.coordinator.execute(join),
    )
    for look in looks:
        try:
            look()
        except ScriptFailed as failure:
            return str(failure)
    return ""


@pytest.mark.parametrize("name", ["timers", "journal", "owned", "feed"])
def test_a_repair_deletes_what_is_no_record(place: Place, name: str) -> None:
    """An index or the journal was overwritten: the failing call names the key and the command, which repairs it."""
    place.admin.set(place.key(name), "mine")
    said = first_failure(place)
    advice = f"{place.key(name)} holds what is not ours (WRONGTYPE). `cobalance group repair {place.group}` deletes it and creates it again"
    assert advice in said
    mended = place.cli("repair")
    assert (mended.code, mended.err) == (0, "")
    assert place.admin.type(place.key(name)) != b"string"
    held = {row.name: row.owner for row in place.coordinator.resources()}
    assert set(held) == {"r0", "r1", "r2"}
    assert "m.1" in held.values()
    assert place.cli("history", "--json").code == 0


def test_a_change_of_settings_names_the_key_as_well(place: Place) -> None:
    """It gets one key more, which stores what was recommended, and is all right."""
    place.admin.hset(place.coordinator.tuned_key, "json", "{}")
    place.admin.set(place.key("journal"), "mine")
    with pytest.raises(ScriptFailed, match=f"{place.key('journal')} holds what is not ours"):
        place.coordinator.configure(gather_ms=7)


def advice(damaged: str) -> str:
    """Offsets that are not damaged are spared."""
    spared = "" if damaged == "offsets" else " but its offsets"
    return f"Delete all keys of the group{spared}, and its members bring back what they hold, with the offsets of that: redis-cli --scan"


@pytest.mark.parametrize("name", ["state", "members", "resources", "offsets"])
def test_a_record_of_a_wrong_type_is_named(place: Place, tmp_path: Path, name: str) -> None:
    """Nothing is guessed. Once the printed command has deleted the group's keys, except for intact offsets, its members
    are asked to come back.
    """
    place.admin.hset(place.key("offsets"), "r1", 7)
    place.admin.delete(place.key(name))
    place.admin.set(place.key(name), "mine")
    said = first_failure(place)
    assert f"{place.key(name)} holds what is not ours (WRONGTYPE). {advice(name)}" in said
    refused = place.cli("repair")
    assert (refused.code, refused.out, advice(name) in refused.err) == (1, "", True)
    place.run_advice(said, tmp_path)
    assert place.admin.keys(place.key("*")) == ([] if name == "offsets" else [place.key("offsets").encode()])
    assert place.admin.hgetall(place.key("offsets")) == ({} if name == "offsets" else {b"r1": b"7"})
    reply = place.coordinator.execute(Request(Header("m.1", 9, place.incarnation, 9), Heartbeat()))
    assert reply.status == "REJOIN"


@pytest.mark.parametrize(
    ("name", "field", "said"),
    [
        ("state", "total", "has something else under total than we wrote"),
        ("members", "m.1", "has something else under m.1 than we wrote"),
        ("resources", "r1", "has something else under r1 than we wrote"),
        ("offsets", "r1", "has an offset of r1 that is no whole number. Set it right: redis-cli HSET"),
    ],
)
def test_a_record_that_cannot_be_read_is_named(place: Place, name: str, field: str, said: str) -> None:
    """By key and field. Once the value is restored, the group continues as before."""
    before = place.admin.hget(place.key(name), field)
    place.admin.hset(place.key(name), field, "mine")
    failure = first_failure(place)
    assert f"{place.key(name)} {said}" in failure
    assert (advice(name) in failure) == (name != "offsets")
    place.admin.hset(place.key(name), field, before or b"7")
    assert place.cli("repair").code == 0
    assert {row.name for row in place.coordinator.resources() if row.owner} == {"r0", "r1", "r2"}


@pytest.mark.parametrize(("name", "field"), [("members", "m.1"), ("resources", "r1")])
def test_a_record_of_a_status_that_there_is_not_is_named(place: Place, name: str, field: str) -> None:
    """Even if it is well-formed otherwise."""
    before = place.admin.hget(place.key(name), field)
    assert isinstance(before, bytes)
    place.admin.hset(place.key(name), field, b"dormant " + before.partition(b" ")[2])
    assert f"{place.key(name)} has something else under {field} than we wrote" in first_failure(place)
    place.admin.hset(place.key(name), field, before)
    assert place.cli("repair").code == 0


def test_a_group_that_does_not_exist_is_not_made(place: Place) -> None:
    """Nor does anything else change."""
    before = sorted(place.admin.keys("*"))
    found = cobalance("group", "repair", "nosuch", environment={"COBALANCE_REDIS_URL": place.url})
    assert (found.code, found.out) == (1, "")
    assert "group 'nosuch' does not exist in this Redis" in found.err
    assert sorted(place.admin.keys("*")) == before
