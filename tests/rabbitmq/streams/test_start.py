"""Where a group starts in a stream, and what happens if the offset is unknown; on real servers."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pika.exchange_type import ExchangeType
from tests.consumers import SETTINGS, Place, channel, place, until
from tests.names import unique
from tests.reading import Reading, committed, member, settings
from tests.streams import TINY, Stream, new_stream

from cobalance.admin import GroupAdmin
from cobalance.rabbitmq.model.stream_settings import Start
from cobalance.rabbitmq.streams.reading_mark import mark_name, remember

pytestmark = pytest.mark.anyio


# -- where it starts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("first", 0),
        ("next", 10),
        (4, 4),
        (10, 10),
        (1_000, 10),
        (datetime.now(UTC) - timedelta(days=1), 0),
        (datetime.now(UTC) + timedelta(days=1), 10),
    ],
    ids=["first", "next", "4", "the-end", "behind-the-end", "yesterday", "tomorrow"],
)
async def test_where_a_new_group_begins(here: Place, stream: Stream, start: Start, first: int) -> None:
    """As configured; and at the end if there is nothing yet."""
    reading = Reading()
    async with member(here, stream, reading, start=start):
        await until(lambda: committed(here, stream) == first - 1)
        stream.append(5)
        assert await reading.wait(15 - first) == list(range(first, 15))


async def test_an_offset_is_where_it_begins_however_slow_rabbitmq_is(
    here: Place, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing came while it was asked for the message at that offset: not the end of the stream."""
    nothing: Future[int | None] = Future()
    nothing.set_result(None)
    monkeypatch.setattr("cobalance.rabbitmq.streams.start.offset_since", lambda *_: nothing)
    reading = Reading()
    async with member(here, stream, reading, start=4):
        assert await reading.wait(6) == list(range(4, 10))


@pytest.mark.both_loops
async def test_the_last_chunk(here: Place, stream: Stream) -> None:
    """The last message is read, and all others in its chunk."""
    reading = Reading()
    async with member(here, stream, reading, start="last"):
        await until(lambda: reading.deliveries and reading.deliveries[-1].offset == 9)
        offsets = reading.offsets[stream.name]
        assert offsets == list(range(offsets[0], 10))


@pytest.mark.both_loops
async def test_where_it_began_is_decided_once(here: Place, stream: Stream) -> None:
    """The first holder leaves before any message came: the next, which also starts at "next", skips none."""
    reading = Reading()
    async with member(here, stream, reading, start="next"):
        await until(lambda: committed(here, stream) == 9)
    stream.append(3)
    async with member(here, stream, reading, start="next"):
        assert await reading.wait(3) == [10, 11, 12]


# -- unknown offsets ---------------------------------------------------------------------------------------------------


def grown_by_itself(here: Place) -> None:
    """The group was created by its first member: Redis does not know whether there was one before."""
    here.group = unique("grown")
    here.coordinator = type(here.coordinator)(here.coordinator.transport, here.group)


@pytest.mark.parametrize(
    "options", [{}, {"start": "next", "on_unknown_offset": "first"}], ids=["by default", "by choice"]
)
async def test_an_unknown_offset_can_mean_the_first(
    amqp_url: str, redis_url: str, stream: Stream, options: dict[str, Any]
) -> None:
    """Some messages may be repeated; none is skipped."""
    with place(amqp_url, redis_url) as here:
        here.doubt_offsets()
        with channel(amqp_url) as it:
            it.exchange_declare(mark_name(here.coordinator.scope, stream.name), ExchangeType("direct"), durable=True)
        reading = Reading()
        async with member(here, stream, reading, **options):
            assert await reading.wait(10) == list(range(10))


@pytest.mark.parametrize(
    ("options", "first"), [({"start": "next"}, 10), ({"start": 5}, 5), ({"on_unknown_offset": "stop"}, 0)], ids=str
)
async def test_a_group_that_has_never_read_the_stream_just_starts(
    amqp_url: str, redis_url: str, stream: Stream, options: dict[str, Any], first: int
) -> None:
    """It was not created explicitly; RabbitMQ knows that it is new."""
    with place(amqp_url, redis_url) as here:
        grown_by_itself(here)
        reading = Reading()
        async with member(here, stream, reading, **options):
            await until(lambda: (committed(here, stream) or -2) >= first - 1)
            stream.append(2)
            assert await reading.wait(12 - first) == list(range(first, 12))


