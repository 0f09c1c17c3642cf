"""A start, or the halt of a stream that was created again, that is cut short at any point, is taken up where it was; on real servers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import anyio
import pytest
from tests.consumers import Place, place, until
from tests.rabbitmq.streams.test_reading_marks import is_marked
from tests.reading import WITHIN_S, Reading, committed, member
from tests.streams import Stream, connected

from cobalance import ConsumerGroup, Tenure
from cobalance.admin import GroupAdmin
from cobalance.errors import ChannelLost
from cobalance.rabbitmq.partition.states import PartitionState
from cobalance.rabbitmq.streams.consumer import StreamConsumer
from cobalance.rabbitmq.streams.probe import last_offset
from cobalance.rabbitmq.streams.reading_mark import is_marked as is_known
from cobalance.rabbitmq.streams.reading_mark import mark
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.lock_queue import lock_name

pytestmark = pytest.mark.anyio

WORKER = "cobalance.rabbitmq.consume.stream_worker"
START = "cobalance.rabbitmq.streams.start"

Question = Callable[..., Future[Any]]


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


def said_once(question: Question, *, answer: bool) -> Question:
    """The first time, RabbitMQ says this."""
    said: Future[bool] = Future()
    said.set_result(answer)
    answers = [said]
    return lambda *args, **options: answers.pop() if answers else question(*args, **options)


async def read_all(here: Place, stream: Stream) -> None:
    """The group reads the ten messages."""
    async with member(here, stream, Reading(), commit_every=1):
        await until(lambda: committed(here, stream) == 9)


def replace(stream: Stream) -> None:
    """By a longer one, which has messages at every offset of the old one."""
    stream.make_anew()
    stream.append(20)


async def expect_halt(here: Place, stream: Stream, reading: Reading) -> None:
    """Nothing of the stream is handled, and the offset stays that of the old one."""
    await until(lambda: reading.deliveries or here.journal("halted"))
    assert not reading.deliveries
    assert is_halted(here, stream)
    assert committed(here, stream) == 9


def hold_lock(connection: BrokerConnection, here: Place, stream: Stream, then: Callable[[], None]) -> None:
    """As a member that is cut off from Redis."""
    name = lock_name(here.coordinator.scope, stream.name)
    connection.open_channel(lambda it: it.queue_declare(name, exclusive=True, callback=lambda _: then()))


def state_of(group: ConsumerGroup, stream: Stream) -> PartitionState | None:
    worker = group.partitions.workers.get(stream.name)
    return None if worker is None or worker._consumer is None else worker._consumer.state


def has_sought(group: ConsumerGroup, stream: Stream) -> bool:
    """Whether the position is known, and the consumer that is to begin there is waited with."""
    worker: Any = group.partitions.workers[stream.name]
    return worker._seeking is None and worker._consumer is None


def is_halted(here: Place, stream: Stream) -> bool:
    row = here.resources()[stream.name]
    return row.halted is not None


# -- a stream that was created again ----------------------------------------------------------------------------------


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


async def test_a_stream_made_anew_just_before_the_subscription_is_halted(here: Place, stream: Stream) -> None:
    """Whatever was waited for until then: nothing of it is handled, nor committed."""
    await read_all(here, stream)
    reading = Reading()
    group = member(here, stream, reading, commit_every=1)
    subscribe = group.partitions.streams.consumer

    def make_anew(*args: Any, **options: Any) -> StreamConsumer:
        if not here.journal("halted"):
            replace(stream)
        return subscribe(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group.partitions.streams, "consumer", make_anew)
        async with group:
            await expect_halt(here, stream, reading)


async def test_a_stream_made_anew_while_its_lock_is_waited_for_is_halted(here: Place, stream: Stream) -> None:
    """Another connection may have the lock for as long as it likes."""
    await read_all(here, stream)
    reading = Reading()
    with connected(here.amqp_url, "another") as other:
        has_lock = threading.Event()
        other.submit(lambda: hold_lock(other, here, stream, has_lock.set))
        assert has_lock.wait(60)
        async with member(here, stream, reading, commit_every=1, lock=True) as group:
            await until(lambda: state_of(group, stream) is PartitionState.WAITING)
            await anyio.to_thread.run_sync(replace, stream)
            other.close()
            await expect_halt(here, stream, reading)


@pytest.mark.parametrize("anew", [False, True], ids=["same", "anew"])
async def test_a_seek_while_paused_is_within_the_stream_that_was_read(
    here: Place, stream: Stream, *, anew: bool
) -> None:
    """Kafka's programs pause, seek and resume; another stream may have the name by then."""
    reading = Reading()
    async with member(here, stream, reading, commit_every=1) as group:
        await until(lambda: committed(here, stream) == 9)
        group.pause(stream.name)
        await group.seek(stream.name, 5)
        await until(lambda: has_sought(group, stream))
        reading.clear()
        if anew:
            await anyio.to_thread.run_sync(replace, stream)
        group.resume()
        if anew:
            await expect_halt(here, stream, reading)
        else:
            assert await reading.wait(5) == [5, 6, 7, 8, 9]


async def test_what_is_not_recognized_yet_is_not_handled_at_a_handover(
    here: Place, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has arrived is worked while the deadline allows, but not that of a stream that may be another one."""
    await read_all(here, stream)
    await anyio.to_thread.run_sync(replace, stream)
    reading, asked = Reading(), anyio.Event()
    answer: Future[bool] = Future()

    def ask(*_: Any, **__: Any) -> Future[bool]:
        asked.set()
        return answer

    monkeypatch.setattr(f"{WORKER}.is_marked", ask)
    group = member(here, stream, reading, commit_every=1, start="first")

    async def leave_while_it_is_looked_at() -> None:
        async with group:
            await asked.wait()
            tasks.start_soon(answer_when_asked_back)

    async def answer_when_asked_back() -> None:
        await until(lambda: all(it.tenure.asking.is_set() for it in group.partitions.workers.values()))
        answer.set_exception(ChannelLost("cut"))

    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leave_while_it_is_looked_at)
    assert not reading.deliveries
    assert committed(here, stream) == 9


async def test_a_stream_is_looked_at_again_when_the_answer_is_lost(
    here: Place, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read on where it was, and nothing comes twice."""
    await read_all(here, stream)
    monkeypatch.setattr(f"{WORKER}.is_marked", lost_once(is_known))
    reading = Reading()
    stream.append(10)
    async with member(here, stream, reading):
        assert await reading.wait(10) == list(range(10, 20))
    assert committed(here, stream) == 19
    assert not here.journal("halted")


async def test_a_stream_that_brings_nothing_is_looked_at_again(
    here: Place, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was created again in the moment after the first look, and in a cluster the consumer may not have heard of it."""
    await read_all(here, stream)
    await anyio.to_thread.run_sync(stream.make_anew)
    monkeypatch.setattr(f"{WORKER}.is_marked", said_once(is_known, answer=True))
    monkeypatch.setattr("cobalance.rabbitmq.streams.continuity.SUSPICIOUS_MS", 10)
    monkeypatch.setattr("cobalance.rabbitmq.streams.continuity.DOUBT_MS", 10)
    monkeypatch.setattr("cobalance.rabbitmq.streams.probe.SILENCE_MS", 10)
    reading = Reading()
    async with member(here, stream, reading):
        await expect_halt(here, stream, reading)


@pytest.mark.parametrize("way", ["resume", "reset"])
async def test_only_an_operator_says_that_a_stream_made_anew_is_meant(here: Place, stream: Stream, way: str) -> None:
    """A crash before the halt is in Redis loses nothing: RabbitMQ hears of it when the halt ends."""
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
