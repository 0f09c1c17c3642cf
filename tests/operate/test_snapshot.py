"""One snapshot of a group, on real servers."""

from __future__ import annotations

import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from typing import Any

import anyio
import anyio.to_thread
import pytest
from tests.cli_process import SECRET, cobalance
from tests.consumers import Place, until

from cobalance import Delivery, Group, GroupAdmin, Topic
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.memory.store import MemoryStore
from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.description import FORMAT, GroupDescription, MemberDescription
from cobalance.group.clock import monotonic_ms
from cobalance.operate import snapshot
from cobalance.operate.backlog import Broker
from cobalance.operate.group_snapshot import read_snapshot
from cobalance.operate.watch import Watch
from cobalance.servers.ports import free_port
from cobalance.settings import GroupSettings

pytestmark = pytest.mark.anyio


def look(here: Place, **options: Any) -> GroupDescription:
    """A snapshot, over connections of its own."""
    return snapshot(here.group, redis_url=here.redis_url, **{"amqp_url": here.amqp_url} | options)


async def test_one_value_has_all_of_it(here: Place, topic: Topic) -> None:
    """Who works what under which token, what is left to do and in flight, which settings and servers."""
    gate = anyio.Event()

    async def wait(_: Delivery) -> None:
        await gate.wait()

    async with here.member(topic, wait, prefetch=3) as group:
        await group.wait_held(*topic.queue_names)
        here.publish(topic, 1, 2, 3, 4, 5)
        found = await until(lambda: it if _is_all_told(it := look(here)) else None)
        gate.set()
        tokens = {name: tenure.token for name, tenure in group.tenures.items()}
        (member,) = found.members
        assert (member.id, member.host, member.pid) == (group.member, socket.gethostname(), os.getpid())

    first, second = found.resources
    assert (found.name, found.state, found.version, found.settings) == (here.group, "Stable", FORMAT, group.settings)
    assert {it.name: (it.owner, it.token, it.state) for it in found.resources} == {
        name: (member.id, token, "held") for name, token in tokens.items()
    }
    assert (first.backlog.lag, first.backlog.in_flight, first.verdict) == (5, 3, None)
    assert first.backlog.consumers == 1
    assert (second.backlog.lag, second.backlog.in_flight, second.backlog.oldest_ms, second.verdict) == (
        0,
        0,
        None,
        "OK",
    )
    servers = {it.kind: it for it in found.servers}
    assert servers.keys() == {"RabbitMQ"} | ({"Redis"} if here.redis_url.startswith("redis") else set())
    assert all(it.version and it.version[0].isdigit() and it.problem is None for it in found.servers)


async def test_a_member_says_what_it_runs_and_when_it_acknowledged(here: Place, topic: Topic) -> None:
    """Nothing at first, which is no time; then each ack, also of a queue that it has given back. Of one that has not
    answered, all of it is unknown.
    """
    taken = anyio.Event()

    async def take(_: Delivery) -> None:
        taken.set()

    async with here.member(topic, take) as group:
        await group.wait_held(*topic.queue_names)
        (member,) = (await until(lambda: it if (it := look(here)).members[0].library_version else None)).members
        assert (member.library_version, member.last_ack_ago_ms, member.handled) == (version("cobalance"), None, 0)
        began_ms = monotonic_ms()
        here.publish(topic, 1)
        await taken.wait()

        def acknowledged() -> MemberDescription | None:
            (it,) = look(here).members
            return it if it.last_ack_ago_ms is not None else None

        member = await until(acknowledged)
        assert member.handled == 1
        assert 0 <= (member.last_ack_ago_ms or 0) <= monotonic_ms() - began_ms
        async with here.member(topic, take) as other:
            await other.wait_held(topic.queue_names[1])
            told = await until(lambda: {it.id: it for it in look(here).members if it.library_version} or None)
            before = told[group.member].last_ack_ago_ms
            assert before is not None
            assert before >= (member.last_ack_ago_ms or 0)
        (silent,) = here.coordinator.members()
        (unheard,) = GroupDescription.read(here.coordinator).members
        assert (unheard.id, unheard.library_version, unheard.last_ack_ago_ms) == (silent.id, None, None)


def _is_all_told(snapshot: GroupDescription) -> bool:
    """Whether both queues are consumed, the first with messages: of one that its member is only about to consume, nothing
    is known.
    """
    first, second = snapshot.resources
    return bool(first.backlog.oldest_ms) and second.backlog.lag is not None


async def test_what_cannot_be_read_is_unknown(here: Place, topic: Topic) -> None:
    """Without RabbitMQ there is no lag, and it says why; never a zero, and never a password."""
    url = f"amqp://user:{SECRET}@127.0.0.1:{free_port()}"
    said: list[str] = []
    async with here.member(topic, lambda _: None) as group:
        await group.wait_held(*topic.queue_names)
        found = await anyio.to_thread.run_sync(lambda: look(here, amqp_url=url, on_unknown=said.append))
    assert {(it.backlog.lag, it.backlog.in_flight, it.backlog.oldest_ms, it.verdict) for it in found.resources} == {
        (None, None, None, None)
    }
    assert (found.verdict, found.servers[-1].kind) == (None, "RabbitMQ")
    assert "cannot be reached" in (found.servers[-1].problem or "")
    assert said == [f"LAG is unknown. {found.servers[-1].problem}"]
    assert SECRET not in f"{found}{said}"


