"""Metrics of groups, as one exporter serves them, on real servers."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import attrs
import pytest
import redis
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from redis.crc import key_slot
from tests.cli_process import cobalance, cobalance_process, running
from tests.consumers import SETTINGS, Place, new_topic, until
from tests.faults.redis_servers import ask, cluster
from tests.names import unique

from cobalance import Delivery, Group, GroupAdmin, Topic, servers
from cobalance.coordinator.keys import group_keys, journal_key
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.requests import Commit, CommitItem, Header, Join, Request
from cobalance.dashboard.feeds import Feeds
from cobalance.errors import Unreachable
from cobalance.journal import Journal, JournalEntry
from cobalance.operate.group_metrics import GroupMetrics
from cobalance.operate.tally import Durations, Tally
from cobalance.redact import redact
from cobalance.servers.ports import free_port
from cobalance.settings import GroupSettings
from cobalance.threads.worker_threads import in_thread

pytestmark = pytest.mark.anyio


@pytest.fixture
def admin(here: Place) -> Iterator[GroupAdmin]:
    with GroupAdmin(here.redis_url, amqp_url=here.amqp_url) as it:
        yield it


class Scrapes:
    """An exporter of one group."""

    def __init__(self, admin: GroupAdmin, group: str, *, partitions: bool = False) -> None:
        self.registry, self._group = CollectorRegistry(auto_describe=False), group
        self.registry.register(admin.metrics(group, partitions=partitions))

    def value(self, name: str, **labels: str) -> float | None:
        """At a scrape of its own."""
        return self.registry.get_sample_value(f"cobalance_{name}", {"group": self._group, **labels})


async def test_lag_by_topic_and_by_partition_if_wanted(here: Place, admin: GroupAdmin, topic: Topic) -> None:
    """The sum, the most, and the age of the oldest message in flight."""
    scrapes = Scrapes(admin, here.group, partitions=True)
    gate = anyio.Event()

    async def wait(_: Delivery) -> None:
        await gate.wait()

    async with here.member(topic, wait) as one:
        await one.wait_held(*topic.queue_names)
        await until(lambda: scrapes.value("group_lag_messages", topic=topic.name) == 0)
        here.publish(topic, 1, 2, 3)
        await until(lambda: scrapes.value("group_lag_messages", topic=topic.name) == 3)
        assert scrapes.value("group_max_partition_lag_messages", topic=topic.name) == 3
        assert scrapes.value("partition_lag_messages", topic=topic.name, partition="0") == 3
        assert scrapes.value("partition_lag_messages", topic=topic.name, partition="1") == 0
        assert scrapes.value("group_unknown_lag_partitions", topic=topic.name) == 0
        assert (scrapes.value("group_oldest_message_age_seconds", topic=topic.name) or 0) > 0
        assert Scrapes(admin, here.group).value("partition_lag_messages", topic=topic.name, partition="0") is None
        gate.set()


async def test_a_group_from_its_first_member_to_its_deletion(here: Place, admin: GroupAdmin, topic: Topic) -> None:
    """Members, states, handovers and why; nothing by member, and nothing of it once the group is gone."""
    scrapes = Scrapes(admin, here.group)
    async with here.member(topic, print) as one:
        await one.wait_held(*topic.queue_names)
        await until(lambda: scrapes.value("group_members") == 1)
        async with here.member(topic, print) as two:
            await two.wait_held()
            await until(lambda: scrapes.value("group_members") == 2)
            await until(lambda: scrapes.value("group_state", state="Stable") == 1)
            assert scrapes.value("group_idle_members") == 0
            assert scrapes.value("group_state", state="Empty") == 0
            assert scrapes.value("group_partitions", status="held") == 2
            assert (scrapes.value("handovers_total", outcome="planned") or 0) >= 1
            assert (scrapes.value("handover_duration_seconds_count") or 0) >= 1
            assert (scrapes.value("rebalances_total", reason="join") or 0) >= 1
            assert (scrapes.value("last_rebalance_timestamp_seconds") or 0) > 1e9
    await until(lambda: scrapes.value("group_members") == 0)
    assert scrapes.value("group_verdict_partitions", verdict="OK") == 2
    assert scrapes.value("rebalances_total", reason="leave") == 2
    labels = {label for metric in scrapes.registry.collect() for it in metric.samples for label in it.labels}
    assert labels == {"group", "topic", "state", "status", "verdict", "reason", "outcome", "verb", "le"}
    await anyio.to_thread.run_sync(admin.delete, here.group)
    names = [metric.name for metric in scrapes.registry.collect() if metric.samples]
    assert names == ["cobalance_up"]


async def test_what_is_unknown_is_left_out(here: Place, admin: GroupAdmin) -> None:
    """Folders have no lag: neither 0 nor -1 stands for it."""
    scrapes = Scrapes(admin, here.group, partitions=True)
    async with Group(here.group, ["films"], redis_url=here.redis_url) as group:
        await group.wait_held("films")
        await until(lambda: scrapes.value("group_members") == 1)
        for name in ("group_lag_messages", "group_max_partition_lag_messages", "group_oldest_message_age_seconds"):
            assert scrapes.value(name, topic="") is None
        assert scrapes.value("partition_lag_messages", topic="", partition="films") is None
        assert scrapes.value("group_unknown_lag_partitions", topic="") == 1
        verdicts = {it: scrapes.value("group_verdict_partitions", verdict=it) for it in ("unknown", "OK", "STOP")}
        assert verdicts == {"unknown": 1, "OK": None, "STOP": None}  # 0 would end an alert


async def test_refusals_count_by_verb(here: Place) -> None:
    """A commit under a token that is not the present one."""
    coordinator = here.coordinator
    if here.redis_url.startswith("memory"):
        coordinator.create(GroupSettings())
    tally = Tally(Journal(coordinator.transport, here.group))
    joined = coordinator.execute(Request(Header("late.1", 1), Join(settings=GroupSettings())))
    header = Header("late.1", 2, joined.incarnation, joined.version)
    refused = coordinator.execute(Request(header, Commit((CommitItem("r", 5, 5),))))
    assert refused.results == ("FENCED",)
    tally.read()
    tally.read()
    assert tally.fenced == {"commit": 1}
    assert tally.rebalances == {"join": 1}


@pytest.mark.parametrize(
    ("kind", "reason", "outcome"),
    [
        ("released", "", "planned"),
        ("forced", "deadline", "forced"),
        ("abandoned", "deadline", "forced"),
        ("abandoned", "failed:ValueError", "failed"),
        ("abandoned", "failed", "failed"),
        ("abandoned", "halted:ValueError", "failed"),
        ("abandoned", "channel", "abandoned"),
    ],
)
def test_outcomes_by_what_ended_a_tenure(here: Place, kind: str, reason: str, outcome: str) -> None:
    """A handler that fails is another trouble than one that does not finish in time."""
    tally = Tally(Journal(here.coordinator.transport, here.group))
    tally._count_end(JournalEntry(id="1-0", seq=1, kind=kind, at_ms=1, reason=reason))
    assert tally.handovers == {outcome: 1}


def test_counters_begin_at_zero(private_redis: servers.OwnRedis) -> None:
    """Each of them is there before its first event, since Prometheus sees no increase of a series that begins at 1."""
    with GroupAdmin(private_redis.url) as admin:
        admin.create("g", GroupSettings())
        scrapes = Scrapes(admin, "g")
        for reason in ("join", "leave", "crash", "grace", "resources", "data_loss", "eager"):
            assert scrapes.value("rebalances_total", reason=reason) == 0
        for outcome in ("planned", "forced", "failed", "abandoned", "cancelled", "expired"):
            assert scrapes.value("handovers_total", outcome=outcome) == 0
        for verb in ("claim", "commit", "release"):
            assert scrapes.value("fenced_total", verb=verb) == 0


async def test_a_loss_is_counted_though_a_scrape_found_no_group(private_redis: servers.OwnRedis) -> None:
    """Between the loss of its data and its return by a member. What somebody deletes and creates has not been lost."""
    names = ["g"]
    with GroupAdmin(private_redis.url) as admin:
        admin.create("g", SETTINGS)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(GroupMetrics(lambda: names, admin.watch, lambda name: Tally(admin.journal(name))))

        def losses() -> float | None:
            labels = {"group": "g", "reason": "data_loss"}
            return registry.get_sample_value("cobalance_rebalances_total", labels)

        async with Group("g", ["films"], redis_url=private_redis.url) as group:
            await group.wait_held("films")
            assert await in_thread(losses) == 0
            names.clear()
            with redis.Redis.from_url(private_redis.url) as client:  # on which the clock was ahead
                client.xadd(journal_key("g"), {"seq": 99, "kind": "configured", "at_ms": 1}, id="9999999999999-0")
                names.append("g")
                assert await in_thread(losses) == 0
                names.clear()
                client.flushall()
            assert await in_thread(losses) is None
            await until(lambda: any(it.kind == "recovered" for it in Journal(admin._transport, "g").entries()))
            names.append("g")
            assert await in_thread(losses) == 1
        for _ in range(2):
            admin.delete("g")
            names.clear()
            assert losses() is None
            admin.create("g", SETTINGS)
            names.append("g")
            assert losses() == 1


def test_who_is_new_proves_no_loss(here: Place) -> None:
    """Members that start after a group was deleted create it again. Whoever was a member before proves that it was lost, once,
    though somebody new came first; while it recovers, for later everybody may have a former id.
    """
    coordinator, settings = here.coordinator, attrs.evolve(SETTINGS, session_timeout_ms=1_000)
    if here.redis_url.startswith("memory"):
        coordinator.create(settings)
    journal = Journal(coordinator.transport, here.group)
    tally = Tally(journal)

    def join(member: str, previous: str | None = None, *, seen: int = 0) -> None:
        header = Header(member, 1, min(seen, 1), seen)
        coordinator.execute(Request(header, Join(settings=settings, previous=previous)))

    def losses() -> int:
        tally.read()
        return tally.rebalances["data_loss"]

    join("a.1")
    coordinator.delete(force=True)
    join("b.1")
    join("b.2", "b.1")  # the answer to the first was lost
    assert losses() == 0
    while not any(it.kind == "recovered" for it in journal.entries()):
        coordinator.tick()
    join("b.3", "a.1")
    assert losses() == 0
    coordinator.delete(force=True)
    join("c.1")
    join("b.4", "b.3", seen=1_000)
    assert losses() == 1
    join("a.2", "a.1", seen=2_000)
    assert losses() == 1
    coordinator.delete(force=True)
    join("a.3", "a.2")
    assert losses() == 2


def test_an_exporter_counts_from_its_start(private_redis: servers.OwnRedis) -> None:
    """One that is started again begins at zero, which Prometheus takes for what it is. A Redis that is down shows."""
    with GroupAdmin(private_redis.url) as admin:
        admin.create("g", GroupSettings())
        admin.configure("g", gather_ms=7)
        scrapes = Scrapes(admin, "g")
        assert scrapes.registry.get_sample_value("cobalance_up") == 1
        assert scrapes.value("rebalances_total", reason="data_loss") == 0
        private_redis.stop()
        assert scrapes.registry.get_sample_value("cobalance_up") == 0
        assert scrapes.value("group_members") is None


def test_a_group_that_cannot_be_read_hides_no_other(private_redis: servers.OwnRedis) -> None:
    """Anybody can write a key that looks like a group's, or over one. An alert can find it."""
    foreign, environment = ("two words", "damaged", "torn"), {"COBALANCE_REDIS_URL": private_redis.url}
    with redis.Redis.from_url(private_redis.url) as client, GroupAdmin(private_redis.url) as admin:
        client.hset(group_keys("two words")[0], "x", "x")
        for command in (("list", "--state"), ("lag",)):
            outcome = cobalance("group", *command, environment=environment)
            assert (outcome.code, outcome.err.count("warning: ")) == (1, 1)
        for name in ("sound", "torn"):
            admin.create(name, GroupSettings())
        client.set(group_keys("damaged")[0], "x")
        client.set(journal_key("torn"), "x")
        registry = CollectorRegistry(auto_describe=False)
        registry.register(admin.metrics())
        for _ in range(2):
            assert registry.get_sample_value("cobalance_up") == 1
            assert registry.get_sample_value("cobalance_group_members", {"group": "sound"}) == 0
            readable = {it: registry.get_sample_value("cobalance_group_readable", {"group": it}) for it in foreign}
            assert readable == dict.fromkeys(foreign, 0)
            assert registry.get_sample_value("cobalance_group_readable", {"group": "sound"}) == 1


