"""Permissions that are withdrawn for a moment hide nothing, and hold nothing up once they are back; on a real RabbitMQ."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest
from tests.consumers import Place, place, until
from tests.rabbitmq.streams.test_interrupted_starts import is_halted, replace, state_of
from tests.rabbitmq_user import User, new_user
from tests.reading import Reading, committed, settings
from tests.streams import Stream, new_stream

from cobalance.rabbitmq.partition.states import PartitionState
from cobalance.servers import OwnRabbitMQ

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def user(private_rabbitmq: OwnRabbitMQ) -> Iterator[User]:
    with new_user(private_rabbitmq) as it:
        yield it


@pytest.fixture
def here(user: User, redis_url: str) -> Iterator[Place]:
    with place(user.url, redis_url) as it:
        it.doubt_offsets()
        yield it
        user.permit()


@pytest.fixture
def streams(private_rabbitmq: OwnRabbitMQ) -> Iterator[list[Stream]]:
    """Two of ten messages each."""
    with new_stream(private_rabbitmq.url, 10) as one, new_stream(private_rabbitmq.url, 10) as two:
        yield [one, two]


@pytest.mark.parametrize("anew", [False, True], ids=["same", "anew"])
async def test_a_lock_that_could_not_be_released_holds_up_the_next_holder_only_as_long_as_that_lasts(
    here: Place, user: User, streams: list[Stream], private_rabbitmq: OwnRabbitMQ, *, anew: bool
) -> None:
    """Also one without a lock of its own, which then looks whether this is still the stream that the group has read."""
    names, reading, others = [it.name for it in streams], Reading(), Reading()
    async with here.member(names, reading.handle, streams=settings(commit_every=1, lock=True)):
        await until(lambda: all(committed(here, it) == 9 for it in streams))
        await anyio.to_thread.run_sync(user.forbid)
        url = private_rabbitmq.url
        second = here.member(names, others.handle, streams=settings(commit_every=1), amqp_url=url)
        async with second:
            moved = await until(lambda: [it for it in streams if state_of(second, it) is PartitionState.WAITING])
            if anew:
                await anyio.to_thread.run_sync(replace, moved[0])
            await anyio.to_thread.run_sync(user.permit)
            if anew:
                await until(lambda: is_halted(here, moved[0]))
                assert not others.deliveries
                assert committed(here, moved[0]) == 9
            else:
                await anyio.to_thread.run_sync(moved[0].append, 1)
                assert await others.wait(1) == [10]
