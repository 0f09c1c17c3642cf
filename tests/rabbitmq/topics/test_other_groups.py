"""Two groups on one topic: both are warned, and how each of them gets every message."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
import redis
from tests.cli_process import cobalance
from tests.consumers import SETTINGS, Seen, channel, new_topic, until
from tests.names import unique

from cobalance import ConsumerGroup, Publisher, Topic
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.errors import TopicMissing, UsageError
from cobalance.rabbitmq import Delivery, create_topic, delete_topic, grow_topic, read_topic
from cobalance.rabbitmq.topics import other_groups

DAY_S = 86_400

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["classic", pytest.param("quorum", marks=pytest.mark.thorough)])
def topic(request: pytest.FixtureRequest, amqp_url: str) -> Iterator[Topic]:
    """Two partitions, of queues whose messages go to one consumer each."""
    with new_topic(amqp_url, 2, request.param) as made:
        yield made


class Servers:
    """Makes members of groups, which start without delay."""

    def __init__(self, redis_url: str, amqp_url: str) -> None:
        self.redis_url, self.amqp_url = redis_url, amqp_url
        self._names: dict[str, str] = {}

    def named(self, name: str) -> str:
        """A name of its own for each test."""
        if name not in self._names:
            self._names[name] = unique(name)
            transport = open_transport(self.redis_url)
            Coordinator(transport, self._names[name]).create(SETTINGS)
            transport.close()
        return self._names[name]

    def member(self, name: str, source: Any, seen: Seen | None = None, **options: Any) -> ConsumerGroup:
        """A member that is not entered yet."""

        async def handle(delivery: Delivery) -> None:
            if seen is not None:
                seen.note(delivery)

        return ConsumerGroup(
            self.named(name), source, handle, amqp_url=self.amqp_url, redis_url=self.redis_url, **options
        )


@pytest.fixture
def servers(redis_url: str, amqp_url: str) -> Servers:
    return Servers(redis_url, amqp_url)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings about other groups."""
    return [it.getMessage() for it in caplog.records if it.levelno == logging.WARNING and "too, and" in it.getMessage()]


