"""Channels that end unexpectedly: consumer timeouts, cancelled consumers, deleted and changed queues."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from pika.exceptions import ChannelClosedByBroker, NoFreeChannels
from tests.consumers import (
    SETTINGS,
    WITHIN_S,
    Place,
    Seen,
    bodies_in,
    channel,
    handler_of,
    new_topic,
    place,
    take_in_vain,
    until,
)
from tests.names import unique

from cobalance import servers
from cobalance.errors import (
    AuthenticationRefused,
    ChannelLost,
    CobalanceError,
    OffsetUnknown,
    PermissionMissing,
    QueueMismatch,
    QueueMissing,
    UsageError,
)
from cobalance.rabbitmq import Delivery, Topic
from cobalance.rabbitmq.consume.channel_loss import BACKOFF_MS, AfterLoss, ChannelLosses, Unconnected
from cobalance.rabbitmq.model.batches import Batch
from cobalance.rabbitmq.model.retries import Retries
from cobalance.rabbitmq.model.stream_settings import StreamSettings
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.failures import channel_failure, channel_lost
from cobalance.rabbitmq.wire.lock_queue import lock_name

pytestmark = pytest.mark.anyio


def log_of(caplog: pytest.LogCaptureFixture) -> str:
    """Our own log. What pika logs depends on what other tests have requested of it."""
    return "\n".join(it.getMessage() for it in caplog.records if it.name == "cobalance.rabbitmq")


def crash(connection: BrokerConnection) -> None:
    """Drops the TCP connection."""
    connection._pika._transport._sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]


# -- the table, without a broker ---------------------------------------------------------------------------------------


def test_a_lost_channel_is_followed_by_another_at_once_and_then_by_pauses() -> None:
    """A channel that brings nothing is retried at growing intervals; one that worked starts over with the first."""
    losses = ChannelLosses("g", "q", key_prefix="staging")

    def lose(delivered: int) -> AfterLoss:
        return losses.judge(channel_lost("q", "x"), consumed=True, delivered=delivered, connected=True)

    assert lose(7) == AfterLoss(0)
    pauses = [lose(0).pause_ms for _ in range(12)]
    assert pauses[0] == 0
    assert pauses[1:] == sorted(pauses[1:])
    assert pauses[1] > 0
    assert pauses[-1] == BACKOFF_MS.longest
    assert lose(1) == AfterLoss(0)


def test_a_missing_queue_is_waited_for_unless_it_was_there() -> None:
    """A member that was granted it without having seen it keeps it; no other could do better."""
    losses = ChannelLosses("g", "q", key_prefix="staging")
    missing = QueueMissing("gone")
    assert losses.judge(missing, consumed=False, delivered=0, connected=True).pause_ms > 0
    losses.judge(channel_lost("q", "cancelled"), consumed=True, delivered=0, connected=True)
    assert losses.judge(missing, consumed=False, delivered=0, connected=True) == AfterLoss(give_up="queue_missing")


def test_a_queue_of_a_node_that_is_starting_is_not_missing() -> None:
    """RabbitMQ says NOT_FOUND of it, too; but it will be there, so it is not given up."""
    words = "NOT_FOUND - home node 'rabbit@one' of durable queue 'q' in vhost '/' is down or inaccessible"
    assert isinstance(channel_failure(ChannelClosedByBroker(404, words), "q"), ChannelLost)
    assert isinstance(
        channel_failure(ChannelClosedByBroker(404, "NOT_FOUND - no queue 'q' in vhost '/'"), "q"), QueueMissing
    )


def test_a_sentence_about_a_lost_channel_ends_once() -> None:
    """An error without words has its name."""
    assert "is gone: NoFreeChannels. What" in str(channel_failure(NoFreeChannels(), "q"))
    assert "is gone: was it deleted? What" in str(channel_lost("q", "was it deleted?"))


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (QueueMismatch("other"), "halted:QueueMismatch"),
        (UsageError("RabbitMQ cannot do that with such a queue"), "halted:UsageError"),
        (PermissionMissing("no"), "permission_missing"),
        (OffsetUnknown("a new stream"), "halted:OffsetUnknown"),
    ],
)
def test_what_is_wrong_with_one_queue_concerns_its_partition(
    error: CobalanceError, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says at ERROR what to do."""
    verdict = ChannelLosses("g", "q", key_prefix="staging").judge(error, consumed=False, delivered=0, connected=True)
    assert verdict == AfterLoss(give_up=reason)
    [record] = caplog.records
    assert record.levelno == logging.ERROR
    assert "cobalance group resume g q --key-prefix staging" in record.getMessage()
    assert f"{error}. The partition is " in record.getMessage()
    oldest = "cobalance group reset-offsets g --resource q --to-earliest --execute --key-prefix staging"
    assert (oldest in record.getMessage()) == isinstance(error, OffsetUnknown)


