"""Programs that start before their servers: pika's with a group, and the commands."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from pika import exceptions as pika_errors
from redis import Redis
from tests.cli_process import cobalance, running
from tests.consumers import bodies_in, new_topic
from tests.faults.eventually import eventually
from tests.faults.proxy import FaultProxy
from tests.names import unique

from cobalance import BlockingConsumerGroup, ConsumerGroup, Group, GroupAdmin, GroupSettings, MemberSettings, servers
from cobalance.errors import MembershipError, OutOfMemory, UsageError
from cobalance.rabbitmq.dropin.connection import GroupConnection, GroupUnreachable

pytestmark = pytest.mark.both_loops

SETTINGS = GroupSettings(session_timeout_ms=2_000, heartbeat_interval_ms=250, revocation_timeout_ms=6_000)
ANSWERED = GroupSettings(session_timeout_ms=3_000, heartbeat_interval_ms=500, revocation_timeout_ms=6_000)
"""Calls have half a second, so that a busy machine answers each: what it says is what the member gives up for."""
NOWHERE = "amqp://guest:guest@127.0.0.1:1/%2F"


class Vain(NamedTuple):
    options: dict[str, Any]
    joins: threading.Event


@pytest.fixture
def late_url(rabbitmq_server: servers.RabbitMQServer) -> Iterator[str]:
    """A RabbitMQ that comes up after a second."""
    with FaultProxy(int(rabbitmq_server.url.rsplit(":", 1)[1].split("/")[0])) as proxy:
        proxy.refuse()
        timer = threading.Timer(1, proxy.heal)
        timer.start()
        yield proxy.through(rabbitmq_server.url)
        timer.join()


def test_a_pika_program_waits_for_rabbitmq(late_url: str) -> None:
    """It waits for the connect timeout, which is 0 by default."""
    options: dict[str, Any] = {"group": "g", "redis_url": f"memory://{unique('late')}"}
    with pytest.raises(pika_errors.AMQPConnectionError):
        GroupConnection(late_url, **options)
    with GroupConnection(late_url, **options, connect_timeout_s=30) as connection:
        assert connection.is_open


def test_it_does_not_wait_where_it_is_refused(amqp_url: str) -> None:
    """Waiting does not help against a wrong password."""
    wrong = amqp_url.replace("guest:guest", "guest:wrong")
    with pytest.raises(pika_errors.ProbableAuthenticationError):
        GroupConnection(wrong, group="g", connect_timeout_s=3_600)


WRONG: list[dict[str, Any]] = [
    {"no_such_option": 1},
    {"session_timeout_ms": 1},
    {"connect_timeout_s": "1"},
    {"member": MemberSettings(instance_id="a{b}")},
    {"prefetch": 0},
]


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_what_is_wrong_with_its_options_is_told_by_the_call(options: dict[str, Any]) -> None:
    """Rather than later, when consuming begins, or never. No server is contacted."""
    with pytest.raises(UsageError):
        GroupConnection(NOWHERE, group="g", **options)


@pytest.fixture
def vain(redis_admin_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vain]:
    """A Redis that goes away before anybody has joined."""
    prepare, joins = ConsumerGroup._prepare, threading.Event()

    async def then_nothing(group: ConsumerGroup) -> None:
        await prepare(group)
        redis.black_hole()
        joins.set()

    with FaultProxy(int(redis_admin_url.rpartition(":")[2].partition("/")[0])) as redis:
        monkeypatch.setattr(ConsumerGroup, "_prepare", then_nothing)
        yield Vain({"redis_url": redis.through(redis_admin_url), "settings": SETTINGS}, joins)


def test_a_pika_program_waits_no_longer_to_join(vain: Vain, amqp_url: str) -> None:
    """Than for its servers: by default not at all."""
    with new_topic(amqp_url) as topic, GroupConnection(amqp_url, group=unique("vain"), **vain.options) as connection:
        channel = connection.channel()
        channel.basic_consume(topic.queue_names[0], lambda *_: None)
        with pytest.raises(GroupUnreachable):
            channel.start_consuming()


def test_a_consumer_with_threads_can_be_stopped_while_it_waits(vain: Vain, amqp_url: str) -> None:
    """From another thread."""
    refused: list[MembershipError] = []

    def start() -> None:
        with pytest.raises(MembershipError) as raised:
            group.start()
        refused.append(raised.value)

    with new_topic(amqp_url) as topic:
        group = BlockingConsumerGroup(
            unique("vain"), topic, lambda _: None, amqp_url=amqp_url, connect_timeout_s=3_600, **vain.options
        )
        starting = threading.Thread(target=start, daemon=True)
        starting.start()
        assert vain.joins.wait(60)
        group.stop()
        starting.join(60)
        assert refused


def test_a_command_that_publishes_waits(late_url: str, amqp_url: str) -> None:
    """Like a job that is started together with everything else."""
    with new_topic(amqp_url, 1) as topic:
        late = {"COBALANCE_AMQP_URL": late_url}
        ended = cobalance("publish", topic.name, "hello", "--connect-timeout", "30s", environment=late)
        assert (ended.code, ended.err) == (0, "published 1\n")
        assert bodies_in(amqp_url, topic.queue_names[0]) == ["hello"]


@pytest.mark.thorough
def test_a_command_that_consumes_waits(late_url: str, amqp_url: str, redis_url: str, tmp_path: Path) -> None:
    """And joins."""
    (tmp_path / "shop.py").write_text("def handle(delivery): ...\n")
    urls = {"COBALANCE_AMQP_URL": late_url, "COBALANCE_REDIS_URL": redis_url}
    with new_topic(amqp_url, 1) as topic:
        command = (
            "consume",
            topic.name,
            "--group",
            unique("late"),
            "--handler",
            "shop:handle",
            "--connect-timeout",
            "30s",
        )
        with running(*command, folder=tmp_path, environment=urls) as it:
            it.wait_for("joined group")
            assert it.end(signal.SIGINT).code == 0


@pytest.mark.anyio
@pytest.mark.parametrize("known", [True, False])
async def test_a_full_redis_is_waited_for(caplog: pytest.LogCaptureFixture, known: bool) -> None:
    """Like one that is away, also where nothing but the join would write: the group is new."""
    with closing(servers.private_redis()) as server, Redis.from_url(server.url) as admin:
        if known:
            with GroupAdmin(server.url) as groups:
                groups.create("g", ANSWERED)
        admin.config_set("maxmemory", 1)
        began = time.monotonic()
        with pytest.raises(OutOfMemory, match="raise its maxmemory"):
            await _enter(server.url, 1)
        assert time.monotonic() - began >= 1
        caplog.clear()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_enter, server.url, 60)
            await eventually(lambda: "raise its maxmemory" in caplog.text)
            admin.config_set("maxmemory", 0)


async def _enter(url: str, patience_s: float) -> None:
    with anyio.fail_after(90):
        async with Group("g", ["a"], redis_url=url, settings=ANSWERED, connect_timeout_s=patience_s) as group:
            await group.wait_held("a")
