"""A start, or the halt of a stream that was made anew, that is cut short at any point, is taken up where it was; on real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import pytest
from tests.consumers import Place, place, until
from tests.rabbitmq.streams.test_reading_marks import is_marked
from tests.reading import Reading, committed, member
from tests.streams import Stream, new_stream

from cobalance import Tenure
from cobalance.admin import GroupAdmin
from cobalance.errors import ChannelLost
from cobalance.rabbitmq.streams.probe import last_offset
from cobalance.rabbitmq.streams.reading_mark import mark

pytestmark = pytest.mark.anyio

WORKER = "cobalance.rabbitmq.consume.stream_worker"
START = "cobalance.rabbitmq.streams.start"

Question = Callable[..., Future[Any]]


@pytest.fixture(autouse=True)
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def stream(amqp_url: str) -> Iterator[Stream]:
    """Ten messages."""
    with new_stream(amqp_url, 10) as made:
        yield made


@pytest.fixture
def here(amqp_url: str, redis_url: str) -> Iterator[Place]:
    """Real servers, and a group that seems to have been created by its first member."""
    with place(amqp_url, redis_url) as it:
        it.doubt_offsets()
        yield it


def lost_once(question: Question) -> Question:
    """The first time, the channel is lost when RabbitMQ has done what it was asked for, and before it is known."""
    answers: list[Future[Any]] = []

    def ask(*args: Any, **options: Any) -> Future[Any]:
        answer = question(*args, **options)
        if answers:
            return answer
        answers.append(Future())
        answer.add_done_callback(lambda _: answers[0].set_exception(ChannelLost("cut")))
        return answers[0]

    return ask


def lost_always(*_: Any, **__: Any) -> Future[Any]:
    answer: Future[Any] = Future()
    answer.set_exception(ChannelLost("cut"))
    return answer


async def read_all(here: Place, stream: Stream) -> None:
    """The group reads the ten messages."""
    async with member(here, stream, Reading(), commit_every=1):
        await until(lambda: committed(here, stream) == 9)


def is_halted(here: Place, stream: Stream) -> bool:
    row = here.resources()[stream.name]
    return row.halted is not None


# -- a stream that was made anew ---------------------------------------------------------------------------------------


async def test_a_lost_channel_does_not_hide_that_a_stream_was_made_anew(
    here: Place, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was done in RabbitMQ by then: the next look finds the stream as unknown to the group as the first."""
    await read_all(here, stream)
    stream.make_anew()
    stream.append(50)
    monkeypatch.setattr(f"{WORKER}.mark", lost_once(mark))
    reading = Reading()
    async with member(here, stream, reading, start="next"):
        await until(lambda: reading.deliveries or here.journal("halted"))
    assert not reading.deliveries
    assert is_halted(here, stream)


async def test_a_seek_does_not_hide_that_a_stream_was_made_anew(here: Place, stream: Stream) -> None:
    """The committed offset is not of this stream, wherever the tenure has got to."""
    reading = Reading()
    async with member(here, stream, reading, ack="manual", commit_every=1) as group:
        await reading.wait(10)
        for delivery in reading.deliveries:
            group.ack(delivery)
        await until(lambda: committed(here, stream) == 9)
        await group.seek(stream.name, "first")
        await reading.wait(20)
        stream.make_anew()
        stream.append(50)
        await until(lambda: len(reading.deliveries) > 20 or here.journal("halted"))
        assert len(reading.deliveries) == 20
        assert is_halted(here, stream)


@pytest.mark.parametrize("way", ["resume", "reset"])
async def test_only_an_operator_says_that_a_stream_made_anew_is_meant(here: Place, stream: Stream, way: str) -> None:
    """A crash before the halt is in Redis loses nothing: RabbitMQ is told when the halt ends."""
    await read_all(here, stream)
    stream.make_anew()
    stream.append(20)
    reading = Reading()
    async with member(here, stream, reading):
        await until(lambda: here.journal("halted"))
        assert not is_marked(here, stream)
        with closing(GroupAdmin(here.redis_url, amqp_url=here.amqp_url)) as admin:
            if way == "resume":
                admin.resume(here.group, stream.name)
            else:
                admin.reset_offsets(here.group, {stream.name: 9})
        assert await reading.wait(10) == list(range(10, 20))
    assert is_marked(here, stream)
    assert len(here.journal("halted")) == 1


# -- a new group -------------------------------------------------------------------------------------------------------


async def test_a_lost_channel_does_not_make_a_new_group_an_old_one(
    here: Place, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts as it was configured, and is not halted as if Redis had lost its offset."""
    monkeypatch.setattr(f"{START}.last_offset", lost_once(last_offset))
    async with member(here, stream, Reading(), start="next"):
        await until(lambda: committed(here, stream) == 9 or here.journal("halted"))
    assert committed(here, stream) == 9


async def test_nor_does_a_mark_whose_answer_is_lost(
    here: Place, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the member had been killed between the mark and the first commit."""
    monkeypatch.setattr(f"{WORKER}.mark", lost_once(mark))
    async with member(here, stream, Reading(), start="next"):
        await until(lambda: committed(here, stream) == 9 or here.journal("halted"))
    assert committed(here, stream) == 9


@pytest.mark.parametrize("options", [{}, {"on_unknown_offset": "first"}], ids=["stop", "first"])
@pytest.mark.parametrize("seeks", [False, True], ids=["start", "seek"])
async def test_the_next_member_takes_up_a_start(
    here: Place, stream: Stream, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], *, seeks: bool
) -> None:
    """The first one leaves while it is looking up where to begin."""

    async def go_to_the_end(tenures: list[Tenure]) -> None:
        for tenure in tenures:
            await group.seek(tenure.resource, "next")

    with monkeypatch.context() as patch:
        patch.setattr(f"{START}.last_offset", lost_always)
        group = member(here, stream, Reading(), start="next", on_assigned=go_to_the_end if seeks else None, **options)
        async with group:
            await until(lambda: is_marked(here, stream))
    reading = Reading()
    async with member(here, stream, reading, start="next", **options):
        await until(lambda: committed(here, stream) == 9 or here.journal("halted") or reading.deliveries)
        assert committed(here, stream) == 9
        stream.append(2)
        assert await reading.wait(2) == [10, 11]
