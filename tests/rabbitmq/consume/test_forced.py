"""A partition is somebody else's before its holder knows: the next one begins when the old one's handler has ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import anyio
import pika
import pytest
from pika.exceptions import ChannelClosedByBroker
from tests.consumers import WITHIN_S, Place, new_topic, place, until
from tests.faults.ways import Ways

from cobalance.rabbitmq import Delivery, StreamSettings, Topic
from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.rabbitmq.wire.lock_queue import RESOURCE_LOCKED, lock_name
from cobalance.settings import GroupSettings

pytestmark = pytest.mark.anyio

SETTINGS = GroupSettings(
    session_timeout_ms=3_000, heartbeat_interval_ms=250, revocation_timeout_ms=3_000, gather_ms=0, rejoin_grace_ms=0
)
LOCKED: dict[str, Any] = {"streams": StreamSettings(start="first", lock=True)}


@pytest.fixture
def here(amqp_url: str, redis_url: str) -> Iterator[Place]:
    with place(amqp_url, redis_url) as it:
        yield it


@pytest.fixture
def way(redis_url: str) -> Iterator[Ways]:
    """How the holder reaches Redis."""
    port = urlsplit(redis_url).port
    assert port is not None
    ways = Ways({port: port})
    yield ways
    ways.close()


async def hand_over(here: Place, way: Ways, topic: Topic, first: Any, happened: list[str], **options: Any) -> None:
    """The holder hears late that another member has its only partition; returns when that has begun."""

    async def handle(_: Delivery) -> None:
        happened.append("begun again")

    cut_off = way.through(str(here.redis_url))
    options = {"settings": SETTINGS, "amqp_url": here.amqp_url, **options}
    async with ConsumerGroup(here.group, topic, first, redis_url=cut_off, **options):
        await until(lambda: happened == ["begun"])
        async with here.member(topic, handle, **options) as heir:
            way.black_hole()
            await until(lambda: bool(heir.tenures))  # on record; RabbitMQ does not let it begin
            way.heal()
            await until(lambda: "begun again" in happened)


@pytest.mark.parametrize(
    ("anyio_backend", "queue_type", "options"),
    [
        ("asyncio", "classic", {}),
        ("trio", "quorum", {}),
        ("asyncio", "stream", LOCKED),
        ("asyncio", "quorum", {"order": "key"}),
    ],
)
async def test_a_fenced_handler_has_ended_when_the_next_holder_begins(
    here: Place, way: Ways, queue_type: Any, options: dict[str, Any]
) -> None:
    """It may take a moment to clean up."""
    happened: list[str] = []

    async def never_end(_: Delivery) -> None:
        happened.append("begun")
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.05)
            happened.append("ended")

    with new_topic(here.amqp_url, 1, queue_type) as topic:
        here.publish(topic, "x")
        await hand_over(here, way, topic, never_end, happened, **options)
        assert happened == ["begun", "ended", "begun again"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_so_has_a_plain_one_if_it_ends_in_a_moment(here: Place, way: Ways) -> None:
    """Its message does not come again."""
    happened: list[str] = []
    fenced = threading.Event()

    def end_when_fenced(_: Delivery) -> None:
        happened.append("begun")
        fenced.wait(2 * WITHIN_S)
        happened.append("ended")

    async def note_fenced() -> None:
        await until(lambda: len(here.journal("joined")) == 3)  # it is back, and hears of the heir
        fenced.set()

    with new_topic(here.amqp_url, 1) as topic:
        here.publish(topic, "x", "y")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(note_fenced)
            await hand_over(here, way, topic, end_when_fenced, happened)
        assert happened == ["begun", "ended", "begun again"]


def is_locked(here: Place, stream: str) -> bool:
    with pika.BlockingConnection(pika.URLParameters(here.amqp_url)) as connection:
        try:
            connection.channel().queue_declare(lock_name(here.coordinator.scope, stream), passive=True)
        except ChannelClosedByBroker as error:
            return error.reply_code == RESOURCE_LOCKED
    return False


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_stream_that_comes_back_while_its_handler_ends_stays_locked(here: Place, way: Ways) -> None:
    """The lock of the new tenure is not released by the old one, whose channel closes later."""
    begun: list[int] = []

    async def never_end(it: Delivery) -> None:
        begun.append(it.token)
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.05)

    async def handle(_: Delivery) -> None:
        await anyio.sleep_forever()

    with new_topic(here.amqp_url, 2, "stream") as topic:
        for partition in range(2):
            here.publish(topic, "x", partition=partition)
        cut_off = way.through(str(here.redis_url))
        options = {"settings": SETTINGS, "amqp_url": here.amqp_url, **LOCKED}
        async with ConsumerGroup(here.group, topic, never_end, redis_url=cut_off, **options) as holder:
            await until(lambda: len(begun) == 2)
            way.black_hole()
            async with here.member(topic, handle, **options) as heir:
                await until(lambda: len(heir.tenures) == 2)
                way.heal()
                await until(lambda: len(begun) == 3)  # it is given one of them back
                (stream,) = holder.tenures
                assert all(is_locked(here, stream) for _ in range(30))  # while the old one closes