async def test_the_second_group_on_a_topic_is_told(
    servers: Servers, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with the other group's name, the queues, and what to do."""
    async with servers.member("billing", topic) as billing:
        await billing.wait_held(*topic.queue_names)
        assert warnings(caplog) == []
        async with servers.member("audit", topic):
            (warning,) = warnings(caplog)
    first, second = servers.named("billing"), servers.named("audit")
    assert warning.startswith(
        f"group {second}: group {first} works {', '.join(topic.queue_names)}, too, and has members"
    )
    assert f'create_topic(url, topic, group="{second}")' in warning


async def test_so_is_the_first_group_a_little_later(
    servers: Servers, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """Also once: its operators may be other people."""
    async with servers.member("billing", topic, refresh_ms=20) as billing:
        await billing.wait_held(*topic.queue_names)
        async with servers.member("audit", topic, refresh_ms=20) as audit:
            await audit.wait_held(*topic.queue_names)
            first, second = servers.named("billing"), servers.named("audit")
            await until(lambda: any(it.startswith(f"group {first}: group {second} works") for it in warnings(caplog)))
    assert len(warnings(caplog)) == 2


async def test_queues_that_are_found_later_are_looked_at_too(
    servers: Servers, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """Here those of a topic that is grown, while another group consumes the new queue by its name."""
    async with servers.member("billing", topic, refresh_ms=20) as billing:
        await billing.wait_held(*topic.queue_names)
        grown = await anyio.to_thread.run_sync(lambda: grow_topic(servers.amqp_url, topic.name, 3))
        third = grown.queue_names[2]
        await billing.wait_held(third)
        assert warnings(caplog) == []
        async with servers.member("audit", [third], refresh_ms=20):
            first = servers.named("billing")
            await until(lambda: any(it.startswith(f"group {first}: ") and third in it for it in warnings(caplog)))


async def test_what_the_warning_says_to_do_gives_both_all_messages(
    servers: Servers, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """After that, no warning is logged."""
    audit = servers.named("audit")
    own = create_topic(servers.amqp_url, topic, group=audit)
    assert own == topic.for_group(audit)
    bills, audits = Seen(), Seen()
    try:
        async with servers.member("billing", topic, bills), servers.member("audit", topic.for_group(audit), audits):
            with Publisher(servers.amqp_url, topic) as publisher:
                for number in range(20):
                    publisher.publish(f"customer-{number}", str(number).encode())
            assert sorted(await bills.wait(20)) == sorted(await audits.wait(20))
    finally:
        delete_topic(servers.amqp_url, own.name, force=True)
    assert warnings(caplog) == []


async def test_a_group_without_members_keeps_nobody(
    servers: Servers, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as a group under a former name; and another member of the same group."""
    async with servers.member("billing", topic) as billing:
        await billing.wait_held()
    async with servers.member("invoices", topic), servers.member("invoices", topic):
        assert warnings(caplog) == []


async def test_streams_are_anybodys(servers: Servers, caplog: pytest.LogCaptureFixture) -> None:
    """Any number of groups may read them."""
    with new_topic(servers.amqp_url, 1, "stream") as topic:
        async with servers.member("billing", topic) as billing, servers.member("audit", topic):
            await billing.wait_held()
        with pytest.raises(UsageError, match="streams, which any number of groups may read"):
            create_topic(servers.amqp_url, topic, group="audit")
    assert warnings(caplog) == []


async def test_a_redis_that_does_not_let_us_look_says_nothing(servers: Servers, topic: Topic, monkeypatch: Any) -> None:
    """No warning is logged without evidence, and nothing is delayed."""
    monkeypatch.setattr("cobalance.rabbitmq.topics.other_groups.queues_key", lambda *_: "elsewhere:{queues}:worked-by")
    async with servers.member("billing", topic) as billing:
        await billing.wait_held()


async def test_what_was_worked_is_forgotten(
    redis_admin_url: str, topic: Topic, amqp_url: str, caplog: Any, monkeypatch: Any
) -> None:
    """Queues and groups come and go, and nobody says so: two weeks later Redis has nothing of them. Those who go on are known."""
    now = [time.time()]
    monkeypatch.setattr(other_groups, "time", SimpleNamespace(time=lambda: now[0]))
    prefix, servers = unique("prefix"), Servers(redis_admin_url, amqp_url)
    with redis.Redis.from_url(servers.redis_url) as it:
        async with servers.member("billing", topic, key_prefix=prefix, settings=SETTINGS) as billing:
            await billing.wait_held(*topic.queue_names)
            (first,) = it.keys(f"{prefix}:1:{{queues}}:*")
            assert 7 * DAY_S < it.ttl(first) <= 14 * DAY_S
            now[0] += 7 * DAY_S
            async with servers.member("audit", topic, key_prefix=prefix, settings=SETTINGS):
                (warning,) = [it for it in warnings(caplog) if f"group {servers.named('audit')}: " in it]
        assert len(it.keys(f"{prefix}:1:{{queues}}:*")) == 2
    assert "billing" in warning


def test_sets_follow_the_layout_and_keep_a_topic_from_being_grown(amqp_url: str) -> None:
    """Otherwise a set that gets nothing from new partitions would lose messages."""
    with new_topic(amqp_url, 1) as topic:
        grow_topic(amqp_url, topic.name, 3)
        own = create_topic(amqp_url, topic, group="audit")
        assert own.partitions == 3
        with Publisher(amqp_url, topic) as publisher:
            for number in range(3):
                publisher.publish(None, b"x", partition=number)
        with channel(amqp_url) as it:
            found = [it.queue_declare(name, passive=True).method.message_count for name in own.queue_names]
        assert found == [1, 1, 1]
        for name in (topic.name, own.name):
            with pytest.raises(UsageError, match="cannot be grown"):
                grow_topic(amqp_url, name, 5)
        delete_topic(amqp_url, own.name, force=True)


def test_a_set_is_not_made_as_if_it_were_a_topic(amqp_url: str, topic: Topic) -> None:
    """It would get nothing of what is published to the topic, without a word."""
    own = topic.for_group("audit")
    with pytest.raises(UsageError, match=r"create_topic\(url, .*, group='audit'\)"):
        create_topic(amqp_url, own)
    assert create_topic(amqp_url, topic, group="audit") == create_topic(amqp_url, own) == own
    delete_topic(amqp_url, own.name, force=True)


def test_a_topic_may_have_such_a_name_of_its_own(amqp_url: str) -> None:
    """There is nothing that it could be a set of."""
    mail = create_topic(amqp_url, Topic(unique("mail@shop"), 1))
    delete_topic(amqp_url, mail.name)


def test_who_has_no_set_is_told_how_to_make_one(amqp_url: str, topic: Topic) -> None:
    """Creating a topic of that name would not do."""
    with pytest.raises(TopicMissing, match=f"cobalance topic create {topic.name} --partitions N --group audit"):
        read_topic(amqp_url, topic.for_group("audit").name)


async def test_the_command_line_makes_a_set(amqp_url: str, topic: Topic) -> None:
    """It works for an existing topic, and again without changing it."""
    command = ("topic", "create", topic.name, "--partitions", "2", "--type", topic.queue_type, "--group", "audit")
    environment = {"COBALANCE_AMQP_URL": amqp_url}
    for _ in range(2):
        outcome = await anyio.to_thread.run_sync(lambda: cobalance(*command, environment=environment))
        assert (outcome.code, outcome.err) == (0, "")
    delete_topic(amqp_url, f"{topic.name}@audit")
