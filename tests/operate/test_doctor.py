"""The doctor finds what is wrong with servers and groups, and says what to do; on real ones, made ill for it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import anyio.to_thread
import attrs
import pytest
import redis
from tests.cli_process import SECRET, cobalance
from tests.consumers import Place, channel, new_topic, until
from tests.names import unique
from tests.operate.described import group, member

from cobalance import ConsumerGroup, Delivery, Group, GroupAdmin, GroupSettings, MemberSettings, Topic, servers
from cobalance.cli.app import app
from cobalance.description import Backlog
from cobalance.errors import UsageError
from cobalance.journal import JournalEntry
from cobalance.operate import Finding
from cobalance.operate.doctor import (
    DAY_MS,
    _heartbeats,
    _memory,
    _overrun,
    _persistence,
    _policy,
    _redis_version,
    _replicas,
    _stale,
    _work,
)
from cobalance.rabbitmq.model.topic import QueueType
from cobalance.rabbitmq.topics.broker import create_topic, queue_states
from cobalance.servers.ports import free_port


def by_check(findings: object) -> dict[tuple[str, str], Finding]:
    """By subject and check."""
    assert isinstance(findings, list)
    return {(it.subject, it.check): it for it in findings}


@pytest.mark.anyio
async def test_all_is_well(
    topic: Topic, redis_url: str, amqp_url: str, rabbitmq_server: servers.RabbitMQServer
) -> None:
    """A working group on good servers: nothing to do, but for what the private servers of tests lack."""
    here = Place(amqp_url, redis_url)
    management = rabbitmq_server.management_url
    with GroupAdmin(redis_url, amqp_url=amqp_url, management_url=management) as admin:
        async with here.member(topic, lambda _: None) as worker:
            await worker.wait_held(*topic.queue_names)
            found = by_check(await anyio.to_thread.run_sync(admin.examine, here.group))
    here.close()
    wrong = {key for key, it in found.items() if it.level in {"warning", "error"}}
    assert wrong <= {("Redis", "persistence")}
    assert {check for subject, check in found if subject == "Redis"} >= {
        *("reachable", "permissions", "version", "policy", "memory", "replicas", "clock")
    }
    assert {check for subject, check in found if subject == "RabbitMQ"} == {
        *("reachable", "version", "permissions", "management")
    }
    assert found[here.group, "guards"].level == "ok"
    assert found[here.group, "members"].message == "Stable, 1 member"


@pytest.mark.anyio
@pytest.mark.parametrize(("queue_type", "may_have_lost"), [("classic", False), ("quorum", False), ("stream", True)])
async def test_whose_offsets_may_be_lost(
    redis_url: str, amqp_url: str, queue_type: QueueType, may_have_lost: bool
) -> None:
    """A group that its first member made, as it would after Redis has lost everything. Work queues have no offsets."""
    name = unique("new")
    with new_topic(amqp_url, 2, queue_type) as topic, GroupAdmin(redis_url, amqp_url=amqp_url) as admin:
        async with ConsumerGroup(name, topic, lambda _: None, amqp_url=amqp_url, redis_url=redis_url) as group:
            await group.wait_held(*topic.queue_names)
            found = by_check(await anyio.to_thread.run_sync(admin.examine, name))
            with GroupAdmin(redis_url, amqp_url=f"amqp://127.0.0.1:{free_port()}") as elsewhere:
                away = by_check(await anyio.to_thread.run_sync(elsewhere.examine, name))
    assert ((name, "offsets") in found) == may_have_lost
    assert (name, "members") in away
    assert (name, "offsets") not in away  # nobody knows what these queues are


@pytest.mark.anyio
async def test_queues_that_are_gone(redis_url: str, amqp_url: str) -> None:
    """One or all of them, while they are worked; one, while nobody is there. They have lost no offsets."""
    here, found = Place(amqp_url, redis_url), list[dict[tuple[str, str], Finding]]()
    with new_topic(amqp_url, 2, "quorum") as topic, GroupAdmin(redis_url, amqp_url=amqp_url) as admin:
        one, other = topic.queue_names

        async def look() -> None:
            found.append(by_check(await anyio.to_thread.run_sync(admin.examine, here.group)))

        with channel(amqp_url) as it:
            async with here.member(topic, lambda _: None) as worker:
                await worker.wait_held(one, other)
                it.queue_delete(one)
                await look()
                it.queue_delete(other)
                await look()
            it.queue_declare(other, durable=True, arguments=topic.queues[1].declaration)
            await look()
        create_topic(amqp_url, topic)
        await look()
    here.close()
    told = [it.get((here.group, "queues")) for it in found]
    assert [(it.level, it.message) for it in told if it] == [
        ("error", f"there is no queue {one}"),
        ("error", f"there is no queue {one}, {other}"),
        ("error", f"there is no queue {one}"),
    ]
    assert told[-1] is None
    assert f"cobalance topic create {topic.name} --partitions N" in ((told[0] and told[0].advice) or "")
    assert not [it for it in found if (here.group, "offsets") in it]


@pytest.mark.anyio
async def test_an_ill_group(redis_url: str, amqp_url: str) -> None:
    """A queue without a guard, a halted partition, a forced handover."""
    here, name = Place(amqp_url, redis_url), unique("unguarded")
    with channel(amqp_url) as it:
        it.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})

    def fail(_: Delivery) -> None:
        raise ValueError

    with GroupAdmin(redis_url, amqp_url=amqp_url) as admin:
        async with here.member([name], fail, require_guard=False, retries=0, on_error="halt") as worker:
            await worker.wait_held(name)
            here.publish(name, 1)
            await until(lambda: here.resources()[name].halted)
            found = by_check(await anyio.to_thread.run_sync(admin.examine, here.group))
    here.close()
    with channel(amqp_url) as it:
        it.queue_delete(name)
    assert (found[here.group, "guards"].level, name in found[here.group, "guards"].message) == ("warning", True)
    assert found[here.group, "partitions"].level == "error"
    assert found[here.group, "partitions"].advice == (
        f"once the cause is removed: cobalance group resume {here.group} --all"
    )


@pytest.mark.anyio
async def test_messages_that_wait_for_a_member_that_is_gone(topic: Topic, redis_url: str, amqp_url: str) -> None:
    """Its place is kept, so that the group looks stable."""
    here, settings = Place(amqp_url, redis_url), MemberSettings(instance_id="pod-0")
    with GroupAdmin(redis_url, amqp_url=amqp_url) as admin:
        admin.configure(here.group, rejoin_grace_ms=60_000)
        async with here.member(topic, lambda _: None, member=settings) as worker:
            await worker.wait_held(*topic.queue_names)
        here.publish(topic, 1)
        found = by_check(await anyio.to_thread.run_sync(admin.examine, here.group))
    here.close()
    members, work = found[here.group, "members"], found[here.group, "work"]
    assert (members.level, members.message) == ("warning", "Stable, 0 members, and 1 gone")
    there_are = f"there are messages in {topic.queue_names[0]}, kept for members that are gone"
    assert (work.level, work.message) == ("warning", there_are)


def test_a_user_who_lacks_a_permission(private_redis: servers.OwnRedis) -> None:
    """Named, with the command that grants it."""
    with redis.Redis.from_url(private_redis.url) as admin:
        admin.execute_command(
            "ACL", "SETUSER", "doctor", "on", f">{SECRET}", "~cobalance:*", "&cobalance:*", "+@all", "-publish"
        )
        url = private_redis.url.replace("redis://", f"redis://doctor:{SECRET}@")
        with GroupAdmin(url, amqp_url="memory://doctor") as ours:
            found = by_check(ours.examine())
            permissions = found["Redis", "permissions"]
            assert (permissions.level, permissions.message) == ("error", "its user may not run publish")
            assert permissions.advice == "ACL SETUSER USER +publish"
        admin.execute_command("ACL", "SETUSER", "doctor", "+publish", "-scan")
        with GroupAdmin(url, amqp_url="memory://doctor") as ours:
            found = by_check(ours.examine())
            assert "scan" in found["Redis", "groups"].message
        admin.execute_command("ACL", "SETUSER", "doctor", "resetkeys", "~other:*", "-info")
        with GroupAdmin(url, amqp_url="memory://doctor") as ours:
            found = by_check(ours.examine())
    assert found["Redis", "usable"].level == "error"
    assert SECRET not in str(found)


def test_a_replica(private_redis: servers.OwnRedis) -> None:
    """It answers, and yet nobody can work with it."""
    port = free_port()
    with redis.Redis.from_url(private_redis.url) as client:
        client.replicaof("127.0.0.1", port)
    with GroupAdmin(private_redis.url, amqp_url="memory://doctor") as admin:
        found = by_check(admin.examine())["Redis", "replicas"]
    assert (found.level, f"a replica of 127.0.0.1:{port}" in found.message) == ("error", True)


@pytest.mark.anyio
@pytest.mark.thorough
async def test_a_user_of_rabbitmq_who_lacks_a_permission(private_rabbitmq: servers.OwnRabbitMQ, redis_url: str) -> None:
    """Of what crashes are noticed by, and of queues; found out without changing anything."""
    url, user = private_rabbitmq.url, unique("few")
    private_rabbitmq.control("add_user", user, SECRET)
    poorer = url.replace("guest:guest@", f"{user}:{SECRET}@")
    assert poorer != url
    here = Place(url, redis_url)
    found = dict[str, dict[tuple[str, str], Finding]]()
    with new_topic(url, 2) as topic:
        async with here.member(topic, lambda _: None) as worker:
            await worker.wait_held(*topic.queue_names)
            for case, allowed in {
                "all": (".*", ".*", ".*"),
                "no wills": ("^(?!last-will).*", "^(?!last-will).*", "^(?!last-will).*"),
                "only wills' exchange": (".*", "^(?!amq.default).*", ".*"),
                "not its queues": ("^(?!.*-0$).*", ".*", "^(?!.*-1$).*"),
            }.items():
                private_rabbitmq.control("set_permissions", user, *allowed)
                with GroupAdmin(redis_url, amqp_url=poorer) as admin:
                    found[case] = by_check(await anyio.to_thread.run_sync(admin.examine, here.group))
            states = queue_states(url, topic.queue_names).by_queue.values()
            assert [(it.ready, it.consumers) for it in states if it] == [(0, 1)] * 2
            assert set(worker.tenures) == set(topic.queue_names)
    here.close()
    private_rabbitmq.control("delete_user", user)
    of_all = [(it["RabbitMQ", "permissions"].level, (here.group, "permissions") in it) for it in found.values()]
    assert of_all == [("ok", False), ("warning", False), ("warning", False), ("ok", True)]
    assert found["all"][here.group, "guards"].level == "ok"
    assert "configure, read, write on queues last-will.*" in found["no wills"]["RabbitMQ", "permissions"].message
    assert "write on exchange amq.default" in found["only wills' exchange"]["RabbitMQ", "permissions"].message
    queues_of = found["not its queues"][here.group, "permissions"]
    assert queues_of.level == "error"
    assert f"configure {topic.queue_names[0]}" in queues_of.message
    assert f"read {topic.queue_names[1]}" in queues_of.message
    assert SECRET not in str(found)


@pytest.mark.thorough
def test_a_rabbitmq_that_is_short_of_memory(
    private_rabbitmq: servers.OwnRabbitMQ, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be reached, and yet takes no message. The rest is looked at all the same."""
    monkeypatch.setattr("cobalance.operate.doctor.TIMEOUT_MS", 1_000)
    private_rabbitmq.control("set_vm_memory_high_watermark", "0.000001")
    try:
        with GroupAdmin(redis_url, amqp_url=private_rabbitmq.url) as admin:
            found = by_check(admin.examine(unique("none")))
    finally:
        private_rabbitmq.control("set_vm_memory_high_watermark", "0.4")
    ours = {check: it for (subject, check), it in found.items() if subject == "RabbitMQ"}
    assert ours.keys() == {"reachable", "version", "alarm", "management"}
    assert (ours["reachable"].level, ours["alarm"].level) == ("ok", "error")
    assert "blocks publishers: it is short of memory or disk" in ours["alarm"].message
    assert "rabbitmq-diagnostics alarms" in (ours["alarm"].advice or "")


