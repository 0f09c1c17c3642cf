"""Redis loses its data, goes back in time, freezes, fills up, or hands over to a stale replica: all promises are kept.

The team itself (tests/faults/teams.py) watches every tenure: its token must be higher than any before, and its
committed offset no lower than any that was acknowledged.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import pytest
import redis as redis_py
from redis.crc import key_slot
from redis.sentinel import MasterNotFoundError
from tests.faults import consuming as messages
from tests.faults.eventually import WITHIN_S, eventually
from tests.faults.proxy import HOST, FaultProxy, black_holes
from tests.faults.redis_servers import (
    PATIENT_MS,
    SERVICE,
    Cluster,
    Watched,
    ask,
    cluster,
    info,
    redis_program,
    wait_for,
    watched,
)
from tests.faults.teams import PATIENT, SETTINGS, Team, team
from tests.redis_user import PASSWORD, USER, as_published_user, published_user

from cobalance import servers
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.keys import EVERYBODY, group_keys, journal_key
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.redis.cluster import ClusterTransport
from cobalance.coordinator.redis.sentinel import SentinelSource
from cobalance.coordinator.transport import PRESENT, PartlyListed
from cobalance.errors import AuthenticationRefused, GroupActive, ServerError, UnknownGroup, Unreachable, UsageError
from cobalance.servers.ports import free_port
from cobalance.servers.redis import PrivateRedis

pytestmark = pytest.mark.anyio

SESSION_S = SETTINGS.session_timeout_ms / 1000


async def in_thread(*steps: object) -> None:
    """Blocking steps, one after the other."""
    for step in steps:
        await anyio.to_thread.run_sync(step)  # type: ignore[arg-type]


async def nothing_has_moved(us: Team, before: list[dict[str, int]]) -> None:
    """Every claim was kept, with its offset: same owners, same tokens, no reported loss; commits are stored again."""
    with anyio.fail_after(WITHIN_S):
        for member in us.members:
            await member.group.membership.confirm_held()
    assert us.stored() == us.committed
    await us.commit_all(1_000)
    assert us.held == before
    assert [member.lost for member in us.members] == [[], []]


async def everything_moves_on(us: Team) -> None:
    """A third member gets its share, under higher tokens, from where the others stopped. `Team` checks each."""
    await us.join()
    await us.settle()
    assert us.stored() == us.committed


async def test_restarted_empty(private_redis: servers.OwnRedis) -> None:
    """All data is gone; what the members know of it is enough."""
    async with team(as_published_user(private_redis.url)) as us:
        await us.commit_all(5)
        before = us.held
        await in_thread(private_redis.kill, private_redis.start)
        await nothing_has_moved(us, before)
        await everything_moves_on(us)


async def test_restarted_from_an_old_snapshot(private_redis: servers.OwnRedis, tmp_path: Path) -> None:
    """The data is from before a member joined, before tokens were assigned and offsets committed."""
    assert isinstance(private_redis, servers.OwnRedis)
    async with team(as_published_user(private_redis.url), size=1) as us:
        await us.commit_all(5)
        await in_thread(private_redis.save)
        dump = private_redis.process.folder / "dump.rdb"  # type: ignore[union-attr]
        shutil.copy(dump, tmp_path)
        await us.join()
        await us.settle()
        await us.commit_all(9)
        before = us.held
        await in_thread(private_redis.kill)
        shutil.copy(tmp_path / "dump.rdb", dump)
        await in_thread(private_redis.start)
        await nothing_has_moved(us, before)
        await everything_moves_on(us)


async def test_frozen_for_longer_than_a_session(private_redis: servers.OwnRedis) -> None:
    """All members stop in time. When Redis continues none is considered dead, and work is resumed."""
    async with team(as_published_user(private_redis.url)) as us:
        await us.commit_all(5)
        private_redis.pause()
        frozen_at = anyio.current_time()
        working = [(member, name) for member in us.members for name in member.held]
        held_up = await eventually(lambda: all(member.stopped_at.get(name, 0) > frozen_at for member, name in working))
        assert all(member.stopped_at[name] < frozen_at + SESSION_S + held_up for member, name in working)
        await anyio.sleep(frozen_at + 1.3 * SESSION_S - anyio.current_time())
        private_redis.resume()
        await us.settle()
        await us.commit_all(9)
        assert "expired_member" not in us.kinds()
        await everything_moves_on(us)


async def test_frozen_for_less_than_a_session(private_redis: servers.OwnRedis) -> None:
    """A hiccup costs nothing."""
    async with team(as_published_user(private_redis.url), settings=PATIENT) as us:
        await us.commit_all(5)
        before = us.held
        private_redis.pause()
        await anyio.sleep(0.3 * PATIENT.session_timeout_ms / 1000)
        private_redis.resume()
        await nothing_has_moved(us, before)


async def test_out_of_memory(private_redis: servers.OwnRedis, caplog: pytest.LogCaptureFixture) -> None:
    """A full Redis refuses every verb before it writes anything; with room again everything continues."""
    async with team(as_published_user(private_redis.url)) as us:
        await us.commit_all(5)
        before = us.held
        with redis_py.Redis.from_url(private_redis.url) as admin:
            admin.config_set("maxmemory", "1")
            await eventually(lambda: "is full" in caplog.text)
            admin.config_set("maxmemory", "0")
            await nothing_has_moved(us, before)
            admin.config_set("maxmemory", "1")
            await eventually(lambda: us.held == [{}, {}])
            admin.config_set("maxmemory", "0")
        await us.settle()
        await us.commit_all(2_000)
        await everything_moves_on(us)


async def test_an_unreachable_redis_and_a_proven_guard(amqp_url: str, redis_url: str) -> None:
    """Two sessions without Redis: RabbitMQ admits one consumer only, so messages are handled and nothing moves."""
    received, port = messages.Received(), urlsplit(redis_url).port
    assert port is not None
    with FaultProxy(port) as proxy, messages.a_topic(amqp_url) as topic:
        name = messages.create_group(redis_url)
        async with messages.consuming(name, topic, amqp_url, proxy.through(redis_url), received) as group:
            messages.publish(amqp_url, topic, *(f"before-{n}" for n in range(20)))
            await received.wait(*(f"before-{n}" for n in range(20)))
            tokens = {it: tenure.token for it, tenure in group.tenures.items()}
            proxy.black_hole()
            await anyio.sleep(2 * messages.SETTINGS.session_timeout_ms / 1000)
            messages.publish(amqp_url, topic, *(f"without-{n}" for n in range(20)))
            await received.wait(*(f"without-{n}" for n in range(20)))
            proxy.heal()
            await group.membership.confirm_held()
            messages.publish(amqp_url, topic, *(f"after-{n}" for n in range(20)))
            await received.wait(*(f"after-{n}" for n in range(20)))
            assert {it: tenure.token for it, tenure in group.tenures.items()} == tokens
            assert len(received.bodies) == 60, "a message was delivered twice, though nothing moved"


async def test_an_emptied_redis_interrupts_no_consumer(amqp_url: str, private_redis: servers.OwnRedis) -> None:
    """No message is lost or redelivered, and no partition changes hands."""
    received, url = messages.Received(), as_published_user(private_redis.url)
    with messages.a_topic(amqp_url) as topic:
        async with messages.consuming(messages.create_group(url), topic, amqp_url, url, received) as group:
            tokens = {it: tenure.token for it, tenure in group.tenures.items()}
            await in_thread(private_redis.kill)
            messages.publish(amqp_url, topic, *(f"without-{n}" for n in range(20)))
            await in_thread(private_redis.start)
            await received.wait(*(f"without-{n}" for n in range(20)))
            await group.membership.confirm_held()
            assert {it: tenure.token for it, tenure in group.tenures.items()} == tokens
            assert len(received.bodies) == 20


async def test_a_listener_that_was_left_at_the_former_master() -> None:
    """The address leads to another server now, and the connections to the old one stay open. Calls notice, since it is a replica;
    the listener hears nothing, and reconnects when the new one does not find it. Else its crash would never be seen at once.
    """
    with ExitStack() as stack:
        master, replica = (
            stack.enter_context(PrivateRedis(redis_program(), options=published_user())) for _ in range(2)
        )
        first, second = master.port, replica.port
        ask(second, "REPLICAOF", HOST, first)
        wait_for(lambda: info(second)["master_link_status"] == "up")
        name = stack.enter_context(FaultProxy(first))
        async with team(f"redis://{USER}:{PASSWORD}@{HOST}:{name.port}", settings=PATIENT) as us:
            group, state = us.members[0].group, group_keys(us.name)[0]

            def vouches(port: int) -> bool:
                said = ask(port, "HGET", state, f"v:{group.member}")
                return said is not None and "amqp-1" in said

            await us.commit_all(5)
            group.membership.engine.vouch("amqp-1")
            await eventually(lambda: vouches(first))
            wait_for(lambda: vouches(second))
            before = us.held
            name.lead_to(second)
            ask(second, "REPLICAOF", "NO", "ONE")
            ask(first, "REPLICAOF", HOST, second)
            await nothing_has_moved(us, before)
            await eventually(lambda: vouches(second))


@pytest.fixture(scope="module")
def sentinels() -> Iterator[Watched]:
    """A master with a replica, watched by Sentinels."""
    with watched() as servers_:
        yield servers_


@pytest.mark.thorough
async def test_failed_over_to_a_stale_replica(sentinels: Watched) -> None:
    """The replica missed the last tokens and offsets, and is promoted; the old master returns as its replica."""
    async with team(sentinels.url, size=1, settings=PATIENT) as us:
        await us.commit_all(5)
        wait_for(lambda: ask(sentinels.master.port, "WAIT", 1, 100) == 1)
        (replica,) = sentinels.replicas
        replica.pause()
        await us.join()
        await us.settle()
        await us.commit_all(9)
        before = us.held
        sentinels.master.kill()
        replica.resume()
        await nothing_has_moved(us, before)
        assert ask(replica.port, "ROLE")[0] == "master"
        await in_thread(sentinels.master.start)
        await everything_moves_on(us)


@contextmanager
def careful(ports: Sequence[int]) -> Iterator[None]:
    """Masters that refuse writes without a replica."""
    for port in ports:
        ask(port, "CONFIG", "SET", "min-replicas-to-write", 1)
    yield
    for port in ports:
        ask(port, "CONFIG", "SET", "min-replicas-to-write", 0)


def warnings_of(url: str, ports: Sequence[int], caplog: pytest.LogCaptureFixture) -> int:
    """The number of split-brain warnings, over all nodes and several connections to each."""
    caplog.clear()
    with closing(open_transport(url)) as transport:
        for _ in range(2):
            with suppress(Unreachable):  # the node was told to close our connection a moment ago
                transport.list_groups()
            transport.list_groups()
            for port in ports:
                ask(port, "CLIENT", "KILL", "USER", USER)
    assert "published" not in caplog.text
    return caplog.text.count("set min-replicas-to-write 1")


def test_sentinels_whose_master_may_be_left_behind(sentinels: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """Without min-replicas-to-write there may be two masters at once, which is logged once."""
    ports = [it.port for it in sentinels.nodes]
    assert warnings_of(sentinels.url, ports, caplog) == 1
    with careful(ports):
        assert warnings_of(sentinels.url, ports, caplog) == 0


def test_sentinels_that_do_not_know_the_service(sentinels: Watched) -> None:
    """The error names each Sentinel, and no password."""
    url = sentinels.url.replace(f"/{SERVICE}", "/nothing")
    transport = open_transport(url)
    with pytest.raises(Unreachable, match="does not watch that service") as caught:
        transport.list_groups()
    assert "published" not in f"{caught.value} {transport!r}"


@pytest.mark.parametrize("kind", ["redis", "redis+cluster"])
def test_a_sentinel_in_the_place_of_a_server(sentinels: Watched, kind: str) -> None:
    """It is not a bug to report: the URL has to be changed."""
    with closing(open_transport(f"{kind}://{HOST}:{sentinels.sentinels[0]}")) as transport:
        for call in (Coordinator(transport, "g").settings, transport.list_groups):
            with pytest.raises(
                ServerError, match=r"is a Sentinel: give the URL as redis\+sentinel://HOST:PORT/SERVICE"
            ) as caught:
                call()
            assert not isinstance(caught.value, Unreachable)


def test_a_server_in_the_place_of_a_sentinel(sentinels: Watched) -> None:
    """The URL has to be changed."""
    url = f"redis+sentinel://{HOST}:{sentinels.master.port}/{SERVICE}"
    with closing(open_transport(url)) as transport, pytest.raises(Unreachable, match="it is not a Sentinel"):
        transport.list_groups()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis+sentinel://:s3cret@host", "name of the service"),
        ("redis+sentinel://:s3cret@host/service/0/more", "name of the service"),
        ("redis+sentinel://:s3cret@/service", "no host"),
        ("redis+cluster://:s3cret@host/3", "database 0 only"),
        ("redis+cluster://:s3cret@host:port", "not valid"),
        ("redis+sentinel://:s3cret@host/service?colour=s3cret", "unknown option"),
    ],
)
def test_malformed_urls(url: str, words: str) -> None:
    """The error says what is wrong, without the password."""
    with pytest.raises(UsageError, match=words) as caught:
        open_transport(url)
    assert "s3cret" not in str(caught.value)


def test_sentinels_that_do_not_answer_come_last(sentinels: Watched) -> None:
    """They are asked after all that do, and no more than two of them for one connection: the next one goes on there."""
    living = sentinels.sentinels[0]
    with black_holes(6, living) as silent:
        hosts = ",".join(f"{HOST}:{port}" for port in (silent[0], living, *silent[1:]))
        source = SentinelSource(f"redis+sentinel://{USER}:{PASSWORD}@{hosts}/{SERVICE}")

        def order() -> list[int]:
            return [it.address[1] for it in source._sentinels]

        assert source.locate(2_000).address[1] == sentinels.present_master().wire.port
        assert order() == [living, *silent[1:], silent[0]]
        source._move(source._sentinels[0], to_front=False)  # as if it had been silent once
        for first in (1, 3):
            with pytest.raises(MasterNotFoundError, match="the others are asked next time"):
                source.locate(50)
            assert order()[-2:] == silent[first : first + 2]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster() as started:
        yield started


@pytest.mark.thorough
def test_a_cluster_whose_masters_may_be_left_behind(nodes: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """The same, once for all nodes."""
    ports = [it.port for it in nodes.nodes]
    assert warnings_of(nodes.url, ports, caplog) == 1
    with careful(ports):
        assert warnings_of(nodes.url, ports, caplog) == 0


async def test_groups_spread_over_a_cluster_and_survive_a_lost_node(nodes: Cluster) -> None:
    """Groups are spread over the nodes, and hints cross them; what ends at one node continues at another."""
    names = set()
    for _ in range(3):
        async with team(nodes.url) as us:
            names.add(us.name)
            await us.commit_all(5)
            assert us.stored() == us.committed
    transport = open_transport(nodes.url)
    assert names <= set(transport.list_groups())
    transport.close()


def test_a_node_that_is_not_in_charge_says_who_is(nodes: Cluster) -> None:
    """The cached layout may be outdated; the call then goes to the right node, and every later one directly."""
    transport = open_transport(nodes.url)
    assert isinstance(transport, ClusterTransport)
    coordinator = Coordinator(transport, "moved")
    coordinator.create(SETTINGS)
    slot = int(key_slot(b"cobalance:1:{moved}:state"))
    right = transport._owner(slot)
    wrong = next(node for _, node in transport._owners if node != right)
    transport._put_in_charge(slot, wrong)
    assert coordinator.settings() == SETTINGS
    assert transport._owner(slot) == right
    transport.close()


@pytest.mark.parametrize("kind", ["hostname", "unknown-endpoint", "ip"])
def test_nodes_that_name_each_other_in_other_ways(nodes: Cluster, kind: str) -> None:
    """By host names that they do not have, which they then call "?", by nothing but a port, or by address. So do redirections."""
    setting = "cluster-preferred-endpoint-type"
    for node in nodes.nodes:
        ask(node.port, "CONFIG", "SET", setting, kind)
    try:
        with closing(open_transport(nodes.url)) as transport:
            assert isinstance(transport, ClusterTransport)
            for number, (first, _) in enumerate(nodes.SLOTS):
                name = next(it for it in map(f"{kind}-{number}-{{}}".format, count()) if first <= slot_of(it))
                Coordinator(transport, name).create(SETTINGS)
                right = transport._owner(slot_of(name))
                wrong = next(node for _, node in transport._owners if node != right)
                transport._put_in_charge(slot_of(name), wrong)
                assert Coordinator(transport, name).settings() == SETTINGS
                assert transport._owner(slot_of(name)) == right
            assert {host for host, _ in transport._nodes} == {HOST}
    finally:
        for node in nodes.nodes:
            ask(node.port, "CONFIG", "SET", setting, "ip")


def test_a_plain_url_of_a_node_says_that_there_are_others(nodes: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """It serves the groups of one node for now. The words come once, and not where one node has all slots."""
    with closing(open_transport(nodes.url)) as transport:
        for number in range(20):
            Coordinator(transport, f"spread-{number}").create(SETTINGS)
        every = set(transport.list_groups())
    owner = nodes.master_of(journal_key("spread-0"))
    own = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with PrivateRedis(redis_program(), options=(*published_user(), *own)) as alone:
        ask(alone.port, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_for(lambda: "cluster_state:ok" in ask(alone.port, "CLUSTER", "INFO"))
        with closing(open_transport(f"redis://{USER}:{PASSWORD}@{HOST}:{alone.port}")) as transport:
            Coordinator(transport, "g").create(SETTINGS)
            assert transport.list_groups() == ["g"]
    assert "redis+cluster" not in caplog.text
    with closing(open_transport(f"redis://{USER}:{PASSWORD}@{HOST}:{owner.port}")) as transport:
        for _ in range(2):
            assert Coordinator(transport, "spread-0").settings() == SETTINGS
            with pytest.raises(PartlyListed, match=r"redis\+cluster://HOST:PORT") as caught:
                transport.list_groups()
            assert {"spread-0"} <= set(caught.value.names) < every
            ask(owner.port, "CLIENT", "KILL", "TYPE", "normal")
    assert caplog.text.count("redis+cluster") == 1


def test_a_slot_that_nobody_had_for_a_moment(nodes: Cluster) -> None:
    """As while a layout is being repaired. A caller that heard of that asks again."""
    with closing(open_transport(nodes.url)) as transport:
        assert isinstance(transport, ClusterTransport)
        coordinator, slot = Coordinator(transport, "disowned"), slot_of("disowned")
        coordinator.create(SETTINGS)
        owner = nodes.master_of(journal_key("disowned"))
        others = [it for it in nodes.nodes if it is not owner]
        for node in (owner, *others):  # in this order: while it has the slot, it tells the others
            ask(node.port, "CLUSTER", "DELSLOTS", slot)
        transport._forget()
        with pytest.raises(Unreachable, match=f"in charge of slot {slot}"):
            coordinator.settings()
        ask(owner.port, "CLUSTER", "ADDSLOTS", slot)
        wait_for(nodes.is_whole)
        assert coordinator.settings() == SETTINGS


def test_a_node_without_a_layout_costs_a_question(nodes: Cluster) -> None:
    """The URL still names one that was taken out of the cluster. The same call asks another node."""
    own = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with PrivateRedis(redis_program(), options=(*published_user(), *own)) as alone:
        hosts = f"{HOST}:{alone.port},{HOST}:{nodes.nodes[0].port}"
        with closing(open_transport(f"redis+cluster://{USER}:{PASSWORD}@{hosts}")) as transport:
            Coordinator(transport, "named-twice").create(SETTINGS)


def test_what_answers_in_the_place_of_a_node_is_not_believed_for_good(nodes: Cluster) -> None:
    """Its address was given to a Redis that knows other users: the next call asks the cluster who is in charge now."""
    stranger = PrivateRedis(redis_program(), options=("--requirepass", "another"))
    with closing(stranger), closing(open_transport(nodes.url)) as transport:
        assert isinstance(transport, ClusterTransport)
        coordinator = Coordinator(transport, "readdressed")
        coordinator.create(SETTINGS)
        transport._put_in_charge(slot_of("readdressed"), (HOST, stranger.port))
        with pytest.raises(AuthenticationRefused):
            coordinator.settings()
        assert coordinator.settings() == SETTINGS


def test_who_listens_is_found_by_the_node_in_charge(nodes: Cluster) -> None:
    """It counts its own listeners only. It is found wherever the group is, before and after the slot moves, and though the listener
    began before the layout was known. So nobody takes for new, or deletes, a group that somebody listens to.
    """
    names = [next(it for it in map("heard-{}".format, count()) if first <= slot_of(it)) for first, _ in nodes.SLOTS]
    for name in names:
        with closing(open_transport(nodes.url)) as transport, closing(transport.listen(lambda *_: None)) as listener:
            coordinator = Coordinator(transport, name)
            listener.subscribe(coordinator.channel(EVERYBODY))
            wait_for(partial(is_heard, nodes, coordinator))
            source = nodes.master_of(journal_key(name))
            target = next(it for it in nodes.masters() if it is not source)
            for before, after in ((source, target), (target, source)):
                nodes.move_slot(slot_of(name), before.port, after.port)
                wait_for(partial(is_heard, nodes, coordinator))
                with pytest.raises(GroupActive):
                    coordinator.create(SETTINGS)


def is_heard(nodes: Cluster, coordinator: Coordinator) -> bool:
    """Whether the node in charge finds a listener of the group, now that its process has called."""
    with suppress(UnknownGroup):
        coordinator.settings()
    node = nodes.master_of(journal_key(coordinator.group))
    counted: int = ask(node.port, "PUBLISH", coordinator.channel(EVERYBODY), PRESENT)
    return counted == 1


async def test_a_cluster_node_that_dies(nodes: Cluster) -> None:
    """Its replica is promoted; the members find it, though the URL names only the dead node; and nothing moves."""
    on_the_first = next(name for name in map("team-{}".format, count()) if slot_of(name) <= nodes.SLOTS[0][1])
    async with team(nodes.url, settings=PATIENT, name=on_the_first) as us:
        await us.commit_all(5)
        before, owner = us.held, owner_of(us)
        master = nodes.nodes[0]
        assert owner == master.port
        wait_for(lambda: ask(owner, "WAIT", 1, 100) == 1)
        nodes.give_up_nodes_after(1_000)
        master.kill()
        await nothing_has_moved(us, before)
        assert owner_of(us) != owner
        await in_thread(master.start)
        nodes.give_up_nodes_after(PATIENT_MS)
        await everything_moves_on(us)


def owner_of(us: Team) -> int:
    """The port of the node that has a team's keys, according to its members."""
    transport = us.members[0].group.membership.coordinator.transport
    assert isinstance(transport, ClusterTransport)
    return transport._owner(slot_of(us.name))[1]


