"""Streams as a group's partitions, on real servers: where they begin, what is committed, and that nothing is lost in between."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest
import redis as redis_client
from tests.consumers import SETTINGS, Place, new_topic, place, until
from tests.names import unique
from tests.streams import TINY, Stream, connected, cut, new_stream

from cobalance import ConsumerGroup, Delivery, StreamSettings, Tenure
from cobalance.coordinator.keys import group_keys
from cobalance.errors import NotHeld, UsageError
from cobalance.rabbitmq import Publisher
from cobalance.rabbitmq.connection import BrokerConnection
from cobalance.rabbitmq.stream_settings import Start
from cobalance.settings import MemberSettings

pytestmark = pytest.mark.anyio

WITHIN_S = 30.0
NEVER_MS = 3_600_000.0


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both event loops."""
    return str(request.param)


@pytest.fixture
def here(amqp_url: str) -> Iterator[Place]:
    """A group that is known to be new."""
    with place(amqp_url) as it:
        yield it


@pytest.fixture
def stream(amqp_url: str) -> Iterator[Stream]:
    """Ten messages."""
    with new_stream(amqp_url, 10) as it:
        yield it


class Reading:
    """What handlers were given, in order; checks that no two of them work one stream at a time. On one event loop."""

    def __init__(self) -> None:
        self.offsets: defaultdict[str, list[int]] = defaultdict(list)
        self.tokens: defaultdict[str, set[int]] = defaultdict(set)
        self.deliveries: list[Delivery] = []
        self._at_work: set[str] = set()
        self._more = anyio.Event()

    async def handle(self, delivery: Delivery) -> None:
        """A handler."""
        assert delivery.queue not in self._at_work
        self._at_work.add(delivery.queue)
        await anyio.lowlevel.checkpoint()
        self._at_work.remove(delivery.queue)
        assert delivery.offset is not None
        self.offsets[delivery.queue].append(delivery.offset)
        self.tokens[delivery.queue].add(delivery.token)
        self.deliveries.append(delivery)
        self._more.set()
        self._more = anyio.Event()

    async def wait(self, count: int) -> list[int]:
        """Returns once there are so many, of all streams; the offsets of the first stream."""
        with anyio.fail_after(WITHIN_S):
            while len(self.deliveries) < count:
                await self._more.wait()
        return next(iter(self.offsets.values()))


def settings(**options: Any) -> StreamSettings:
    """Commits by themselves only if they are asked for."""
    options.setdefault("commit_every", 1_000_000)
    options.setdefault("commit_interval_ms", NEVER_MS)
    return StreamSettings(**options)


def member(here: Place, stream: Stream, reading: Reading, **options: Any) -> ConsumerGroup:
    """A member that reads one stream."""
    chosen = {name: options.pop(name) for name in list(options) if name in StreamSettings.__annotations__}
    return here.member([stream.name], reading.handle, streams=settings(**chosen), **options)


def committed(here: Place, stream: Stream) -> int | None:
    """The committed offset."""
    row = here.resources().get(stream.name)
    return None if row is None else row.committed


# -- handing over ----------------------------------------------------------------------------------------------------------


