"""Queues, and members that consume them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.consumers import channel
from tests.names import unique
from tests.rabbitmq.partition.holders import CLASSIC, LIMITED, QUORUM, Member, declare

from cobalance.rabbitmq import Queue
from cobalance.rabbitmq.wire.connection import BrokerConnection


@pytest.fixture
def replies(amqp_url: str) -> Iterator[str]:
    """A queue for replies."""
    name = unique("replies")
    with channel(amqp_url) as it:
        it.queue_declare(name)
        yield name
        it.queue_delete(name)


@pytest.fixture
def full(amqp_url: str) -> Iterator[str]:
    """A queue for replies that refuses them, as it holds one already."""
    name = unique("full")
    with channel(amqp_url) as it:
        it.queue_declare(name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        it.basic_publish("", name, b"there")
        yield name
        it.queue_delete(name)


@pytest.fixture
def broker(amqp_url: str) -> Iterator[BlockingChannel]:
    """A plain pika channel to set the scene with."""
    with channel(amqp_url) as it:
        yield it


@pytest.fixture(
    params=[CLASSIC, QUORUM, pytest.param(LIMITED, marks=pytest.mark.thorough)],
    ids=["classic", "quorum", "quorum with a limit"],
)
def guarded(request: pytest.FixtureRequest, broker: BlockingChannel) -> Iterator[Queue]:
    """A new queue of each kind that has a guard."""
    declare(broker, request.param)
    yield request.param
    broker.queue_delete(request.param.name)


@pytest.fixture
def quorum(broker: BlockingChannel) -> Iterator[Queue]:
    """A new quorum queue."""
    declare(broker, QUORUM)
    yield QUORUM
    broker.queue_delete(QUORUM.name)


@pytest.fixture
def classic(broker: BlockingChannel) -> Iterator[Queue]:
    """A new classic queue that dead-letters to another."""
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "partition.dead"}
    made = Queue("partition.plain", {"x-queue-type": "classic", **dead})
    declare(broker, made)
    declare(broker, Queue("partition.dead"))
    yield made
    broker.queue_delete(made.name)
    broker.queue_delete("partition.dead")


@pytest.fixture
def members(amqp_url: str) -> Iterator[Callable[..., Member]]:
    """Makes consumers, each on a connection of its own."""
    connections: list[BrokerConnection] = []

    def make(queue_: Queue, token: int = 1, *, url: str = amqp_url, **arguments: object) -> Member:
        connection = BrokerConnection(url, f"test/{token}")
        connection.connect()
        connections.append(connection)
        return Member(connection, queue_, token, **arguments)

    yield make
    for connection in connections:
        connection.close()