@pytest.mark.parametrize(("name", "code"), [("maxmemory", 1), ("min-replicas-to-write", 3)])
async def test_a_redis_that_refuses_writes_is_up(private_redis: servers.OwnRedis, name: str, code: int) -> None:
    """It is full, or has too few replicas: groups cannot be read, since a look settles what is due, but Redis answers.
    Commands that could read none of them have failed.
    """
    with redis.Redis.from_url(private_redis.url) as client, GroupAdmin(private_redis.url) as admin:
        admin.create("g", GroupSettings())
        scrapes = Scrapes(admin, "g")
        assert scrapes.value("group_readable") == 1
        client.config_set(name, 1)
        await until(lambda: scrapes.value("group_readable") != 1)
        assert scrapes.value("group_readable") == 0
        assert scrapes.registry.get_sample_value("cobalance_up") == 1
        for command in (("group", "list", "--state"), ("group", "lag")):
            outcome = cobalance(*command, environment={"COBALANCE_REDIS_URL": private_redis.url})
            assert outcome.code == code
            assert outcome.err.startswith("error: ")
        client.config_set(name, 0)
        await until(lambda: scrapes.value("group_readable") == 1)


def exported(registry: CollectorRegistry) -> tuple[float, dict[str, float]]:
    """At a scrape: whether Redis is up, and which groups are readable."""
    samples = [it for metric in registry.collect() for it in metric.samples]
    (up,) = [it.value for it in samples if it.name == "cobalance_up"]
    return up, {it.labels["group"]: it.value for it in samples if it.name == "cobalance_group_readable"}


