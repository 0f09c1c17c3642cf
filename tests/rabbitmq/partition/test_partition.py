"""One partition during one tenure, on a real RabbitMQ: guards, order across handovers, acks, and endings."""

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import attrs
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.consumers import take_in_vain
from tests.faults.proxy import FaultProxy
from tests.faults.rabbitmq_servers import Leader

from cobalance.backoff import Backoff
from cobalance.errors import ChannelLost, CobalanceError, QueueMismatch, QueueMissing, Unguarded
from cobalance.rabbitmq import Queue
from cobalance.rabbitmq.partition import returned, standstill
from cobalance.rabbitmq.partition.acks import Progress
from cobalance.rabbitmq.partition.delivery import Delivery
from cobalance.rabbitmq.partition.partition import PartitionConsumer, PartitionEvent, PartitionState
from cobalance.rabbitmq.partition.returned import WITHIN_MS
from cobalance.rabbitmq.partition.standstill import Standstill
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.servers import OwnRabbitMQ

WAIT_S = 60

CLASSIC = Queue("partition.classic", {"x-queue-type": "classic"})
QUORUM = Queue("partition.quorum", {"x-queue-type": "quorum", "x-single-active-consumer": True})
LIMITED = Queue(
    "partition.limited",
    {"x-queue-type": "quorum", "x-single-active-consumer": True, "x-delivery-limit": 20},
)


@pytest.fixture
def broker(amqp_url: str) -> Iterator[BlockingChannel]:
    """A plain pika channel to set the scene with."""
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


@pytest.fixture(
    params=[CLASSIC, QUORUM, pytest.param(LIMITED, marks=pytest.mark.thorough)],
    ids=["classic", "quorum", "quorum with a limit"],
)
def guarded(request: pytest.FixtureRequest, broker: BlockingChannel) -> Iterator[Queue]:
    """A new queue of each kind that has a guard."""
    declare(broker, request.param)
    yield request.param
    broker.queue_delete(request.param.name)


@pytest.fixture
def quorum(broker: BlockingChannel) -> Iterator[Queue]:
    """A new quorum queue."""
    declare(broker, QUORUM)
    yield QUORUM
    broker.queue_delete(QUORUM.name)


@pytest.fixture
def classic(broker: BlockingChannel) -> Iterator[Queue]:
    """A new classic queue that dead-letters to another."""
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "partition.dead"}
    made = Queue("partition.plain", {"x-queue-type": "classic", **dead})
    declare(broker, made)
    declare(broker, Queue("partition.dead"))
    yield made
    broker.queue_delete(made.name)
    broker.queue_delete("partition.dead")


@pytest.fixture
def members(amqp_url: str) -> Iterator[Callable[..., "Member"]]:
    """Makes consumers, each on a connection of its own."""
    connections: list[BrokerConnection] = []

    def make(queue_: Queue, token: int = 1, *, url: str = amqp_url, **arguments: object) -> Member:
        connection = BrokerConnection(url, f"test/{token}")
        connection.connect()
        connections.append(connection)
        return Member(connection, queue_, token, **arguments)

    yield make
    for connection in connections:
        connection.close()


