"""Processes that are killed: their partitions go on at once, long before their session would have ended. Processes that
live keep everything, whatever becomes of their connections for a moment.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager
from urllib.parse import urlsplit

import anyio.to_thread
import attrs
import pytest
from pika.exceptions import StreamLostError
from tests.consumers import Place, channel, new_topic, until
from tests.faults.consuming import Received
from tests.faults.crashing import LONG, Crew, crew
from tests.faults.proxy import FaultProxy
from tests.names import unique
from tests.streams import new_stream

from cobalance import ConsumerGroup, servers
from cobalance.coordinator.keys import scope
from cobalance.group.clock import monotonic_ms
from cobalance.rabbitmq import Delivery, Topic
from cobalance.rabbitmq.consume import crash_detection
from cobalance.rabbitmq.consume.last_will import LastWill, wills_queue
from cobalance.rabbitmq.topics.admin import connected

pytestmark = pytest.mark.anyio


def publish_to_all(amqp_url: str, topic: Topic, body: str) -> None:
    """One message to each partition."""
    with channel(amqp_url) as it:
        for name in topic.queue_names:
            it.basic_publish("", name, body.encode(), mandatory=True)


# -- processes that live ----------------------------------------------------------------------------------------------


@pytest.mark.thorough
async def test_members_with_nothing_to_do_send_their_heartbeats_and_no_more(
    amqp_url: str, redis_url: str, redis_admin_url: str
) -> None:
    """Nothing that a member is told, such as that its listener was counted, makes it ask for more of the same."""
    settings = attrs.evolve(LONG, heartbeat_interval_ms=200)
    with (
        new_topic(amqp_url, 2) as topic,
        crew(topic.name, amqp_url, redis_url, redis_admin_url, settings=settings) as team,
    ):
        await settled(team, team.start(), team.start())
        times = await anyio.to_thread.run_sync(lambda: team.calls(24))
        assert times[-1] - times[0] > 1, "ten heartbeats a second of both, and what the beginning left to be said"


async def test_a_member_that_is_asked_to_call_has_nothing_to_vouch_anew(
    amqp_url: str, redis_url: str, redis_admin_url: str
) -> None:
    """Only its listener's connection makes it do that: what asks it may not come of what it does then."""
    settings = attrs.evolve(LONG, heartbeat_interval_ms=200)
    with (
        new_topic(amqp_url, 2) as topic,
        crew(topic.name, amqp_url, redis_url, redis_admin_url, settings=settings) as team,
    ):
        only = team.start()
        await settled(team, only)
        await anyio.to_thread.run_sync(lambda: team.calls(4))  # it vouches once for each thing that it waited for
        vouch = team.vouch(team.members[only])
        team.ask_to_call(team.members[only])
        await anyio.to_thread.run_sync(lambda: team.calls(4))
        assert team.vouch(team.members[only]) == vouch


# -- processes that die ------------------------------------------------------------------------------------------------


