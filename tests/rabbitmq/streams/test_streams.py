"""Streams as a group's partitions, on real servers: handovers and commits, with nothing lost in between."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import anyio.from_thread
import anyio.lowlevel
import attrs
import pytest
import redis as redis_client
from tests.consumers import SETTINGS, Place, new_topic, place, until
from tests.reading import WITHIN_S, Reading, committed, member, settings
from tests.streams import Stream, cut

from cobalance import ConsumerGroup, Delivery, Publisher, Tenure, servers
from cobalance.coordinator.keys import group_keys
from cobalance.errors import NotHeld
from cobalance.rabbitmq.model.batches import Batch
from cobalance.rabbitmq.model.retries import Retries
from cobalance.settings import MemberSettings

pytestmark = pytest.mark.anyio


# -- handing over ------------------------------------------------------------------------------------------------------


def publish(publisher: Publisher, numbers: range) -> None:
    """Publishes confirmed messages with different keys."""
    for number in numbers:
        publisher.publish(f"key-{number}", b"", wait=False)
    publisher.flush()


@pytest.mark.both_loops
async def test_a_handover_resumes_behind_the_committed_offset(here: Place, amqp_url: str) -> None:
    """Under load, every message is handled once, in order within its stream, by one member at a time."""
    reading, total = Reading(), 3_000
    patient = attrs.evolve(SETTINGS, session_timeout_ms=20_000, revocation_timeout_ms=20_000)
    with new_topic(amqp_url, 4, "stream") as topic:
        members = [here.member(topic, reading.handle, settings=patient) for _ in range(3)]
        with Publisher(amqp_url, topic) as publisher:
            publish(publisher, range(total // 3))
            async with members[0]:
                await reading.wait(total // 3)
                async with members[1]:
                    await members[1].wait_held()
                    publish(publisher, range(total // 3, 2 * total // 3))
                    await reading.wait(2 * total // 3)
                async with members[2]:
                    await members[2].wait_held()
                    publish(publisher, range(2 * total // 3, total))
                    await reading.wait(total)
    assert sum(map(len, reading.offsets.values())) == total
    assert all(offsets == list(range(len(offsets))) for offsets in reading.offsets.values())
    assert any(len(tokens) > 1 for tokens in reading.tokens.values())
    assert here.journal("refused") == []


@pytest.mark.both_loops
async def test_a_revocation_that_is_cancelled_goes_on_where_it_was(here: Place, amqp_url: str) -> None:
    """The member that asked for it leaves first: the same tenure subscribes again, and repeats nothing."""
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


@pytest.mark.both_loops
async def test_a_lost_connection_repeats_nothing(here: Place, stream: Stream) -> None:
    """What is finished is known without RabbitMQ, so reading continues right after it."""
    reading = Reading()
    async with member(here, stream, reading) as group:
        await reading.wait(10)
        await until(cut(group.partitions.connection).is_set)
        stream.append(10)
        assert await reading.wait(20) == list(range(20))


# -- committing --------------------------------------------------------------------------------------------------------


@pytest.mark.both_loops
async def test_commits_by_count(here: Place, stream: Stream) -> None:
    """A commit every `commit_every` messages; the release commits the rest, in the same step."""
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


@pytest.mark.both_loops
async def test_commits_by_time(here: Place, stream: Stream) -> None:
    """A commit `commit_interval_ms` after the first uncommitted message."""
    reading = Reading()
    async with member(here, stream, reading, commit_interval_ms=50):
        await until(lambda: committed(here, stream) == 9)
        stream.append(1)
        await until(lambda: committed(here, stream) == 10)


@pytest.mark.both_loops
async def test_without_either_the_release_commits(here: Place, stream: Stream) -> None:
    """Before that, only the first holder's start is committed."""
    reading = Reading()
    async with member(here, stream, reading):
        await reading.wait(10)
        assert committed(here, stream) == -1
    assert committed(here, stream) == 9


@pytest.mark.both_loops
async def test_what_is_kept_for_a_return_is_committed_too(here: Place, stream: Stream) -> None:
    """A process with an instance id leaves and returns: its stream is not released, and nothing is repeated."""
    kept = attrs.evolve(SETTINGS, rejoin_grace_ms=20_000)
    own = MemberSettings(instance_id="pod-0", drain_timeout_ms=5_000)
    reading = Reading()
    async with member(here, stream, reading, settings=kept, member=own):
        await reading.wait(10)
    assert here.journal("graced")
    assert here.journal("released") == []
    assert committed(here, stream) == 9
    stream.append(3)
    async with member(here, stream, reading, settings=kept, member=own):
        assert await reading.wait(13) == list(range(13))