class Member:
    """A partition consumer as seen by a thread."""

    def __init__(self, connection: BrokerConnection, queue_: Queue, token: int, **arguments: object) -> None:
        self.connection = connection
        self.events = queue.SimpleQueue[PartitionEvent]()
        self.ready = threading.Event()
        self.wakeups = 0
        self.partition = PartitionConsumer(
            connection,
            queue_,
            token=token,
            on_ready=self.wake,
            on_event=self.events.put,
            **arguments,  # type: ignore[arg-type]
        )

    def wake(self) -> None:
        """Stands in for the notification of the event loop."""
        self.wakeups += 1
        self.ready.set()

    def start(self) -> None:
        """Starts, and waits until it consumes."""
        self.partition.start()
        assert self.next_event() == PartitionEvent(PartitionState.CONSUMING)

    def next_event(self) -> PartitionEvent:
        """The next event at the broker."""
        return self.events.get(timeout=WAIT_S)

    def await_io(self) -> None:
        """Returns once the I/O thread has done everything requested so far."""
        done = threading.Event()
        self.connection.submit(done.set)
        assert done.wait(WAIT_S)

    def ended_with(self) -> CobalanceError:
        """The error of an unrequested end."""
        event = self.next_event()
        assert event.state is PartitionState.ENDED
        assert event.error is not None
        assert self.partition.closed.exception(WAIT_S) is event.error
        return event.error

    def take(self, count: int) -> list[Delivery]:
        """Waits for exactly `count` messages."""
        taken: list[Delivery] = []
        while len(taken) < count:
            self.ready.clear()
            taken += (more := self.partition.take(count - len(taken)))
            assert more or self.ready.wait(WAIT_S)
        return taken

    def work(self, count: int) -> list[int]:
        """Takes and finishes `count` messages; returns their numbers."""
        seen: list[int] = []
        while len(seen) < count:
            for delivery in self.take(1):
                seen.append(int(delivery.body))
                self.partition.done(delivery)
        return seen


def declare(broker: BlockingChannel, queue_: Queue) -> None:
    """Declares an empty queue."""
    broker.queue_delete(queue_.name)
    broker.queue_declare(queue_.name, durable=queue_.durable, arguments=queue_.declaration)


def publish(broker: BlockingChannel, queue_: Queue, count: int) -> None:
    """Publishes numbered messages."""
    for number in range(count):
        broker.basic_publish("", queue_.name, str(number).encode())


def left(broker: Any, name: str) -> int:
    """Number of ready messages."""
    return int(broker.queue_declare(name, passive=True).method.message_count)


def await_left(broker: Any, name: str, count: int) -> None:
    """Waits for this number of ready messages."""
    within = time.monotonic() + WAIT_S
    while left(broker, name) != count:
        assert time.monotonic() < within


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


@pytest.mark.parametrize(("limit", "kept"), [(1, 0), (2, 1)])
def test_two_handovers_in_a_row_return_a_message_that_nobody_was_given(
    limit: int, kept: int, broker: BlockingChannel, members: Callable[..., Member]
) -> None:
    """Each holder is asked back before its first message has arrived. So members refuse a limit of 1."""
    limited = Queue("partition.low", {**QUORUM.arguments, "x-delivery-limit": limit})
    declare(broker, limited)
    publish(broker, limited, 1)
    for token in (1, 2):
        member = members(limited, token, prefetch=1)
        first = member.partition._on_event

        def drain(event: PartitionEvent, partition: PartitionConsumer = member.partition, then: Any = first) -> None:
            partition.drain(finish_buffer=True)
            then(event)

        member.partition._on_event = drain
        member.start()
        assert member.partition.drained.done()
        await_left(broker, limited.name, 0)  # RabbitMQ has sent it
        assert member.partition.take() == []
        assert member.partition.release().result(WAIT_S).delivered == 0
    await_left(broker, limited.name, kept)
    broker.queue_delete(limited.name)


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


@pytest.mark.parametrize(
    "numbers",
    [(10, 3, 0), (10, 3, 2), (10, 3, 3), (10, 1, 1), (10, 9, 4), (10, 10, 0), (300, 7, 5), (3, 3, 1)],
)
def test_a_smaller_prefetch_than_before_keeps_the_order(
    broker: BlockingChannel,
    members: Callable[..., Member],
    amqp_url: str,
    guarded: Queue,
    numbers: tuple[int, int, int],
) -> None:
    """A quorum queue puts what comes back behind whatever else came back before and was not sent again."""
    returned, prefetch, finished = numbers
    total = returned + 5
    publish(broker, guarded, total)
    take_in_vain(amqp_url, guarded.name, ahead=returned)
    first = members(guarded, 1, prefetch=prefetch)
    first.start()
    assert first.work(finished) == list(range(finished))
    first.partition.release().result(WAIT_S)
    second = members(guarded, 2, prefetch=total)
    second.start()
    assert second.work(total - finished) == list(range(finished, total))


