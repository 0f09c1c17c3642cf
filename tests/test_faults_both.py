"""A member cut off from Redis and from RabbitMQ: it stops before RabbitMQ can have let its successor in."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import anyio
import pytest
from tests.faults.consuming import Received, a_topic, consuming, create_group, publish
from tests.faults.eventually import eventually
from tests.faults.proxy import FaultProxy

from cobalance import Delivery
from cobalance.session import Phase

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The clocks are those of two I/O threads and two brokers."""
    return "asyncio"


@pytest.fixture
def amqp(amqp_url: str) -> Iterator[FaultProxy]:
    """In front of the shared RabbitMQ."""
    with FaultProxy(urlsplit(amqp_url).port or 0) as proxy:
        yield proxy


@pytest.fixture
def redis(redis_url: str) -> Iterator[FaultProxy]:
    """In front of the shared Redis."""
    with FaultProxy(urlsplit(redis_url).port or 0) as proxy:
        yield proxy


class Endless(Received):
    """A handler that works on until it is cancelled, and the times of that."""

    began = ended = 0.0

    async def handle(self, delivery: Delivery) -> None:
        """A handler."""
        self.began = anyio.current_time()
        await super().handle(delivery)
        try:
            await anyio.sleep_forever()
        finally:
            self.ended = anyio.current_time()


async def test_a_member_that_both_lost_stops_before_its_successor_begins(
    amqp_url: str, redis_url: str, amqp: FaultProxy, redis: FaultProxy
) -> None:
    """RabbitMQ, which would serve the next consumer at once, does not hear it and lets it go, but is still heard itself; and of its farewell nothing is heard."""
    here, there = Endless(), Endless()
    with a_topic(amqp_url, partitions=1, queue_type="quorum") as topic:
        name = create_group(redis_url)
        async with consuming(name, topic, amqp.through(amqp_url), redis.through(redis_url), here) as group:
            publish(amqp_url, topic, "message")
            await here.wait("message")
            redis.black_hole()
            await eventually(lambda: group._engine.session.phase is Phase.CUT)
            assert not here.ended, "RabbitMQ guards it"
            async with consuming(name, topic, amqp_url, redis_url, there):
                amqp.lose_farewells()
                amqp.black_hole("to_server")
                await there.wait("message")
                assert 0.0 < here.ended < there.began
                there_token, here_token = there.tokens[topic.queue_names[0]], here.tokens[topic.queue_names[0]]
                assert max(here_token) < min(there_token)
                redis.heal()
                amqp.heal()
                await eventually(lambda: group.connection.is_open and group._engine.session.phase is Phase.ACTIVE)