@pytest.mark.thorough
def test_a_node_of_a_cluster_hides_the_groups_of_no_other() -> None:
    """Neither while the slot of a group is being moved, nor while a master is silent and none has taken its place. Commands
    and pages say the same.
    """
    names, now_s = [f"group{n}" for n in range(6)], 0.0
    with cluster() as nodes, closing(open_transport(nodes.url, call_timeout_ms=1_000)) as transport:
        admin = GroupAdmin(transport=transport, amqp_url=None)
        for name in names:
            admin.create(name, GroupSettings())
        registry, feeds = CollectorRegistry(auto_describe=False), Feeds(admin, clock=lambda: now_s)
        registry.register(admin.metrics())
        assert exported(registry) == (1, dict.fromkeys(names, 1))
        assert {it["name"] for it in feeds.overview.look()} == set(names)
        key = group_keys(names[0])[0]
        source, target = nodes.master_of(key), next(it for it in nodes.masters() if it is not nodes.master_of(key))
        with nodes.moving_slot(key_slot(key.encode()), source.port, target.port):
            assert exported(registry) == (1, dict.fromkeys(names, 1) | {names[0]: 0})
            check_commands_while_a_slot_moves(nodes.url, names)
        assert exported(registry) == (1, dict.fromkeys(names, 1))
        silent = nodes.master_of(group_keys("cobalance.doctor")[0])  # with what the doctor asks first
        away = {it for it in names if nodes.master_of(group_keys(it)[0]) is silent}
        rest = [it for it in names if it not in away]
        assert away
        for node in nodes.nodes:
            ask(node.port, "CONFIG", "SET", "cluster-node-timeout", 60_000)
        silent.pause()
        # A scrape on a busy machine may miss others, too.
        anyio.run(until, lambda: exported(registry) == (1, dict.fromkeys(rest, 1) | dict.fromkeys(away, 0)))
        check_commands_while_a_node_is_silent(nodes.url, rest)
        now_s = 1_000.0
        for overview, known in ((feeds.overview, names), (Feeds(admin).overview, rest)):
            page = overview.groups()
            assert "Groups may be missing" in page["problem"]
            assert {it["name"] for it in page["groups"]} == set(known)
            assert {it["name"] for it in page["groups"] if "state" in it} == set(rest)
        check_exporters_that_begin(admin, rest, away)
        silent.resume()


