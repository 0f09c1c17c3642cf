"""Replies while RabbitMQ does not take or confirm them: alarms, lost connections, silent queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
from pika.spec import BasicProperties
from tests.consumers import Place, channel, new_topic, place, until
from tests.faults.proxy import FaultProxy, proxy_to
from tests.faults.rabbitmq_servers import Leader
from tests.names import unique
from tests.rabbitmq.partition.replying import Answering, answers, arrived, ask, reply_to, until_worked
from tests.streams import cut

from cobalance import servers
from cobalance.errors import PublishFailed
from cobalance.rabbitmq import Delivery, read_dead_letters
from cobalance.rabbitmq.partition import reply_channel
from cobalance.rabbitmq.partition.replies import Replies
from cobalance.rabbitmq.topics.broker import ready_messages
from cobalance.rabbitmq.wire.address import single_urls

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


async def test_a_connection_that_is_lost_over_a_reply_moves_nothing(here: Place, replies: str) -> None:
    """The request is redelivered to the same member, and answered then."""
    tokens: list[int] = []

    async def handle(delivery: Delivery) -> None:
        tokens.append(delivery.token)
        delivery.reply(delivery.body)
        if len(tokens) == 1:
            members[0].connection.submit(lambda: 1 / 0)

    members: list[Any] = []
    with new_topic(here.amqp_url) as topic:
        ask(here, topic, replies, "1")
        member = here.member(topic, handle)
        members.append(member)
        async with member:
            await until(lambda: ready_messages(here.amqp_url, [replies])[replies])
        await until_worked(here, topic)
    assert len(set(tokens)) == 1
    assert here.journal("abandoned") == []
    assert set(answers(here, replies)) == {("1", "c-1")}


@pytest.fixture
def amqp(amqp_url: str) -> Iterator[FaultProxy]:
    """A proxy in front of the shared RabbitMQ."""
    with FaultProxy(urlsplit(amqp_url).port or 0) as proxy:
        yield proxy


@pytest.fixture
def alarmed(private_rabbitmq: servers.OwnRabbitMQ) -> Iterator[Alarm]:
    """A RabbitMQ that can be made short of memory."""
    alarm = Alarm(private_rabbitmq)
    yield alarm
    alarm.end()


class Alarm:
    """RabbitMQ's memory alarm: it reads nothing more from a connection that publishes."""

    def __init__(self, server: servers.OwnRabbitMQ) -> None:
        self._server, self.url = server, server.url

    def begin(self) -> None:
        self._server.control("set_vm_memory_high_watermark", "0.00000001")

    def end(self) -> None:
        self._server.control("set_vm_memory_high_watermark", "0.4")


@pytest.mark.thorough
async def test_an_alarm_holds_up_replies_and_nothing_else(alarmed: Alarm, caplog: pytest.LogCaptureFixture) -> None:
    """Other messages are acknowledged and partitions move in time; requests are answered when the alarm is over."""
    caplog.set_level("INFO", "cobalance")
    replies = unique("replies")
    seen: list[tuple[bytes, int]] = []

    def handle(delivery: Delivery) -> None:
        seen.append((delivery.body, delivery.token))
        if delivery.properties.reply_to:
            delivery.reply(delivery.body)

    with place(alarmed.url) as here, new_topic(alarmed.url, 2) as topic, channel(alarmed.url) as it:
        it.queue_declare(replies)
        for number in range(200):
            for partition in range(2):
                properties = BasicProperties(reply_to=None if number % 10 else replies, correlation_id=f"{partition}")
                it.basic_publish(topic.name, topic.routing_key(partition), str(number).encode(), properties)
        alarmed.begin()
        async with here.member(topic, handle, prefetch=50) as first:
            await until(lambda: "takes no replies" in caplog.text)
            await until(lambda: [it.acknowledged for it in first.partitions.workers.values()] == [180, 180])
            assert [it.in_flight and it.in_flight.messages for it in first.partitions.workers.values()] == [20, 20]
            async with here.member(topic, handle, prefetch=50) as second:
                await until(lambda: len(first.tenures) == len(second.tenures) == 1)
                (moved,) = second.tenures.values()
                await until(lambda: any(token == moved.token for _, token in seen))
                assert arrived(alarmed.url, replies) < 40
                alarmed.end()
                await until(lambda: arrived(alarmed.url, replies) >= 40)
                await until_worked(here, topic)
        answered = answers(here, replies)
        it.queue_delete(replies)
    assert set(answered) == {(str(number), f"{partition}") for number in range(0, 200, 10) for partition in range(2)}
    assert "takes replies again" in caplog.text