def test_servers_that_cannot_be_reached() -> None:
    """Findings, and exit code 3; never a password."""
    urls = {
        "COBALANCE_REDIS_URL": f"redis://:{SECRET}@127.0.0.1:{free_port()}",
        "COBALANCE_AMQP_URL": f"amqp://u:{SECRET}@127.0.0.1:{free_port()}",
    }
    outcome = cobalance("doctor", "--json", environment=urls)
    found = json.loads(outcome.out)
    assert outcome.code == 3
    assert [(it["subject"], it["check"], it["level"]) for it in found] == [
        ("Redis", "reachable", "error"),
        ("RabbitMQ", "reachable", "error"),
    ]
    assert SECRET not in outcome.out + outcome.err


@pytest.mark.anyio
async def test_groups_without_queues(redis_url: str, amqp_url: str) -> None:
    """Folders need no RabbitMQ, so that it is away is nothing that is wrong."""
    name = unique("folders")
    async with Group(name, ["films"], redis_url=redis_url) as group:
        await group.wait_held("films")
        urls = {"COBALANCE_REDIS_URL": redis_url, "COBALANCE_AMQP_URL": "none"}
        outcome = await anyio.to_thread.run_sync(lambda: cobalance("doctor", name, environment=urls))
        assert (outcome.code, "RabbitMQ" in outcome.out) == (0, False)
        assert f"{name}: members: Stable, 1 member" in outcome.out
        assert f"{name}: offsets" not in outcome.out
        with GroupAdmin(redis_url, amqp_url=amqp_url) as admin:  # where nothing is called films
            there = by_check(await anyio.to_thread.run_sync(admin.examine, name))
            assert {it.level for (subject, _), it in there.items() if subject == name} <= {"ok", "unknown"}
        with GroupAdmin(redis_url, amqp_url=None) as admin:
            assert await anyio.to_thread.run_sync(admin.lag, name) == {"films": None}
            assert (await anyio.to_thread.run_sync(admin.snapshot, name)).resources[0].backlog.lag is None
            with pytest.raises(UsageError, match="have no RabbitMQ"):
                await anyio.to_thread.run_sync(admin.plan_offsets, name, "latest")