def check_commands_while_a_slot_moves(url: str, names: Sequence[str]) -> None:
    environment = {"COBALANCE_REDIS_URL": url}
    listed = cobalance("group", "list", "--state", "--json", environment=environment)
    states = {it["group"]: it["state"] for it in json.loads(listed.out)}
    assert states == dict.fromkeys(names, "Empty") | {names[0]: None}
    lag = cobalance("group", "lag", environment=environment)
    for outcome in (listed, lag):
        assert outcome.code == 0
        assert outcome.err.count("is being resharded") == 1


def check_commands_while_a_node_is_silent(url: str, rest: Sequence[str]) -> None:
    commands = ("group list", "group list --state --json", "group lag --amqp-url none", "doctor --json --amqp-url none")
    with ThreadPoolExecutor() as threads:
        run = lambda it: cobalance_process(*it.split(), environment={"COBALANCE_REDIS_URL": url})  # noqa: E731
        listed, states, lag, doctor = found = [*threads.map(run, commands)]
    assert [it.code for it in found] == [3] * len(commands)
    assert listed.out.split() == ["GROUP", *rest]
    assert [it["group"] for it in json.loads(states.out) if it["state"]] == rest
    assert {it["subject"] for it in json.loads(doctor.out)} == {"Redis", *rest}
    for told in (listed.err, states.err, lag.err, doctor.out):
        assert told.count("Groups may be missing, since a node is silent") == 1