@pytest.mark.thorough
async def test_what_follows_a_request_goes_on_during_an_alarm(alarmed: Alarm, caplog: pytest.LogCaptureFixture) -> None:
    """Only the request itself stays unacknowledged, whatever is sent ahead."""
    caplog.set_level("INFO", "cobalance")
    replies = unique("replies")
    seen = Counter[bytes]()

    def handle(delivery: Delivery) -> None:
        seen[delivery.body] += 1
        if delivery.properties.reply_to:
            delivery.reply(delivery.body)

    with place(alarmed.url) as here, new_topic(alarmed.url) as topic, channel(alarmed.url) as it:
        it.queue_declare(replies)
        it.basic_publish("", topic.queue_names[0], b"request", BasicProperties(reply_to=replies))
        for number in range(60):
            it.basic_publish("", topic.queue_names[0], str(number).encode())
        alarmed.begin()
        async with here.member(topic, handle, prefetch=10) as member:
            await until(lambda: "takes no replies" in caplog.text)
            (worker,) = await until(lambda: list(member.partitions.workers.values()))
            await until(lambda: worker.acknowledged == 60)
            assert worker.in_flight.messages == 1
            assert arrived(alarmed.url, replies) == 0
            alarmed.end()
            await until_worked(here, topic)
        assert set(seen.values()) == {1}
        assert arrived(alarmed.url, replies) == 1
        it.queue_delete(replies)


@pytest.mark.thorough
async def test_a_reply_that_waits_holds_up_no_handover_of_a_lost_channel(
    alarmed: Alarm, caplog: pytest.LogCaptureFixture
) -> None:
    """Its request is redelivered, so nobody waits for it any more: neither for the end of the alarm nor the deadline."""
    caplog.set_level("INFO", "cobalance")
    replies = unique("replies")
    asked: list[str] = []

    def handle(delivery: Delivery) -> None:
        asked.append(delivery.queue)
        delivery.reply(delivery.body)

    with place(alarmed.url) as here, new_topic(alarmed.url, 2) as topic, channel(alarmed.url) as it:
        it.queue_declare(replies)
        for name in topic.queue_names:
            it.basic_publish("", name, b"request", BasicProperties(reply_to=replies))
        alarmed.begin()
        async with here.member(topic, handle) as first:
            await until(lambda: len(asked) == 2 and "takes no replies" in caplog.text)
            async with here.member(topic, handle) as second:
                [asked_back, *_] = await until(lambda: here.journal("revoking"))
                await first.tenures[asked_back.resource].wait_draining()
                assert not second.tenures
                cut(first.partitions.connection)
                await until(lambda: len(second.tenures) == 1)
                assert {it.reason for it in here.journal("forced", "abandoned")} == {"channel"}
                alarmed.end()
                await until_worked(here, topic)
        it.queue_delete(replies)


async def test_a_connection_for_replies_that_is_lost_is_made_again(here: Place, replies: str) -> None:
    """As soon as there is a reply to send. The partition stays, and nothing is handled twice."""
    tokens: list[int] = []

    def handle(delivery: Delivery) -> None:
        tokens.append(delivery.token)
        delivery.reply(delivery.body)

    with new_topic(here.amqp_url) as topic:
        async with here.member(topic, handle) as member:
            ask(here, topic, replies, "1")
            await until(lambda: ready_messages(here.amqp_url, [replies])[replies])
            connection = member.partitions.link.replies._connection
            assert connection is not member.partitions.connection
            for count in (2, 3):
                await until(cut(connection).is_set)
                ask(here, topic, replies, str(count))
                await until(partial(_has_arrived, here, replies, count))
            await until_worked(here, topic)
    assert set(answers(here, replies)) == {("1", "c-1"), ("2", "c-2"), ("3", "c-3")}
    assert len(tokens) == 3
    assert len(set(tokens)) == 1
    assert here.journal("abandoned") == []


