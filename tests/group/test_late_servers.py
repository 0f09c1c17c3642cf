"""Groups that are entered before their servers are up; ``test_connect_timeout`` covers pika's programs and the commands."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import anyio.to_thread
import attrs
import pytest
from tests.consumers import new_topic
from tests.faults.proxy import FaultProxy
from tests.group.test_start_stop import NAMES, NOWHERE, QUICK, SETTINGS, WITHIN_S, of_new_group
from tests.names import unique

from cobalance import ConsumerGroup, Group, Topic
from cobalance.errors import MembershipError, Unreachable, UsageError

pytestmark = pytest.mark.both_loops

BRIEF = attrs.evolve(SETTINGS, session_timeout_ms=2_000)
"""For tests that wait as long as a session."""


@pytest.fixture
def make() -> Callable[..., Group]:
    return of_new_group()


@pytest.fixture
def topic(amqp_url: str) -> Iterator[Topic]:
    with new_topic(amqp_url, 2) as it:
        yield it


class Heard(logging.Handler):
    """Collects log lines, and waits for them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._changed = anyio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self._changed.set()

    async def wait(self, words: str) -> None:
        """Waits for a line with these words."""
        with anyio.fail_after(WITHIN_S):
            while not any(words in line for line in self.lines):
                self._changed = anyio.Event()
                await self._changed.wait()


@pytest.fixture
def heard() -> Iterator[Heard]:
    it, log = Heard(), logging.getLogger("cobalance")
    log.addHandler(it)
    yield it
    log.removeHandler(it)


@pytest.mark.anyio
async def test_servers_that_come_up_later_are_waited_for(
    amqp_url: str, redis_admin_url: str, topic: Topic, heard: Heard
) -> None:
    """Both, one after the other, as when everything is started at once."""
    redis_port, amqp_port = (int(url.rpartition(":")[2].partition("/")[0]) for url in (redis_admin_url, amqp_url))
    with FaultProxy(redis_port) as redis, FaultProxy(amqp_port) as rabbitmq:
        redis.refuse()
        rabbitmq.refuse()
        group = ConsumerGroup(
            unique("late"),
            topic,
            lambda _: None,
            amqp_url=rabbitmq.through(amqp_url),
            redis_url=redis.through(redis_admin_url),
            settings=BRIEF,
            connect_timeout_s=WITHIN_S,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(group.start)
            await heard.wait("Redis at")
            redis.heal()
            await heard.wait("RabbitMQ at")
            rabbitmq.heal()
        await group.wait_held(*topic.queue_names)
        await group.stop()


class Unlucky(Group):
    """Redis is away from when it has connected until it is to join."""

    def __init__(self, *arguments: Any, redis: FaultProxy, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._proxy, self.joins = redis, anyio.Event()

    async def _prepare(self) -> None:
        self._proxy.black_hole()
        self.joins.set()


@pytest.fixture
def unlucky(redis_admin_url: str) -> Iterator[Callable[..., Unlucky]]:
    with FaultProxy(int(redis_admin_url.rpartition(":")[2].partition("/")[0])) as redis:
        options: dict[str, Any] = {"redis_url": redis.through(redis_admin_url), "settings": BRIEF, "member": QUICK}
        yield lambda **more: Unlucky(unique("unlucky"), NAMES, redis=redis, **(options | more))


async def start_until(leave: Callable[[], Any], group: Unlucky) -> str:
    """Leaves a group that cannot join, and returns what start() raised."""
    said: list[str] = []

    async def start() -> None:
        with pytest.raises(MembershipError) as refused:
            await group.start()
        said.append(str(refused.value))

    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            await group.joins.wait()
            await anyio.wait_all_tasks_blocked()
            await leave()
    return said[0]


@pytest.mark.anyio
async def test_stop_ends_a_start_that_waits_for_redis(unlucky: Callable[..., Unlucky]) -> None:
    """Though the join is never answered; and start() does not look as if it had succeeded."""
    group = unlucky(connect_timeout_s=3_600)
    assert "before it was entered" in await start_until(group.stop, group)
    await group.stop()


@pytest.mark.anyio
async def test_leave_ends_it_too_and_nobody_is_told_that_it_has_joined(unlucky: Callable[..., Unlucky]) -> None:
    """Neither by start() nor by wait_joined()."""
    group = unlucky(connect_timeout_s=3_600)

    async def leave() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(group.leave)
            with pytest.raises(MembershipError, match="before it was entered"):
                await group.wait_joined()

    assert "before it was entered" in await start_until(leave, group)
    await group.stop()


@pytest.mark.anyio
@pytest.mark.parametrize("verb", ["leave", "stop"])
async def test_so_does_either_while_it_connects(make: Callable[..., Group], heard: Heard, verb: str) -> None:
    """Before there is anything to leave."""
    group = make(redis_url=NOWHERE, connect_timeout_s=3_600)

    async def start() -> None:
        with pytest.raises(MembershipError, match="before it was entered"):
            await group.start()

    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            await heard.wait("Redis at")
            await getattr(group, verb)()


@pytest.mark.anyio
async def test_joining_has_no_more_patience_than_connecting(unlucky: Callable[..., Unlucky]) -> None:
    """None, by default."""
    group = unlucky()
    with anyio.fail_after(WITHIN_S):
        with pytest.raises(Unreachable):
            await group.start()
        await group.stop()


@pytest.mark.anyio
async def test_patience_has_an_end(make: Callable[..., Group]) -> None:
    """After that the error is the same as without waiting."""
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1\b"):
        await make(redis_url=NOWHERE, connect_timeout_s=0.3).start()
    with pytest.raises(UsageError, match="connect_timeout_s"):
        make(connect_timeout_s=-1)
