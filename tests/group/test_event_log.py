"""What a member logs, when all is well and when it is not: enough to follow it, and no false alarms."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import anyio
import attrs
import pika
import pytest
from tests.consumers import Seen, new_topic, until
from tests.names import unique

from cobalance import ConsumerGroup, Delivery, Group, GroupSettings, MemberSettings, servers
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.group.tenure import Tenure
from cobalance.rabbitmq import Topic

pytestmark = pytest.mark.anyio

SETTINGS = GroupSettings(
    session_timeout_ms=10_000, heartbeat_interval_ms=250, revocation_timeout_ms=10_000, gather_ms=0, rejoin_grace_ms=0
)
BRIEF = attrs.evolve(SETTINGS, session_timeout_ms=1_500, revocation_timeout_ms=1_500)
"""For what ends with a session, or is taken by force."""


@pytest.fixture(autouse=True)
def anyio_backend(caplog: pytest.LogCaptureFixture) -> str:
    caplog.set_level(logging.INFO)
    return "asyncio"


@pytest.fixture
def topic(amqp_url: str) -> Iterator[Topic]:
    with new_topic(amqp_url, 4) as made:
        yield made


def lines(caplog: pytest.LogCaptureFixture, *words: str) -> list[str]:
    """The lines that contain all of these words."""
    return [it.getMessage() for it in caplog.records if all(word in it.getMessage() for word in words)]


async def nothing(_: Delivery) -> None: ...


def created(url: str, settings: GroupSettings = SETTINGS) -> str:
    """A group whose first members start at once."""
    name = unique("seen")
    transport = open_transport(url)
    Coordinator(transport, name).create(settings)
    transport.close()
    return name


async def test_a_rolling_restart_can_be_followed_and_warns_of_nothing(
    redis_url: str, amqp_url: str, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """The group was not created before: its first member creates it."""
    name, soon = unique("rolled"), attrs.evolve(SETTINGS, session_timeout_ms=5_000)  # it waits for claims

    def member() -> ConsumerGroup:
        return ConsumerGroup(name, topic, nothing, amqp_url=amqp_url, redis_url=redis_url, settings=soon)

    async with member() as first:
        await first.wait_held(*topic.queue_names)
        async with member() as second:
            await second.wait_held()
        await first.wait_held(*topic.queue_names)

    assert [it.getMessage() for it in caplog.records if it.levelno > logging.INFO] == []
    assert {it.name.partition(".")[0] for it in caplog.records} <= {"cobalance", "asyncio"}
    assert len(lines(caplog, "joined as", "capacity 1")) == 2
    assert {it.name for it in caplog.records if "joined as" in it.getMessage()} == {"cobalance.group"}
    assert lines(caplog, "was assigned 4 (", topic.queue_names[0])
    assert lines(caplog, "is to hand over 2 (", "within")
    assert lines(caplog, "hands over")
    assert len(lines(caplog, "leaves, holding")) == len(lines(caplog, "left after")) == 2
    assert all(len(it.getMessage()) < 600 for it in caplog.records)


async def test_five_hundred_resources_are_a_handful_of_lines(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Whether they are assigned or handed over."""
    names = [f"{'customers-of-the-northern-hemisphere-' * 3}{number}" for number in range(500)]

    async with Group(created(redis_url), names, redis_url=redis_url) as group:
        await group.wait_held(*names)

    told = lines(caplog, f"group {group.name}: ")
    assert len(told) < 20
    assert all(len(line) < 1_000 for line in told)
    assert sum(int(line.split("was assigned ")[1].split()[0]) for line in told if "was assigned" in line) == 500
    assert any(" more)" in line for line in told if "was assigned" in line)
    assert lines(caplog, "leaves, holding 500")
    assert sum(int(line.split("hands over ")[1].split()[0]) for line in told if "hands over" in line) == 500