def check_exporters_that_begin(admin: GroupAdmin, rest: Sequence[str], away: Collection[str]) -> None:
    metrics = admin.metrics()
    assert metrics.snapshot(rest[0]).name == rest[0]
    with pytest.raises(Unreachable, match="Groups may be missing"):
        metrics.snapshot(min(away))
    for exporter, up, shown in ((metrics, 0, rest), (admin.metrics(rest[0]), 1, rest[:1])):
        registry = CollectorRegistry(auto_describe=False)
        registry.register(exporter)
        assert exported(registry) == (up, dict.fromkeys(shown, 1))


@contextmanager
def silent_leaders(server: servers.OwnRabbitMQ, queues: Sequence[str]) -> Iterator[None]:
    """These quorum queues answer nobody meanwhile."""

    def each(verb: str) -> None:
        names = ", ".join(f'<<"{it}">>' for it in queues)
        found = '{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, It)), {Name, _} = amqqueue:get_pid(Q)'
        server.control("eval", f"[begin {found}, sys:{verb}(Name) end || It <- [{names}]].")

    each("suspend")
    try:
        yield
    finally:
        each("resume")


@pytest.mark.thorough
async def test_queues_that_hang_hold_up_no_other_group(redis_url: str, private_rabbitmq: servers.OwnRabbitMQ) -> None:
    """A scrape ends in time, has the other group and what does answer, and calls nothing 0 that it does not know."""
    url, names = private_rabbitmq.url, [unique("hangs"), unique("well")]
    with new_topic(url, 5, "quorum") as slow, new_topic(url, 1) as quick, GroupAdmin(redis_url, amqp_url=url) as admin:
        async with (
            Group(names[0], slow.queue_names, redis_url=redis_url) as one,
            Group(names[1], quick.queue_names, redis_url=redis_url) as two,
        ):
            await one.wait_held(*slow.queue_names)
            await two.wait_held(*quick.queue_names)
            tally = lambda group: Tally(admin.journal(group))  # noqa: E731
            registry = CollectorRegistry(auto_describe=False)
            registry.register(GroupMetrics(lambda: names, admin.watch, tally, partitions=True, within_ms=1_000))

            async def scrape() -> dict[tuple[str, ...], float]:
                found = await anyio.to_thread.run_sync(lambda: list(registry.collect()))
                return {(it.name, *it.labels.values()): it.value for metric in found for it in metric.samples}

            def last_of_slow(found: dict[tuple[str, ...], float]) -> float | None:
                return found.get(("cobalance_partition_lag_messages", names[0], slow.name, "4"))

            with silent_leaders(private_rabbitmq, slow.queue_names[:4]):
                began = anyio.current_time()
                found = await scrape()
                assert anyio.current_time() - began < 8  # each silent queue takes 2.5 s
                assert found["cobalance_group_lag_messages", names[1], quick.name] == 0
                assert ("cobalance_group_lag_messages", names[0], slow.name) not in found
                assert found["cobalance_group_members", names[0]] == 1
                while last_of_slow(found) is None:  # those that were silent are asked last
                    found = await scrape()
                assert found["cobalance_group_unknown_lag_partitions", names[0], slow.name] == 4