@pytest.mark.both_loops
async def test_a_handler_that_fails_for_good_repeats_only_its_own_message(here: Place, stream: Stream) -> None:
    """What was finished before it is committed, though the membership ends in an error."""
    reading = Reading()

    async def fail(delivery: Delivery) -> None:
        if delivery.offset == 4:
            raise ValueError
        await reading.handle(delivery)

    with pytest.raises(ValueError, match=r"^$"):
        async with here.member([stream.name], fail, streams=settings(), retries=0, on_error="raise") as group:
            await group.wait_left()
    assert committed(here, stream) == 3
    async with member(here, stream, reading):
        assert await reading.wait(10) == list(range(10))


@pytest.mark.both_loops
async def test_manual_acks_commit_the_prefix_without_gaps(here: Place, stream: Stream) -> None:
    """In any order: the oldest unacknowledged message holds back all behind it."""
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


@pytest.mark.both_loops
async def test_the_user_commits_an_offset(here: Place, stream: Stream) -> None:
    """Everything up to it counts as processed: it need not be acknowledged, and the release does not wait for it."""
    reading = Reading()
    async with member(here, stream, reading, ack="manual") as group:
        await reading.wait(10)
        await group.commit(stream.name, 4)
        assert committed(here, stream) == 4
        group.ack(reading.deliveries[2])  # harmless
        for delivery in reading.deliveries[5:]:
            group.ack(delivery)
    assert committed(here, stream) == 9


@pytest.mark.both_loops
async def test_a_commit_makes_room_as_an_ack_does(here: Place, stream: Stream) -> None:
    """Only once: a late ack for the same message makes no more room."""
    reading = Reading()
    async with member(here, stream, reading, ack="manual", max_in_flight_per_partition=1) as group:
        await reading.wait(1)
        await group.commit(stream.name, 0)
        await reading.wait(2)
        group.ack(reading.deliveries[0])
        with anyio.move_on_after(0.3):
            await reading.wait(3)
        assert reading.offsets[stream.name] == [0, 1]
        await group.seek(stream.name, "next")


@pytest.mark.both_loops
async def test_a_handler_may_commit_its_own_message(here: Place, stream: Stream) -> None:
    """As Kafka users do, though it would be committed anyway."""
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


class Ahead:
    """Offset 0 fails until it is committed, which offset 3 does, or the test."""

    def __init__(self) -> None:
        self.group: ConsumerGroup
        self.tried, self.late = list[int](), list[int]()  # up to the commit, and after it
        self.begun, self.is_committed, self.by_handler = anyio.Event(), False, True

    async def commit(self, stream: str) -> None:
        await self.group.commit(stream, 3)
        self.is_committed = True

    async def handle(self, delivery: Delivery) -> None:
        assert delivery.offset is not None
        (self.late if self.is_committed else self.tried).append(delivery.offset)
        if delivery.offset == 0:
            self.begun.set()
            raise ValueError
        if delivery.offset == 3 and self.by_handler:
            await self.begun.wait()
            await self.commit(delivery.queue)

    async def handle_batch(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            await self.handle(delivery)

    def threaded(self) -> Callable[[Delivery], None]:
        """The same, as a plain function."""
        loop = anyio.lowlevel.current_token()
        return lambda delivery: anyio.from_thread.run(self.handle, delivery, token=loop)


@pytest.mark.both_loops
@pytest.mark.parametrize("on_error", ["halt", "raise", "park"])
@pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "async"])
async def test_what_the_user_has_committed_is_not_tried_again(
    here: Place, stream: Stream, on_error: str, is_plain: bool
) -> None:
    """By key, what failed waits beside the message whose handler commits; neither it nor what was not begun is handled."""
    ahead = Ahead()
    options = {"order": "key", "key": lambda it: it.offset, "on_error": on_error, "retries": Retries(1, first_ms=500)}
    handler = ahead.threaded() if is_plain else ahead.handle
    ahead.group = here.member([stream.name], handler, streams=settings(), **options)
    async with ahead.group:
        await until(lambda: ahead.is_committed)
        await until(lambda: 9 in (*ahead.tried, *ahead.late) and not _waits(ahead.group))
    assert 0 not in ahead.late
    assert (committed(here, stream), here.journal("halted")) == (9, [])


def _waits(group: ConsumerGroup) -> bool:
    return any(it.by_key is not None and it.by_key._order for it in group.partitions.workers.values())


@pytest.mark.both_loops
@pytest.mark.parametrize("size", [1, 2, 9])
async def test_what_the_user_has_committed_is_handled_no_more(here: Place, stream: Stream, size: int) -> None:
    """In order, that is all up to there, whether it has been handed out or not, and alone or in a batch."""
    ahead, options = Ahead(), {"retries": Retries(1_000_000, first_ms=5, last_ms=5), "on_error": "halt"}
    ahead.by_handler = False
    ahead.group = here.member(
        [stream.name], ahead.handle_batch, streams=settings(), batch=Batch(size, within_ms=50), **options
    )
    async with ahead.group:
        await until(lambda: ahead.tried)
        await ahead.commit(stream.name)
        await until(lambda: ahead.late[-1:] == [9])
    assert (set(ahead.tried), ahead.late) == ({0}, [4, 5, 6, 7, 8, 9])
    assert committed(here, stream) == 9


