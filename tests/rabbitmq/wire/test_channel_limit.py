"""More partitions than channels: what fits is worked, the rest waits for other members, and the log says why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from tests.consumers import Place, Seen, new_topic, place, until

from cobalance import servers
from cobalance.errors import ChannelLimitReached
from cobalance.rabbitmq import Delivery
from cobalance.rabbitmq.wire.channel_limit import ChannelLimit

pytestmark = pytest.mark.anyio

MOST = 10
"""One channel is for probing the connection, and one is spare."""


@pytest.fixture(params=["asyncio", pytest.param("trio", marks=pytest.mark.thorough)])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=["channel_max", "max-channels"])
def limited(request: pytest.FixtureRequest) -> Iterator[str]:
    """A RabbitMQ that allows ten channels per connection; or per user, which it does not announce."""
    settings = {"channel_max": str(MOST)} if request.param == "channel_max" else {}
    with servers.private_rabbitmq(settings=settings) as server:
        if request.param == "max-channels":
            server.control("add_user", "few", "few")
            server.control("set_permissions", "few", ".*", ".*", ".*")
            server.control("set_user_limits", "few", f'{{"max-channels": {MOST}}}')
            yield server.url.replace("guest:guest", "few:few")
        else:
            yield server.url


@pytest.fixture
def here(limited: str) -> Iterator[Place]:
    """That RabbitMQ and a group in memory."""
    with place(limited) as it:
        yield it


async def test_what_fits_is_worked_and_the_rest_is_said_to_be_too_much(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Of twenty partitions, one member works eight; the others are given up with a reason, messages intact."""
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        seen.note(delivery)

    def waiting() -> int:
        return sum(1 for row in here.resources().values() if row.halted)

    with new_topic(here.amqp_url.replace("few:few", "guest:guest"), 20) as topic:
        async with here.member(topic, handle):
            await until(lambda: waiting() == 20 - (MOST - 2))
            worked = [partition for partition, name in enumerate(topic.queue_names) if here.resources()[name].owner]
            assert len(worked) == MOST - 2
            for partition in worked:
                with_plenty = Place(here.amqp_url.replace("few:few", "guest:guest"))
                with_plenty.publish(topic, partition, partition=partition)
                with_plenty.close()
            assert sorted(map(int, await seen.wait(len(worked)))) == worked
    assert {it.reason for it in here.journal("abandoned")} == {"channel_limit"}
    (error,) = [it.getMessage() for it in caplog.records if it.levelname == "ERROR"]
    assert f"allows {MOST} channels" in error
    assert "channel_max" in error
    assert len([it for it in caplog.records if "lost RabbitMQ" in it.getMessage()]) <= 1


@pytest.mark.server
async def test_more_members_work_what_one_cannot() -> None:
    """Each member has a connection of its own; nothing was lost while there were too few of them."""
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        seen.note(delivery)

    with (
        servers.private_rabbitmq(settings={"channel_max": str(MOST)}) as server,
        place(server.url) as here,
        new_topic(server.url, 20) as topic,
    ):
        for partition in range(20):
            here.publish(topic, partition, partition=partition)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(here.member(topic, handle))
            await seen.wait(MOST - 2)
            for _ in range(2):
                await stack.enter_async_context(here.member(topic, handle))
            assert sorted(map(int, await seen.wait(20))) == list(range(20))


def test_a_limit_that_was_learned_is_kept() -> None:
    """The next connection keeps it, whatever channel_max is announced."""
    limit = ChannelLimit("g/m")
    limit.connected(2_047)
    limit.check(2_046, "here")
    for _ in range(4):
        limit.opened()
    limit.closed()
    limit.lost(
        "530 NOT_ALLOWED - number of channels opened for user 'few' has reached the maximum allowed user limit of (4)"
    )
    limit.connected(2_047)
    limit.check(3, "here")
    with pytest.raises(ChannelLimitReached, match="allows 4 channels"):
        limit.check(4, "here")


def test_without_a_limit_there_is_none() -> None:
    """channel_max = 0."""
    limit = ChannelLimit("g/m")
    limit.connected(0)
    limit.check(65_000, "here")