def test_durations_are_cumulative() -> None:
    """As Prometheus has them: each bucket has what the one below has."""
    durations = Durations((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0):
        durations.add(seconds)
    assert durations.buckets() == [("0.1", 2.0), ("1.0", 3.0), ("+Inf", 4.0)]
    assert durations.sum == pytest.approx(7.65)


def fetch(url: str, host: str | None = None) -> str:
    request = urllib.request.Request(url, headers={} if host is None else {"Host": host})  # noqa: S310 -- our own
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
        return str(response.read().decode())


def test_the_command_serves_them_until_it_is_stopped(
    topic: Topic, redis_url: str, amqp_url: str, tmp_path: Path
) -> None:
    """On this machine only, without a password; SIGTERM is a normal end."""
    group = unique("metrics")
    urls = {"COBALANCE_REDIS_URL": redis_url, "COBALANCE_AMQP_URL": amqp_url}
    assert cobalance("group", "create", group, environment=urls).code == 0
    with running("metrics", group, "--port", "0", folder=tmp_path, environment=urls) as exporter:
        exporter.wait_for("metrics at http://127.0.0.1:")
        url = next(line for line in exporter.err if "metrics at" in line).split()[-1]
        families = {it.name: it for it in text_string_to_metric_families(fetch(url))}
        (up,) = families["cobalance_up"].samples
        assert up.value == 1
        assert {it.labels["group"] for it in families["cobalance_group_members"].samples} == {group}
        with pytest.raises(urllib.error.HTTPError, match="421"):
            fetch(url, "evil.example")
        outcome = exporter.end(signal.SIGTERM)
    assert outcome.code == 0
    assert redact(outcome.err) == outcome.err
    del topic


def test_the_command_waits_for_a_redis_that_is_away(private_redis: servers.OwnRedis, tmp_path: Path) -> None:
    """Alerts and autoscalers can see it meanwhile. Ctrl-C is a normal end."""
    with GroupAdmin(private_redis.url) as admin:
        admin.create("g", GroupSettings())
    private_redis.stop(save=True)
    urls = {"COBALANCE_REDIS_URL": private_redis.url, "COBALANCE_AMQP_URL": "amqp://127.0.0.1:1"}
    with running("metrics", "--port", "0", folder=tmp_path, environment=urls) as exporter:
        exporter.wait_for("metrics at http://127.0.0.1:")
        exporter.wait_for("warning: Redis at ")
        url = next(line for line in exporter.err if "metrics at" in line).split()[-1]
        assert "cobalance_up 0.0" in fetch(url)
        with pytest.raises(urllib.error.HTTPError, match="503"):
            fetch(url.replace("/metrics", "/api/v1/groups/g/lag"))
        private_redis.start()
        found = fetch(url)
        assert "cobalance_up 1.0" in found
        assert 'cobalance_group_members{group="g"} 0.0' in found
        assert exporter.end(signal.SIGINT).code == 0


@pytest.mark.thorough
def test_a_consumer_serves_its_own(topic: Topic, redis_url: str, amqp_url: str, tmp_path: Path) -> None:
    """Beside its probes, if it is told to."""
    (tmp_path / "shop.py").write_text("def handle(delivery):\n    print('handled', flush=True)\n")
    group = unique("metrics")
    urls = {"COBALANCE_REDIS_URL": redis_url, "COBALANCE_AMQP_URL": amqp_url}
    assert cobalance("group", "create", group, environment=urls).code == 0
    command = ("consume", topic.name, "--group", group, "--handler", "shop:handle", "--metrics")
    assert cobalance(*command, environment=urls).code == 2
    port = free_port()
    with running(*command, "--probe-port", str(port), folder=tmp_path, environment=urls) as consumer:
        consumer.wait_for("joined group")
        assert cobalance("publish", topic.name, "x", environment=urls).code == 0
        consumer.wait_for("handled")
        found = fetch(f"http://127.0.0.1:{port}/metrics")
        assert json.loads(fetch(f"http://127.0.0.1:{port}/readyz"))["ready"]
        consumer.end(signal.SIGTERM)
    assert f'cobalance_received_messages_total{{group="{group}",topic="{topic.name}"}} 1.0' in found