@pytest.mark.parametrize("options", [{"on_unknown_offset": "stop"}, {"start": "next"}, {"start": 5}], ids=str)
async def test_an_unknown_offset_can_stop_the_stream(
    amqp_url: str, redis_url: str, stream: Stream, options: dict[str, Any]
) -> None:
    """No member works it until an operator has said where to continue; then one does."""
    with place(amqp_url, redis_url) as here:
        here.doubt_offsets()
        with channel(amqp_url) as it:  # it has read the stream, and Redis has lost that
            it.exchange_declare(mark_name(here.coordinator.scope, stream.name), ExchangeType("direct"), durable=True)
        reading = Reading()
        async with member(here, stream, reading, **options):
            halted = (await until(lambda: here.journal("halted")))[0]
            assert (halted.resource, halted.reason) == (stream.name, "halted:OffsetUnknown")
            assert committed(here, stream) is None
            here.coordinator.reset_offsets({stream.name: 6})
            assert await reading.wait(3) == [7, 8, 9]


async def test_offsets_that_redis_lost(amqp_url: str, private_redis: Any, stream: Stream) -> None:
    """All members stopped and Redis was emptied: a group once known to be new no longer is."""
    with place(amqp_url, private_redis.url) as here:
        async with member(here, stream, Reading(), start="next"):
            await until(lambda: committed(here, stream) == 9)
        private_redis.restart(empty=True)
        async with member(here, stream, Reading(), start="next"):
            assert (await until(lambda: here.journal("halted")))[0].reason == "halted:OffsetUnknown"


async def test_offsets_survive_with_their_holder(amqp_url: str, private_redis: Any, stream: Stream) -> None:
    """Redis was emptied while a member was at work: the member restores the committed offset, and reading goes on."""
    reading = Reading()
    with place(amqp_url, private_redis.url) as here:
        async with member(here, stream, reading, start="next", commit_every=1):
            await until(lambda: committed(here, stream) == 9)
            stream.append(5)
            await until(lambda: committed(here, stream) == 14)
            private_redis.restart(empty=True)
            await until(lambda: here.journal("claimed"))
            assert committed(here, stream) == 14
            stream.append(5)
            assert await reading.wait(10) == list(range(10, 20))
        assert committed(here, stream) == 19


async def test_a_beginning_survives_with_its_holder(amqp_url: str, private_redis: Any) -> None:
    """Nothing was processed when Redis was emptied: the first message must not count as processed afterwards."""
    with place(amqp_url, private_redis.url) as here, new_stream(amqp_url) as stream:
        async with member(here, stream, Reading()):
            await until(lambda: committed(here, stream) == -1)
            private_redis.restart(empty=True)
            await until(lambda: here.journal("claimed"))
            assert committed(here, stream) == -1


@pytest.mark.both_loops
@pytest.mark.parametrize("count", [3, 20], ids=["shorter", "longer"])
async def test_a_stream_made_anew_is_halted(here: Place, stream: Stream, count: int) -> None:
    """The committed offset never falls by itself, whatever the policy is, and nothing is passed over."""
    async with member(here, stream, Reading(), commit_every=1):
        await until(lambda: committed(here, stream) == 9)
    stream.make_anew()
    stream.append(count)
    reading = Reading()
    async with member(here, stream, reading, on_unknown_offset="first"):
        assert (await until(lambda: here.journal("halted")))[0].reason == "halted:OffsetUnknown"
    assert committed(here, stream) == 9
    assert not reading.deliveries


@pytest.mark.both_loops
async def test_a_stream_made_anew_while_it_is_read_is_halted(here: Place, stream: Stream) -> None:
    """Also if it soon has more messages than the old one had; an operator says where to go on."""
    reading = Reading()
    async with member(here, stream, reading, commit_every=1):
        await until(lambda: committed(here, stream) == 9)
        stream.make_anew()
        stream.append(20)
        assert (await until(lambda: here.journal("halted")))[0].reason == "halted:OffsetUnknown"
        assert committed(here, stream) == 9
        here.coordinator.reset_offsets({stream.name: -1})
        assert await reading.wait(30) == [*range(10), *range(20)]


async def test_a_stream_that_was_away_for_a_while_is_halted_each_time(here: Place, stream: Stream) -> None:
    """While there is no stream, nothing says that the group has read it; what comes back is another one."""

    def missing() -> int:
        return sum(entry.reason == "queue_missing" for entry in here.journal("abandoned"))

    async with member(here, stream, Reading(), commit_every=1):
        for time in (1, 2):
            await until(lambda: committed(here, stream) == 9)
            stream.delete()
            await until(lambda time=time: missing() == time)
            stream.declare()
            stream.append(20)
            await until(lambda time=time: len(here.journal("halted")) == time)
            assert committed(here, stream) == 9
            stream.make_anew()
            stream.append(10)
            here.coordinator.reset_offsets({stream.name: -1})