def slot_of(name: str) -> int:
    """The slot of a group's keys."""
    return int(key_slot(f"cobalance:1:{{{name}}}:state".encode()))


async def test_a_slot_that_moves(nodes: Cluster) -> None:
    """While a cluster is resharded the group waits; then it continues at the other node, from the same state."""
    async with team(nodes.url, settings=PATIENT) as us:
        await us.commit_all(5)
        before, slot = us.held, slot_of(us.name)
        owners = nodes.masters()
        source = next(node for node in owners if node.port == owner_of(us))
        target = next(node for node in owners if node is not source)
        await in_thread(lambda: nodes.move_slot(slot, source.port, target.port))
        await nothing_has_moved(us, before)
        assert owner_of(us) == target.port
        await everything_moves_on(us)


async def test_a_reshard_that_was_interrupted(nodes: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """The group stands still until somebody ends it, though all its keys are still at one node. Members and admins say how."""
    advice = "`redis-cli --cluster fix"
    async with team(nodes.url) as us:
        await us.commit_all(5)
        source = nodes.master_of(journal_key(us.name))
        target = next(node for node in nodes.masters() if node is not source)
        with nodes.stuck_slot(slot_of(us.name), source.port, target.port):
            with closing(open_transport(nodes.url)) as transport, pytest.raises(Unreachable, match=advice):
                await in_thread(Coordinator(transport, us.name).settings)
            await eventually(lambda: us.held == [{}, {}])
            stopped = [it.getMessage() for it in caplog.records if "stopped working" in it.getMessage()]
            assert len(stopped) == len(us.members)
            assert all(advice in it and "check Redis and the network" not in it for it in stopped)
        await us.settle()
        await everything_moves_on(us)


@pytest.mark.thorough
async def test_calls_while_a_slot_moves(nodes: Cluster) -> None:
    """With its keys on two nodes, neither can work on a group (TRYAGAIN, ASK); callers wait without an error."""
    async with team(nodes.url, settings=PATIENT) as us:
        await us.commit_all(5)
        before, slot = us.held, slot_of(us.name)
        source = nodes.master_of(journal_key(us.name))
        target = next(node for node in nodes.masters() if node is not source)
        patient = open_transport(nodes.url, call_timeout_ms=60_000)  # moving takes long on a busy machine
        with closing(patient) as transport, ThreadPoolExecutor() as threads:
            coordinator = Coordinator(transport, us.name)
            moving = threads.submit(nodes.move_slot, slot, source.port, target.port, pause_s=0.05)
            while not moving.done():
                await in_thread(lambda: list(coordinator.members()))
            moving.result()
        await nothing_has_moved(us, before)
        assert owner_of(us) == target.port
