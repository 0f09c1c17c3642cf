"""One partition during one tenure, on a real RabbitMQ: guards, order across handovers, acks, and endings."""

import queue
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import attrs
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.rabbitmq.partition.holders import QUORUM, WAIT_S, Member, declare, left, publish

from cobalance.errors import ChannelLost, QueueMismatch, QueueMissing, Unguarded
from cobalance.rabbitmq import Queue
from cobalance.rabbitmq.partition.acks import Progress
from cobalance.rabbitmq.partition.delivery import Delivery
from cobalance.rabbitmq.partition.partition import PartitionEvent, PartitionState

# Order across handovers


@pytest.mark.parametrize("finish_buffer", [False, True], ids=["returning the buffer", "finishing the buffer"])
def test_planned_handovers_under_load_keep_order(
    guarded: Queue, finish_buffer: bool, broker: BlockingChannel, members: Callable[..., Member]
) -> None:
    """Eight holders, each taking over as soon as CloseOk arrives, see every message once and in order."""
    count, share = 2_000, 220
    publish(broker, guarded, count)
    holder = members(guarded, 1, prefetch=20, ack_every=7)
    holder.start()
    seen: list[int] = []
    for token in range(2, 10):
        seen += holder.work(share)
        running = holder.take(1)[0]
        successor = members(guarded, token, prefetch=20, ack_every=7)
        seen += hand_over(holder, successor, running, finish_buffer=finish_buffer)
        assert successor.next_event() == PartitionEvent(PartitionState.CONSUMING)
        holder = successor
    seen += holder.work(count - len(seen))
    assert seen == list(range(count))


def hand_over(holder: Member, successor: Member, running: Delivery, *, finish_buffer: bool) -> list[int]:
    """Releases one and starts the other in the very callback of CloseOk; returns what was finished in between."""
    partition = holder.partition
    partition.drain(finish_buffer=finish_buffer)
    rest = partition.take()
    assert finish_buffer or not rest
    partition.closed.add_done_callback(lambda _: successor.partition.start())
    closed = partition.release()
    holder.await_io()
    assert partition.state is PartitionState.DRAINING  # the release waits for the running handler
    for delivery in (running, *rest):
        partition.done(delivery)
    progress = closed.result(WAIT_S)
    assert progress.committed == progress.delivered
    return [int(delivery.body) for delivery in (running, *rest)]


def test_unfinished_messages_go_back_in_order_when_aborted(
    guarded: Queue, broker: BlockingChannel, members: Callable[..., Member]
) -> None:
    """Finished ones are acknowledged up to the first gap; the rest returns to the head of the queue."""
    publish(broker, guarded, 30)
    holder, successor = members(guarded, 1, prefetch=10), members(guarded, 2)
    holder.start()
    taken = holder.take(6)
    for delivery in (*taken[:3], taken[4]):
        holder.partition.done(delivery)
    assert holder.partition.abort().result(WAIT_S) == Progress(delivered=6, committed=3)
    successor.start()
    assert successor.work(27) == list(range(3, 30))


def test_all_that_was_acknowledged_one_by_one_stays_away_when_the_channel_is_closed(
    guarded: Queue, broker: BlockingChannel, members: Callable[..., Member]
) -> None:
    """RabbitMQ's channel holds back what a quorum queue has not caught up with, and drops that when it is closed."""
    publish(broker, guarded, 302)
    holder, successor = members(guarded, 1, prefetch=300, acks_ahead_at_close=True), members(guarded, 2)
    holder.start()
    first, *others, last = holder.take(300)
    for delivery in others:
        holder.partition.done(delivery)
    assert holder.partition.abort().result(WAIT_S) == Progress(delivered=300, committed=298)
    successor.start()
    assert successor.work(4) == [int(first.body), int(last.body), 300, 301]


def test_the_crash_of_a_holder_hands_over_in_order(
    guarded: Queue, broker: BlockingChannel, members: Callable[..., Member]
) -> None:
    """The waiting successor gets everything that was not acknowledged, in order."""
    publish(broker, guarded, 30)
    holder, successor = members(guarded, 1, prefetch=10), members(guarded, 2)
    holder.start()
    holder.take(6)
    successor.partition.start()
    transport = holder.connection._pika._transport  # type: ignore[union-attr]
    holder.connection.submit(lambda: transport._sock.shutdown(socket.SHUT_RDWR))
    assert successor.work(30) == list(range(30))