async def test_a_new_group_may_wait_for_its_stream(
    amqp_url: str, redis_url: str, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    """That it has looked for it does not mean that it has read it."""
    with place(amqp_url, redis_url) as here:
        grown_by_itself(here)
        stream.delete()
        reading = Reading()
        async with here.member([stream.queue], reading.handle, streams=settings(start="next")):
            await until(lambda: "Looking again" in caplog.text)
            stream.declare()
            await until(lambda: committed(here, stream) == -1)
            stream.append(2)
            assert (await reading.wait(2))[-1] == 1


@pytest.mark.both_loops
async def test_a_stream_made_anew_before_anything_was_read_is_read(here: Place, amqp_url: str) -> None:
    """Nothing is passed over."""
    with new_stream(amqp_url) as stream:
        reading = Reading()
        async with member(here, stream, reading):
            await until(lambda: committed(here, stream) == -1)
            stream.make_anew()
            stream.append(2)
            assert await reading.wait(2) == [0, 1]


@pytest.mark.both_loops
async def test_an_offset_set_by_hand_is_where_a_new_group_begins(stream: Stream, redis_url: str, amqp_url: str) -> None:
    """The stream is not taken for another one, though nobody has read it."""
    with place(amqp_url, redis_url) as here, closing(GroupAdmin(redis_url, amqp_url=amqp_url)) as admin:
        admin.reset_offsets(here.group, {stream.name: 6})
        reading = Reading()
        async with member(here, stream, reading):
            assert await reading.wait(3) == [7, 8, 9]


@pytest.mark.both_loops
async def test_a_missing_mark_is_an_operator_s_to_explain(here: Place, stream: Stream) -> None:
    """An offset that was set without RabbitMQ may be meant for this stream."""
    here.coordinator.create(SETTINGS)
    here.coordinator.reset_offsets({stream.name: 6})
    reading = Reading()
    async with member(here, stream, reading):
        await until(lambda: here.journal("halted"))
        with closing(GroupAdmin(here.redis_url, amqp_url=here.amqp_url)) as admin:
            admin.resume(here.group, stream.name)
        assert await reading.wait(3) == [7, 8, 9]


@pytest.mark.parametrize("policy", ["stop", "first"])
async def test_messages_that_the_retention_took_first(here: Place, amqp_url: str, policy: str) -> None:
    """They are gone; the policy decides whether that halts the stream or is only logged."""
    with new_stream(amqp_url, 5, TINY) as stream:
        here.coordinator.create(SETTINGS)
        here.coordinator.reset_offsets({stream.name: 2})
        remember(amqp_url, here.coordinator.scope, [stream.name])
        first = stream.append_until_gone(5)
        reading = Reading()
        async with member(here, stream, reading, on_unknown_offset=policy):
            if policy == "stop":
                assert (await until(lambda: here.journal("halted")))[0].reason == "halted:OffsetUnknown"
            else:
                assert first <= (await reading.wait(1))[0] <= stream.first()


@pytest.mark.parametrize("policy", ["stop", "first"])
async def test_messages_that_the_retention_took_before_the_first_was_read(
    here: Place, amqp_url: str, caplog: pytest.LogCaptureFixture, policy: str
) -> None:
    """The group had begun before there was any: the first one is missed as any other."""
    with new_stream(amqp_url, 0, TINY) as stream:
        async with member(here, stream, Reading()):
            await until(lambda: committed(here, stream) == -1)
        first = stream.append_until_gone(5)
        reading = Reading()
        async with member(here, stream, reading, on_unknown_offset=policy):
            if policy == "stop":
                await until(lambda: here.journal("halted") or reading.deliveries)
                assert here.journal("halted")
                assert not reading.deliveries
            else:
                assert first <= (await reading.wait(1))[0] <= stream.first()
                assert "are gone and were not read" in caplog.text


async def test_the_first_message_left_is_where_it_begins(
    here: Place, amqp_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What the retention had taken before is not missed."""
    with new_stream(amqp_url, 5, TINY) as stream:
        first = stream.append_until_gone(5)
        reading = Reading()
        async with member(here, stream, reading, on_unknown_offset="stop"):
            assert first <= (await reading.wait(1))[0] <= stream.first()
            assert first - 1 <= (committed(here, stream) or 0) < stream.first()
        assert "are gone" not in caplog.text