def test_what_is_wrong_with_all_queues_is_raised() -> None:
    """It concerns the member."""
    with pytest.raises(AuthenticationRefused):
        ChannelLosses("g", "q", key_prefix="staging").judge(
            AuthenticationRefused("no"), consumed=False, delivered=0, connected=True
        )


# -- on a real RabbitMQ ------------------------------------------------------------------------------------------------


async def test_a_queue_that_somebody_else_consumes(here: Place, caplog: pytest.LogCaptureFixture) -> None:
    """It is waited for, with a warning: a program outside the group may keep it forever."""
    seen = Seen()
    with new_topic(here.amqp_url) as topic, channel(here.amqp_url) as other:
        foreign = other.basic_consume(topic.queue_names[0], lambda *_: None, exclusive=True)
        async with here.member(topic, handler_of(seen)):
            await until(lambda: "has queue" in log_of(caplog))
            other.basic_cancel(foreign)
            here.publish(topic, "x")
            await seen.wait(1)
    assert log_of(caplog).count("list_consumers") == 1


async def test_a_stream_whose_lock_somebody_else_has(here: Place, caplog: pytest.LogCaptureFixture) -> None:
    """A stream has no exclusive consumer to be found: it is the lock's queue that has an owner."""
    seen = Seen()
    with new_topic(here.amqp_url, 1, "stream") as topic, channel(here.amqp_url) as other:
        lock = lock_name(here.coordinator.scope, topic.queue_names[0])
        other.queue_declare(lock, exclusive=True)
        streams = StreamSettings(start="first", lock=True)
        async with here.member(topic, handler_of(seen), streams=streams):
            await until(lambda: lock in log_of(caplog))
            other.queue_delete(lock)
            here.publish(topic, "x")
            await seen.wait(1)
    assert log_of(caplog).count("rabbitmqctl list_queues name owner_pid") == 1
    assert log_of(caplog).count("in another Redis has the same lock: give one of them another key_prefix") == 1
    assert "list_consumers" not in log_of(caplog)


async def test_a_stream_that_was_made_anew_as_a_queue(here: Place, caplog: pytest.LogCaptureFixture) -> None:
    """No offset helps: it is said what it is now, and once it is resumed, it is consumed as that."""
    seen, name = Seen(), unique("kind")
    with channel(here.amqp_url) as it:
        it.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
        it.basic_publish("", name, b"old")
        async with here.member([name], handler_of(seen), streams=StreamSettings(start="first")):
            assert await seen.wait(1) == ["old"]
            it.queue_delete(name)
            it.queue_declare(name, durable=True)
            it.basic_publish("", name, b"new")
            await until(lambda: here.resources()[name].halted)
            assert here.resources()[name].halted == "QueueMismatch"
            assert f"Queue {name!r} is no stream any more" in log_of(caplog)
            assert "reset-offsets" not in log_of(caplog)
            here.coordinator.resume(name)
            assert await seen.wait(2) == ["old", "new"]
        it.queue_delete(name)


@pytest.mark.parametrize("options", [{}, {"batch": Batch(2)}, {"order": "key"}], ids=["single", "batch", "by key"])
@pytest.mark.parametrize("queue_type", ["classic", "quorum", "stream"])
async def test_a_message_that_fails_over_lost_channels_is_given_up_all_the_same(
    here: Place, queue_type: str, options: dict[str, Any]
) -> None:
    """Its failures are counted on where it comes again; otherwise it would hold up its partition for ever."""
    tries, failed = [], 0

    async def handle(got: Any) -> None:
        if b"poison" in [it.body for it in (got if isinstance(got, list) else [got])]:
            tries.append(got)
            raise ValueError("poison")

    def lose_channel(*_: object) -> None:
        nonlocal failed
        failed += 1
        if failed in {1, 3}:
            member.partitions.connection.submit(lambda: 1 / 0)

    retries = Retries(4, first_ms=300, last_ms=300)
    with new_topic(here.amqp_url, 1, queue_type) as topic:
        here.publish(topic, "poison")
        member = here.member(topic, handle, retries=retries, on_failure=lose_channel, on_error="halt", **options)
        async with member:
            await until(lambda: here.resources()[topic.queue_names[0]].halted)
    assert len(tries) == 5


