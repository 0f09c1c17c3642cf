"""More partitions than channels: what fits is worked, the rest waits for other members, and the log says why."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest
from pika.channel import Channel
from tests.consumers import Place, Seen, channel, new_topic, place, until
from tests.streams import bodies_in_stream, connected, new_stream

from cobalance import servers
from cobalance.backoff import Backoff
from cobalance.errors import ChannelLimitReached, Unreachable
from cobalance.rabbitmq import Delivery, Publisher, Topic
from cobalance.rabbitmq.publish.confirm_channel import AFFECTED
from cobalance.rabbitmq.streams.probe import first_offset
from cobalance.rabbitmq.wire.channel_limit import TRIED_AGAIN_S, ChannelLimit
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.pika_internals import bare_close

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

WAIT_S = 60

MOST = 10
"""One channel is for probing the connection, and one is spare."""


@pytest.fixture(scope="module", params=["channel_max", "max-channels"])
def limited(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A RabbitMQ that allows ten channels per connection; or per user, which it does not announce."""
    if request.param == "channel_max":
        with servers.private_rabbitmq(settings={"channel_max": str(MOST)}) as server:
            add_users(server)
            yield server
    else:
        server = request.getfixturevalue("private_rabbitmq")
        add_users(server)
        server.control("set_user_limits", "few", f'{{"max-channels": {MOST}}}')
        yield server
        for what, name in (("user", "few"), ("user", "other"), ("vhost", "other")):
            server.control(f"delete_{what}", name)


def add_users(server: Any) -> None:
    """Adds a user "few", and a user "other" of a virtual host of this name."""
    server.control("add_vhost", "other")
    for user, vhost in (("few", "/"), ("other", "other")):
        server.control("add_user", user, user)
        server.control("set_permissions", "-p", vhost, user, ".*", ".*", ".*")


@pytest.fixture
def here(limited: Any) -> Iterator[Place]:
    """That RabbitMQ and a group in memory."""
    with place(limited.url.replace("guest:guest", "few:few")) as it:
        yield it