async def test_a_handover_resumes_behind_the_committed_offset(here: Place, amqp_url: str) -> None:
    """Members come and go under load: every message is handled once, in order within its stream, by one member at a time."""
    reading, total = Reading(), 3_000
    with new_topic(amqp_url, 4, "stream") as topic:
        members = [here.member(topic, reading.handle) for _ in range(3)]
        with Publisher(amqp_url, topic) as publisher:
            for number in range(total):
                publisher.publish(f"key-{number}", b"", wait=False)
                if number == total // 2:
                    publisher.flush()
            publisher.flush()
        async with members[0]:
            await reading.wait(total // 10)
            async with members[1]:
                await members[1].wait_held()
                await reading.wait(total // 2)
            async with members[2]:
                await members[2].wait_held()
                await reading.wait(total)
    assert sum(map(len, reading.offsets.values())) == total
    assert all(offsets == list(range(len(offsets))) for offsets in reading.offsets.values())
    assert any(len(tokens) > 1 for tokens in reading.tokens.values())
    assert here.journal("refused") == []


async def test_a_revocation_that_is_cancelled_goes_on_where_it_was(here: Place, amqp_url: str) -> None:
    """Who asked for the partition leaves before it is handed over: the same tenure subscribes again, and repeats nothing."""
    reading, gate, begun = Reading(), anyio.Event(), anyio.Event()

    async def hold(delivery: Delivery) -> None:
        begun.set()
        await gate.wait()
        await reading.handle(delivery)

    with new_topic(amqp_url, 2, "stream") as topic:
        async with here.member(topic, hold) as first:
            with Publisher(amqp_url, topic) as publisher:
                for number in range(200):
                    publisher.publish(f"key-{number}", b"")
            await begun.wait()
            async with here.member(topic, hold):
                await until(lambda: here.journal("revoking"))
            await until(lambda: here.journal("cancelled", "released"))
            gate.set()
            await reading.wait(200)
            assert set(first.tenures) == set(topic.queue_names)
    assert all(offsets == list(range(len(offsets))) for offsets in reading.offsets.values())
    assert here.journal("cancelled")


async def test_a_lost_connection_repeats_nothing(here: Place, stream: Stream) -> None:
    """What is finished is known without RabbitMQ, so reading goes on right behind it."""
    reading = Reading()
    async with member(here, stream, reading) as group:
        await reading.wait(10)
        cut(group.connection)
        await until(lambda: not group.connection.is_open)
        stream.append(10)
        assert await reading.wait(20) == list(range(20))


# -- committing ------------------------------------------------------------------------------------------------------------


async def test_commits_by_count(here: Place, stream: Stream) -> None:
    """Every so many messages; the rest goes with the release, in the same step."""
    reading = Reading()
    async with member(here, stream, reading, commit_every=12):
        await reading.wait(10)
        assert committed(here, stream) == -1
        stream.append(2)
        await until(lambda: committed(here, stream) == 11)
        stream.append(3)
        await reading.wait(15)
        assert committed(here, stream) == 11
    assert committed(here, stream) == 14
    assert here.journal("released")[-1].committed == 14
    assert here.journal("refused") == []


async def test_commits_by_time(here: Place, stream: Stream) -> None:
    """So long after the first message that is not committed."""
    reading = Reading()
    async with member(here, stream, reading, commit_interval_ms=50):
        await until(lambda: committed(here, stream) == 9)
        stream.append(1)
        await until(lambda: committed(here, stream) == 10)


async def test_without_either_the_release_commits(here: Place, stream: Stream) -> None:
    """And before that nothing but where the first holder began."""
    reading = Reading()
    async with member(here, stream, reading):
        await reading.wait(10)
        assert committed(here, stream) == -1
    assert committed(here, stream) == 9


async def test_manual_acks_commit_the_prefix_without_gaps(here: Place, stream: Stream) -> None:
    """In any order: the oldest message that is not acknowledged holds back all behind it."""
    reading = Reading()
    async with member(here, stream, reading, ack="manual", commit_every=1) as group:
        await reading.wait(10)
        for number in (9, 3, 1, 2):
            group.ack(reading.deliveries[number])
        assert committed(here, stream) == -1
        group.ack(reading.deliveries[0])
        await until(lambda: committed(here, stream) == 3)
        for number in (8, 7, 6, 5, 4):
            group.ack(reading.deliveries[number])
        await until(lambda: committed(here, stream) == 9)


async def test_the_user_commits_an_offset(here: Place, stream: Stream) -> None:
    """Everything up to it is processed, then: it need not be acknowledged, and the release does not wait for it."""
    reading = Reading()
    async with member(here, stream, reading, ack="manual") as group:
        await reading.wait(10)
        await group.commit(stream.name, 4)
        assert committed(here, stream) == 4
        for delivery in reading.deliveries:
            group.ack(delivery)  # harmless for those that were committed
    assert committed(here, stream) == 9


async def test_a_handler_may_commit_its_own_message(here: Place, stream: Stream) -> None:
    """As Kafka's users do, though it would be committed by itself."""
    group: ConsumerGroup
    reading = Reading()

    async def handle(delivery: Delivery) -> None:
        await group.commit(delivery.queue, delivery.offset or 0)
        await reading.handle(delivery)

    group = here.member([stream.name], handle, streams=settings())
    async with group:
        await reading.wait(10)
        assert committed(here, stream) == 9
    assert here.journal("refused") == []


async def test_what_the_user_commits_when_it_is_asked_back(here: Place, stream: Stream) -> None:
    """on_revoked may commit, and the release does not get in its way."""
    reading = Reading()

    async def on_revoked(tenures: list[Tenure]) -> None:
        for tenure in tenures:
            await tenure.commit(9)

    async with member(here, stream, reading, on_revoked=on_revoked):
        await reading.wait(10)
    assert committed(here, stream) == 9
    assert here.journal("refused") == []


async def test_a_fenced_commit_ends_the_tenure_as_lost(amqp_url: str, redis_url: str, stream: Stream) -> None:
    """Somebody else has the stream, and has begun at the committed offset: nothing more is handled here, nor stored."""
    reading, lost = Reading(), anyio.Event()

    async def on_lost(tenures: list[Tenure]) -> None:
        assert [it.resource for it in tenures] == [stream.name]
        lost.set()

    with place(amqp_url, redis_url) as here:
        own = MemberSettings(drain_timeout_ms=500)
        async with member(here, stream, reading, commit_every=1, on_lost=on_lost, member=own) as group:
            await until(lambda: committed(here, stream) == 9)
            steal(redis_url, here.group, stream.name)
            stream.append(1)
            with anyio.fail_after(WITHIN_S):
                await lost.wait()
            assert group.tenures == {}
            with pytest.raises(NotHeld):
                await group.commit(stream.name, 10)
        assert committed(here, stream) == 9
        assert {it.reason for it in here.journal("refused")} >= {"commit FENCED"}


def steal(redis_url: str, group: str, resource: str) -> None:
    """The token on record rises, as it does when a holder that was not heard of is replaced."""
    client = redis_client.Redis.from_url(redis_url, decode_responses=True)
    key = next(it for it in group_keys(group) if it.endswith(":resources"))
    words = str(client.hget(key, resource)).split()
    words[2] = str(int(words[2]) + 1)
    client.hset(key, resource, " ".join(words))
    client.close()


# -- where it begins ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
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
    ids=str,
)
async def test_where_a_new_group_begins(here: Place, stream: Stream, start: Start, first: int) -> None:
    """As it was told to; and at the end where there is nothing yet."""
    reading = Reading()
    async with member(here, stream, reading, start=start):
        await until(lambda: committed(here, stream) == first - 1)
        stream.append(5)
        assert await reading.wait(15 - first) == list(range(first, 15))


async def test_the_last_chunk(here: Place, stream: Stream) -> None:
    """The last message comes, and all that lie in its chunk."""
    reading = Reading()
    async with member(here, stream, reading, start="last"):
        await until(lambda: reading.deliveries and reading.deliveries[-1].offset == 9)
        offsets = reading.offsets[stream.name]
        assert offsets == list(range(offsets[0], 10))


async def test_where_it_began_is_decided_once(here: Place, stream: Stream) -> None:
    """The first holder leaves before anything came: what comes then is not skipped by the next one, who would begin at "next" too."""
    reading = Reading()
    async with member(here, stream, reading, start="next"):
        await until(lambda: committed(here, stream) == 9)
    stream.append(3)
    async with member(here, stream, reading, start="next"):
        assert await reading.wait(3) == [10, 11, 12]


# -- offsets that are not known ------------------------------------------------------------------------------------------------


def grown_by_itself(here: Place) -> None:
    """The group was made by its first member: nobody knows whether there was one before."""
    here.group = unique("grown")
    here.coordinator = type(here.coordinator)(here.coordinator.transport, here.group)


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize(
    "options", [{}, {"start": "next", "on_unknown_offset": "first"}], ids=["by default", "by choice"]
)
async def test_an_unknown_offset_can_mean_the_first(
    amqp_url: str, redis_url: str, stream: Stream, options: dict[str, Any]
) -> None:
    """Some messages may come again; none is skipped."""
    with place(amqp_url, redis_url) as here:
        grown_by_itself(here)
        reading = Reading()
        async with member(here, stream, reading, **options):
            assert await reading.wait(10) == list(range(10))


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("options", [{"on_unknown_offset": "stop"}, {"start": "next"}, {"start": 5}], ids=str)
async def test_an_unknown_offset_can_stop_the_stream(
    amqp_url: str, redis_url: str, stream: Stream, options: dict[str, Any]
) -> None:
    """Nobody works it until an operator has said where to go on, and then somebody does."""
    with place(amqp_url, redis_url) as here:
        grown_by_itself(here)
        reading = Reading()
        async with member(here, stream, reading, **options):
            halted = (await until(lambda: here.journal("halted")))[0]
            assert (halted.resource, halted.reason) == (stream.name, "halted:OffsetUnknown")
            assert committed(here, stream) is None
            here.coordinator.reset_offsets({stream.name: 6})
            here.coordinator.resume(stream.name)
            assert await reading.wait(3) == [7, 8, 9]


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_offsets_that_redis_lost(amqp_url: str, private_redis: Any, stream: Stream) -> None:
    """Everybody stopped and Redis was emptied: a group that was known to be new is not any more."""
    with place(amqp_url, private_redis.url) as here:
        async with member(here, stream, Reading(), start="next"):
            await until(lambda: committed(here, stream) == 9)
        private_redis.restart(empty=True)
        async with member(here, stream, Reading(), start="next"):
            assert (await until(lambda: here.journal("halted")))[0].reason == "halted:OffsetUnknown"


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_offsets_survive_with_their_holder(amqp_url: str, private_redis: Any, stream: Stream) -> None:
    """Redis was emptied while a member was at work: it brings the committed offset back, and reading goes on."""
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


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_beginning_survives_with_its_holder(amqp_url: str, private_redis: Any) -> None:
    """Nothing was processed yet when Redis was emptied: the first message must not count as processed afterwards."""
    with place(amqp_url, private_redis.url) as here, new_stream(amqp_url) as stream:
        async with member(here, stream, Reading()):
            await until(lambda: committed(here, stream) == -1)
            private_redis.restart(empty=True)
            await until(lambda: here.journal("claimed"))
            assert committed(here, stream) == -1


async def test_a_stream_made_anew_is_halted(here: Place, stream: Stream) -> None:
    """It ends before the committed offset; that never falls by itself, whatever the policy is."""
    async with member(here, stream, Reading()):
        await until(lambda: committed(here, stream) == -1)
    here.coordinator.reset_offsets({stream.name: 9})
    stream.make_anew()
    stream.append(3)
    async with member(here, stream, Reading(), on_unknown_offset="first"):
        assert (await until(lambda: here.journal("halted")))[0].reason == "halted:OffsetUnknown"
    assert committed(here, stream) == 9


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
@pytest.mark.parametrize("policy", ["stop", "first"])
async def test_messages_that_the_retention_took_first(here: Place, amqp_url: str, policy: str) -> None:
    """They are gone; the user chose whether that is to be noticed, or only logged."""
    with new_stream(amqp_url, 5, TINY) as stream:
        here.coordinator.create(SETTINGS)
        here.coordinator.reset_offsets({stream.name: 2})
        first = stream.append_until_gone(5)
        reading = Reading()
        async with member(here, stream, reading, on_unknown_offset=policy):
            if policy == "stop":
                assert (await until(lambda: here.journal("halted")))[0].reason == "halted:OffsetUnknown"
            else:
                assert (await reading.wait(1))[0] == first


# -- seeking -------------------------------------------------------------------------------------------------------------------


async def test_a_seek_back_repeats_messages_but_not_commits(here: Place, stream: Stream) -> None:
    """The committed offset stays until the position has passed it, so a handover then resumes behind it."""
    reading = Reading()
    async with member(here, stream, reading, commit_every=1) as group:
        await until(lambda: committed(here, stream) == 9)
        await group.seek(stream.name, 7)
        assert await reading.wait(13) == [*range(10), 7, 8, 9]
        assert committed(here, stream) == 9
        stream.append(2)
        assert await reading.wait(15) == [*range(10), 7, 8, 9, 10, 11]
        await until(lambda: committed(here, stream) == 11)
    assert here.journal("refused") == []
    assert len(reading.tokens[stream.name]) == 1


async def test_a_seek_back_that_is_handed_over(here: Place, stream: Stream) -> None:
    """Released below the committed offset: that one counts."""
    reading = Reading()
    async with member(here, stream, reading, commit_every=1) as group:
        await until(lambda: committed(here, stream) == 9)
        await group.seek(stream.name, "first")
        await reading.wait(12)
    assert committed(here, stream) == 9
    assert here.journal("refused") == []


async def test_a_seek_forward_passes_over_messages(here: Place, amqp_url: str) -> None:
    """In the middle of a burst: what was handed out behind the running message is not handled, and not committed before."""
    reading, began, gate = Reading(), anyio.Event(), anyio.Event()

    async def handle(delivery: Delivery) -> None:
        began.set()
        await gate.wait()
        await reading.handle(delivery)

    with new_stream(amqp_url, 100) as stream:
        async with here.member([stream.name], handle, streams=settings()) as group:
            await began.wait()
            await group.seek(stream.name, 95)
            gate.set()
            assert await reading.wait(6) == [0, 95, 96, 97, 98, 99]
        assert committed(here, stream) == 99


async def test_a_seek_forgets_what_was_not_acknowledged(here: Place, stream: Stream) -> None:
    """With manual acks it does not wait, and acks that come late are of no effect."""
    reading = Reading()
    async with member(here, stream, reading, ack="manual", commit_every=1) as group:
        await reading.wait(10)
        old = list(reading.deliveries)
        await group.seek(stream.name, 8)
        await reading.wait(12)
        for delivery in old:
            group.ack(delivery)
        assert committed(here, stream) == -1
        for delivery in reading.deliveries[10:]:
            group.ack(delivery)
        await until(lambda: committed(here, stream) == 9)


async def test_the_last_of_two_seeks_counts(here: Place, stream: Stream) -> None:
    """Though the first is under way."""
    reading = Reading()
    async with member(here, stream, reading) as group:
        await reading.wait(10)
        await group.seek(stream.name, "next")
        await group.seek(stream.name, 8)
        assert await reading.wait(12) == [*range(10), 8, 9]


async def test_what_cannot_be_sought(here: Place, stream: Stream, amqp_url: str) -> None:
    """Queues, what is not held, and places that are none."""
    with new_topic(amqp_url, 1) as topic:
        async with here.member([stream.name, *topic.queue_names], Reading().handle) as group:
            await group.wait_held(stream.name, *topic.queue_names)
            with pytest.raises(UsageError, match="queue"):
                await group.seek(topic.queue_names[0], "first")
            with pytest.raises(UsageError, match="time zone"):
                await group.seek(stream.name, "latest")  # type: ignore[arg-type]
            with pytest.raises(NotHeld):
                await group.seek("another", 0)


# -- guard and limits ------------------------------------------------------------------------------------------------------------


async def test_a_lock_makes_a_stream_guarded(here: Place, stream: Stream, amqp_url: str) -> None:
    """Only once it is held; and nothing is read before."""
    reading = Reading()

    def guarded(group: ConsumerGroup) -> bool:
        held = group._engine.session.holdings._by_name.get(stream.name)
        return held is not None and held.guarded

    def occupy(connection: BrokerConnection) -> None:
        connection.open_channel(lambda it: it.queue_declare(f"lock.{stream.name}", exclusive=True))

    with connected(amqp_url, "another") as other:
        other.submit(lambda: occupy(other))
        await until(lambda: lock_is_taken(amqp_url, stream))
        async with member(here, stream, reading, lock=True) as group:
            await until(lambda: committed(here, stream) == -1)
            assert not guarded(group)
            assert reading.deliveries == []
            other.close()
            await reading.wait(10)
            await until(lambda: guarded(group))
    assert not lock_is_taken(amqp_url, stream)


def lock_is_taken(amqp_url: str, stream: Stream) -> bool:
    """Whether another connection has the lock queue."""
    import pika
    from pika.exceptions import ChannelClosedByBroker

    with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection:
        try:
            connection.channel().queue_declare(f"lock.{stream.name}", exclusive=True)
        except ChannelClosedByBroker:
            return True
    return False


async def test_without_a_lock_it_is_not(here: Place, stream: Stream) -> None:
    """RabbitMQ would let anybody read, so who is cut off from Redis has to stop."""
    reading = Reading()
    async with member(here, stream, reading) as group:
        await reading.wait(10)
        assert not group._engine.session.holdings._by_name[stream.name].guarded


async def test_streams_have_no_dead_letters(here: Place, stream: Stream) -> None:
    """Said before anything is consumed."""
    with pytest.raises(UsageError, match="dead-letter"):
        async with member(here, stream, Reading(), on_error="dead_letter"):
            pass
