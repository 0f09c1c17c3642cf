"""A process frozen with SIGSTOP beyond its session: how soon the next owner gets its partition, and how little it can
do after waking up.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import anyio.to_thread
import attrs
import pytest
from tests.faults import consuming as messages
from tests.faults.eventually import WITHIN_S, eventually
from tests.names import unique

from cobalance import ConsumerGroup, Delivery, Group, MemberSettings, Topic, servers
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.requests import Commit, CommitItem, Header, Join, Release, ReleaseItem, Request
from cobalance.journal import Journal
from cobalance.rabbitmq.consume import fencing
from cobalance.rabbitmq.consume.fencing import Fence
from cobalance.rabbitmq.topics.management import connection_names
from cobalance.settings import GroupSettings

pytestmark = pytest.mark.anyio

SETTINGS = GroupSettings(
    session_timeout_ms=4_000, heartbeat_interval_ms=200, revocation_timeout_ms=8_000, gather_ms=0, rejoin_grace_ms=0
)
HELD_UP_MS = 10_000
"""Of a busy machine, and far below what RabbitMQ's heartbeats of a minute take."""
HOLDER = Path(__file__).parents[1] / "faults" / "holder.py"


class Holder:
    def __init__(self, *arguments: str, instance_id: str | None = None) -> None:
        environment = {"COBALANCE_INSTANCE_ID": instance_id} if instance_id else {}
        self._process = subprocess.Popen(
            [sys.executable, str(HOLDER), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    async def said(self, what: str) -> list[str]:
        """Returns the rest of the next line, which must begin with this."""
        with anyio.fail_after(WITHIN_S):
            assert self._process.stdout is not None
            words = (await anyio.to_thread.run_sync(self._process.stdout.readline)).split()
        assert words[:1] == [what]
        return words[1:]

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Sends SIGCONT, and lets its handler end."""
        self._process.send_signal(signal.SIGCONT)
        assert self._process.stdin is not None
        self._process.stdin.write("go on\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """Ends it, in whatever state."""
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def start() -> Iterator[Callable[..., Holder]]:
    """Starts holders, and ends them."""
    started: list[Holder] = []

    def start(*arguments: str, **options: str) -> Holder:
        started.append(Holder(*arguments, **options))
        return started[-1]

    yield start
    for holder in started:
        holder.end()


class Successor:
    """The next owner, in this process. Its handler does not end by itself, so that its message stays unacknowledged."""

    def __init__(self) -> None:
        self.got = anyio.Event()
        self.token = 0
        self.at_ms = 0.0

    async def handle(self, delivery: Delivery) -> None:
        """Records when the message arrived."""
        self.at_ms, self.token = time.time() * 1000, delivery.token
        self.got.set()
        await anyio.sleep_forever()


@attrs.frozen
class Takeover:
    """Duration of a takeover, in ms."""

    after_freeze: float
    after_expiry: float


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
async def test_with_the_management_api_the_next_owner_takes_over_at_once(
    start: Callable[..., Holder],
    rabbitmq_server: servers.RabbitMQServer,
    redis_url: str,
    queue_type: str,
    record_property: Callable[[str, object], None],
) -> None:
    """As soon as the session has expired, though the holder's AMQP heartbeats could stay unanswered for three minutes.

    After waking up, the holder can neither acknowledge, nor commit, nor release.
    """
    url, management = rabbitmq_server.url, rabbitmq_server.management_url
    assert management is not None
    with messages.a_topic(url, partitions=1, queue_type=queue_type) as topic:
        took = await freeze_and_wake(start, topic, f"{url}?heartbeat=60", redis_url, management)
    record_property("takeover", str(took))
    print(f"{queue_type}, management API: {took}")  # noqa: T201
    assert took.after_expiry < HELD_UP_MS
    assert took.after_freeze < SETTINGS.session_timeout_ms + HELD_UP_MS


async def test_without_it_within_the_heartbeat_bound(
    start: Callable[..., Holder], amqp_url: str, redis_url: str, record_property: Callable[[str, object], None]
) -> None:
    """RabbitMQ gives up a silent client after at most three heartbeats, which are two seconds each here."""
    with messages.a_topic(amqp_url, partitions=1) as topic:
        took = await freeze_and_wake(start, topic, f"{amqp_url}?heartbeat=2", redis_url, None)
    record_property("takeover", str(took))
    print(f"classic, heartbeats of 2 s: {took}")  # noqa: T201
    assert took.after_freeze < 3 * 2_000 + HELD_UP_MS


@pytest.mark.thorough
async def test_the_heir_of_an_instance_id_takes_over_at_once(
    start: Callable[..., Holder], rabbitmq_server: servers.RabbitMQServer, redis_url: str
) -> None:
    """A holder with an instance id is kept for its return instead of expiring. A process that returns in its place does
    not have to wait for it.
    """
    url, management = rabbitmq_server.url, rabbitmq_server.management_url
    assert management is not None
    settings = attrs.evolve(SETTINGS, rejoin_grace_ms=60_000)
    with messages.a_topic(url, partitions=1) as topic:
        name = messages.create_group(redis_url, settings)
        arguments = (name, topic.name, f"{url}?heartbeat=60", redis_url, str(settings.session_timeout_ms), management)
        holder = start(*arguments, instance_id="shop-0")
        member, _ = await holder.said("holding")
        await eventually(lambda: is_listed(url, management, name, member))
        holder.freeze()
        await eventually(lambda: status_of(redis_url, name, member) == "graced")  # before that its namesake is refused
        heir = start(*arguments, instance_id="shop-0")
        _, token = await heir.said("holding")
        await anyio.to_thread.run_sync(messages.publish, url, topic, "work")
        assert await heir.said("got") == ["work", token]


@pytest.mark.parametrize("prefix", ["cobalance", "cobalance:staging"])
async def test_who_expired_is_found_under_any_key_prefix(
    prefix: str, amqp_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group of another environment with the same name has another journal. And each of its connections is closed, once:
    RabbitMQ lists them late, and those that are closed for some seconds more.
    """
    name, closed, listed = unique("fenced"), list[str](), list[tuple[str, str]]()
    frozen = Group(name, ["r0"], redis_url=redis_url, settings=SETTINGS, key_prefix=prefix)
    await frozen.start()
    await frozen.wait_held("r0")
    owner = f"{name}/{frozen.member.rpartition('.')[0]}"
    frozen.membership.abandon()
    monkeypatch.setattr(fencing, "connection_names", lambda *_: listed)
    monkeypatch.setattr(fencing, "close_connection", lambda *given: closed.append(given[2]))
    async with Group(name, ["r0"], redis_url=redis_url, settings=SETTINGS, key_prefix=prefix) as heir:
        await heir.wait_held("r0")
        transport = open_transport(redis_url)
        fence = Fence(Coordinator(transport, name, key_prefix=prefix), amqp_url, "http://127.0.0.1:1")
        for connection in ("first", "second"):
            listed.append((connection, owner))
            assert await anyio.to_thread.run_sync(fence.sweep) == 1
        assert await anyio.to_thread.run_sync(fence.sweep) == 0
        transport.close()
    assert closed == ["first", "second"]


async def test_who_is_back_when_its_connection_is_found_keeps_it(
    amqp_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Members and connections are listed one after the other, and a process may join in between."""
    name, closed = unique("fenced"), []
    frozen = Group(name, ["r0"], redis_url=redis_url, settings=SETTINGS)
    await frozen.start()
    await frozen.wait_held("r0")
    process = frozen.member.rpartition(".")[0]
    frozen.membership.abandon()
    transport = open_transport(redis_url)
    coordinator = Coordinator(transport, name)

    def join_and_list(*_: object) -> list[tuple[str, str]]:
        request = Request(Header(f"{process}.2", 1), Join(settings=SETTINGS))
        assert coordinator.execute(request).status == "OK"
        return [("connection", f"{name}/{process}")]

    monkeypatch.setattr(fencing, "connection_names", join_and_list)
    monkeypatch.setattr(fencing, "close_connection", lambda *given: closed.append(given[2]))
    async with Group(name, ["r0"], redis_url=redis_url, settings=SETTINGS) as heir:
        await heir.wait_held("r0")
        fence = Fence(coordinator, amqp_url, "http://127.0.0.1:1")
        assert await anyio.to_thread.run_sync(fence.sweep) == 0
        assert not fence.pending
    transport.close()
    assert closed == []


async def freeze_and_wake(
    start: Callable[..., Holder], topic: Topic, amqp_url: str, redis_url: str, management: str | None
) -> Takeover:
    """Plays the whole story, and returns the durations of the takeover."""
    name = messages.create_group(redis_url, SETTINGS)
    options = [management] if management else []
    holder = start(name, topic.name, amqp_url, redis_url, str(SETTINGS.session_timeout_ms), *options)
    member, token = await holder.said("holding")
    successor = Successor()
    async with ConsumerGroup(
        name,
        topic,
        successor.handle,
        amqp_url=amqp_url,
        redis_url=redis_url,
        settings=SETTINGS,
        member=MemberSettings(drain_timeout_ms=300),
        management_url=management,
    ):
        await anyio.to_thread.run_sync(messages.publish, amqp_url, topic, "work")
        assert await holder.said("got") == ["work", token]
        if management:  # which lists connections with some delay
            await eventually(lambda: is_listed(amqp_url, management, name, member))
        holder.freeze()
        frozen_at_ms = time.time() * 1000
        with anyio.fail_after(WITHIN_S):
            await successor.got.wait()
        holder.wake()
        refusal = await holder.said("commit")  # unknown if it was sent before the end of its session was noticed
        assert refusal in (["Fenced"], ["NotHeld"], ["CommitOutcomeUnknown"])
        check_that_nothing_is_taken(redis_url, name, topic.queue_names[0], member, int(token))
    # The successor has left without acknowledging. Had the holder's acknowledgement arrived, the message would be gone.
    body, again = await holder.said("got")
    assert body == "work"
    assert int(again) > successor.token > int(token)
    expired_at_ms = expiry(redis_url, name, member)
    return Takeover(round(successor.at_ms - frozen_at_ms), round(successor.at_ms - expired_at_ms))


def status_of(redis_url: str, name: str, member: str) -> str:
    """The status of a member, according to the coordinator."""
    transport = open_transport(redis_url)
    try:
        return next(it.status for it in Coordinator(transport, name).members() if it.id == member)
    finally:
        transport.close()


def is_listed(amqp_url: str, management: str, name: str, member: str) -> bool:
    """Whether the management API lists the member's connection."""
    owner = f"{name}/{member.rpartition('.')[0]}"
    return any(it[1] == owner for it in connection_names(amqp_url, management))


def check_that_nothing_is_taken(redis_url: str, name: str, queue: str, member: str, token: int) -> None:
    """Neither the holder's own actions nor any use of its old identity have an effect."""
    transport = open_transport(redis_url)
    try:
        coordinator = Coordinator(transport, name)
        header = Header(member=member, number=1_000_000)
        for payload in (Commit((CommitItem(queue, token, 99),)), Release((ReleaseItem(resource=queue, token=token),))):
            assert coordinator.execute(Request(header, payload)).status != "OK"
        (row,) = coordinator.resources()
        assert row.committed is None
        assert row.token > token
        entries = list(Journal(transport, name).entries())
        assert not [it for it in entries if it.token == token and it.kind in {"released", "abandoned"}]
    finally:
        transport.close()


def expiry(redis_url: str, name: str, member: str) -> int:
    """When the member's session was found to have expired, in ms since 1970."""
    transport = open_transport(redis_url)
    try:
        entries = Journal(transport, name).entries()
        return next(it.at_ms for it in entries if it.kind == "expired_member" and it.member == member)
    finally:
        transport.close()