def test_the_command(redis_url: str, amqp_url: str) -> None:
    """0 if nothing is wrong, 1 if something is; with --quiet only what is not well."""
    urls = {"COBALANCE_REDIS_URL": redis_url, "COBALANCE_AMQP_URL": amqp_url}
    name = unique("doctor")
    assert cobalance("group", "create", name, environment=urls).code == 0
    outcome = cobalance("doctor", name, environment=urls)
    assert (outcome.code, f"ok       {name}: members: it has no members\n" in outcome.out) == (0, True)
    quiet = cobalance("doctor", name, "--quiet", environment=urls)
    assert "ok  " not in quiet.out
    missing = cobalance("doctor", "nowhere", environment=urls)
    assert (missing.code, "error    nowhere: there: group 'nowhere' does not exist" in missing.out) == (1, True)


GOOD = {
    "redis_version": "7.0.15",
    "maxmemory_policy": "noeviction",
    "maxmemory": "0",
    "aof_enabled": "1",
    "role": "master",
}


@pytest.mark.parametrize(
    ("look", "facts", "level", "says"),
    [
        (_redis_version, {}, "ok", "7.0.15"),
        (_redis_version, {"redis_version": "7.2.4", "valkey_version": "8.1.1"}, "ok", "Valkey 8.1.1"),
        (_redis_version, {"redis_version": "6.0.9"}, "error", "older"),
        (_policy, {}, "ok", "never drops"),
        (_policy, {"maxmemory_policy": "allkeys-lru"}, "warning", "allkeys-lru"),
        (_policy, {"maxmemory_policy": "allkeys-lru", "maxmemory": "100"}, "error", "allkeys-lru"),
        (_memory, {"used_memory": "5"}, "ok", "not limited"),
        (_memory, {"used_memory": "50", "maxmemory": "100"}, "ok", "50 %"),
        (_memory, {"used_memory": "95", "maxmemory": "100"}, "warning", "95 %"),
        (_persistence, {}, "ok", "on"),
        (_persistence, {"aof_enabled": "0"}, "warning", "off"),
        (_replicas, {}, "ok", "without replicas"),
        (_replicas, {"connected_slaves": "1", "min_slaves_good_slaves": "1"}, "ok", "is set"),
        (_replicas, {"connected_slaves": "1"}, "warning", "two masters"),
        (_replicas, {"role": "slave", "master_host": "10.0.0.7", "master_port": "6380"}, "error", "10.0.0.7:6380"),
    ],
)
def test_what_redis_says_of_itself(
    look: Callable[[dict[str, str]], Finding], facts: dict[str, str], level: str, says: str
) -> None:
    """Each fact, good and bad; what is bad comes with advice."""
    found = look(GOOD | facts)
    assert (found.level, says in found.message) == (level, True)
    assert (found.advice is None) == (level == "ok")


