"""Moving the position of a stream while it is read, and the lock queue that guards one; on real servers."""

from __future__ import annotations

import contextlib
from datetime import datetime

import anyio
import anyio.lowlevel
import pika
import pytest
from pika.exceptions import ChannelClosedByBroker
from tests.consumers import Place, channel, new_topic, place, until
from tests.rabbitmq.memory.clients import Place as Queues
from tests.rabbitmq_user import new_user
from tests.reading import WITHIN_S, Reading, committed, member, settings
from tests.streams import Stream, connected, new_stream

from cobalance import ConsumerGroup, Delivery, Tenure
from cobalance.errors import NotHeld, UsageError
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.lock_queue import lock_name
from cobalance.servers import OwnRabbitMQ

RESOURCE_LOCKED = 405

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


# -- seeking -----------------------------------------------------------------------------------------------------------


async def test_a_seek_back_repeats_messages_but_not_commits(
    here: Place, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    """The committed offset stays until the position has passed it, so a handover then resumes after it."""
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
    assert "is gone" not in caplog.text
    assert "a seek" not in caplog.text


async def test_a_commit_that_is_answered_after_a_seek_back_skips_nothing(
    here: Place, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was about what had been read before."""
    reading, gate = Reading(), anyio.Event()

    async def handle(delivery: Delivery) -> None:
        await reading.handle(delivery)
        if len(reading.deliveries) > 10:
            await gate.wait()

    async with here.member([stream.name], handle, streams=settings(start="first")) as group:
        await reading.wait(10)
        commit, asked, answered = group.membership.commit, anyio.Event(), anyio.Event()

        async def commit_late(tenure: Tenure, offset: int) -> None:
            asked.set()
            await commit(tenure, offset)
            await answered.wait()

        monkeypatch.setattr(group.membership, "commit", commit_late)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(group.commit, stream.name, 9)
            await asked.wait()
            await group.seek(stream.name, "first")
            await reading.wait(11)
            answered.set()
        gate.set()
        assert await reading.wait(20) == [*range(10), *range(10)]


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
    """In the middle of a burst: messages handed out behind the running one are not handled, nor committed before it."""
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


async def test_a_seek_forward_in_a_quiet_stream_is_committed(here: Place, stream: Stream) -> None:
    """After a crash, what it passed over would come again, also if no message has come since."""
    reading, began, gate = Reading(), anyio.Event(), anyio.Event()

    async def handle(delivery: Delivery) -> None:
        began.set()
        await gate.wait()
        await reading.handle(delivery)

    async with here.member([stream.name], handle, streams=settings()) as group:
        await began.wait()
        await group.seek(stream.name, "next")
        gate.set()
        await until(lambda: committed(here, stream) == 9)


async def test_a_seek_forgets_what_was_not_acknowledged(here: Place, stream: Stream) -> None:
    """With manual acks it does not wait, and late acks have no effect."""
    reading = Reading()
    async with member(here, stream, reading, ack="manual", commit_every=1) as group:
        await reading.wait(10)
        old = list(reading.deliveries)
        await group.seek(stream.name, 8)
        await reading.wait(12)
        for delivery in old:
            group.ack(delivery)
        await until(lambda: committed(here, stream) == 7)  # the seek's own
        for delivery in reading.deliveries[10:]:
            group.ack(delivery)
        await until(lambda: committed(here, stream) == 9)


async def test_the_last_of_two_seeks_counts(here: Place, stream: Stream) -> None:
    """Even if RabbitMQ is already being asked about the first."""
    reading = Reading()
    async with member(here, stream, reading) as group:
        await reading.wait(10)
        await group.seek(stream.name, "next")
        while group.partitions.workers[stream.name]._consumer is not None:
            await anyio.lowlevel.checkpoint()
        await group.seek(stream.name, 8)
        assert await reading.wait(12) == [*range(10), 8, 9]


async def test_a_seek_before_rabbitmq_has_said_what_it_is(here: Place, amqp_url: str) -> None:
    """It was a queue for a while, so it is read again for its next tenure, whose worker is made behind on_assigned."""

    async def go_to_7(tenures: list[Tenure]) -> None:
        await group.seek(tenures[0].resource, 7)

    reading = Reading()
    with new_stream(amqp_url) as stream:
        group = member(here, stream, reading, on_assigned=go_to_7)
        async with group:
            await until(lambda: any(worker._subscribed for worker in group.partitions.workers.values()))
            stream.delete()
            with channel(amqp_url) as it:
                it.queue_declare(stream.name, durable=True)
            await until(lambda: here.resources()[stream.name].halted == "QueueMismatch")
            stream.delete()
            stream.declare()
            stream.append(10)
            here.coordinator.resume(stream.name)
            assert await reading.wait(3) == [7, 8, 9]


async def test_a_seek_before_rabbitmq_has_said_that_it_is_a_queue(
    here: Place, amqp_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No caller can hear of it any more, so the log has it; the queue is worked."""

    async def go_back(tenures: list[Tenure]) -> None:
        with contextlib.suppress(UsageError):
            await group.seek(tenures[0].resource, "first")

    handled = anyio.Event()

    async def handle(_: Delivery) -> None:
        handled.set()

    with new_stream(amqp_url) as place:  # a name for a queue
        place.delete()
        with channel(amqp_url) as it:
            it.queue_declare(place.name, durable=True)
        group = here.member([place.name], handle, on_assigned=go_back)
        async with group:
            await until(lambda: any(worker._subscribed for worker in group.partitions.workers.values()))
            place.delete()
            place.declare()
            await until(lambda: here.resources()[place.name].halted == "QueueMismatch")
            place.delete()
            with channel(amqp_url) as it:
                it.queue_declare(place.name, durable=True)
                it.basic_publish("", place.name, b"0")
            here.coordinator.resume(place.name)
            with anyio.fail_after(WITHIN_S):
                await handled.wait()
    assert "is a queue, which can be read once only: seek streams; nothing was moved" in caplog.text


async def test_a_seek_does_not_pass_one_stream_off_as_another(here: Place, stream: Stream) -> None:
    """Created again, it is below the committed offset wherever one seeks: the next holder would skip what is in between."""

    async def go_back(tenures: list[Tenure]) -> None:
        await group.seek(tenures[0].resource, "first")

    async with member(here, stream, Reading(), commit_every=1):
        await until(lambda: committed(here, stream) == 9)
    stream.make_anew()
    stream.append(20)
    reading = Reading()
    group = member(here, stream, reading, on_assigned=go_back)
    async with group:
        assert (await until(lambda: here.journal("halted")))[0].reason == "halted:OffsetUnknown"
    assert not reading.deliveries


async def test_what_cannot_be_sought(here: Place, stream: Stream, amqp_url: str) -> None:
    """Queues, streams that are not held, and invalid places."""
    with new_topic(amqp_url, 1) as topic:
        async with here.member([stream.name, *topic.queue_names], Reading().handle) as group:
            await group.wait_held(stream.name, *topic.queue_names)
            with pytest.raises(UsageError, match="queue"):
                await group.seek(topic.queue_names[0], "first")
            with pytest.raises(UsageError, match="time zone"):
                await group.seek(stream.name, "latest")  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="year"):
                await group.seek(stream.name, datetime.fromisoformat("9999-12-31T23:59:59-01:00"))
            with pytest.raises(NotHeld):
                await group.seek("another", 0)


# -- guard and limits --------------------------------------------------------------------------------------------------


async def test_a_lock_makes_a_stream_guarded(here: Place, stream: Stream, amqp_url: str) -> None:
    """Only once it is held; and nothing is read before."""
    reading = Reading()

    def guarded(group: ConsumerGroup) -> bool:
        held = group.membership.engine.session.holdings._by_name.get(stream.name)
        return held is not None and held.guarded

    with connected(amqp_url, "another") as other:
        await take_lock(other, here, stream)
        async with member(here, stream, reading, lock=True) as group:
            await until(lambda: committed(here, stream) == -1)
            assert not guarded(group)
            assert reading.deliveries == []
            other.close()
            await reading.wait(10)
            await until(lambda: guarded(group))
    assert not lock_is_taken(here, stream)


async def test_a_member_without_the_lock_waits_for_one_that_has_it(
    here: Place, stream: Stream, amqp_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As during a rolling update that takes the setting away: who holds the lock goes on, though cut off from Redis."""
    reading = Reading()

    with connected(amqp_url, "an old member") as other:
        await take_lock(other, here, stream)
        async with member(here, stream, reading) as group:
            await until(lambda: "lock of stream" in caplog.text)
            assert reading.deliveries == []
            other.close()
            await reading.wait(10)
            assert not lock_is_taken(here, stream)
            held = group.membership.engine.session.holdings._by_name[stream.name]
            assert not held.guarded


async def test_a_lock_outlives_a_policy_that_deletes_unused_queues(
    private_rabbitmq: OwnRabbitMQ, redis_url: str
) -> None:
    """Its holder consumes it. A queue that the policy has met later is deleted meanwhile."""
    reading, others = Reading(), Queues(private_rabbitmq.url)
    with place(private_rabbitmq.url, redis_url) as here, new_stream(private_rabbitmq.url, 10) as stream:
        async with member(here, stream, reading, start="first", lock=True) as group:
            await reading.wait(10)
            private_rabbitmq.control(
                "set_policy", "unused", "^(lock|memory)", '{"expires":500}', "--apply-to", "queues"
            )
            try:
                unused = others.queue("classic")
                await until(lambda: others.is_gone(unused))
                assert lock_is_taken(here, stream)
                assert group.membership.engine.session.holdings._by_name[stream.name].guarded
            finally:
                private_rabbitmq.control("clear_policy", "unused")
                others.close()


async def test_to_hold_a_lock_takes_the_permission_to_read_its_queue(
    private_rabbitmq: OwnRabbitMQ, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody would say that it was deleted. Without the permission nothing is read, and the log names the queue."""
    reading = Reading()
    with new_user(private_rabbitmq) as user, new_stream(private_rabbitmq.url, 10) as stream:
        user.permit(read="^(?!lock[.])")
        with place(user.url, redis_url) as here:
            async with member(here, stream, reading, start="first", lock=True):
                await until(lambda: here.journal("abandoned"))
                assert not reading.deliveries
                assert f"access to queue '{lock_name(here.coordinator.scope, stream.name)}'" in caplog.text
                user.permit()
                here.coordinator.resume(stream.name)
                await reading.wait(10)


async def test_groups_do_not_lock_each_other_out(here: Place, stream: Stream) -> None:
    """Each reads everything; the lock is for the members of one group."""
    mine, theirs = Reading(), Reading()
    with place(here.amqp_url, here.redis_url) as other:
        async with member(here, stream, mine, lock=True), member(other, stream, theirs, lock=True):
            await mine.wait(10)
            await theirs.wait(10)


async def take_lock(connection: BrokerConnection, here: Place, stream: Stream) -> None:
    """On another connection, which has it until it ends."""
    name = lock_name(here.coordinator.scope, stream.name)

    def take() -> None:
        connection.open_channel(lambda it: it.queue_declare(name, exclusive=True))

    connection.submit(take)
    await until(lambda: lock_is_taken(here, stream))


def lock_is_taken(here: Place, stream: Stream) -> bool:
    """Whether another connection has the lock queue."""
    with pika.BlockingConnection(pika.URLParameters(here.amqp_url)) as connection:
        try:
            connection.channel().queue_declare(lock_name(here.coordinator.scope, stream.name), passive=True)
        except ChannelClosedByBroker as error:
            return error.reply_code == RESOURCE_LOCKED
    raise AssertionError("an exclusive queue is open to its own connection only")


async def test_without_a_lock_it_is_not(here: Place, stream: Stream) -> None:
    """RabbitMQ would let anyone read, so a member that is cut off from Redis has to stop."""
    reading = Reading()
    async with member(here, stream, reading) as group:
        await reading.wait(10)
        assert not group.membership.engine.session.holdings._by_name[stream.name].guarded


async def test_streams_have_no_dead_letters(here: Place, stream: Stream) -> None:
    """It is refused before anything is consumed."""
    with pytest.raises(UsageError, match="dead-letter"):
        async with member(here, stream, Reading(), on_error="dead_letter"):
            pass
