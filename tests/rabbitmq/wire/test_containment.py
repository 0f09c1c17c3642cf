"""A failure of one partition on the shared connection's thread affects only that partition."""

from __future__ import annotations

import logging
import queue
import struct
import threading
from typing import Any

import anyio
import pytest
from pika.spec import BasicProperties
from tests.consumers import WITHIN_S, Place, Seen, channel, handler_of, new_topic, until
from tests.streams import connected, new_stream

from cobalance.errors import CobalanceError, GroupFailed, MessageUnreadable
from cobalance.rabbitmq import Delivery
from cobalance.rabbitmq.partition import partition
from cobalance.rabbitmq.partition.partition import PartitionConsumer, PartitionEvent, PartitionState
from cobalance.rabbitmq.streams.consumer import StreamConsumer
from cobalance.rabbitmq.streams.probe import first_offset
from cobalance.rabbitmq.wire.connection import BrokerConnection

pytestmark = pytest.mark.anyio


class Milliseconds(BasicProperties):
    """A header with milliseconds where AMQP has seconds: the year has five digits, which RabbitMQ accepts."""

    def encode(self) -> list[bytes]:
        """The flag of the headers, and a table with one entry."""
        entry = b"\x02atT" + struct.pack(">Q", 1_700_000_000_000)
        return [struct.pack(">H", self.FLAG_HEADERS), struct.pack(">I", len(entry)), entry]


def publish_unreadable(amqp_url: str, name: str) -> None:
    """Publishes a message whose headers pika cannot read."""
    with channel(amqp_url) as it:
        it.basic_publish("", name, b"unreadable", Milliseconds(), mandatory=True)


class Heard:
    """Records what a consumer reports."""

    def __init__(self, connection: BrokerConnection, topic: Any, number: int, on_event: Any = None) -> None:
        self.events = queue.SimpleQueue[PartitionEvent]()
        self.ready = queue.SimpleQueue[None]()
        self.consumer = PartitionConsumer(
            connection,
            topic.queues[number],
            token=1,
            on_ready=lambda: self.ready.put(None),
            on_event=on_event or self.events.put,
        )
        self.consumer.start()


@pytest.mark.parametrize("state", [PartitionState.CONSUMING, PartitionState.ENDED])
def test_a_listener_that_raises_ends_its_own_consumer_only(amqp_url: str, state: PartitionState) -> None:
    """The connection stays, and the other consumer goes on."""
    lost: list[str] = []

    def fail(event: PartitionEvent) -> None:
        if event.state is state:
            raise ZeroDivisionError("a bug")

    with new_topic(amqp_url, 2) as topic, connected(amqp_url, on_lost=lost.append) as connection:
        broken, well = Heard(connection, topic, 0, fail), Heard(connection, topic, 1)
        assert well.events.get(timeout=WITHIN_S) == PartitionEvent(PartitionState.CONSUMING)
        with channel(amqp_url) as it:
            it.queue_delete(topic.queue_names[0])
        error = broken.consumer.closed.exception(WITHIN_S)
        assert isinstance(error, CobalanceError)
        assert not well.consumer.take()
        with channel(amqp_url) as it:
            it.basic_publish("", topic.queue_names[1], b"x")
        well.ready.get(timeout=WITHIN_S)
        assert len(well.consumer.take()) == 1
        assert lost == []