async def test_without_a_connection_for_replies_another_member_is_to_answer(
    here: Place, replies: str, amqp: FaultProxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Consuming goes on meanwhile, and the request is answered once there is one."""
    monkeypatch.setattr("cobalance.rabbitmq.partition.replies.PATIENCE_S", 0.2)

    def handle(delivery: Delivery) -> None:
        delivery.reply(delivery.body)

    through = Place(amqp.through(here.amqp_url), here.redis_url)
    through.group = here.group
    with new_topic(here.amqp_url) as topic:
        async with through.member(topic, handle) as member:
            await until(lambda: len(member.tenures) == 1)
            amqp.refuse()
            ask(here, topic, replies, "1")
            await until(lambda: here.journal("abandoned"))
            assert here.journal("abandoned")[0].reason == "failed:PublishFailed"
            assert "no connection for replies" in caplog.text
            assert member.partitions.connection.is_open
            amqp.heal()
            await until(lambda: arrived(here.amqp_url, replies))
        await until_worked(here, topic)
    through.close()
    assert set(answers(here, replies)) == {("1", "c-1")}


def _has_arrived(here: Place, replies: str, count: int) -> bool:
    return arrived(here.amqp_url, replies) >= count


async def test_a_reply_under_way_when_its_connection_is_lost_is_sent_again(here: Place, replies: str) -> None:
    """RabbitMQ may have it or not, so that it may arrive twice. Its request is not handled again."""
    seen: list[bytes] = []

    def handle(delivery: Delivery) -> None:
        seen.append(delivery.body)
        delivery.reply(delivery.body)
        if delivery.body == b"2":
            member.partitions.link.replies._connection.submit(lambda: 1 / 0)  # ahead of the confirm

    with new_topic(here.amqp_url) as topic:
        ask(here, topic, replies, "1", "2", "3")
        member = here.member(topic, handle)
        async with member:
            await until(lambda: arrived(here.amqp_url, replies) >= 3)
        await until_worked(here, topic)
    assert {body for body, _ in answers(here, replies)} == {"1", "2", "3"}
    assert seen == [b"1", b"2", b"3"]
    assert here.journal("abandoned") == []


def test_only_the_reply_fails_over_which_connections_are_lost(amqp_url: str, replies: str) -> None:
    """Those that are sent together with it are sent again, one by one."""
    sender = Replies("g", amqp_url, "g/m", heartbeat_s=5)
    assert sender.send(reply_to(replies)).result(60)
    guilty = reply_to(replies)

    def cut_before_the_confirm() -> bool:
        sender._connection.submit(lambda: 1 / 0)
        return True

    guilty.wanted = cut_before_the_confirm
    others = [reply_to(replies) for _ in range(6)]
    together = [*others[:3], guilty, *others[3:]]
    written: Future[list[Future[bool]]] = Future()
    sender._connection.submit(lambda: written.set_result([sender.send(it) for it in together]))
    *_, last = written.result(60)
    assert last.result(60)
    assert [it.sent.result(60) for it in others] == [True] * 6
    with pytest.raises(PublishFailed, match="ZeroDivisionError"):
        guilty.sent.result(60)
    sender.close()


@pytest.fixture
def silent(private_rabbitmq: servers.OwnRabbitMQ, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A quorum queue for replies that confirms nothing, as without a majority; that is known after two seconds."""
    monkeypatch.setattr(reply_channel, "PATIENCE_S", 2.0)
    name = unique("silent")
    with channel(private_rabbitmq.url) as it:
        it.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
    with Leader(private_rabbitmq, name).silent():
        yield name
    with channel(private_rabbitmq.url) as it:
        it.queue_delete(name)


@pytest.mark.thorough
def test_a_queue_that_does_not_confirm_holds_up_no_other(
    private_rabbitmq: servers.OwnRabbitMQ, silent: str, caplog: pytest.LogCaptureFixture
) -> None:
    """RabbitMQ handles nothing behind the first reply to it, and the confirms of those before it wait, too."""
    good = unique("good")
    with channel(private_rabbitmq.url) as it:
        it.queue_declare(good)
    sender = Replies("g", private_rabbitmq.url, "g/m", heartbeat_s=5)
    early, *refused, late = together = [reply_to(it) for it in (good, silent, silent, silent, good)]
    for reply in together:
        sender.send(reply)
    assert (early.sent.result(60), late.sent.result(60)) == (True, True)
    for reply in refused:
        with pytest.raises(PublishFailed, match="confirmed none to that queue") as failure:
            reply.sent.result(60)
        assert (reply.is_refused, failure.value.outcome) == (True, "unknown")
    assert caplog.text.count(f"has not confirmed a reply to {silent!r}") == 1
    sender.close()


def test_a_large_reply_on_a_slow_link_is_no_silence(amqp_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer than a queue may for its confirm; and so does what waits behind it."""
    monkeypatch.setattr(reply_channel, "PATIENCE_S", 2.0)
    name = unique("slow")
    with channel(amqp_url) as it, proxy_to(amqp_url) as proxy:
        it.queue_declare(name)
        proxy.pace(1_000_000)
        sender = Replies("g", proxy.through(amqp_url), "g/m", heartbeat_s=5)
        replies = [reply_to(name, size) for size in (3_000_000, 1, 3_000_000)]
        for reply in replies:
            sender.send(reply)
        assert [it.sent.result(60) for it in replies] == [True] * 3
        assert it.queue_delete(name).method.message_count == len(replies)  # none was sent again
        sender.close()


@pytest.mark.thorough
def test_the_end_of_a_connection_for_replies_is_no_silence(
    private_rabbitmq: servers.OwnRabbitMQ, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RabbitMQ does not answer the close of a channel on which it waits for a queue."""
    monkeypatch.setattr(reply_channel, "PATIENCE_S", 0.1)
    sender = Replies("g", private_rabbitmq.url, "g/m", heartbeat_s=5)
    looked: Future[bool] = Future()

    def close() -> bool:
        channel = sender._main._channel
        assert channel is not None
        sender._connection.submit(channel.close)
        sender._connection.call_later(200, lambda: looked.set_result(sender._connection.is_open))
        return True

    reply = reply_to(silent)
    reply.wanted = close
    sender.send(reply)
    assert looked.result(60)
    sender.close()


@pytest.mark.thorough
async def test_a_request_whose_reply_is_not_confirmed_is_given_up_alone(
    private_rabbitmq: servers.OwnRabbitMQ, here: Place, silent: str
) -> None:
    """As if its reply had been refused; and the others go on, though there are more of them than the prefetch."""
    it = Answering()
    there = Place(private_rabbitmq.url, here.redis_url)
    with new_topic(there.amqp_url) as topic:
        ask(there, topic, silent, "1")
        there.publish(topic, *range(2, 9))
        async with there.member(
            topic, it.handle, prefetch=4, on_error="dead_letter", on_failure=it.on_failure, retries=0
        ):
            await until(lambda: len(it.seen) == 8)
            (letter,) = await until(lambda: read_dead_letters(there.amqp_url, topic.name))
        await until_worked(there, topic)
    assert letter.message_id == "m-1"
    assert [(body, outcome) for body, outcome, _ in it.failures] == [(b"1", "unknown")]
    there.close()


@pytest.mark.thorough
def test_a_queue_that_confirms_again_is_one_of_all_again(
    private_rabbitmq: servers.OwnRabbitMQ, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Replies to it had been sent one at a time, on a channel apart."""
    monkeypatch.setattr(reply_channel, "PATIENCE_S", 1.0)
    caplog.set_level("INFO")
    name = unique("silent")
    with channel(private_rabbitmq.url) as it:
        it.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
    sender = Replies("g", private_rabbitmq.url, "g/m", heartbeat_s=5)
    assert sender.send(reply_to(name)).result(60)
    with Leader(private_rabbitmq, name).silent():
        with pytest.raises(PublishFailed):
            sender.send(reply_to(name)).result(60)
        later = [reply_to(name) for _ in range(3)]
        for reply in later:
            sender.send(reply)
        monkeypatch.setattr(reply_channel, "PATIENCE_S", 20.0)
        sender._connection.submit(lambda: 1 / 0)  # what is under way and what waits outlives a lost connection, too
    assert [it.sent.result(60) for it in later] == [True] * 3
    assert caplog.text.count("are confirmed again") == 1
    assert sender._silent == {}
    sender.close()


class Unexpected(Exception):
    """Of a library, in connecting."""


def test_nothing_in_connecting_leaves_replies_waiting_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that nobody foresaw fails them; another attempt on an open connection changes nothing."""
    url = f"memory://{unique('broker')}"
    with channel(single_urls(url)[0]) as it:
        it.queue_declare("answers")
    sender = Replies("g", url, "g/m", heartbeat_s=5)
    connect = sender._connection.connect

    def fail(_: int) -> None:
        raise Unexpected("once")

    monkeypatch.setattr(sender._connection, "connect", fail)
    with pytest.raises(PublishFailed, match="Unexpected: once"):
        sender.send(reply_to("answers")).result(60)
    monkeypatch.setattr(sender._connection, "connect", connect)
    assert sender.send(reply_to("answers")).result(60)
    sender._make_connection()
    assert sender.send(reply_to("answers")).result(60)
    sender.close()
