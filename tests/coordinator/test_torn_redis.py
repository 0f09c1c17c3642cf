"""The same promise on a real Redis, which ends scripts in its own ways: permissions, memory, SCRIPT KILL, keys of a
wrong type.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
import redis
from tests.coordinator.backends import RedisBackend
from tests.coordinator.driver import Group, Member, names
from tests.coordinator.torn import settle_down
from tests.readme_sections import commands

from cobalance import servers
from cobalance.coordinator.keys import NAMES, group_keys
from cobalance.coordinator.requests import Header, Repair, Request, Tick
from cobalance.coordinator.scripts import load
from cobalance.coordinator.transport import Script

OUTSIDE = {
    "evalsha",
    "script|load",
    "select",
    "info",
    "ping",
    "scan",
    "subscribe",
    "unsubscribe",
    "cluster|slots",
    "xrange",
}
INSIDE = sorted(commands() - OUTSIDE - {"publish", "pubsub|numsub"})
"""The commands that scripts use, except for hints."""

KEYS = dict(zip(NAMES, group_keys("g"), strict=True))


@pytest.fixture
def backend(redis_admin_url: str) -> Iterator[RedisBackend]:
    """Scripts run as the published user, or with fewer permissions."""
    made = RedisBackend(redis_admin_url)
    yield made
    made.allow(*rules_again())
    made.close()


def rules_again() -> list[str]:
    """Restores the permissions that tests withdraw."""
    return [f"+{command}" for command in [*INSIDE, "publish"]]


def working(backend: RedisBackend) -> tuple[Group, list[Member]]:
    """Three members of which one has crashed, six resources, something to be handed over."""
    group = Group(backend)
    a, b, c = group.joined("abc")
    group.set_resources(a, names(6))
    group.drain()
    group.join("d")
    group.beat()
    c.silent = True
    backend.now_ms += 2_900
    group.beat(a, b)
    return group, [a, b]


def deeds(group: Group, a: Member, b: Member) -> list[Callable[[], object]]:
    """One call of each kind; meanwhile a session ends."""
    kept = sorted(name for name, it in a.holds.items() if not it.pending)
    return [
        lambda: a.commit(kept[0], 3),
        lambda: b.release(*b.pending),
        lambda: group.set_resources(a, names(7)[1:]),
        lambda: group.join("e"),
        group.tick,
        lambda: a.release(kept[0], reason="handler"),
        b.leave,
        a.heartbeat,
    ]


@pytest.mark.parametrize("command", INSIDE)
def test_a_permission_is_withdrawn_and_given_back(backend: RedisBackend, command: str) -> None:
    """Each command that scripts use, in turn: the next call repairs whatever the failed ones left."""
    group, (a, b) = working(backend)
    for deed in deeds(group, a, b):
        backend.allow(f"-{command}")
        with suppress(redis.ResponseError):
            deed()
        backend.allow(f"+{command}")
        group.tick()
        for member in (a, b):
            if not member.is_over:
                member.repeat()
    group.members.pop("e", None)
    group.run(10_000)
    settle_down(group)


def test_a_repair_that_is_refused_leaves_the_journal_as_it_was(backend: RedisBackend) -> None:
    """A group is made to stay first, and whether the user may do that shows only then."""
    group, _ = working(backend)
    before = group.journal()
    backend.allow("-persist")
    for _ in range(3):
        with pytest.raises(redis.ResponseError):
            group.coordinator.execute(Request(Header("-", 0), Repair()))
        assert group.journal() == before
    backend.allow("+persist")
    group.tick()
    settle_down(group)


def test_who_may_not_publish_works_without_hints(backend: RedisBackend) -> None:
    """The default of a Redis 7 user created with ~cobalance:* +@all."""
    backend.allow("resetchannels")
    group, _ = working(backend)
    group.check()
    group.run(10_000)
    settle_down(group)
    backend.allow("&cobalance:*")


@pytest.mark.parametrize("damage", ["overwritten", "deleted"])
def test_lists_that_somebody_deleted_are_declared_again(backend: RedisBackend, damage: str) -> None:
    """They are not among the records from which a repair rebuilds: it makes all members rejoin with what they hold."""
    group = Group(backend)
    a, b = (group.join(it, subscription=it * 2) for it in "ab")
    group.set_resources(a, names(4), version=1)
    group.set_resources(b, names(6), version=1)
    group.drain()
    held = [{name: tenure.token for name, tenure in it.holds.items()} for it in (a, b)]
    backend.admin.delete(KEYS["declared"])
    if damage == "overwritten":
        backend.admin.set(KEYS["declared"], "mine")
    group.coordinator.execute(Request(Header("-", 0), Repair()))
    assert a.heartbeat().status == "REJOIN"
    assert b.heartbeat().status == "REJOIN"
    a, b = a.rejoin("a2", subscription="aa"), b.rejoin("b2", subscription="bb")
    group.set_resources(a, names(4), version=1)
    group.set_resources(b, names(6), version=1)
    group.drain()
    assert [{name: tenure.token for name, tenure in it.holds.items()} for it in (a, b)] == held


@pytest.mark.parametrize(
    "name", [it for it in NAMES if it not in {"state", "members", "resources", "offsets", "declared"}]
)
def test_a_key_of_a_wrong_type(backend: RedisBackend, name: str) -> None:
    """A key that is not a record was overwritten: calls may fail; after a repair everything continues."""
    group, _ = working(backend)
    backend.admin.set(KEYS[name], "mine")
    for _ in range(3):
        backend.now_ms += 200
        with suppress(redis.ResponseError):
            group.coordinator.tick()
    group.coordinator.execute(Request(Header("-", 0), Repair()))
    group.check()
    group.run(10_000)
    settle_down(group)


def test_a_hash_that_redis_shows_as_a_whole_is_repaired_page_by_page(backend: RedisBackend) -> None:
    """HSCAN does not divide a small hash, whatever COUNT says; still no call repairs more records than its share."""
    group = Group(backend)
    (a,) = group.joined("a")
    group.set_resources(a, names(300))
    group.drain()
    assert backend.admin.object("ENCODING", KEYS["resources"]) in {b"listpack", b"ziplist"}
    backend.admin.hset(KEYS["state"], "pulse", "torn 0 0")
    backend.admin.config_resetstat()
    group.coordinator.tick()
    calls = backend.admin.info("commandstats")["cmdstat_evalsha"]["calls"]
    assert 2 * 300 // group.settings.moves_per_call <= calls < 20
    group.check()


def test_a_group_that_is_made_anew_does_not_read_its_whole_journal(backend: RedisBackend) -> None:
    """Its scalars are gone, and the script that makes it dies."""
    group, _ = working(backend)
    last = max(int(it["seq"]) for it in group.journal())
    for seq in range(last + 1, last + 2_000):
        backend.admin.xadd(
            KEYS["journal"], {"seq": seq, "kind": "refused", "at_ms": backend.now_ms, "resource": f"old-{seq}"}
        )
    backend.admin.delete(KEYS["state"])
    backend.allow("-xadd")
    with pytest.raises(redis.ResponseError):
        group.join("e")
    backend.allow("+xadd")
    backend.admin.config_resetstat()
    group.join("f")
    assert backend.admin.info("commandstats")["cmdstat_xrevrange"]["calls"] < 5
    assert not [it for it in group.journal("repaired") if it.get("resource", "").startswith("old-")]


def test_a_line_of_somebody_elses_in_the_journal_is_passed_over(backend: RedisBackend) -> None:
    """A repair reads the journal's end."""
    group, _ = working(backend)
    journal = KEYS["journal"]
    line = backend.admin.xadd(journal, {"hello": "world"})
    backend.admin.hset(KEYS["state"], "pulse", "torn 0 0")
    group.coordinator.tick()
    group.coordinator.repair()
    backend.admin.xdel(journal, line)
    group.check()
    group.run(10_000)
    settle_down(group)