@pytest.mark.both_loops
async def test_what_is_committed_while_the_channel_is_lost_is_not_handled(here: Place, stream: Stream) -> None:
    """It comes again, since the position is that of what was handled."""
    ahead, may_fail = Ahead(), anyio.Event()

    async def handle(delivery: Delivery) -> None:
        if not ahead.tried:
            ahead.tried.append(0)
            await may_fail.wait()
            raise ValueError
        await ahead.handle(delivery)

    ahead.by_handler = False
    options = {"retries": 0, "on_error": "halt"}
    ahead.group = here.member([stream.name], handle, streams=settings(), prefetch=2, **options)
    async with ahead.group:
        await until(lambda: ahead.tried)
        ahead.group.partitions.connection.submit(lambda: 1 / 0)
        await until(lambda: all(it.stopping for it in ahead.group.partitions.workers.values()))
        await ahead.commit(stream.name)
        may_fail.set()
        await until(lambda: ahead.late[-1:] == [9])
    assert (ahead.late, here.journal("halted")) == ([4, 5, 6, 7, 8, 9], [])


async def test_a_commit_under_way_comes_before_the_release(
    amqp_url: str, private_redis: servers.OwnRedis, stream: Stream
) -> None:
    """After the release it would be refused, and the journal would report a fenced holder where there is none."""
    reading, patient = Reading(), attrs.evolve(SETTINGS, session_timeout_ms=20_000, revocation_timeout_ms=20_000)
    with place(amqp_url, private_redis.url) as here:
        here.coordinator.configure(session_timeout_ms=20_000, revocation_timeout_ms=20_000)
        async with member(here, stream, reading, commit_every=1, settings=patient) as group:
            await until(lambda: committed(here, stream) == 9)
            private_redis.pause()
            await until(lambda: group.membership.engine.session.line.outstanding is not None)
            stream.append(1)
            await reading.wait(11)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(group.leave)
                await group.tenures[stream.name].wait_draining()
                with anyio.move_on_after(0.5):
                    await group.tenures[stream.name].wait_ended()
                private_redis.resume()
        assert committed(here, stream) == 10
        assert here.journal("refused") == []


async def test_a_halt_while_a_commit_is_under_way(
    amqp_url: str, private_redis: servers.OwnRedis, stream: Stream
) -> None:
    """What was finished meanwhile is committed, too, so that work resumes at the very message that failed."""
    reading, patient = Reading(), attrs.evolve(SETTINGS, session_timeout_ms=20_000, revocation_timeout_ms=20_000)

    async def handle(delivery: Delivery) -> None:
        if delivery.offset == 12:
            raise ValueError
        await reading.handle(delivery)

    with place(amqp_url, private_redis.url) as here:
        here.coordinator.configure(session_timeout_ms=20_000, revocation_timeout_ms=20_000)
        streams, given = settings(commit_every=1), {"settings": patient, "retries": 0, "on_error": "halt"}
        async with here.member([stream.name], handle, streams=streams, **given) as group:
            await until(lambda: committed(here, stream) == 9)
            private_redis.pause()
            await until(lambda: group.membership.engine.session.line.outstanding is not None)
            stream.append(1)
            await until(lambda: group.membership._tickets)
            stream.append(2)
            await until(lambda: group.partitions.workers[stream.name]._given_up)
            private_redis.resume()
            assert (await until(lambda: here.journal("halted")))[0].reason == "halted:ValueError"
        assert committed(here, stream) == 11


@pytest.mark.both_loops
async def test_what_the_user_commits_when_it_is_asked_back(here: Place, stream: Stream) -> None:
    """on_revoked may commit, and the release does not interfere."""
    reading = Reading()

    async def on_revoked(tenures: list[Tenure]) -> None:
        for tenure in tenures:
            await tenure.commit(9)

    async with member(here, stream, reading, on_revoked=on_revoked):
        await reading.wait(10)
    assert committed(here, stream) == 9
    assert here.journal("refused") == []


@pytest.mark.both_loops
async def test_a_fenced_commit_ends_the_tenure_as_lost(amqp_url: str, redis_url: str, stream: Stream) -> None:
    """Another member has the stream and has started at the committed offset: nothing more is handled or stored here."""
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
    """Raises the token on record, as when a silent holder is replaced."""
    client = redis_client.Redis.from_url(redis_url, decode_responses=True)
    key = next(it for it in group_keys(group) if it.endswith(":resources"))
    words = str(client.hget(key, resource)).split()
    words[2] = str(int(words[2]) + 1)
    client.hset(key, resource, " ".join(words))
    client.close()
