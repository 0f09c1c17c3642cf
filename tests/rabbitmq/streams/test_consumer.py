"""One stream during one tenure, on a real RabbitMQ: offsets, positions, proof of its identity, and the lock queue."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pika
import pytest
from pika.channel import Channel
from pika.exceptions import ChannelClosedByBroker
from tests.streams import TINY, Stream, connected, cut, new_stream

from cobalance.backoff import Backoff
from cobalance.errors import ChannelLost, OffsetUnknown, UsageError
from cobalance.rabbitmq import Delivery
from cobalance.rabbitmq.partition.partition import PartitionEvent, PartitionState
from cobalance.rabbitmq.streams.consumer import StreamConsumer
from cobalance.rabbitmq.streams.probe import first_offset
from cobalance.rabbitmq.wire.connection import BrokerConnection

WAIT_S = 60


class Reader:
    """A stream consumer as seen by a thread."""

    def __init__(
        self, connection: BrokerConnection, stream: Stream, after: int, *, lock: bool = False, **options: Any
    ) -> None:
        self.connection = connection
        self.events = queue.SimpleQueue[PartitionEvent]()
        self.ready = threading.Event()
        self.consumer = StreamConsumer(
            connection,
            stream.queue,
            token=1,
            after=after,
            on_ready=self.ready.set,
            on_event=self._note,
            lock=f"lock.{stream.name}" if lock else None,
            **options,
        )

    def _note(self, event: PartitionEvent) -> None:
        self.events.put(event)
        self.ready.set()

    def start(self) -> Reader:
        """Starts, and waits until it consumes."""
        self.consumer.start()
        assert self.events.get(timeout=WAIT_S) == PartitionEvent(PartitionState.CONSUMING)
        return self

    def take(self, count: int) -> list[Delivery]:
        """Waits for exactly `count` messages."""
        taken: list[Delivery] = []
        while len(taken) < count:
            self.ready.clear()
            taken += (more := self.consumer.take(count - len(taken)))
            assert more or self.ready.wait(WAIT_S)
        return taken

    def reads(self) -> bool:
        """Whether it reads a message before it ends, within a few seconds."""
        self.consumer.start()
        while not (taken := self.consumer.take(1)) and not self.consumer.closed.done():
            if not self.ready.wait(5):
                return False
            self.ready.clear()
        return bool(taken)

    def offsets(self, count: int) -> list[int | None]:
        """Takes and finishes `count` messages; returns their offsets."""
        offsets = []
        for _ in range(count):
            (delivery,) = self.take(1)
            self.consumer.done(delivery)
            offsets.append(delivery.offset)
        return offsets


@pytest.fixture
def reader(amqp_url: str) -> Iterator[Callable[..., Reader]]:
    """Makes readers, each on a connection of its own."""
    connections: list[BrokerConnection] = []

    def make(stream: Stream, after: int, **options: Any) -> Reader:
        connection = BrokerConnection(amqp_url, "test")
        connection.connect()
        connections.append(connection)
        return Reader(connection, stream, after, **options)

    yield make
    for connection in connections:
        connection.close()


@pytest.fixture
def stream(amqp_url: str) -> Iterator[Stream]:
    """Twenty messages."""
    with new_stream(amqp_url, 20) as it:
        yield it


@pytest.mark.parametrize("after", [-1, 0, 7, 18])
@pytest.mark.parametrize("prefetch", [1, 100])
def test_it_begins_behind_an_offset(reader: Callable[..., Reader], stream: Stream, after: int, prefetch: int) -> None:
    """Exactly there, though RabbitMQ stores messages in chunks, and with the smallest prefetch, too."""
    it = reader(stream, after, prefetch=prefetch).start()
    assert it.offsets(19 - after) == list(range(after + 1, 20))
    assert it.consumer.position == 19


def test_at_the_end_it_waits_for_more(reader: Callable[..., Reader], stream: Stream) -> None:
    """No message that was read is delivered again."""
    it = reader(stream, 19).start()
    stream.append(2)
    assert it.offsets(2) == [20, 21]


def test_the_position_is_behind_the_oldest_unfinished_message(reader: Callable[..., Reader], stream: Stream) -> None:
    """Whatever the order in which they are finished."""
    it = reader(stream, 4).start()
    taken = it.take(5)
    positions = []
    for number in (1, 3, 0, 2, 4):
        it.consumer.done(taken[number])
        positions.append(it.consumer.position)
    assert positions == [4, 4, 6, 8, 9]


def test_everything_up_to_an_offset_can_be_finished_at_once(reader: Callable[..., Reader], stream: Stream) -> None:
    """Each may still be finished afterwards; messages that were not handed out are unaffected."""
    it = reader(stream, -1).start()
    taken = it.take(5)
    it.consumer.done(taken[1])
    assert it.consumer.done_up_to(2) == 2
    assert it.consumer.position == 2
    it.consumer.done(taken[2])
    assert it.consumer.done_up_to(1_000) == 2
    assert it.consumer.position == 4
    assert it.offsets(15) == list(range(5, 20))


def test_acks_give_credit(reader: Callable[..., Reader], stream: Stream) -> None:
    """More messages than the prefetch arrive, as fast as they are finished."""
    stream.append(980)
    it = reader(stream, -1, prefetch=10).start()
    assert it.offsets(1_000) == list(range(1_000))


def test_a_release_leaves_the_connection_and_its_other_consumers_alone(amqp_url: str, stream: Stream) -> None:
    """basic.cancel, or a reject, would close the whole connection."""
    with connected(amqp_url) as connection, new_stream(amqp_url, 20) as other:
        first, second = Reader(connection, stream, -1).start(), Reader(connection, other, -1).start()
        first.offsets(3)
        first.consumer.release().result(WAIT_S)
        assert first.consumer.position == 2
        assert second.offsets(20) == list(range(20))
        again = Reader(connection, stream, 2).start()
        assert again.offsets(17) == list(range(3, 20))


def test_a_message_of_a_stream_cannot_be_rejected(reader: Callable[..., Reader], stream: Stream) -> None:
    """RabbitMQ would close the connection; the error says what to do instead."""
    it = reader(stream, -1).start()
    (delivery,) = it.take(1)
    with pytest.raises(UsageError, match="cannot dead-letter"):
        it.consumer.reject(delivery)


def test_a_stream_that_was_made_anew_is_not_waited_for(reader: Callable[..., Reader], stream: Stream) -> None:
    """Otherwise its messages up to the old offset would be skipped silently."""
    stream.make_anew()
    stream.append(5)
    it = reader(stream, 19).start()
    event = it.events.get(timeout=WAIT_S)
    assert event.state is PartitionState.ENDED
    assert isinstance(event.error, OffsetUnknown)
    assert "ends before offset 19" in str(event.error)
    assert isinstance(it.consumer.closed.exception(WAIT_S), OffsetUnknown)


def test_a_stream_that_is_empty_is_doubted_until_it_is_not(
    reader: Callable[..., Reader], stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty stream proves nothing yet; its first message does."""
    monkeypatch.setattr("cobalance.rabbitmq.streams.continuity.DOUBT_MS", 100.0)
    monkeypatch.setattr("cobalance.rabbitmq.streams.continuity.LOOKS", 1_000)  # RabbitMQ's count is as old as ever
    monkeypatch.setattr("cobalance.rabbitmq.streams.probe.SILENCE_MS", 100.0)
    stream.make_anew()
    it = reader(stream, 19).start()
    with pytest.raises(queue.Empty):
        it.events.get(timeout=2)
    stream.append(5)
    assert isinstance(it.events.get(timeout=WAIT_S).error, OffsetUnknown)


