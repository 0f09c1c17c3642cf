"""Members of one group at two virtual hosts, whose queues have the same names and other messages."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import anyio.lowlevel
import pytest
from tests.consumers import Place, new_topic, place, until
from tests.names import unique

from cobalance import ConsumerGroup, Delivery, Topic
from cobalance.coordinator.in_flight import InFlightReport, written
from cobalance.errors import GroupActive, GroupFailed
from cobalance.rabbitmq import create_topic
from cobalance.rabbitmq.consume.one_broker import BrokerPlace, OneBroker
from cobalance.servers import OwnRabbitMQ

pytestmark = pytest.mark.anyio


@contextmanager
def virtual_host(server: OwnRabbitMQ) -> Iterator[str]:
    """The URL of a new one."""
    name = unique("environment")
    server.control("add_vhost", name)
    try:
        server.control("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
        yield server.url.replace("%2F", name)
    finally:
        server.control("delete_vhost", name)


class Environments:
    """Two virtual hosts with the same topic, and one group for both."""

    def __init__(self, here: Place, urls: list[str], topic: Topic) -> None:
        self.here, self.urls, self.topic = here, urls, topic
        self.names = [url.rpartition("/")[2] for url in urls]

    def member(self, which: int) -> ConsumerGroup:
        """A member at one of them, not entered yet."""
        return self.here.member(self.topic, ignore, amqp_url=self.urls[which])


@pytest.fixture
def two(private_rabbitmq: OwnRabbitMQ) -> Iterator[Environments]:
    with ExitStack() as stack:
        urls = [stack.enter_context(virtual_host(private_rabbitmq)) for _ in range(2)]
        topic = stack.enter_context(new_topic(urls[0], 2))
        create_topic(urls[1], topic)
        yield Environments(stack.enter_context(place(urls[0])), urls, topic)


async def ignore(_: Delivery) -> None: ...


async def reported(two: Environments, member: ConsumerGroup) -> None:
    """Returns once the member has said where it is."""
    rows = two.here.coordinator.members
    await until(
        lambda: any(it.id == member.member and it.in_flight is not None and it.in_flight.place for it in rows())
    )


@pytest.mark.thorough
async def test_a_member_of_another_virtual_host_is_refused(two: Environments) -> None:
    """As long as members are elsewhere, which keep all partitions. Once they have left, the group may move."""
    for first, other in ((0, 1), (1, 0)):
        async with two.member(first) as member:
            await member.wait_held(*two.topic.queue_names)
            await reported(two, member)
            async with two.member(first):
                pass
            refused = two.member(other)
            with pytest.raises(GroupActive) as raised:
                async with refused:
                    pass
            message = str(raised.value)
            assert all(f"virtual host '{name}'" in message for name in two.names)
            assert "key_prefix" in message
            assert (refused.health.state, message in refused.health.reasons[0]) == ("failed", True)
            await member.wait_held(*two.topic.queue_names)


@pytest.mark.thorough
async def test_of_two_that_join_at_once_the_later_leaves(
    two: Environments, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither has seen the other before joining. The later one says so once, and the first works everything."""
    watch = OneBroker.watch
    monkeypatch.setattr(OneBroker, "check", lambda _: None)
    monkeypatch.setattr(OneBroker, "watch", lambda *_: anyio.lowlevel.checkpoint())

    async def join_too(first: ConsumerGroup) -> None:
        async with two.member(1) as later:
            await reported(two, first)
            await reported(two, later)
            assert first._one_broker._place_of_older() is None
            await watch(later._one_broker, 1)
            await later.wait_left()

    async with two.member(0) as first:
        with pytest.raises(GroupFailed, match="has members at virtual host"):
            await join_too(first)
        await first.wait_held(*two.topic.queue_names)
    assert [it.getMessage().count(two.names[0]) for it in caplog.records if it.levelno == logging.ERROR] == [1]


@pytest.mark.parametrize(
    ("here", "there", "is_apart"),
    [
        (("rabbit@one", "/"), ("rabbit@two", "/"), False),  # perhaps two nodes of one cluster
        (("rabbit@one", "/"), ("rabbit@one", "a b"), True),
        (("", "/"), ("north", "/"), False),
        (("rabbit@one", "/"), ("north", "/"), False),
        (("north", "/"), ("south", "/"), True),
        (("no/rth", "/"), ("no/rth", "/"), False),
    ],
)
def test_what_is_certainly_elsewhere(here: tuple[str, str], there: tuple[str, str], is_apart: bool) -> None:
    """Also as it is read from a report."""
    places = BrokerPlace(*here), BrokerPlace(*there)
    for it in places:
        report = InFlightReport.read("5 " + written(None, place=it.written))
        assert report is not None
        assert BrokerPlace.read(report.place or "") == it
    assert places[0].is_apart_from(places[1]) is places[1].is_apart_from(places[0]) is is_apart