@pytest.mark.thorough
async def test_what_fits_is_worked_and_the_rest_is_said_to_be_too_much(
    limited: Any, here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Of twenty partitions, one member works eight; the others are given up with a reason, messages intact."""
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        seen.note(delivery)

    def rest_waits() -> bool:
        waiting = sum(1 for row in here.resources().values() if row.halted)
        if not waiting and consumers(limited.url, topic) == 20:
            # RabbitMQ counts a user's channels late: it opened all before it counted ten.
            limited.control("close_all_user_connections", "few", "the limit is to be noticed")
        return waiting == 20 - (MOST - 2)

    with new_topic(limited.url, 20) as topic:
        async with here.member(topic, handle):
            await until(rest_waits)
            worked = [partition for partition, name in enumerate(topic.queue_names) if here.resources()[name].owner]
            assert len(worked) == MOST - 2
            for partition in worked:
                with_plenty = Place(limited.url)
                with_plenty.publish(topic, partition, partition=partition)
                with_plenty.close()
            assert sorted(map(int, await seen.wait(len(worked)))) == worked
    assert {it.reason for it in here.journal("abandoned")} == {"channel_limit"}
    (error,) = [it.getMessage() for it in caplog.records if it.levelname == "ERROR"]
    assert f"allows {MOST} channels" in error
    assert "channel_max" in error
    assert len([it for it in caplog.records if "lost RabbitMQ" in it.getMessage() and "530" in it.getMessage()]) <= 1


def consumers(url: str, topic: Topic) -> int:
    """How many of its partitions are consumed."""
    with channel(url) as it:
        return sum(it.queue_declare(name, passive=True).method.consumer_count or 0 for name in topic.queue_names)


@pytest.mark.parametrize("limited", ["channel_max"], indirect=True)
@pytest.mark.thorough
async def test_more_members_work_what_one_cannot(limited: Any) -> None:
    """Each member has a connection of its own; nothing was lost while there were too few of them."""
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        seen.note(delivery)

    with place(limited.url) as here, new_topic(limited.url, 20) as topic:
        for partition in range(20):
            here.publish(topic, partition, partition=partition)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(here.member(topic, handle))
            await seen.wait(MOST - 2)
            for _ in range(2):
                await stack.enter_async_context(here.member(topic, handle))
            assert sorted(map(int, await seen.wait(20))) == list(range(20))


def test_one_publishes_to_more_streams_than_it_may_have_channels(
    limited: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """RabbitMQ 3 gets a channel for each stream, as far as they go; that this is not safe is said."""
    with new_topic(limited.url, 20, "stream") as topic:
        with Publisher(limited.url.replace("guest:guest", "few:few"), topic) as publisher:
            for partition in range(20):
                publisher.publish(None, "x", partition=partition)
            connection = publisher._channel._connection
            is_safe = not connection.server_version.startswith(AFFECTED) or (connection.channels_allowed or 20) >= 20
            assert ("they share these" in caplog.text) != is_safe  # RabbitMQ counts a user's channels a moment late
        assert [bodies_in_stream(limited.url, it) for it in topic.queue_names] == [["x"]] * 20


@pytest.mark.parametrize(("limit", "of"), [("user", ["other"]), ("vhost", ["-p", "other"])])
@pytest.mark.thorough
def test_too_many_connections_are_not_taken_for_a_missing_virtual_host(limited: Any, limit: str, of: list[str]) -> None:
    """The error names the limit; a connection may be free soon."""
    url = urlsplit(limited.url.replace("guest:guest", "other:other"))._replace(path="/other").geturl()
    limited.control(f"set_{limit}_limits", *of, '{"max-connections": 0}')
    with pytest.raises(Unreachable, match=r"connection limit \(0\) is reached"):
        BrokerConnection(url, "g/m").connect()
    limited.control(f"set_{limit}_limits", *of, '{"max-connections": -1}')
    with connected(url):
        pass


def test_channels_for_a_moment_are_lent_in_turn(amqp_url: str) -> None:
    """A stream's queries wait for each other rather than fail where RabbitMQ allows few channels."""
    with new_stream(amqp_url, 1) as stream, connected(f"{amqp_url}?channel_max=2") as connection:
        asked = [first_offset(connection, stream.name) for _ in range(8)]
        assert [it.result(WAIT_S) for it in asked] == [0] * 8


def test_a_channel_for_a_moment_takes_no_queue_s_place(amqp_url: str) -> None:
    """Of four channels, one is to spare: that one."""
    opened: queue.SimpleQueue[Channel] = queue.SimpleQueue()
    with connected(f"{amqp_url}?channel_max=4") as connection:
        connection.submit(lambda: connection.lend_channel(opened.put, lambda *_: None, lambda _: None))
        for _ in range(3):
            opened.get(timeout=WAIT_S)
            connection.submit(lambda: connection.open_channel(opened.put, lasting=True))
        opened.get(timeout=WAIT_S)


def test_a_query_that_is_never_answered_stops_no_other(amqp_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its channel is not waited for."""
    monkeypatch.setattr("cobalance.rabbitmq.wire.connection.LENT_MS", 100)
    opened: queue.SimpleQueue[Channel] = queue.SimpleQueue()
    with connected(f"{amqp_url}?channel_max=2") as connection:
        for _ in range(2):
            connection.submit(lambda: connection.lend_channel(opened.put, lambda *_: None, lambda _: None))
        assert opened.get(timeout=WAIT_S) is not opened.get(timeout=WAIT_S)


def test_a_channel_that_was_given_back_leaves_the_spare_one(amqp_url: str) -> None:
    """No queue gets it, though RabbitMQ may still count the one that was lent."""
    found: queue.SimpleQueue[list[bool]] = queue.SimpleQueue()
    with connected(f"{amqp_url}?channel_max=4") as connection:

        def opens(_: int) -> bool:
            try:
                connection.open_channel(lambda _: None, lasting=True)
            except ChannelLimitReached:
                return False
            return True

        def closed(*_: object) -> None:
            connection.call_later(0, lambda: found.put([opens(it) for it in range(4)]))

        connection.submit(lambda: connection.lend_channel(bare_close, closed, lambda _: None))
        assert found.get(timeout=WAIT_S) == [True, True, True, False]


def test_a_trial_is_left_to_channels_that_are_to_stay() -> None:
    """Those for a moment can wait."""
    now = 0.0
    limit = ChannelLimit("g/m", lambda: now)
    lose_with(limit, 4)
    now += TRIED_AGAIN_S.longest
    limit.check(4, "here")
    assert limit.leaves_room(1)
    assert not limit.leaves_room(2)


def test_a_connection_that_may_open_a_channel_again_is_probed(amqp_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others of the user had all when it was made; RabbitMQ guards its queues again once they have gone."""
    monkeypatch.setattr("cobalance.rabbitmq.wire.channel_limit.TRIED_AGAIN_S", Backoff(0.5, 0.5))
    limit, proven = ChannelLimit("g/m"), queue.SimpleQueue[bool]()
    lose_with(limit, 0)
    connection = BrokerConnection(amqp_url, "g/m", heartbeat_s=1, on_proven=proven.put)
    connection._limit = limit
    connection.connect()
    try:
        assert limit.most == 1
        assert proven.get(timeout=WAIT_S)
        assert connection.is_proven
    finally:
        connection.close()


TOO_MANY = (
    "530 NOT_ALLOWED - number of channels opened for user 'few' has reached the maximum allowed user limit of (4)"
)


TOO_MANY_ON_THE_NODE = (
    "530 NOT_ALLOWED - number of channels opened on node 'rabbit@ip-10-0-23-173' has reached the maximum allowed limit "
    "of (15,000)"
)
"""Amazon MQ's words."""


def lose_with(limit: ChannelLimit, channels: int, reason: str = TOO_MANY) -> None:
    """A connection that opens that many channels and is ended for it."""
    limit.connected(2_047)
    for _ in range(channels):
        limit.opened()
    limit.lost(reason)


def test_a_connection_that_was_given_no_channel_consumes_nothing_for_a_while() -> None:
    """Others of the user have all: its queues go to another member, rather than each connection to its end."""
    now = 0.0
    limit = ChannelLimit("g/m", lambda: now)
    lose_with(limit, 0)
    limit.connected(2_047)
    with pytest.raises(ChannelLimitReached, match="allows 4 channels in all connections of this user, 1 of them on"):
        limit.check(1, "here")
    now += TRIED_AGAIN_S.first
    limit.check(1, "here")


def test_the_limit_of_a_node_is_learned_too() -> None:
    """All its connections count towards it."""
    limit = ChannelLimit("g/m")
    lose_with(limit, 8, TOO_MANY_ON_THE_NODE)
    limit.connected(2_047)
    limit.check(7, "here")
    with pytest.raises(ChannelLimitReached, match="allows 15000 channels in all connections of this user, 8 of them"):
        limit.check(8, "here")


@pytest.mark.parametrize("reason", [TOO_MANY, TOO_MANY.replace("(4)", "4")], ids=["in-brackets", "without"])
def test_a_limit_that_was_learned_is_kept(reason: str) -> None:
    """The next connection keeps it, whatever channel_max is announced."""
    limit = ChannelLimit("g/m")
    limit.connected(2_047)
    limit.check(2_046, "here")
    lose_with(limit, 5, reason)
    limit.connected(2_047)
    limit.check(3, "here")
    with pytest.raises(ChannelLimitReached, match="allows 4 channels"):
        limit.check(4, "here")


def test_a_channel_that_was_opened_over_the_limit_is_not_counted() -> None:
    """RabbitMQ counts a user's channels a moment late; its words have the limit."""
    limit = ChannelLimit("g/m")
    lose_with(limit, 5)
    with pytest.raises(ChannelLimitReached, match="allows 4 channels"):
        limit.check(4, "here")


def test_each_loss_at_the_limit_takes_one_off_it() -> None:
    """Other connections of the user have channels, too; the remedy names what RabbitMQ allows."""
    limit = ChannelLimit("g/m")
    lose_with(limit, 4)
    lose_with(limit, 4)
    limit.check(2, "here")
    with pytest.raises(ChannelLimitReached, match="allows 4 channels in all connections of this user, 3 of them on"):
        limit.check(3, "here")


def test_a_limit_is_tried_again_ever_more_rarely() -> None:
    """Others may have gone, or the limit was raised; but each trial may cost the connection."""
    now = 0.0
    limit = ChannelLimit("g/m", lambda: now)
    kept_for: list[float] = []
    for _ in range(8):
        lose_with(limit, 4)
        kept_for.append(TRIED_AGAIN_S.pause(len(kept_for) + 1))
        now += kept_for[-1] - 1
        with pytest.raises(ChannelLimitReached):
            limit.check(4, "here")
        now += 1
        limit.check(4, "here")
    assert kept_for == sorted(kept_for)
    assert kept_for[-1] == TRIED_AGAIN_S.longest


def test_a_trial_that_paid_off_is_soon_repeated() -> None:
    """More channels were open when RabbitMQ refused one than the time before."""
    now = 0.0
    limit = ChannelLimit("g/m", lambda: now)
    for channels in (2, 2, 2, 3):
        lose_with(limit, channels)
        now += 1_000
    lose_with(limit, 4)
    now += TRIED_AGAIN_S.first
    limit.check(4, "here")


def test_a_connection_lost_for_another_reason_leaves_no_limit() -> None:
    """RabbitMQ may have been given a higher one."""
    limit = ChannelLimit("g/m")
    lose_with(limit, 4)
    limit.connected(2_047)
    limit.lost("320 CONNECTION_FORCED - restarted")
    limit.connected(2_047)
    limit.check(4, "here")


@pytest.mark.thorough
def test_without_a_limit_there_is_none() -> None:
    """channel_max = 0."""
    limit = ChannelLimit("g/m")
    limit.connected(0)
    limit.check(65_000, "here")
