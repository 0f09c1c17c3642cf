"""Each process of a group consumes only its own sources, while deployments overlap, on a real RabbitMQ."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.consumers import Place, Seen, channel, new_topic, until
from tests.names import unique

from cobalance.errors import QueueMissing, UsageError
from cobalance.rabbitmq import Delivery, Topic, create_topic, delete_topic, grow_topic

pytestmark = pytest.mark.anyio


@pytest.fixture
def make_topic(amqp_url: str) -> Iterator[Callable[[], Topic]]:
    """Makes topics with two partitions."""
    made: list[Any] = []

    def make() -> Topic:
        made.append(new_topic(amqp_url, 2))
        topic: Topic = made[-1].__enter__()
        return topic

    yield make
    for it in made:
        it.__exit__(None, None, None)


@pytest.fixture
def legacy(amqp_url: str) -> Iterator[str]:
    """An existing queue."""
    name = unique("legacy")
    with channel(amqp_url) as it:
        it.queue_declare(name, durable=True)
        yield name
        it.queue_delete(name)


@asynccontextmanager
async def consuming(here: Place, source: Any) -> AsyncIterator[Seen]:
    """A process of a deployment, and what it receives."""
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        seen.note(delivery)

    async with here.member(source, handle, refresh_ms=100):
        yield seen


def owners(here: Place) -> dict[str, str | None]:
    """Resource → owner."""
    return {name: row.owner for name, row in here.resources().items() if not row.removing}


async def test_topics_and_queues_are_mixed(here: Place, make_topic: Callable[[], Topic], legacy: str) -> None:
    """One list may mix them."""
    orders, refunds = make_topic(), make_topic()
    here.publish(orders, "order", partition=1)
    here.publish(refunds, "refund")
    here.publish(legacy, "old")
    async with consuming(here, [orders, refunds, legacy]) as seen:
        assert sorted(await seen.wait(3)) == ["old", "order", "refund"]
    assert set(owners(here)) == {*orders.queue_names, *refunds.queue_names, legacy}


async def test_a_group_name_that_another_program_uses(here: Place, make_topic: Callable[[], Topic]) -> None:
    """Both become members, but neither gets the other's messages."""
    orders, refunds = make_topic(), make_topic()
    async with consuming(here, orders) as first, consuming(here, refunds) as second:
        for partition in range(2):
            here.publish(orders, "order", partition=partition)
            here.publish(refunds, "refund", partition=partition)
        assert await first.wait(2) == ["order", "order"]
        assert await second.wait(2) == ["refund", "refund"]
        assert [row.kept for row in here.coordinator.members()] == [2, 2]


async def test_a_rolling_update_that_adds_a_queue(here: Place, make_topic: Callable[[], Topic], legacy: str) -> None:
    """Only the new processes consume it, and they get their share of the rest; then the old ones leave."""
    orders = make_topic()
    here.publish(legacy, "old")
    async with consuming(here, [orders, legacy]) as new:
        async with consuming(here, orders) as old:
            assert await new.wait(1) == ["old"]
            await until(lambda: len(set(owners(here).values())) == 2)
            here.publish(legacy, "again")
            assert await new.wait(2) == ["old", "again"]
        assert old.bodies == []
        await until(lambda: len(set(owners(here).values())) == 1)


async def test_a_topic_that_is_dropped_is_let_go_of(here: Place, make_topic: Callable[[], Topic]) -> None:
    """It goes with the last process that named it; the other topic goes on."""
    orders, refunds = make_topic(), make_topic()
    async with consuming(here, orders) as new:
        async with consuming(here, [orders, refunds]):
            await until(lambda: set(owners(here)) == {*orders.queue_names, *refunds.queue_names})
        await until(lambda: set(owners(here)) == set(orders.queue_names))
        here.publish(orders, "order")
        assert await new.wait(1) == ["order"]


async def test_a_topic_grows_while_deployments_overlap(
    here: Place, make_topic: Callable[[], Topic], legacy: str
) -> None:
    """Both name the topic, so both consume its new partitions."""
    orders = make_topic()
    async with consuming(here, orders), consuming(here, [orders, legacy]):
        await until(lambda: set(owners(here)) == {*orders.queue_names, legacy})
        grown = await anyio.to_thread.run_sync(grow_topic, here.amqp_url, orders.name, 4)
        await until(lambda: set(owners(here)) == {*grown.queue_names, legacy} and all(owners(here).values()))
        await until(lambda: sorted(row.kept for row in here.coordinator.members()) == [2, 3])


@pytest.mark.parametrize("partitions", [1, 4])
async def test_a_topic_that_is_made_anew_with_another_size(
    partitions: int, here: Place, make_topic: Callable[[], Topic]
) -> None:
    """While a process lives that knows the former one, new ones start all the same, and all partitions are worked."""
    former = make_topic()
    async with consuming(here, former.name):
        await until(lambda: set(owners(here)) == set(former.queue_names))
        await anyio.to_thread.run_sync(lambda: delete_topic(here.amqp_url, former.name, force=True))
        topic = await anyio.to_thread.run_sync(create_topic, here.amqp_url, Topic(former.name, partitions))
        async with consuming(here, topic.name):
            await until(lambda: all(owners(here).get(name) for name in topic.queue_names))
    async with consuming(here, topic.name) as seen:
        await until(lambda: set(owners(here)) == set(topic.queue_names))
        here.publish(topic, "order", partition=partitions - 1)
        assert await seen.wait(1) == ["order"]


async def test_a_topic_by_its_name_in_a_list(here: Place, make_topic: Callable[[], Topic]) -> None:
    """In a list, a name is a queue's; the error says how to give a topic."""
    orders = make_topic()
    with pytest.raises(
        QueueMissing, match=rf"there is a topic of this name: give Topic\('{orders.name}', partitions=2"
    ):
        async with consuming(here, [orders.name]):
            pass
    with pytest.raises(QueueMissing, match="create its topic first, or correct the name"):
        async with consuming(here, ["neither"]):
            pass


async def test_what_is_no_source_is_refused(here: Place, legacy: str) -> None:
    """It is refused by its type, before any server is contacted."""
    with pytest.raises(UsageError, match="give a topic, its name, or a list of topics and queues"):
        here.member(5, lambda _: None)
    with pytest.raises(UsageError, match="queue"):
        here.member([legacy, 5], lambda _: None)