# Guards


def test_an_exclusive_consumer_waits_for_the_holder(
    members: Callable[..., Member], classic: Queue, broker: BlockingChannel
) -> None:
    """It reports this once, keeps trying, and takes over when the holder lets go."""
    publish(broker, classic, 1)
    holder, successor = members(classic, 1), members(classic, 2)
    holder.start()
    successor.partition.start()
    event = successor.next_event()
    assert event.state is PartitionState.WAITING
    assert "in exclusive use" in str(event.error)
    holder.partition.release()
    assert successor.next_event() == PartitionEvent(PartitionState.CONSUMING)
    assert successor.work(1) == [0]


def test_waiting_ends_with_the_tenure(members: Callable[..., Member], classic: Queue) -> None:
    """A tenure revoked while waiting ends at once, without having consumed anything."""
    holder, successor = members(classic, 1), members(classic, 2)
    holder.start()
    successor.partition.start()
    assert successor.next_event().state is PartitionState.WAITING
    assert successor.partition.release().result(WAIT_S) == Progress(0, 0)
    assert successor.partition.state is PartitionState.ENDED


def test_a_single_active_consumer_keeps_the_other_waiting(
    broker: BlockingChannel, members: Callable[..., Member]
) -> None:
    """Both are subscribed; messages go to the first until it is gone."""
    declare(broker, QUORUM)
    publish(broker, QUORUM, 2)
    holder, successor = members(QUORUM, 1, prefetch=1), members(QUORUM, 2)
    holder.start()
    successor.start()
    assert holder.work(1) == [0]
    assert successor.partition.take() == []
    holder.partition.release().result(WAIT_S)
    assert successor.work(1) == [1]
    broker.queue_delete(QUORUM.name)


@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_a_queue_without_a_guard_is_refused(kind: str, members: Callable[..., Member]) -> None:
    """RabbitMQ would silently ignore `exclusive` there, and serve two consumers."""
    with pytest.raises(Unguarded, match=f"partition.open.*{kind}|stream"):
        members(Queue("partition.open", {"x-queue-type": kind}))


@pytest.mark.parametrize(
    ("really", "said"),
    [
        ({"x-queue-type": "quorum"}, {"x-queue-type": "quorum", "x-single-active-consumer": True}),
        ({"x-queue-type": "quorum"}, {"x-queue-type": "classic"}),
        ({"x-queue-type": "classic"}, {"x-queue-type": "classic", "x-single-active-consumer": True}),
    ],
    ids=["no single active consumer", "no classic queue", "not single active either"],
)
def test_a_guard_that_is_only_claimed_is_found_out(
    really: dict[str, str | bool], said: dict[str, str | bool], broker: BlockingChannel, members: Callable[..., Member]
) -> None:
    """The broker checks it: a queue other than described is never consumed, and the message says what differs."""
    declare(broker, Queue("partition.claim", really))
    publish(broker, Queue("partition.claim"), 1)
    member = members(Queue("partition.claim", said))
    member.partition.start()
    error = member.ended_with()
    assert isinstance(error, QueueMismatch)
    assert "inequivalent arg" in str(error)
    assert left(broker, "partition.claim") == 1
    broker.queue_delete("partition.claim")


# Unrequested ends


def test_a_missing_queue(members: Callable[..., Member]) -> None:
    """It is reported, and the proof of the guard does not create it."""
    for token in (1, 2):
        member = members(Queue("partition.nowhere"), token)
        member.partition.start()
        assert isinstance(member.ended_with(), QueueMissing)


def test_a_queue_deleted_while_consumed(
    members: Callable[..., Member], classic: Queue, broker: BlockingChannel
) -> None:
    """RabbitMQ cancels the consumer."""
    member = members(classic)
    member.start()
    broker.queue_delete(classic.name)
    error = member.ended_with()
    assert isinstance(error, ChannelLost)
    assert "deleted" in str(error)