def test_memory_runs_out(private_redis: servers.OwnRedis) -> None:
    """Redis refuses a script's first write, so nothing is half done; when there is room again everything continues."""
    backend = RedisBackend(private_redis.url)
    group, (a, b) = working(backend)
    backend.now_ms += 200
    backend.call(Script.of("clock", "return 1"), (), ())  # our clock is a key, too
    before = backend.dump()
    backend.admin.config_set("maxmemory", 1)
    for deed in deeds(group, a, b):
        with pytest.raises(redis.OutOfMemoryError):
            deed()
    backend.admin.config_set("maxmemory", 0)
    assert backend.dump() == before
    group.run(10_000)
    settle_down(group)
    backend.close()


def test_a_script_is_killed_where_it_can_be(private_redis: servers.OwnRedis) -> None:
    """That is, before its first write, when it has done nothing; afterwards Redis refuses to kill it."""
    backend = RedisBackend(private_redis.url)
    group, _ = working(backend)
    backend.admin.config_set("busy-reply-threshold", 50)
    before, tick = backend.dump(), load("tick")
    hung = Script.of("hung", tick.source.replace("load_group()\n--", "load_group() while true do end\n--"))
    assert hung.source != tick.source
    killer = threading.Thread(target=kill_script, args=(private_redis.url,))
    killer.start()
    with pytest.raises(redis.ResponseError, match="killed"):
        backend.call(hung, group_keys("g"), Request(Header("-", 0), Tick()).args())
    killer.join()
    assert backend.dump() == before
    group.run(10_000)
    settle_down(group)
    backend.close()


def kill_script(url: str) -> None:
    """As soon as one is running."""
    with redis.Redis.from_url(url, protocol=2) as client:
        while True:
            try:
                client.script_kill()
            except redis.ResponseError:
                continue
            return