def entry(kind: str, at_ms: int = 1, **fields: Any) -> JournalEntry:
    return JournalEntry(id="1-0", seq=1, kind=kind, at_ms=at_ms, **fields)


def test_how_late_heartbeats_are() -> None:
    """Against the session timeout, with a proposal that has room."""
    it = group()
    assert [found.level for found in _heartbeats(it, [])] == ["unknown"]
    assert [found.level for found in _heartbeats(it, [entry("released", late_ms=2_000)])] == ["ok"]
    (late,) = _heartbeats(it, [entry("released", late_ms=3_500), entry("released", late_ms=0)])
    assert "nearly ends" in late.message
    assert (late.level, late.advice) == (
        "warning",
        "cobalance group configure g --session-timeout 9000ms, or less load",
    )


@pytest.mark.parametrize("revocation_ms", [4_000, 5_000, 5_549, 5_550, 60_000])
@pytest.mark.parametrize("late_ms", [1_775, 2_500, 14_000])
def test_a_longer_session_is_advised_with_what_it_needs(revocation_ms: int, late_ms: int) -> None:
    """A session must not be longer than the revocation timeout: the command would be refused."""
    settings = GroupSettings(session_timeout_ms=4_000, revocation_timeout_ms=revocation_ms)
    (late,) = _heartbeats(attrs.evolve(group(), settings=settings), [entry("released", late_ms=late_ms)])
    program, *words = shlex.split((late.advice or "").partition(",")[0])
    command, bound, _ = app.parse_args(words, print_error=False, exit_on_error=False)
    assert (program, command.__name__) == ("cobalance", "configure")
    changed = attrs.evolve(settings, **bound.arguments["settings"].given())
    assert changed.session_timeout_ms == 2 * (1_000 + late_ms)
    assert changed.revocation_timeout_ms == max(revocation_ms, changed.session_timeout_ms)


