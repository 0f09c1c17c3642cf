"""Groups of one name at one virtual host: a key prefix, or a numbered database of Redis, keeps all apart that they have at
RabbitMQ, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import product
from urllib.parse import urlsplit, urlunsplit

import pytest
from tests.consumers import SETTINGS, Place, place, until
from tests.names import unique
from tests.reading import Reading, committed, member
from tests.streams import Stream

from cobalance.admin import GroupAdmin
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.keys import scope
from cobalance.coordinator.open import open_transport
from cobalance.rabbitmq.consume.last_will import wills_queue
from cobalance.rabbitmq.streams.reading_mark import mark_name
from cobalance.rabbitmq.topics.sources import OURS
from cobalance.rabbitmq.wire.lock_queue import lock_name

pytestmark = pytest.mark.anyio


def in_database(redis_url: str, number: int) -> str:
    return urlunsplit(urlsplit(redis_url)._replace(path=f"/{number}"))


@contextmanager
def two_places(way: str, amqp_url: str, redis_url: str) -> Iterator[tuple[Place, Place, str]]:
    """A group, its namesake elsewhere, and the namesake's key prefix."""
    elsewhere = redis_url if way == "prefix" else in_database(redis_url, 1)
    with place(amqp_url, redis_url) as one, place(amqp_url, elsewhere) as two:
        prefix = f"cobalance:{unique('staging')}" if way == "prefix" else "cobalance"
        two.group = one.group
        two.coordinator = Coordinator(two.coordinator.transport, one.group, key_prefix=prefix)
        two.coordinator.create(SETTINGS)
        yield one, two, prefix


@pytest.mark.parametrize("way", ["prefix", "database"])
async def test_a_lock_is_one_groups_own(
    amqp_url: str, redis_url: str, stream: Stream, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each reads the whole stream."""
    ours, theirs = Reading(), Reading()
    with two_places(way, amqp_url, redis_url) as (one, two, prefix):
        async with (
            member(one, stream, ours, lock=True),
            member(two, stream, theirs, lock=True, key_prefix=prefix),
        ):
            assert await ours.wait(10) == await theirs.wait(10)
    assert not [it.getMessage() for it in caplog.records if it.levelno >= logging.WARNING]


@pytest.mark.parametrize("way", ["prefix", "database"])
async def test_a_mark_is_one_groups_own(amqp_url: str, redis_url: str, stream: Stream, way: str) -> None:
    """A new group is new to the stream, though its namesake has read it, which is not forgotten with it."""
    with two_places(way, amqp_url, redis_url) as (one, two, prefix):
        one.doubt_offsets()
        async with member(one, stream, Reading(), start="next"):
            await until(lambda: committed(one, stream) == 9)
        two.doubt_offsets()
        async with member(two, stream, Reading(), start="next", key_prefix=prefix):
            await until(lambda: committed(two, stream) == 9)
        with GroupAdmin(two.redis_url, amqp_url=amqp_url, key_prefix=prefix) as admin:
            admin.delete(two.group)
        stream.append(1)
        reading = Reading()
        async with member(one, stream, reading, start="next"):
            assert await reading.wait(1) == [10]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("memory://test", "cobalance orders"),
        ("redis://host", "cobalance orders"),
        ("redis://host/0", "cobalance orders"),
        ("redis://host/3", "cobalance#3 orders"),
        ("rediss://host/?db=3", "cobalance#3 orders"),
        ("unix:///run/redis.sock?db=3", "cobalance#3 orders"),
        ("redis+sentinel://host,other/service/3", "cobalance#3 orders"),
        ("redis+cluster://host,other", "cobalance orders"),
    ],
)
def test_the_scope_is_known_without_asking_redis(url: str, expected: str) -> None:
    """Before there is a connection."""
    with closing(open_transport(url)) as transport:
        assert Coordinator(transport, "orders").scope == expected


def test_names_never_meet() -> None:
    """Whatever names are made of, and however long they are: RabbitMQ allows 255 bytes."""
    odd = ["cobalance", "lock.a", "a", "a/3", "a:1", "é" * 100, "g" * 199 + "h", "g" * 200]
    scopes = [scope(group, prefix, database) for group, prefix, database in product(odd, odd, ["", "/3", "/33"])]
    wills = {wills_queue(it).name for it in scopes}
    assert len(wills) == len(scopes)
    pairs = list(product(scopes, odd))
    assert len({mark_name(*it) for it in pairs}) == len(pairs)
    locks = {lock_name(*it) for it in pairs}
    assert len(locks) == len(pairs)
    assert max(len(it.encode()) for it in wills | locks) <= 255
    assert all(map(OURS.fullmatch, wills | locks))
    assert lock_name(scope("orders"), "payments-0") == "lock.orders payments-0"