async def test_a_defect_fails_the_member_once_and_says_what_it_was(
    here: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that lost its connection and restored it forever would report nothing."""

    def broken(*_: object) -> Delivery:
        raise ZeroDivisionError("of a message's secret")

    monkeypatch.setattr(partition, "Delivery", broken)
    with new_topic(here.amqp_url) as topic, caplog.at_level(logging.WARNING):
        here.publish(topic, 1)
        with (
            pytest.raises(GroupFailed, match=r"ZeroDivisionError in .* from partition\.py:\d+"),
            anyio.fail_after(WITHIN_S),
        ):
            async with here.member(topic, handler_of(Seen())):
                await anyio.sleep_forever()
    assert "lost RabbitMQ" not in caplog.text
    assert "secret" not in caplog.text


async def test_a_message_that_cannot_be_read_halts_its_partition(here: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Older messages are worked, other partitions go on, and so does this one once the message is removed."""
    seen = Seen()
    with new_topic(here.amqp_url, 2) as topic, caplog.at_level(logging.WARNING):
        name = topic.queue_names[0]
        here.publish(topic, 1, 2)
        publish_unreadable(here.amqp_url, name)
        here.publish(topic, 3)
        async with here.member(topic, handler_of(seen)):
            row = await until(lambda: [row for row in here.resources().values() if row.halted])
            assert (row[0].name, row[0].halted) == (name, "MessageUnreadable")
            assert seen.bodies == ["1", "2"]
            here.publish(topic, "other", partition=1)
            await seen.wait(3)
            take_first(here.amqp_url, name)
            assert here.coordinator.resume(name) == {name: "OK"}
            assert await seen.wait(4) == ["1", "2", "other", "3"]
    assert "lost RabbitMQ" not in caplog.text
    assert caplog.text.count("cannot be read") == 1


def take_first(amqp_url: str, name: str) -> None:
    """As an operator does, without reading its headers."""
    with connected(amqp_url) as connection:
        taken: list[bytes] = []
        done = threading.Event()

        def consume(it: Any) -> None:
            it.basic_qos(prefetch_count=1)
            it.basic_consume(name, take)

        def take(it: Any, method: Any, _: object, body: bytes) -> None:
            if not taken:  # the next one, which may arrive before the connection is closed, is the member's
                it.basic_ack(method.delivery_tag)
            taken.append(body)
            done.set()

        connection.submit(lambda: connection.open_channel(consume))
        assert done.wait(WITHIN_S)
        assert taken[0] == b"unreadable"


def test_a_probe_of_a_stream_fails_alone(amqp_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller gets the error. Here not even the offset can be read."""
    lost: list[str] = []
    monkeypatch.setattr("cobalance.rabbitmq.streams.probe.number_among", lambda *_: None)
    with new_stream(amqp_url) as stream, connected(amqp_url, on_lost=lost.append) as connection:
        publish_unreadable(amqp_url, stream.name)
        error = first_offset(connection, stream.name).exception(WITHIN_S)
        assert isinstance(error, MessageUnreadable)
        assert connection.is_open
    assert lost == []


def test_who_goes_on_behind_a_message_that_cannot_be_read_is_not_stopped_by_it(amqp_url: str) -> None:
    """A stream's reader asks for the message at its position again, as proof that it is the same stream."""
    with new_stream(amqp_url, 1) as stream, connected(amqp_url) as connection:
        publish_unreadable(amqp_url, stream.name)
        with channel(amqp_url) as it:
            it.basic_publish("", stream.name, b"2")
        ready, events = threading.Event(), queue.SimpleQueue[PartitionEvent]()
        options: dict[str, Any] = {"token": 1, "on_ready": ready.set, "on_event": events.put}
        for after, behind in ((-1, [0]), (0, []), (1, [2])):
            consumer = StreamConsumer(connection, stream.queue, after=after, **options)
            consumer.start()
            assert events.get(timeout=WITHIN_S) == PartitionEvent(PartitionState.CONSUMING)
            for offset in behind:
                ready.clear()
                while not (taken := consumer.take()):
                    assert ready.wait(WITHIN_S)
                assert [it.offset for it in taken] == [offset]
                consumer.done(taken[0])
            if after < 1:
                while events.empty():  # the message may arrive before or after it is asked for
                    assert not consumer.take()
                    ready.wait(0.05)
                assert isinstance(events.get(timeout=WITHIN_S).error, MessageUnreadable)
            else:
                consumer.release().result(WITHIN_S)