@pytest.mark.thorough
async def test_a_consumer_timeout_is_told_and_the_message_comes_again_after_its_handler(
    impatient_rabbitmq: servers.OwnRabbitMQ, caplog: pytest.LogCaptureFixture
) -> None:
    """RabbitMQ closes the channel; the same tenure consumes again, never while the old handler runs, and in order."""
    seen, running, most_running = Seen(), 0, 0
    go_on = anyio.Event()

    async def handle(delivery: Delivery) -> None:
        nonlocal running, most_running
        running += 1
        most_running = max(most_running, running)
        if len(seen.bodies) == 0:
            seen.note(delivery)
            await go_on.wait()
        else:
            seen.note(delivery)
        running -= 1

    with place(impatient_rabbitmq.url) as here, new_topic(here.amqp_url) as topic, caplog.at_level(logging.WARNING):
        here.publish(topic, 1, 2)
        async with here.member(topic, handle) as member:
            await seen.wait(1)
            await until(lambda: "consumer_timeout" in log_of(caplog))  # while the handler still runs
            token = member.tenures[topic.queue_names[0]].token
            go_on.set()
            assert await seen.wait(3) == ["1", "1", "2"]
            assert member.tenures[topic.queue_names[0]].token == token
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == []
    assert most_running == 1
    assert log_of(caplog).count("was not acknowledged within") == 1  # once, and not again when the handler returns