@pytest.mark.parametrize("go_on", [True, False])
def test_messages_that_are_gone_are_told_of(reader: Callable[..., Reader], amqp_url: str, *, go_on: bool) -> None:
    """Retention was faster than the group: the policy decides whether to continue at the oldest message left."""
    gaps: list[int] = []

    def on_gap(first: int) -> bool:
        gaps.append(first)
        return go_on

    with new_stream(amqp_url, 5, TINY) as stream:
        first = stream.append_until_gone(4)
        it = reader(stream, 2, on_gap=on_gap).start()
        if go_on:
            assert it.offsets(1) == gaps
        else:
            assert "before they were read" in str(it.events.get(timeout=WAIT_S).error)
        assert len(gaps) == 1
        assert first <= gaps[0] <= stream.first()


@pytest.mark.parametrize("go_on", [True, False])
def test_a_consumer_that_the_retention_overtakes_does_not_skip_messages_silently(
    reader: Callable[..., Reader], amqp_url: str, *, go_on: bool
) -> None:
    """RabbitMQ silently continues with the oldest message left. What came before it is finished first."""
    gaps: list[int] = []

    def on_gap(first: int) -> bool:
        gaps.append(first)
        it.ready.set()
        return go_on

    for _ in range(20):
        with new_stream(amqp_url, 3, TINY) as stream:
            it = reader(stream, -1, on_gap=on_gap, prefetch=1).start()
            last = overtake(it, stream, gaps)
            if last is None:
                continue
            assert gaps[0] > 20
            if go_on:
                assert gaps == [last.offset] or it.offsets(1) == gaps
            else:
                assert "before they were read" in str(it.events.get(timeout=WAIT_S).error)
                assert it.consumer.position == last.offset
                assert it.consumer.position < 20
            return
    pytest.fail("RabbitMQ never went on")