def test_a_channel_closed_by_the_broker(
    members: Callable[..., Member], classic: Queue, broker: BlockingChannel
) -> None:
    """Here by an ack that it does not know; a consumer timeout looks the same. Late completions do no harm."""
    publish(broker, classic, 2)
    member = members(classic)
    member.start()
    taken = member.take(2)
    member.connection.submit(lambda: member.partition._channel.basic_ack(99))  # type: ignore[union-attr]
    assert "unknown delivery tag" in str(member.ended_with())
    for delivery in taken:
        member.partition.done(delivery)
    member.partition.flush()
    assert isinstance(member.partition.release().exception(WAIT_S), ChannelLost)
    assert member.partition.drained.done()


def test_a_lost_connection(members: Callable[..., Member], classic: Queue, broker: BlockingChannel) -> None:
    """Every tenure on it ends, even one that is waiting for the broker, and nothing more is handed out."""
    publish(broker, classic, 5)
    holder, waiting = members(classic, 1), members(classic, 2)
    holder.start()
    holder.take(1)
    waiting.partition.start()
    assert waiting.next_event().state is PartitionState.WAITING
    for member in (holder, waiting):
        transport = member.connection._pika._transport  # type: ignore[union-attr]
        member.connection.submit(lambda transport=transport: transport._sock.shutdown(socket.SHUT_RDWR))  # type: ignore[misc]
    assert isinstance(waiting.ended_with(), ChannelLost)
    assert isinstance(holder.ended_with(), ChannelLost)
    assert holder.partition.take() == []


def test_starting_without_a_connection(members: Callable[..., Member], classic: Queue) -> None:
    """The end is reported like any other."""
    member = members(classic)
    member.connection.close()
    member.partition.start()
    assert isinstance(member.ended_with(), ChannelLost)


def test_closing_before_starting(members: Callable[..., Member], classic: Queue) -> None:
    """A tenure that was revoked at once."""
    assert members(classic).partition.release().result(WAIT_S) == Progress(0, 0)


# Taking, pausing, settling


def test_one_wakeup_for_a_burst(members: Callable[..., Member], classic: Queue, broker: BlockingChannel) -> None:
    """Fifty messages in the queue cross over with few wake-ups, and none comes before the buffer was seen empty."""
    publish(broker, classic, 50)
    member = members(classic, prefetch=50)
    assert member.partition.take() == []
    member.start()
    assert member.ready.wait(WAIT_S)
    assert member.wakeups == 1
    member.take(50)
    assert member.wakeups < 25


def test_what_was_taken_and_not_begun_can_be_given_back(
    members: Callable[..., Member], classic: Queue, broker: BlockingChannel
) -> None:
    """It returns to the queue without delaying the release; nothing is handed out after it, out of order."""
    publish(broker, classic, 6)
    holder, successor = members(classic, 1), members(classic, 2)
    holder.start()
    taken = holder.take(4)
    holder.partition.done(taken[0])
    holder.partition.give_back(3)
    assert holder.partition.take() == []
    assert holder.partition.release().result(WAIT_S) == Progress(1, 1)
    successor.start()
    assert successor.work(5) == [1, 2, 3, 4, 5]


def test_pause_and_resume(members: Callable[..., Member], classic: Queue, broker: BlockingChannel) -> None:
    """A paused partition hands out nothing and misses nothing."""
    publish(broker, classic, 3)
    member = members(classic)
    member.start()
    assert member.work(1) == [0]
    member.partition.pause()
    assert member.partition.take() == []
    member.ready.clear()
    member.partition.resume()
    assert member.ready.wait(WAIT_S)
    assert member.work(2) == [1, 2]


def test_a_paused_partition_drains_without_its_buffer(
    members: Callable[..., Member], classic: Queue, broker: BlockingChannel
) -> None:
    """Finishing the buffer would wait forever for a resume."""
    publish(broker, classic, 3)
    member = members(classic)
    member.start()
    assert member.work(1) == [0]
    member.partition.pause()
    member.partition.drain(finish_buffer=True).result(WAIT_S)
    assert member.partition.release().result(WAIT_S) == Progress(1, 1)