async def test_a_deleted_queue_is_reported_given_up_and_picked_up_when_it_is_back(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Each member logs it once, no membership ends, the other partitions go on, and the journal says why."""
    seen = Seen()
    with new_topic(here.amqp_url, 2) as topic, caplog.at_level(logging.WARNING):
        gone, stays = topic.queue_names
        async with here.member(topic, handler_of(seen)), here.member(topic, handler_of(seen)):
            here.publish(topic, 1)
            await seen.wait(1)
            with channel(here.amqp_url) as it:
                it.queue_delete(gone)
            (abandoned,) = await until(lambda: here.journal("abandoned"))
            assert (abandoned.resource, abandoned.reason) == (gone, "queue_missing")
            await until(lambda: "Looking again" in caplog.text)
            here.publish(topic, 2, partition=1)
            await seen.wait(2)
            with channel(here.amqp_url) as it:
                queue = topic.queues[0]
                it.queue_declare(gone, durable=True, arguments=queue.declaration)
            here.publish(topic, 3)
            assert await seen.wait(3) == ["1", "2", "3"]
            assert len(here.journal("abandoned")) == 1
            assert {row.name for row in here.resources().values() if row.owner} == {gone, stays}
    assert caplog.text.count("was deleted") == 1


@pytest.fixture
def restricted(private_rabbitmq: servers.OwnRabbitMQ) -> Iterator[Place]:
    """A RabbitMQ as a user whose permissions can be changed."""
    private_rabbitmq.control("add_user", "few", "few")
    private_rabbitmq.control("set_permissions", "few", ".*", ".*", ".*")
    with place(private_rabbitmq.url.replace("guest:guest", "few:few")) as it:
        yield it
    private_rabbitmq.control("delete_user", "few")


@pytest.mark.parametrize("queue_type", ["classic", "stream"])
@pytest.mark.thorough
async def test_a_queue_that_may_not_be_consumed_any_more_is_given_up_and_the_others_are_worked(
    restricted: Place, private_rabbitmq: servers.OwnRabbitMQ, queue_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No membership ends. The queue is tried again in growing pauses, and works again once it is permitted."""
    seen = Seen()
    with new_topic(private_rabbitmq.url, 3, queue_type) as topic:
        forbidden, *others = topic.queue_names
        members = [restricted.member(topic, handler_of(seen)) for _ in range(2)]
        async with members[0], members[1]:
            await until(lambda: {len(it.tenures) for it in members} == {1, 2})
            private_rabbitmq.control("set_permissions", "few", ".*", ".*", f"^(?!{forbidden}).*")
            holder, other = sorted(members, key=lambda it: forbidden not in it.tenures)
            await holder.leave()
            row = await until(lambda: restricted.resources()[forbidden].halted)
            assert row == "given up again and again (permission_missing)"
            for partition in (1, 2):
                restricted.publish(topic, partition, partition=partition)
            assert sorted(await seen.wait(2)) == ["1", "2"]
            assert set(other.tenures) == set(others)
            private_rabbitmq.control("set_permissions", "few", ".*", ".*", ".*")
            restricted.publish(topic, "permitted")
            restricted.coordinator.resume(forbidden)
            await seen.wait(3)
    assert {it.reason for it in restricted.journal("abandoned")} == {"permission_missing"}
    assert "needs the permissions read and configure" in log_of(caplog)


async def test_a_queue_that_comes_back_as_another_halts_its_partition(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Its guard is not what it was, so it is not consumed until an operator has looked at it."""
    seen = Seen()
    with new_topic(here.amqp_url, 2) as topic, caplog.at_level(logging.WARNING):
        gone = topic.queue_names[0]
        async with here.member(topic, handler_of(seen)) as member:
            here.publish(topic, 1)
            await seen.wait(1)
            with channel(here.amqp_url) as it:
                it.queue_delete(gone)
                it.queue_declare(gone, durable=True, arguments={"x-queue-type": "quorum"})
            row = await until(lambda: [row for row in here.resources().values() if row.halted])
            assert (row[0].name, row[0].halted) == (gone, "QueueMismatch")
            here.publish(topic, 2, partition=1)
            await seen.wait(2)
            with channel(here.amqp_url) as it:
                it.queue_delete(gone)
                it.queue_declare(gone, durable=True, arguments=topic.queues[0].declaration)
            here.publish(topic, 3)
            assert here.coordinator.resume(gone) == {gone: "OK"}
            assert await seen.wait(3) == ["1", "2", "3"]
            assert not member.paused


async def test_a_consumer_that_was_cancelled_subscribes_again(here: Place, caplog: pytest.LogCaptureFixture) -> None:
    """RabbitMQ cancels consumers for reasons of its own; the queue exists, so the tenure goes on."""
    seen = Seen()
    with new_topic(here.amqp_url) as topic, caplog.at_level(logging.WARNING):
        name = topic.queue_names[0]
        async with here.member(topic, handler_of(seen)) as member:
            here.publish(topic, 1)
            await seen.wait(1)
            token = member.tenures[name].token
            with channel(here.amqp_url) as it:  # back at once: all that the consumer sees is its cancellation
                it.queue_delete(name)
                it.queue_declare(name, durable=True, arguments=topic.queues[0].declaration)
            await until(lambda: "cancelled the consumer" in caplog.text)
            here.publish(topic, 2)
            await seen.wait(2)
            assert member.tenures[name].token == token
    assert here.journal("abandoned") == []


async def finish_one(here: Place, topic: Topic, seen: Seen) -> None:
    """A member comes, finishes one message and leaves."""
    finished = anyio.Event()

    async def handle(delivery: Delivery) -> None:
        seen.note(delivery)
        group.pause(topic.queue_names[0])
        finished.set()

    group = here.member(topic, handle, prefetch=12)
    async with group:
        with anyio.fail_after(WITHIN_S):
            await finished.wait()


async def test_handovers_alone_take_no_message_to_the_delivery_limit(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Each holder finishes one message and is paused; the others were sent ahead to all of them."""
    seen = Seen()
    numbers = [str(it) for it in range(12)]
    with new_topic(here.amqp_url, 1, "quorum", delivery_limit=6) as topic, caplog.at_level(logging.WARNING):
        here.publish(topic, *numbers)
        for _ in numbers:
            await finish_one(here, topic, seen)
        assert seen.bodies == numbers
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == []
    told = [it for it in caplog.messages if "3 messages are sent ahead" in it]
    assert len(told) == len(numbers)  # once for each member


async def test_what_was_lost_to_a_member_that_waits_for_it_comes_to_that_one_in_order(here: Place) -> None:
    """Such as after the process has stood still: by then its successor waits for the queue."""
    begun, successor = anyio.Event(), Seen()

    async def hang(_: Delivery) -> None:
        begun.set()
        await anyio.sleep_forever()

    async def handle(delivery: Delivery) -> None:
        successor.note(delivery)

    with new_topic(here.amqp_url, 1, "quorum") as topic, place(here.amqp_url) as elsewhere:
        (queue,) = topic.queue_names
        here.publish(topic, *"abcd")
        take_in_vain(here.amqp_url, queue)
        group, other = here.member(topic, hang, prefetch=1, settings=SETTINGS), elsewhere.member(topic, handle)
        async with group:
            await begun.wait()
            async with other:
                await until(
                    lambda: other.partitions.workers[queue]._subscribed if queue in other.partitions.workers else None
                )
                group.membership.abort(
                    queue, here.resources()[queue].token, "lost"
                )  # what the engine calls, on its own thread
                assert await successor.wait(4) == list("abcd")


async def test_half_of_the_way_to_the_delivery_limit_is_told_once(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Handovers alone can bring messages there that no handler was ever given; the log says what helps."""
    seen = Seen()
    with new_topic(here.amqp_url, 1, "quorum", delivery_limit=6) as topic, caplog.at_level(logging.WARNING):
        here.publish(topic, 1, 2, 3)
        for _ in range(2):
            take_in_vain(here.amqp_url, topic.queue_names[0], ahead=3)
        async with here.member(topic, as_coroutine(seen)):
            await seen.wait(3)
        assert "times before" not in caplog.text
        here.publish(topic, 4, 5, 6)
        for _ in range(3):
            take_in_vain(here.amqp_url, topic.queue_names[0], ahead=3)
        async with here.member(topic, as_coroutine(seen)):
            assert await seen.wait(6) == ["1", "2", "3", "4", "5", "6"]
    told = [it for it in caplog.messages if "was delivered 3 times before, of 6" in it]
    assert len(told) == 1
    assert "message m4 of" in told[0]


def as_coroutine(seen: Seen) -> Any:
    """A handler that notes what it is given."""

    async def handle(delivery: Delivery) -> None:
        seen.note(delivery)

    return handle


@pytest.mark.thorough
async def test_the_last_delivery_before_the_limit_is_told_and_the_broker_dead_letters(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """A message that kills every process it meets becomes a dead letter, and the log says so on its last delivery."""
    seen = Seen()
    with new_topic(here.amqp_url, 1, "quorum", delivery_limit=2) as topic, caplog.at_level(logging.WARNING):
        name = topic.queue_names[0]
        here.publish(topic, "poison", "next")
        for _ in range(2):
            take_in_vain(here.amqp_url, name)

        async def handle(delivery: Delivery) -> None:
            if seen.note(delivery) == "poison":
                group.partitions.connection.submit(lambda: crash(group.partitions.connection))
            else:
                group.ack(delivery)

        group = here.member(topic, handle, ack="manual", prefetch=1)
        async with group:
            assert await seen.wait(2) == ["poison", "next"]
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["poison"]
    assert "message mpoison of" in caplog.text
    assert "for the last time (try 3)" in caplog.text


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time that losses are judged by."""
    it = SimpleNamespace(now=1)
    monkeypatch.setattr("cobalance.rabbitmq.consume.channel_loss.monotonic_ms", lambda: it.now)
    return it


class Flapping:
    """A member's link to RabbitMQ that is lost and restored on request, and the time that one tenure goes without it."""

    lasting_ms = 6_000

    def __init__(self, clock: SimpleNamespace) -> None:
        self.connection, self.reconnection = SimpleNamespace(is_open=True), SimpleNamespace(losses=0)
        self._clock = clock
        self.unconnected = Unconnected(self)  # type: ignore[arg-type]
        self.unconnected.look()

    def comes(self, *, after_ms: int, acknowledged: int = 0) -> int:
        """Is lost, and restored after a while; returns what its worker sees just after the loss."""
        self.connection.is_open = False
        self.reconnection.losses += 1
        past = self.unconnected.look(acknowledged)
        self._clock.now += after_ms
        self.connection.is_open = True
        assert self.unconnected.look(acknowledged) == 0
        return past

    def lasts(self, ms: int) -> None:
        self._clock.now += ms


def test_short_connections_do_not_end_the_time_without_one(clock: SimpleNamespace) -> None:
    link = Flapping(clock)
    assert link.comes(after_ms=100) == 0
    for times in range(3):
        link.lasts(link.lasting_ms - 1)
        assert link.comes(after_ms=1) == 100 + times * link.lasting_ms + link.lasting_ms - 1


@pytest.mark.parametrize(("lasts_ms", "acknowledged"), [(6_000, 0), (10, 1)])
def test_a_connection_that_lasts_or_is_of_use_ends_it(clock: SimpleNamespace, lasts_ms: int, acknowledged: int) -> None:
    link = Flapping(clock)
    link.comes(after_ms=100)
    link.lasts(lasts_ms)
    assert link.comes(after_ms=100, acknowledged=acknowledged) == 0
    link.lasts(10)
    assert link.comes(after_ms=1, acknowledged=acknowledged) == 110  # what was acknowledged before is no news


def test_a_loss_that_is_seen_once_there_is_another_connection_counts(clock: SimpleNamespace) -> None:
    """The handler ran on meanwhile. Without a loss, a channel that ends says nothing of the connection."""
    link = Flapping(clock)
    link.comes(after_ms=100)
    link.lasts(50)
    assert link.unconnected.look() == 0
    link.reconnection.losses += 1
    assert link.unconnected.look() == 150
    link.lasts(50)
    assert link.unconnected.look() == 0