def overtake(it: Reader, stream: Stream, gaps: list[int]) -> Delivery | None:
    """Reads on behind the retention until there is a gap; returns the last message taken.

    While RabbitMQ drops segments, it may close the channel, or leave a reader at the end of one for ever: then None.
    """
    (last,) = it.take(1)
    stream.append_until_gone(20)
    while not gaps:
        it.consumer.done(last)
        taken: list[Delivery] = []
        for _ in range(10):
            stream.append(1, size=100)  # an overtaken reader gets nothing before the next message
            it.ready.clear()
            if (taken := it.consumer.take(1)) or gaps or not it.events.empty():
                break
            it.ready.wait(1)
        if not (taken or gaps):
            return None
        (last,) = taken or [last]
    return last


def test_a_reader_that_rabbitmq_leaves_behind_ends(
    reader: Callable[..., Reader], amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RabbitMQ may do so when it drops the segment behind the one that is read; its successor meets the gap."""
    monkeypatch.setattr("cobalance.rabbitmq.streams.continuity.STALL_MS", Backoff(50, 200))
    with new_stream(amqp_url, 3, TINY) as stream:
        it = reader(stream, -1, prefetch=1).start()
        (delivery,) = it.take(1)
        monkeypatch.setattr(Channel, "basic_ack", lambda *_, **__: None)  # so it gets nothing more
        it.consumer.done(delivery)
        stream.append_until_gone(20)
        error = it.events.get(timeout=WAIT_S).error
        assert isinstance(error, ChannelLost)
        assert "nothing behind offset 0" in str(error)
        assert it.consumer.position == 0


def test_so_does_a_reader_that_never_got_anything(
    reader: Callable[..., Reader], stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even the first message comes, though it is there."""
    consume = Channel.basic_consume

    def far_behind(channel: Channel, name: str, got: Any, *, arguments: dict[str, Any], **options: Any) -> Any:
        far = {offset: 1_000_000 if at == 0 else at for offset, at in arguments.items()}
        return consume(channel, name, got, arguments=far, **options)

    monkeypatch.setattr("cobalance.rabbitmq.streams.continuity.STALL_MS", Backoff(50, 200))
    monkeypatch.setattr(Channel, "basic_consume", far_behind)
    error = reader(stream, -1).start().events.get(timeout=WAIT_S).error
    assert isinstance(error, ChannelLost)
    assert "nothing behind offset -1" in str(error)


def test_a_reader_at_the_end_of_its_stream_stays(
    reader: Callable[..., Reader], stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is compared with the stream ever more rarely."""
    asked: queue.SimpleQueue[float] = queue.SimpleQueue()

    def note(*arguments: Any) -> Future[int | None]:
        asked.put(time.monotonic())
        return first_offset(*arguments)

    module = "cobalance.rabbitmq.streams.consumer"
    monkeypatch.setattr("cobalance.rabbitmq.streams.continuity.STALL_MS", Backoff(20, 1_000))
    monkeypatch.setattr(f"{module}.first_offset", note)
    it = reader(stream, -1).start()
    count = stream._published
    it.offsets(count)
    at = [asked.get(timeout=WAIT_S) for _ in range(6)]
    assert at[5] - at[4] > at[1] - at[0]
    stream.append(1)
    assert it.offsets(1) == [count]
    assert it.events.empty()


def test_nothing_is_gone_when_the_message_at_the_position_is_still_there(
    reader: Callable[..., Reader], amqp_url: str
) -> None:
    """The oldest message left is the last one processed: no gap, unless it is dropped before it is checked."""
    gaps: list[int] = []

    def on_gap(first: int) -> bool:
        gaps.append(first)
        return True

    for _ in range(20):  # while it drops segments, RabbitMQ may close the channel, or show nobody what is left
        with new_stream(amqp_url, 5, TINY) as stream:
            first = stream.append_until_gone(4)
            stream.append(1, size=100)  # the retention of RabbitMQ 4 may leave only one message
            if reader(stream, first, on_gap=on_gap).reads() and not (gaps and gaps[0] > first):
                break
            gaps.clear()
    else:
        pytest.fail("it never came to a reader before more was dropped")
    assert not gaps


def test_a_lost_connection_ends_it_where_it_was(reader: Callable[..., Reader], stream: Stream) -> None:
    """The position is known without RabbitMQ."""
    it = reader(stream, -1).start()
    it.offsets(5)
    cut(it.connection)
    with pytest.raises(ChannelLost):
        it.consumer.closed.result(WAIT_S)
    assert it.consumer.position == 4


# -- the lock queue ----------------------------------------------------------------------------------------------------


def try_lock(amqp_url: str, stream: Stream) -> bool:
    """Whether the lock is free."""
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    try:
        connection.channel().queue_declare(f"lock.{stream.name}", exclusive=True)
    except ChannelClosedByBroker as error:
        return error.reply_code != 405
    else:
        return True
    finally:
        connection.close()


def test_the_lock_lets_one_consume_at_a_time(reader: Callable[..., Reader], stream: Stream) -> None:
    """The second waits, and learns why, until the first has released; then it begins by itself."""
    first = reader(stream, -1, lock=True).start()
    first.offsets(5)
    second = reader(stream, 4, lock=True)
    second.consumer.start()
    waiting = second.events.get(timeout=WAIT_S)
    assert waiting.state is PartitionState.WAITING
    assert "RESOURCE_LOCKED" in str(waiting.error)
    assert second.consumer.take() == []
    first.consumer.release().result(WAIT_S)
    assert second.events.get(timeout=WAIT_S) == PartitionEvent(PartitionState.CONSUMING)
    assert second.offsets(15) == list(range(5, 20))


def test_the_lock_is_free_when_the_release_is_done(
    reader: Callable[..., Reader], stream: Stream, amqp_url: str
) -> None:
    """Not later: the next holder may come at once, and if it were refused, it would have to wait and retry."""
    with pika.BlockingConnection(pika.URLParameters(amqp_url)) as other:
        for _ in range(30):
            channel = other.channel()
            it = reader(stream, -1, lock=True).start()
            assert not try_lock(amqp_url, stream)
            it.consumer.release().result(WAIT_S)
            channel.queue_declare(f"lock.{stream.name}", exclusive=True)
            channel.queue_delete(f"lock.{stream.name}")
            channel.close()


def test_the_lock_goes_with_the_connection(reader: Callable[..., Reader], stream: Stream, amqp_url: str) -> None:
    """A process that dies leaves nothing locked."""
    it = reader(stream, -1, lock=True).start()
    it.connection.close()
    it.consumer.closed.exception(WAIT_S)
    assert try_lock(amqp_url, stream)


def test_ending_while_the_lock_is_asked_for(amqp_url: str, stream: Stream) -> None:
    """The answer is awaited, and the lock freed.

    Otherwise it would stay with a process that does not know that it has it, or a late delete would silently free the
    lock of the next tenure in the same process.
    """
    with connected(amqp_url) as connection:
        for _ in range(10):
            early = Reader(connection, stream, -1, lock=True)
            early.consumer.start()
            early.consumer.abort().result(WAIT_S)
            assert try_lock(amqp_url, stream)
            it = Reader(connection, stream, -1, lock=True).start()
            it.offsets(1)
            assert not try_lock(amqp_url, stream)
            it.consumer.release().result(WAIT_S)


def test_giving_up_on_the_lock(reader: Callable[..., Reader], stream: Stream, amqp_url: str) -> None:
    """A tenure that ends while it waits leaves nothing behind."""
    first = reader(stream, -1, lock=True).start()
    second = reader(stream, -1, lock=True)
    second.consumer.start()
    assert second.events.get(timeout=WAIT_S).state is PartitionState.WAITING
    second.consumer.release().result(WAIT_S)
    first.consumer.release().result(WAIT_S)
    assert try_lock(amqp_url, stream)


def test_giving_up_on_a_lock_that_is_just_being_refused(reader: Callable[..., Reader], stream: Stream) -> None:
    """The refusal arrives after the tenure was ended, so the end is all that is reported."""
    reader(stream, -1, lock=True).start()
    late = reader(stream, -1, lock=True)

    def start_and_abort() -> None:
        late.consumer.start()
        late.consumer.abort()

    late.connection.submit(start_and_abort)
    assert late.consumer.closed.result(WAIT_S).delivered == 0


def test_a_queue_of_that_name_that_is_no_lock(reader: Callable[..., Reader], stream: Stream, amqp_url: str) -> None:
    """RabbitMQ reports it like a lock that is held; the tenure waits until it is removed."""
    it = reader(stream, -1, lock=True)
    with pika.BlockingConnection(pika.URLParameters(amqp_url)) as connection:
        connection.channel().queue_declare(f"lock.{stream.name}", durable=True)
        it.consumer.start()
        assert "RESOURCE_LOCKED" in str(it.events.get(timeout=WAIT_S).error)
        connection.channel().queue_delete(f"lock.{stream.name}")
    assert it.events.get(timeout=WAIT_S) == PartitionEvent(PartitionState.CONSUMING)