@pytest.mark.parametrize("prefetch", [1, 3])
def test_a_holder_that_was_replaced_takes_nothing_past_its_waiting_successor(
    broker: BlockingChannel, members: Callable[..., Member], amqp_url: str, quorum: Queue, prefetch: int
) -> None:
    """All it was sent had come back before, so more may have: but the queue would go on to the successor meanwhile."""
    publish(broker, quorum, 10)
    take_in_vain(amqp_url, quorum.name, ahead=prefetch)
    first, second = members(quorum, 1, prefetch=prefetch), members(quorum, 2)
    first.start()
    first.take(1)
    second.start()
    first.partition.abort(forced=True).result(WAIT_S)
    assert second.work(10) == list(range(10))


def test_a_queue_is_not_free_while_its_rest_is_taken(
    broker: BlockingChannel,
    members: Callable[..., Member],
    amqp_url: str,
    quorum: Queue,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If its holder died then, the next holder would be sent what follows before what is still held."""
    publish(broker, quorum, 10)
    take_in_vain(amqp_url, quorum.name, ahead=3)
    first, second = members(quorum, 1, prefetch=3), members(quorum, 2)
    first.start()
    first.take(1)
    channel: Any = first.partition._channel
    cancel = channel.basic_cancel

    def cancel_behind_another(*arguments: Any, **more: Any) -> None:
        second.start()
        cancel(*arguments, **more)

    monkeypatch.setattr(channel, "basic_cancel", cancel_behind_another)
    first.partition.abort().result(WAIT_S)
    assert second.work(10) == list(range(10))


def test_an_answer_that_comes_when_the_rest_is_no_longer_waited_for_ends_no_connection(
    broker: BlockingChannel, amqp_url: str, quorum: Queue
) -> None:
    publish(broker, quorum, 10)
    take_in_vain(amqp_url, quorum.name, ahead=6)
    proxy = FaultProxy(urlsplit(amqp_url).port or 5672)
    connection = BrokerConnection(proxy.through(amqp_url), "test/slow")
    connection.connect()
    try:
        first = Member(connection, quorum, 1, prefetch=3)
        first.start()
        first.take(3)
        proxy.delay(WITHIN_MS * 3 / 4, "to_client")  # the second answer comes too late
        assert first.partition.abort().result(WAIT_S) == Progress(3, 0)
        first.await_io()
        assert connection.is_open
    finally:
        connection.close()
        proxy.close()


def test_work_that_ends_on_the_next_connection_asks_for_no_rest(
    broker: BlockingChannel, members: Callable[..., Member], amqp_url: str, quorum: Queue, caplog: Any
) -> None:
    """What came back went with the connection that was given up."""
    publish(broker, quorum, 3)
    take_in_vain(amqp_url, quorum.name, ahead=3)
    member = members(quorum, 1, prefetch=1)
    member.start()
    member.take(1)
    member.connection.submit(member.connection._loop.stop)  # type: ignore[union-attr]  # as after a silence
    lost = member.ended_with()
    member.connection.connect()
    assert member.partition.abort().exception(WAIT_S) is lost
    member.await_io()
    assert member.connection.is_open
    assert member.partition._returned._then is None  # type: ignore[union-attr]  # nothing is waited for
    assert not [it for it in caplog.records if it.levelname in {"WARNING", "ERROR"}]


def test_a_smaller_prefetch_keeps_the_order_if_the_partition_is_asked_back_before_anything_has_arrived(
    broker: BlockingChannel, members: Callable[..., Member], amqp_url: str, quorum: Queue
) -> None:
    for number in range(12):
        broker.basic_publish("", quorum.name, b"%1000000d" % number, pika.BasicProperties(delivery_mode=2))
    take_in_vain(amqp_url, quorum.name, ahead=10)
    first, second = members(quorum, 1, prefetch=5), members(quorum, 2)
    first.start()
    first.partition.release().result(WAIT_S)
    second.start()
    assert second.work(12) == list(range(12))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Quorum queues are looked at all the time; each look is counted."""
    made, look = threading.Semaphore(0), Standstill._look

    def counted(self: Standstill) -> None:
        look(self)
        made.release()

    monkeypatch.setattr(standstill, "LOOK_MS", Backoff(20.0, 20.0))
    monkeypatch.setattr(standstill, "CERTAIN_MS", 20.0)
    monkeypatch.setattr(Standstill, "_look", counted)
    return made


@pytest.mark.usefixtures("looks")
def test_a_queue_that_is_made_anew_at_once_and_stands_still(
    broker: BlockingChannel, members: Callable[..., Member], quorum: Queue
) -> None:
    """RabbitMQ 3.10 cancels the consumer in every third case or so; otherwise it sends it nothing ever again."""
    for token in range(2, 100, 2):
        first = members(quorum, token, prefetch=2)
        publish(broker, quorum, 1)
        first.start()
        assert first.work(1) == [0]
        declare(broker, quorum)
        publish(broker, quorum, 10)
        words = str(first.ended_with())
        second = members(quorum, token + 1)
        second.start()
        assert second.work(10) == list(range(10))
        second.partition.release().result(WAIT_S)
        if "8 messages are ready" in words:
            return
    pytest.skip("this RabbitMQ always cancels the consumer")


def test_who_is_sent_nothing_for_good_reason_is_let_be(
    broker: BlockingChannel, members: Callable[..., Member], quorum: Queue, looks: threading.Semaphore
) -> None:
    """It waits for an older consumer; or it has messages in hand, or found the queue empty."""
    publish(broker, quorum, 10)
    first, second = members(quorum, 1, prefetch=3), members(quorum, 2)
    first.start()
    taken = first.take(3)
    second.start()
    for _ in range(30):
        assert looks.acquire(timeout=WAIT_S)
    for delivery in taken:
        first.partition.done(delivery)
    first.work(7)
    for _ in range(30):
        assert looks.acquire(timeout=WAIT_S)
    assert (first.partition.state, second.partition.state) == (PartitionState.CONSUMING,) * 2
    publish(broker, quorum, 5)
    assert first.work(5) == list(range(5))


def test_what_waits_behind_another_consumer_is_given_up_at_once(
    broker: BlockingChannel,
    members: Callable[..., Member],
    quorum: Queue,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is sent nothing, so there is nothing whose order it could spoil. Were it to look again, and be the next by then,
    it would take what comes back to the queue and one message more, and a crash of its successor would spoil the order.
    """
    monkeypatch.setattr(returned, "LOOK_AGAIN_MS", 2 * WITHIN_MS)
    monkeypatch.setattr(returned, "WAITS_MS", 0)
    publish(broker, quorum, 10)
    first, second = members(quorum, 1, prefetch=3), members(quorum, 2)
    first.start()
    first.take(1)
    second.start()
    second.partition.release().result(WAIT_S)
    assert "did not send all" not in caplog.text


@pytest.mark.thorough
def test_a_leader_that_is_silent_for_a_moment_does_not_say_that_nothing_came_back(
    private_rabbitmq: OwnRabbitMQ, members: Callable[..., Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    """RabbitMQ answers for it that there is nothing, as it does for a queue that is empty."""
    url = private_rabbitmq.url
    monkeypatch.setattr(returned, "WITHIN_MS", WAIT_S * 1000)  # how long it is silent, a busy machine decides
    with pika.BlockingConnection(pika.URLParameters(url)) as plain:
        declare(plain.channel(), QUORUM)
        publish(plain.channel(), QUORUM, 10)
    take_in_vain(url, QUORUM.name, ahead=6)
    first, second = members(QUORUM, 1, prefetch=3, url=url), members(QUORUM, 2, url=url)
    first.start()
    first.take(3)
    with Leader(private_rabbitmq, QUORUM.name).silent():
        closed = first.partition.abort()
        with suppress(TimeoutError):
            closed.result(1)  # some answers come meanwhile
    closed.result(WAIT_S)
    second.start()
    assert second.work(10) == list(range(10))