def test_a_message_that_comes_with_the_drain_is_not_waited_for(
    members: Callable[..., Member], classic: Queue, broker: BlockingChannel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It arrives after the buffer was emptied: it returns to the queue, and does not delay the release."""
    publish(broker, classic, 1)
    member, crossed = members(classic), threading.Event()
    member.start()
    (running,) = member.take(1)

    def drain_meanwhile(*parts: Any) -> Delivery:
        member.partition.drain()
        crossed.set()
        return Delivery(*parts)

    monkeypatch.setattr("cobalance.rabbitmq.partition.partition.Delivery", drain_meanwhile)
    publish(broker, classic, 1)
    assert crossed.wait(WAIT_S)
    member.await_io()
    member.partition.done(running)
    assert member.partition.release().result(WAIT_S) == Progress(1, 1)
    assert left(broker, classic.name) == 1


def test_acks_leave_in_batches_and_after_a_while(
    members: Callable[..., Member], classic: Queue, broker: BlockingChannel
) -> None:
    """Ten messages finished at once: one ack for five, one for the rest by the timer; more are then sent."""
    publish(broker, classic, 20)
    member = members(classic, prefetch=10, ack_every=5, ack_interval_ms=1)
    acks = queue.SimpleQueue[tuple[int, bool]]()
    member.start()
    channel = member.partition._channel
    assert channel is not None
    plain_ack = channel.basic_ack

    def ack(tag: int, multiple: bool) -> None:
        acks.put((tag, multiple))
        plain_ack(tag, multiple)

    channel.basic_ack = ack  # type: ignore[method-assign,assignment]
    assert member.work(13) == list(range(13))
    assert member.work(7) == list(range(13, 20))
    last = 0
    while last < 20:
        tag, multiple = acks.get(timeout=WAIT_S)
        assert multiple
        assert tag > last
        last = tag
    assert member.partition.release().result(WAIT_S) == Progress(20, 20)
    assert left(broker, classic.name) == 0


def test_a_reject_goes_to_the_dead_letters(
    members: Callable[..., Member], classic: Queue, broker: BlockingChannel
) -> None:
    """It counts as settled, so that it does not delay a release."""
    publish(broker, classic, 3)
    member = members(classic)
    member.start()
    first, second, third = member.take(3)
    member.partition.done(first)
    member.partition.reject(second)
    member.partition.done(third)
    assert member.partition.release().result(WAIT_S) == Progress(3, 3)
    assert next(broker.consume("partition.dead"))[2] == b"1"
    assert left(broker, classic.name) == 0


def test_settling_for_another_tenure_is_an_error(
    members: Callable[..., Member], classic: Queue, broker: BlockingChannel
) -> None:
    """Delivery tags mean nothing outside their own channel."""
    publish(broker, classic, 1)
    first, second = members(classic, 1), members(classic, 2)
    first.start()
    delivery = first.take(1)[0]
    with pytest.raises(ValueError, match="another tenure"):
        second.partition.done(delivery)


def test_a_delivery_shows_what_a_handler_needs(
    members: Callable[..., Member], classic: Queue, broker: BlockingChannel
) -> None:
    """Body, headers, routing key, token, and whether it was handed out before."""
    properties = pika.BasicProperties(headers={"kind": "order"})
    broker.basic_publish("", classic.name, b"hello", properties)
    member = members(classic, 7)
    member.start()
    delivery = member.take(1)[0]
    assert (delivery.body, delivery.headers, delivery.routing_key) == (b"hello", {"kind": "order"}, classic.name)
    assert (delivery.queue, delivery.token, delivery.delivery_tag, delivery.redelivered) == (classic.name, 7, 1, False)
    assert attrs.asdict(delivery.tenure) == {"queue": classic.name, "token": 7}


def test_a_waiter_that_gives_up_spoils_nothing(members: Callable[..., Member], classic: Queue) -> None:
    """Cancelling the future of a release does not cancel the release."""
    member = members(classic)
    member.start()
    closed: Future[Progress] = member.partition.release()
    assert not closed.cancel()
    assert closed.result(WAIT_S) == Progress(0, 0)