def test_a_process_that_was_frozen() -> None:
    """It was, or will be, over for the group: no session should be as long as a freeze."""
    (late,) = _heartbeats(group(), [entry("released", late_ms=58_548)])
    assert f"which ends a session of {group().settings.session_timeout_ms} ms" in late.message
    assert "--session-timeout" not in (late.advice or "")


def test_a_group_without_members_has_no_heartbeats() -> None:
    """There may be a thousand such groups. What members reported that have left is said."""
    empty = attrs.evolve(group("Empty"), members=())
    assert [*_heartbeats(empty, [])] == []
    assert [it.level for it in _heartbeats(empty, [entry("released", late_ms=0)])] == ["ok"]


def test_members_that_are_gone() -> None:
    """They are no members like others, though their places are kept; what waits for them is said."""
    one, gone = member(), member(id="b", state="graced", instance_id="pod-0")
    found = _stale(group("Stable", one, gone), None)
    assert (found.level, found.message) == ("warning", "Stable, 1 member, and 1 gone")
    here = Backlog(lag=1_500, in_flight=0, consumers=0)
    for lag, there_are in ((1_500, "there are"), (None, "there may be")):
        kept = group("Reconciling", gone, state="graced", owner="b", backlog=attrs.evolve(here, lag=lag))
        (waits,) = _work(kept)
        assert (waits.level, waits.message) == ("warning", f"{there_are} messages in r, kept for members that are gone")
    done = group("Reconciling", gone, state="graced", owner="b", backlog=attrs.evolve(here, lag=0))
    assert [it.level for it in _work(done)] == ["ok"]


def test_handovers_that_took_too_long() -> None:
    """No matter who ended them. What failed for another reason is none of them."""
    assert _overrun(group(), [entry("released"), entry("abandoned", reason="failed:KeyError")]).level == "ok"
    found = _overrun(group(), [entry("forced"), entry("abandoned", reason="deadline")])
    assert (found.level, "2 were not finished in time" in found.message) == ("warning", True)


def test_messages_that_nobody_gets_done() -> None:
    """Nobody is there; or one has been in flight for a minute. Of queues that RabbitMQ knows nothing of, nothing is said."""
    here = Backlog(lag=1, in_flight=1, oldest_ms=59_000, consumers=1)
    assert [*_work(group())] == []
    assert [it.level for it in _work(group(backlog=here))] == ["ok"]
    (stuck,) = _work(group(backlog=attrs.evolve(here, oldest_ms=180_000)))
    assert (stuck.level, "STALL" in stuck.message, "r for 3 min" in stuck.message) == ("warning", True, True)
    assert "cobalance group explain g r" in (stuck.advice or "")
    (stopped,) = _work(group("Empty", backlog=here, verdict="STOP"))
    assert (stopped.level, "STOP" in stopped.message) == ("error", True)
    assert [it.level for it in _work(group(backlog=here, verdict="STOP", halted="ValueError"))] == ["ok"]


def test_a_group_that_nobody_uses() -> None:
    """After a month; not if Redis drops it by itself."""
    now_ms = 100 * DAY_MS
    empty = attrs.evolve(group("Empty"), at_ms=now_ms)
    assert _stale(group(), entry("left")).level == "ok"
    assert _stale(empty, entry("left", at_ms=now_ms - DAY_MS)).level == "ok"
    assert _stale(empty, None).level == "ok"
    found = _stale(empty, entry("left", at_ms=now_ms - 40 * DAY_MS))
    assert (found.level, "for 40 days" in found.message) == ("warning", True)
    assert "cobalance group delete g" in (found.advice or "")
    expiring = attrs.evolve(empty, expires_at=datetime.now(UTC))
    assert _stale(expiring, entry("left", at_ms=0)).level == "ok"
