"""A resource is asked back, but may be kept after all before its work has ended: the work goes on.

The revocation is cancelled while work that has seen it is still ending. The tenure is held as before, so it has to be
worked again.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import anyio
import anyio.lowlevel
import attrs
import pika
import pytest

from cobalance import ConsumerGroup, Delivery, Queue
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.group.group import Group
from cobalance.group.tenure import Tenure
from cobalance.settings import GroupSettings, MemberSettings

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

FAST = GroupSettings(session_timeout_ms=5_000, heartbeat_interval_ms=500, revocation_timeout_ms=5_000, gather_ms=0)
OWN = MemberSettings(drain_timeout_ms=1_000)
WITHIN_S = 60.0
QUEUES = ("kept.0", "kept.1")

_count = itertools.count()


def new_url(settings: GroupSettings) -> str:
    """An in-process coordinator of a new group."""
    made = f"memory://kept-{next(_count)}"
    transport = open_transport(made)
    Coordinator(transport, "g").create(settings)
    transport.close()
    return made


@pytest.fixture
def url() -> str:
    """A coordinator whose revocations end soon."""
    return new_url(FAST)


@pytest.fixture
def queues(amqp_url: str) -> Iterator[Callable[[str], None]]:
    """Creates two empty queues and a function that publishes one message to each."""
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    channel = connection.channel()
    for name in QUEUES:
        channel.queue_delete(name)
        channel.queue_declare(name, durable=True)

    def publish(body: str) -> None:
        for name in QUEUES:
            channel.basic_publish("", name, body.encode())

    yield publish
    for name in QUEUES:
        channel.queue_delete(name)
    connection.close()


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(WITHIN_S):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def ask_back_and_keep(holder: Group, newcomer: Group, *, first: Callable[[], bool] = lambda: True) -> None:
    """A second member joins, half of the first one's resources are asked back, and the second one leaves before it gets
    them, but after `first` has become true.
    """
    async with newcomer:
        await until(lambda: not all(it.active for it in holder.tenures.values()))
        await until(first)
    await until(lambda: all(it.active for it in holder.tenures.values()))


async def test_work_that_was_ending_begins_again_where_it_may_go_on(url: str) -> None:
    """Under the same token: it saw that its resource was asked back, and returns after the resource may be kept."""
    begun: list[tuple[str, int]] = []
    may_end = anyio.Event()

    async def work(tenure: Tenure) -> None:
        begun.append((tenure.resource, tenure.token))
        await tenure.wait_draining()
        await may_end.wait()

    async with Group("g", ["r0", "r1"], redis_url=url, settings=FAST, member=OWN, work=work) as holder:
        await until(lambda: len(begun) == 2)
        tenures = set(begun)
        await ask_back_and_keep(holder, Group("g", ["r0", "r1"], redis_url=url, settings=FAST, member=OWN))
        assert len(begun) == 2
        may_end.set()
        await until(lambda: len(begun) == 3)
        assert set(begun) == tenures


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.thorough
async def test_a_partition_whose_handler_was_slow_is_consumed_on(
    url: str, amqp_url: str, queues: Callable[[str], None], *, late: bool
) -> None:
    """Its handler was busy all the while. Later messages are handled too, even after the cancelled deadline. After half
    of the time to the deadline (late), messages that had not begun were not to be begun any more.
    """
    handled: list[tuple[str, str]] = []
    may_go_on = anyio.Event()

    async def handle(delivery: Delivery) -> None:
        handled.append((delivery.queue, delivery.body.decode()))
        await may_go_on.wait()

    def group() -> ConsumerGroup:
        return ConsumerGroup(
            "g", [Queue(name) for name in QUEUES], handle, amqp_url=amqp_url, redis_url=url, settings=FAST, member=OWN
        )

    queues("first")
    async with group() as holder:
        await until(lambda: len(handled) == 2)
        asked_at = time.monotonic()
        may_be_kept = (
            (lambda: any(it.stopping for it in holder.partitions.workers.values())) if late else (lambda: True)
        )
        await ask_back_and_keep(holder, group(), first=may_be_kept)
        may_go_on.set()
        rounds = 0
        while time.monotonic() - asked_at < FAST.revocation_timeout_ms / 1_000:
            rounds += 1
            queues(f"round {rounds}")
            await until(lambda: len(handled) == 2 + 2 * rounds)  # noqa: B023
    assert sorted(handled[-2:]) == [(name, f"round {rounds}") for name in QUEUES]


async def test_a_partition_that_was_kept_is_let_go_when_it_is_asked_back_again(
    amqp_url: str, queues: Callable[[str], None]
) -> None:
    """At once, however far away the deadline that was cancelled while its handler ran."""
    settings = attrs.evolve(FAST, revocation_timeout_ms=4 * int(WITHIN_S) * 1_000)
    url, handled, may_go_on = new_url(settings), [], anyio.Event()

    async def handle(delivery: Delivery) -> None:
        handled.append(delivery.queue)
        await may_go_on.wait()

    def group() -> ConsumerGroup:
        return ConsumerGroup(
            "g",
            [Queue(name) for name in QUEUES],
            handle,
            amqp_url=amqp_url,
            redis_url=url,
            settings=settings,
            member=OWN,
        )

    queues("first")
    async with group() as holder:
        await until(lambda: len(handled) == 2)
        await ask_back_and_keep(holder, group())
        may_go_on.set()
        queues("second")
        await until(lambda: len(handled) == 4)
        async with group() as newcomer:
            await until(lambda: len(newcomer.tenures) == 1)
