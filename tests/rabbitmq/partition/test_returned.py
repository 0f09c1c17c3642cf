"""The rest of what came back to a queue: for how long it is waited for, in virtual time, and what RabbitMQ does."""

import logging
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import attrs
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.consumers import take_in_vain
from tests.faults.proxy import FaultProxy
from tests.faults.rabbitmq_servers import Leader
from tests.rabbitmq.partition.holders import QUORUM, WAIT_S, Member, await_left, declare, publish

from cobalance.rabbitmq import Queue
from cobalance.rabbitmq.partition import returned
from cobalance.rabbitmq.partition.acks import Progress
from cobalance.rabbitmq.partition.partition import PartitionConsumer, PartitionEvent
from cobalance.rabbitmq.partition.returned import WITHIN_MS, Returned
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.servers import OwnRabbitMQ


@attrs.define
class Waiting:
    """For the rest; RabbitMQ answers when it is told to."""

    now: int = 0
    has_ended: bool = False
    answers: list[Callable[[Any], None]] = attrs.field(factory=list)
    timers: list[tuple[float, Callable[[], None]]] = attrs.field(factory=list)
    rest: Returned = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        channel: Any = SimpleNamespace(is_open=True, queue_declare=self._asked)
        self.rest = Returned(channel, "q", 100, "tag", lambda *_: None, lambda ms, job: self.timers.append((ms, job)))

    def _asked(self, *_: object, callback: Callable[[Any], None], **__: object) -> None:
        self.answers.append(callback)

    def begin(self) -> None:
        self.rest.take_rest(0, lambda: setattr(self, "has_ended", True))

    def answer(self) -> None:
        """There is more, and we are counted."""
        self.answers.pop()(SimpleNamespace(method=SimpleNamespace(message_count=1, consumer_count=1)))

    def pass_ms(self, ms: float) -> None:
        """The timers that were set before, and are due by then, are over."""
        self.now += int(ms)
        due, self.timers = self.timers, []
        for after_ms, job in due:
            assert after_ms <= ms
            job()


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Waiting:
    it = Waiting()
    monkeypatch.setattr(returned, "monotonic_ms", lambda: it.now)
    return it


def test_a_rest_that_keeps_coming_is_waited_for(waiting: Waiting, caplog: pytest.LogCaptureFixture) -> None:
    """Large messages take longer than a queue that stands still is given."""
    waiting.begin()
    for _ in range(3):
        waiting.answer()
        waiting.rest.note(redelivered=True)
        waiting.pass_ms(WITHIN_MS)
        assert not waiting.has_ended
    waiting.answer()
    waiting.pass_ms(WITHIN_MS)
    assert waiting.has_ended
    assert [it.levelno for it in caplog.records] == [logging.WARNING]


def test_a_message_that_takes_longer_is_waited_for(waiting: Waiting) -> None:
    """RabbitMQ's answer comes behind it. Once it answers, and nothing comes, nothing is waited for."""
    waiting.rest.note(redelivered=True)
    waiting.begin()
    for _ in range(3):
        waiting.pass_ms(WITHIN_MS)
        assert not waiting.has_ended
    waiting.answer()
    waiting.pass_ms(WITHIN_MS)
    assert waiting.has_ended


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