async def test_what_is_no_queue_is_not_asked_for(here: Place) -> None:
    """Folders and tenants have no lag."""
    async with Group(here.group, ["films"], redis_url=here.redis_url) as group:
        await group.wait_held("films")
        found = await anyio.to_thread.run_sync(lambda: look(here, amqp_url=None))
        asked = await anyio.to_thread.run_sync(lambda: look(here))
    for it in (found, asked):
        assert (it.resources[0].owner, it.resources[0].backlog.lag, it.resources[0].verdict) == (
            group.member,
            None,
            None,
        )
    assert [it.kind for it in found.servers] == [it.kind for it in asked.servers if it.kind == "Redis"]


async def test_a_stuck_handler_stalls_and_the_others_do_not(
    here: Place, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a window of a second, while messages go on to come. A look that its member does not answer in time ends no stall."""
    gate = anyio.Event()

    async def handle(delivery: Delivery) -> None:
        if delivery.queue == topic.queue_names[0]:
            await gate.wait()

    broker = Broker(amqp_url=here.amqp_url)
    watch = Watch(here.coordinator, broker, fresh_ms=0, window_ms=1_000)

    def verdicts() -> list[str | None]:
        here.publish(topic, 2, partition=1)
        return [it.verdict for it in watch.snapshot().resources]

    async with here.member(topic, handle) as group:
        await group.wait_held(*topic.queue_names)
        here.publish(topic, 1)
        assert await anyio.to_thread.run_sync(verdicts) != ["STALL", "OK"]
        await until(lambda: verdicts()[0] == "STALL")
        with monkeypatch.context() as unheard:
            unheard.setattr(here.coordinator, "ask_in_flight", dict)
            began_ms = watch.snapshot().at_ms
            found = await until(lambda: it if (it := watch.snapshot()).at_ms > began_ms + 100 else None)
            assert [it.backlog.lag for it in found.resources] == [None, None]
            assert [it.verdict for it in found.resources] == [None, None]
        found = await until(lambda: it if (it := watch.snapshot()).resources[0].backlog.lag is not None else None)
        assert found.verdict == "STALL"
        assert found.resources[1].verdict != "STALL"
        gate.set()
        await until(lambda: watch.snapshot().verdict == "OK")


class Counting(MemoryTransport):
    """Counts what Redis would have to do."""

    calls = 0

    def call(self, *args: Any) -> Any:
        self.calls += 1
        return super().call(*args)


def test_ten_watchers_cost_as_much_as_one() -> None:
    """Within a second all get the same value, whichever thread they ask from; then it is read again."""
    now = [0]
    transport = Counting(MemoryStore())
    coordinator = Coordinator(transport, "g")
    coordinator.create(GroupSettings())
    watch = Watch(coordinator, None, clock=lambda: now[0])
    before = transport.calls
    first = watch.snapshot()
    once = transport.calls - before
    now[0] = 999
    with ThreadPoolExecutor(10) as pool:
        seen = list(pool.map(lambda _: watch.snapshot(), range(10)))
    assert all(it is first for it in seen)
    assert transport.calls - before == once
    now[0] = 1_000
    with ThreadPoolExecutor(10) as pool:
        seen = list(pool.map(lambda _: watch.snapshot(), range(10)))
    assert len({id(it) for it in seen}) == 1
    assert seen[0] is not first
    assert transport.calls - before == 2 * once


def test_what_an_empty_group_does_not_have_is_not_asked_for() -> None:
    """Its state, and its declared lists; nobody is asked what is in flight."""
    transport = Counting(MemoryStore())
    coordinator = Coordinator(transport, "g")
    coordinator.create(GroupSettings())
    before = transport.calls
    found = read_snapshot(coordinator, None)
    assert (found.state, found.members, found.resources, found.let_go) == ("Empty", (), (), ())
    assert transport.calls - before == 2


async def test_the_command_shows_the_same(topic: Topic, redis_url: str, amqp_url: str) -> None:
    """Each number of ``describe`` is one of the snapshot."""
    urls = {"COBALANCE_REDIS_URL": redis_url, "COBALANCE_AMQP_URL": amqp_url}
    here = Place(amqp_url, redis_url)
    here.publish(topic, 1, 2)
    async with here.member(topic, lambda _: None) as group:
        await group.wait_held(*topic.queue_names)
        await until(lambda: look(here).verdict == "OK" and _is_all_done(look(here)))
        outcome = await anyio.to_thread.run_sync(
            lambda: cobalance("group", "describe", here.group, "--json", environment=urls)
        )
        with GroupAdmin(redis_url, amqp_url=amqp_url) as admin:
            found = await anyio.to_thread.run_sync(admin.snapshot, here.group)
    here.close()
    shown = [(it["resource"], it["token"], it["lag"], it["in_flight"], it["verdict"]) for it in json.loads(outcome.out)]
    assert shown == [(it.name, it.token, it.backlog.lag, it.backlog.in_flight, it.verdict) for it in found.resources]


def _is_all_done(snapshot: GroupDescription) -> bool:
    """Whether nothing changes any more from one look to the next."""
    return all((it.backlog.lag, it.backlog.in_flight) == (0, 0) for it in snapshot.resources)