async def settled(team: Crew, *pids: int) -> None:
    """All are members with a last will, vouch, and hold as many partitions each."""
    team.wait_will(*pids)
    members = {team.members[pid] for pid in pids}

    def is_even() -> bool:
        owners = list(team.owners().values())
        shares = {it: owners.count(it) for it in members}
        return members <= team.vouched() and None not in owners and set(shares.values()) == {len(owners) // len(pids)}

    await until(is_even)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("victim", ["coordinator", "other"])
async def test_a_killed_processs_partitions_go_on_at_once(
    kind: str, victim: str, amqp_url: str, redis_url: str, redis_admin_url: str
) -> None:
    """Exactly what it held moves, no matter who was elected to settle what is due."""
    with (
        new_topic(amqp_url, 4, kind) as topic,
        crew(topic.name, amqp_url, redis_url, redis_admin_url) as team,
    ):
        first, second = team.start(), team.start()
        await settled(team, first, second)
        owners = team.owners()
        elected = team.coordinator.state()["coordinator"]
        dies = next(pid for pid in (first, second) if (team.members[pid] == elected) == (victim == "coordinator"))
        team.kill(dies)
        publish_to_all(amqp_url, topic, "after")
        by = team.wait_handled(topic.queue_names, "after")
        assert set(by.values()) == {first, second} - {dies}
        (ended,) = team.journal("expired_member")
        assert (ended.member, ended.reason) == (team.members[dies], "crashed")
        ends = team.journal("expired", "revoking", "forced", "abandoned", "released")
        moved = {it.resource for it in ends if it.at_ms >= ended.at_ms}
        assert moved == {name for name, owner in owners.items() if owner == team.members[dies]}


async def test_what_it_had_not_acknowledged_comes_again(amqp_url: str, redis_url: str, redis_admin_url: str) -> None:
    """In order, and nothing is lost; the next process alone works each partition."""
    with (
        new_topic(amqp_url, 2) as topic,
        crew(topic.name, amqp_url, redis_url, redis_admin_url) as team,
    ):
        first, second = team.start(ack="manual"), team.start(ack="manual")
        await settled(team, first, second)
        for body in "123":
            publish_to_all(amqp_url, topic, body)
        held = team.wait_handled(topic.queue_names, "3")
        team.kill(first)
        (lost,) = [name for name, pid in held.items() if pid == first]
        while [it for it in team.handled[lost] if it[0] == second][-1:] != [(second, "3")]:
            team.read()
        assert [body for pid, body in team.handled[lost] if pid == second] == ["1", "2", "3"]


@pytest.mark.thorough
async def test_a_killed_process_with_an_instance_id_takes_its_place_at_once(
    amqp_url: str, redis_url: str, redis_admin_url: str
) -> None:
    """It comes back on another machine, where nothing is known of its former self, and is alone: its own last will is
    the first thing that it hears.
    """
    settings = attrs.evolve(LONG, rejoin_grace_ms=60_000)
    with (
        new_topic(amqp_url, 2) as topic,
        crew(topic.name, amqp_url, redis_url, redis_admin_url, settings=settings) as team,
    ):
        before = team.start(member={"instance_id": "one"})
        await settled(team, before)
        team.kill(before)
        after = team.start(member={"instance_id": "one"})
        team.wait_joined(after)
        publish_to_all(amqp_url, topic, "after")
        assert set(team.wait_handled(topic.queue_names, "after").values()) == {after}
        assert [(it.member, it.reason) for it in team.journal("graced")] == [(team.members[before], "crashed")]
        assert {it.resource for it in team.journal("inherited")} == set(topic.queue_names)


@pytest.mark.parametrize("lock", [True, False])
@pytest.mark.thorough
async def test_a_stream_waits_for_the_session_unless_it_is_locked(
    lock: bool, amqp_url: str, redis_url: str, redis_admin_url: str
) -> None:
    """Without a lock nothing keeps a process that lives from reading on."""
    settings = attrs.evolve(LONG, session_timeout_ms=3_000)
    streams = {"lock": lock, "start": "first"}
    with (
        new_stream(amqp_url, 1) as stream,
        crew([stream.name], amqp_url, redis_url, redis_admin_url, settings=settings) as team,
    ):
        first = team.start(streams=streams)
        team.wait_joined(first)
        await until(lambda: None not in team.owners().values())
        second = team.start(streams=streams)
        if lock:
            team.wait_will(first, second)
            await until(lambda: len(team.vouched()) == 2)
        else:
            team.wait_joined(second)
            assert not team.vouched()
        team.kill(first)
        (ended,) = await until(lambda: team.journal("expired_member"))
        assert ended.reason == ("crashed" if lock else "expired")


# -- processes that live -----------------------------------------------------------------------------------------------


@attrs.define
class Paths:
    """One member's ways to its servers."""

    redis: FaultProxy
    amqp: FaultProxy

    @classmethod
    def to(cls, redis_url: str, amqp_url: str, stack: ExitStack) -> Paths:
        ports = (urlsplit(redis_url).port, urlsplit(amqp_url).port)
        return cls(*(stack.enter_context(FaultProxy(port or 0)) for port in ports))

    def reset(self) -> None:
        self.redis.reset()  # first: a member that has lost RabbitMQ alone says that it lives
        self.amqp.reset()

    def refuse(self) -> None:
        self.amqp.refuse()
        self.redis.refuse()

    def heal(self) -> None:
        self.amqp.heal()
        self.redis.heal()


@attrs.define
class Pair:
    """Two members in this process that share four partitions; `a` goes through proxies, and so does b's Redis."""

    team: Crew
    topic: Topic
    a: ConsumerGroup
    b: ConsumerGroup
    of_a: Paths
    of_b: Paths
    log: pytest.LogCaptureFixture
    received: Received

    def vouch_of_a(self) -> str:
        """What the coordinator has of it; another one each time that its listener has connected."""
        return self.team.vouch(self.a.member)

    async def looked_at_a(self) -> None:
        """Somebody has heard its last will, and found that it lives."""
        await until(lambda: f"member {self.a.member} lost RabbitMQ, and is not taken for dead" in self.log.text)

    async def will_of_a(self, times: int) -> None:
        """RabbitMQ has had it so often."""
        await until(lambda: self.log.text.count(f"last will of member {self.a.member}\n") == times)

    async def works(self, amqp_url: str, body: str) -> None:
        """Every partition is worked."""
        publish_to_all(amqp_url, self.topic, body)
        await until(lambda: self.received.bodies.count(body) == self.topic.partitions)


@asynccontextmanager
async def pair(
    amqp_url: str, redis_url: str, redis_admin_url: str, log: pytest.LogCaptureFixture
) -> AsyncIterator[Pair]:
    """Both hold their share, vouch, and have a last will."""
    log.set_level(logging.DEBUG, "cobalance.rabbitmq")
    with ExitStack() as stack:
        topic = stack.enter_context(new_topic(amqp_url, 4))
        team = stack.enter_context(crew(topic.name, amqp_url, redis_url, redis_admin_url))
        of_a, of_b = (Paths.to(redis_url, amqp_url, stack) for _ in range(2))
        received = Received()
        a, b = (
            ConsumerGroup(
                team.name,
                topic,
                received.handle,
                settings=LONG,
                amqp_url=paths.amqp.through(amqp_url),
                redis_url=paths.redis.through(redis_url),
            )
            for paths in (of_a, of_b)
        )
        async with b, a:
            it = Pair(team, topic, a, b, of_a, of_b, log, received)
            await until(lambda: {len(a.tenures), len(b.tenures)} == {2})
            await until(lambda: {a.member, b.member} == team.vouched())
            await it.will_of_a(1)
            yield it


def tokens(group: ConsumerGroup) -> dict[str, int]:
    return {name: tenure.token for name, tenure in group.tenures.items()}


def lose_will(group: ConsumerGroup) -> None:
    """The channel over which RabbitMQ keeps its last will is closed, and nothing else."""
    assert group.partitions.link.crashes is not None
    channel = group.partitions.link.crashes._will._channel
    assert channel is not None
    assert group.partitions.connection.submit(channel.close)


async def test_a_member_that_loses_rabbitmq_alone_keeps_everything(
    amqp_url: str, redis_url: str, redis_admin_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its last will is heard; Redis says that it lives. It has a new one soon."""
    async with pair(amqp_url, redis_url, redis_admin_url, caplog) as it:
        before = tokens(it.a), tokens(it.b)
        it.of_a.amqp.reset()
        await it.looked_at_a()
        await it.will_of_a(2)
        await it.works(amqp_url, "after")
        assert (tokens(it.a), tokens(it.b)) == before
        assert not it.team.journal("expired_member")


async def test_a_member_that_loses_redis_alone_keeps_everything(
    amqp_url: str, redis_url: str, redis_admin_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody hears a will, and its listener connects again."""
    async with pair(amqp_url, redis_url, redis_admin_url, caplog) as it:
        before, vouch = (tokens(it.a), tokens(it.b)), it.vouch_of_a()
        it.of_a.redis.reset()
        await until(lambda: it.vouch_of_a() != vouch)
        await it.works(amqp_url, "after")
        assert (tokens(it.a), tokens(it.b)) == before
        assert not it.team.journal("expired_member")


async def test_a_member_that_loses_both_and_connects_again_in_time_keeps_everything(
    amqp_url: str, redis_url: str, redis_admin_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A member that looks at it finds its listener. The looks wait for that here, however slow this machine is."""
    async with pair(amqp_url, redis_url, redis_admin_url, caplog) as it:
        before, vouch = (tokens(it.a), tokens(it.b)), it.vouch_of_a()
        it.of_b.redis.black_hole("to_server")
        it.of_a.reset()
        await until(lambda: it.vouch_of_a() != vouch)
        it.of_b.redis.heal()
        await it.looked_at_a()
        await it.will_of_a(2)
        await it.works(amqp_url, "after")
        assert (tokens(it.a), tokens(it.b)) == before
        assert not it.team.journal("expired_member")


async def test_a_member_that_loses_both_for_longer_joins_again(
    amqp_url: str, redis_url: str, redis_admin_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """RabbitMQ has let go of its queues, so the other one works them; when it is back, they share again."""
    async with pair(amqp_url, redis_url, redis_admin_url, caplog) as it:
        former = it.a.member
        it.of_a.refuse()
        it.of_a.reset()
        await it.works(amqp_url, "cut")
        assert set(it.b.tenures) == set(it.topic.queue_names)
        (ended,) = it.team.journal("expired_member")
        assert (ended.member, ended.reason) == (former, "crashed")
        it.of_a.heal()
        await until(lambda: it.a.member != former and len(it.a.tenures) == 2 and len(it.b.tenures) == 2)
        await it.works(amqp_url, "after")
        assert len(it.received.bodies) == 8


async def test_a_will_that_is_delivered_though_the_connection_lives_ends_nothing(
    amqp_url: str, redis_url: str, redis_admin_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """RabbitMQ closes its channel alone, as over a message that was not acknowledged for long, while its listener is cut
    off. It can say so, and does.
    """
    async with pair(amqp_url, redis_url, redis_admin_url, caplog) as it:
        before = tokens(it.a), tokens(it.b)
        it.of_a.redis.refuse()  # the connection for its calls is there
        await anyio.to_thread.run_sync(lambda: it.team.cut_listener(it.a.member))
        lose_will(it.a)
        await it.looked_at_a()
        it.of_a.heal()
        await it.works(amqp_url, "after")
        assert (tokens(it.a), tokens(it.b)) == before
        assert not it.team.journal("expired_member")


@pytest.mark.parametrize("cut_off_ms", [0, 2 * LONG.session_timeout_ms], ids=["for a moment", "for long"])
async def test_nobody_looks_who_was_cut_off_itself(
    amqp_url: str,
    redis_url: str,
    redis_admin_url: str,
    caplog: pytest.LogCaptureFixture,
    *,
    monkeypatch: pytest.MonkeyPatch,
    cut_off_ms: int,
) -> None:
    """What both go through to all their servers was restarted, and one of them is back sooner."""
    async with pair(amqp_url, redis_url, redis_admin_url, caplog) as it:
        before = tokens(it.a), tokens(it.b)
        for path in (it.of_b, it.of_a):  # b first, or it may hear the will of a while it is connected
            path.refuse()
            path.reset()
        await until(lambda: caplog.text.count("lost RabbitMQ at") == 2)
        monkeypatch.setattr(crash_detection, "monotonic_ms", lambda: monotonic_ms() + cut_off_ms)
        it.of_b.heal()
        await until(lambda: f"nobody looks at member {it.a.member}," in caplog.text)
        it.of_a.heal()
        await it.works(amqp_url, "after")
        assert (tokens(it.a), tokens(it.b)) == before
        assert not it.team.journal("expired_member")


async def test_a_restart_of_rabbitmq_moves_nothing(
    private_rabbitmq: servers.OwnRabbitMQ, redis_url: str, redis_admin_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """All lose their connections at once, and their wills with them."""
    async with pair(private_rabbitmq.url, redis_url, redis_admin_url, caplog) as it:
        before = tokens(it.a), tokens(it.b)
        private_rabbitmq.restart()
        await it.will_of_a(2)
        await it.works(private_rabbitmq.url, "after")
        assert (tokens(it.a), tokens(it.b)) == before
        assert not it.team.journal("expired_member")


# -- where there is none -----------------------------------------------------------------------------------------------


async def test_it_can_be_switched_off(amqp_url: str, redis_url: str, redis_admin_url: str) -> None:
    """Nobody vouches, and there is no queue for last wills."""
    with (
        new_topic(amqp_url, 1) as topic,
        crew(topic.name, amqp_url, redis_url, redis_admin_url) as team,
    ):
        team.wait_joined(team.start(crash_detection=False))
        assert not team.vouched()
        with connected(amqp_url) as admin:
            assert not admin.exists(wills_queue(scope(team.name)).name)


async def test_a_group_in_memory_has_none(here: Place) -> None:
    """Its members die with its coordinator."""
    with new_topic(here.amqp_url, 1) as topic:
        async with here.member(topic, Received().handle):
            await until(lambda: here.resources()[topic.queue_names[0]].owner)
            with connected(here.amqp_url) as admin:
                assert not admin.exists(wills_queue(here.coordinator.scope).name)


async def test_what_turns_out_to_be_unguarded_is_not_worked_under_a_vouch(
    amqp_url: str, redis_url: str, redis_admin_url: str
) -> None:
    """The queue is declared again, without a guard, which this member allows. It takes its vouch back before."""
    name, seen = unique("queue"), list[set[str]]()
    with channel(amqp_url) as it, crew(name, amqp_url, redis_url, redis_admin_url) as team:
        it.queue_declare(name, durable=True)

        async def handle(_: Delivery) -> None:
            seen.append(team.vouched())

        group = ConsumerGroup(
            team.name, [name], handle, amqp_url=amqp_url, redis_url=redis_url, settings=LONG, require_guard=False
        )
        async with group:
            await until(lambda: team.vouched() == {group.member})
            it.basic_publish("", name, b"guarded")
            await until(lambda: len(seen) == 1)
            it.queue_delete(name)
            it.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
            it.basic_publish("", name, b"unguarded")
            await until(lambda: len(seen) == 2)
            assert seen == [{group.member}, set()]
        it.queue_delete(name)


@pytest.mark.thorough
async def test_without_the_permission_it_says_so_and_works(
    redis_url: str, redis_admin_url: str, private_rabbitmq: servers.OwnRabbitMQ, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with what to permit; crashes are noticed when a session ends."""
    user = unique("few")
    private_rabbitmq.control("add_user", user, "few")
    private_rabbitmq.control("set_permissions", user, "^(?!last-will).*", ".*", ".*")
    url = private_rabbitmq.url.replace("guest:guest", f"{user}:few")
    received = Received()
    with (
        new_topic(private_rabbitmq.url, 1) as topic,
        crew(topic.name, url, redis_url, redis_admin_url) as team,
    ):
        group = ConsumerGroup(team.name, topic, received.handle, amqp_url=url, redis_url=redis_url, settings=LONG)
        async with group:
            await until(lambda: "crash_detection=False" in caplog.text)
            publish_to_all(private_rabbitmq.url, topic, "works")
            await received.wait("works")
        assert caplog.text.count("crash_detection=False") == 1


async def test_a_connection_that_is_lost_meanwhile_is_not_called_a_missing_permission(
    amqp_url: str,
    redis_url: str,
    redis_admin_url: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The connection itself reports that it is away."""
    tried, report = threading.Event(), LastWill._report

    def fail(_: LastWill, __: str, ready: Future[None]) -> None:
        ready.set_exception(StreamLostError("reset by peer"))

    def note(will: LastWill, error: Exception) -> None:
        report(will, error)
        tried.set()

    monkeypatch.setattr(LastWill, "_open", fail)
    monkeypatch.setattr(LastWill, "_report", note)
    with new_topic(amqp_url, 1) as topic, crew(topic.name, amqp_url, redis_url, redis_admin_url) as team:
        handle = Received().handle
        async with ConsumerGroup(team.name, topic, handle, amqp_url=amqp_url, redis_url=redis_url, settings=LONG):
            await until(tried.is_set)
    assert "no last will can be kept" not in caplog.text
