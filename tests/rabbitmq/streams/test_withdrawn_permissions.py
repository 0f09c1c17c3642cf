"""Permissions that are withdrawn for a moment hide nothing, and hold nothing up once they are back; on a real RabbitMQ."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import anyio
import pytest
from tests.consumers import Place, place, until
from tests.rabbitmq.streams.test_interrupted_starts import is_halted, read_all, replace, state_of
from tests.rabbitmq.streams.test_reading_marks import is_marked
from tests.rabbitmq_user import User, new_user
from tests.reading import WITHIN_S, Reading, committed, member, settings
from tests.streams import Stream, new_stream

from cobalance.rabbitmq.consume import stream_worker
from cobalance.rabbitmq.partition.states import PartitionState
from cobalance.servers import OwnRabbitMQ

pytestmark = pytest.mark.anyio


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


@pytest.fixture
def stream(streams: list[Stream]) -> Stream:
    return streams[0]


def halt_of(here: Place, stream: Stream) -> str | None:
    return here.resources()[stream.name].halted


@pytest.mark.parametrize("anew", [False, True], ids=["same", "anew"])
@pytest.mark.thorough
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


def forbid_once(monkeypatch: pytest.MonkeyPatch, user: User, question: str, *, lasts: bool) -> None:
    """Withdraws all permissions just before RabbitMQ is first asked this; unless it lasts, until it has answered, or the
    connection is lost, as on a busy machine: then they are withdrawn before it is asked again.
    """
    original, asked = getattr(stream_worker, question), list[Future[bool]]()

    def ask(*args: Any, **options: Any) -> Future[bool]:
        if asked:
            return original(*args, **options)  # type: ignore[no-any-return]
        user.forbid()
        try:
            answer: Future[bool] = original(*args, **options)
            assert answer.result(WITHIN_S) is False
        finally:
            if not lasts:
                user.permit()
        asked.append(answer)
        return answer

    monkeypatch.setattr(stream_worker, question, ask)


@pytest.mark.thorough
async def test_a_permission_that_is_missing_for_a_moment_does_not_hide_that_a_stream_was_made_anew(
    here: Place, user: User, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user that may not mark streams cannot tell; one that may not do anything for a moment can a moment later."""
    await read_all(here, stream)
    await anyio.to_thread.run_sync(replace, stream)
    forbid_once(monkeypatch, user, "may_mark", lasts=True)
    reading = Reading()
    async with member(here, stream, reading, commit_every=1):
        await until(lambda: reading.deliveries or halt_of(here, stream))
        assert halt_of(here, stream) == "given up again and again (permission_missing)"
        await anyio.to_thread.run_sync(user.permit)
        here.coordinator.resume(stream.name)
        await until(lambda: reading.deliveries or halt_of(here, stream))
        assert halt_of(here, stream) == "OffsetUnknown"
    assert not reading.deliveries
    assert committed(here, stream) == 9


@pytest.mark.parametrize("question", ["may_mark", "mark"])
@pytest.mark.thorough
async def test_a_permission_that_is_missing_for_a_moment_does_not_make_a_new_group_an_old_one(
    here: Place, user: User, stream: Stream, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    """It would be halted for good, as if Redis had lost its offset, or as if it had read another stream."""
    forbid_once(monkeypatch, user, question, lasts=False)
    reading = Reading()
    async with member(here, stream, reading, start="next"):
        await until(lambda: halt_of(here, stream) or committed(here, stream) == 9)
        await anyio.to_thread.run_sync(stream.append, 1)
        await until(lambda: halt_of(here, stream) or reading.deliveries)
        assert halt_of(here, stream) is None
    assert is_marked(here, stream)