async def test_connections_that_are_lost_and_found(
    private_redis: servers.OwnRedis,
    private_rabbitmq: servers.OwnRabbitMQ,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The end of a problem is logged like its beginning."""
    redis, rabbitmq = private_redis, private_rabbitmq
    with new_topic(rabbitmq.url) as topic:
        own = MemberSettings(instance_id="shop-0")
        name = created(redis.url)
        async with ConsumerGroup(name, topic, nothing, amqp_url=rabbitmq.url, redis_url=redis.url, member=own) as group:
            await group.wait_held()
            await anyio.to_thread.run_sync(redis.stop)
            await until(lambda: lines(caplog, f"group {name}: ", "trying again"))
            await anyio.to_thread.run_sync(lambda: redis.restart(empty=True))
            await until(lambda: lines(caplog, "Redis answers again, after"))
            await until(lambda: lines(caplog, "joined again as", "instance id shop-0"))
            await anyio.to_thread.run_sync(rabbitmq.restart)
            await until(lambda: lines(caplog, "lost RabbitMQ"))
            await until(lambda: lines(caplog, "connected to RabbitMQ at", "again, after"))


def troubles(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines at WARNING and above."""
    return [it.getMessage() for it in caplog.records if it.levelno >= logging.WARNING]


async def test_a_lost_rabbitmq_is_one_line_and_so_is_its_return(
    private_redis: servers.OwnRedis, private_rabbitmq: servers.OwnRabbitMQ, caplog: pytest.LogCaptureFixture
) -> None:
    """However many queues there are, and however many attempts."""
    with new_topic(private_rabbitmq.url, 6) as topic:
        name = created(private_redis.url)
        options: dict[str, Any] = {"amqp_url": private_rabbitmq.url, "redis_url": private_redis.url, "refresh_ms": 500}
        async with ConsumerGroup(name, topic, nothing, **options) as group:
            await group.wait_held(*topic.queue_names)
            await anyio.to_thread.run_sync(private_rabbitmq.restart)
            await until(lambda: lines(caplog, "connected to RabbitMQ at", "again, after"))
            (told,) = troubles(caplog)
            assert "lost RabbitMQ" in told
            assert len(lines(caplog, "connected to RabbitMQ at", "again, after")) == 1


async def test_a_lost_redis_is_one_line_and_so_is_its_return(
    private_redis: servers.OwnRedis, caplog: pytest.LogCaptureFixture
) -> None:
    """The same, while the session lasts."""
    async with Group(created(private_redis.url), [f"r{it}" for it in range(20)], redis_url=private_redis.url) as group:
        await group.wait_held("r19")
        await anyio.to_thread.run_sync(lambda: private_redis.stop(save=True))
        await until(lambda: lines(caplog, f"group {group.name}: ", "trying again"))
        await anyio.to_thread.run_sync(private_redis.start)
        await until(lambda: lines(caplog, "Redis answers again, after"))
        told = lines(caplog, f"group {group.name}: ", "trying again")
        assert len(told) in {1, 2}  # a call that was under way ends otherwise than those that follow
        recovery = set(troubles(caplog)) - set(told)
        assert all("members to claim what they hold" in it for it in recovery)  # it is another server now
        assert len(lines(caplog, "Redis answers again, after")) == 1


async def test_what_is_taken_by_force_is_warned_of(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Here, of work that ignores that it is asked back."""
    name = created(redis_url, BRIEF)

    async def ignore(_: Tenure) -> None:
        await anyio.sleep_forever()

    async with Group(name, ["jobs", "mails"], redis_url=redis_url, work=ignore, member=quick()) as first:
        await first.wait_held("jobs", "mails")
        async with Group(name, ["jobs", "mails"], redis_url=redis_url, member=quick()) as second:
            await second.wait_held()
            (forced,) = [it for it in caplog.records if "forced to let go of 1 (" in it.getMessage()]
            assert forced.levelname == "WARNING"


def quick() -> MemberSettings:
    """Settings of a member that does not wait for work that never ends."""
    return MemberSettings(drain_timeout_ms=100)


async def test_what_is_given_up_says_why(
    redis_url: str, amqp_url: str, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler's error was logged before; this is the consequence."""
    seen = Seen()

    async def fail(delivery: Delivery) -> None:
        seen.note(delivery)
        raise ValueError("no such customer")

    group = ConsumerGroup(created(redis_url, BRIEF), topic, fail, amqp_url=amqp_url, redis_url=redis_url, retries=0)
    async with group:
        await group.wait_held(*topic.queue_names)
        with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection:
            connection.channel().basic_publish("", topic.queue_names[0], b"x")
        await until(lambda: lines(caplog, f"gave up 1 ({topic.queue_names[0]}): "))


async def test_the_programs_own_use_of_pika_is_logged_as_ever(amqp_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Only the library's own messages are lowered, and debug logging still shows them."""
    with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection, pytest.raises(Exception, match="404"):
        connection.channel().queue_declare(unique("missing"), passive=True)
    assert [it.name for it in caplog.records if it.levelname == "WARNING"] == ["pika.channel"]
