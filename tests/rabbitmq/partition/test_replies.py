"""Requests and their replies: ``delivery.reply``."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from decimal import Decimal
from functools import partial
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import pika
import pytest
from pika.spec import BasicProperties
from tests.consumers import SETTINGS, Place, channel, new_topic, place, until
from tests.faults.proxy import FaultProxy, proxy_to
from tests.faults.rabbitmq_servers import Leader
from tests.names import unique
from tests.streams import cut

from cobalance import servers
from cobalance.errors import PublishFailed, UsageError
from cobalance.rabbitmq import Delivery, Publisher, Topic, create_topic, read_dead_letters
from cobalance.rabbitmq.model.batches import Batch
from cobalance.rabbitmq.model.retries import Retries
from cobalance.rabbitmq.model.stream_settings import StreamSettings
from cobalance.rabbitmq.partition import reply_channel
from cobalance.rabbitmq.partition.replies import Replies, Reply
from cobalance.rabbitmq.topics.broker import ready_messages
from cobalance.rabbitmq.wire.address import single_urls
from cobalance.settings import MemberSettings

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

SOON = Retries(3, first_ms=5, last_ms=10)


@pytest.fixture
def replies(amqp_url: str) -> Iterator[str]:
    """A queue for replies."""
    name = unique("replies")
    with channel(amqp_url) as it:
        it.queue_declare(name)
        yield name
        it.queue_delete(name)


def ask(here: Place, topic: Topic, replies: str, *bodies: str) -> None:
    """Publishes requests."""
    with Publisher(here.amqp_url, topic) as publisher:
        for body in bodies:
            publisher.publish("k", body, reply_to=replies, correlation_id=f"c-{body}", message_id=f"m-{body}")


def answers(here: Place, replies: str) -> list[tuple[str, str | None]]:
    """The bodies of the replies, with their correlation ids."""
    found = []
    with channel(here.amqp_url) as it:
        while (got := it.basic_get(replies, auto_ack=True))[0] is not None:
            properties, body = cast("tuple[BasicProperties, bytes]", got[1:])
            found.append((body.decode(), properties.correlation_id))
    return found


def arrived(url: str, replies: str) -> int:
    """Number of replies that nobody has taken yet."""
    return ready_messages(url, [replies])[replies] or 0


async def until_worked(here: Place, topic: Topic) -> None:
    """Waits until the topic is empty, as RabbitMQ reports it when it is no longer consumed."""
    await until(lambda: set(ready_messages(here.amqp_url, topic.queue_names).values()) == {0})


@pytest.mark.parametrize("queue_type", ["classic", "quorum", "stream"])
@pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "async"])
async def test_a_request_is_answered(here: Place, replies: str, queue_type: str, is_plain: bool) -> None:
    """The reply goes to the queue that the request names, with its correlation id."""

    def double(delivery: Delivery) -> None:
        delivery.reply(delivery.body * 2, {"tenant": "acme"}, content_type="text/plain")

    async def double_async(delivery: Delivery) -> None:
        double(delivery)

    with new_topic(here.amqp_url, 1, queue_type) as topic:
        ask(here, topic, replies, "1", "2")
        async with here.member(topic, double if is_plain else double_async):
            await until(lambda: ready_messages(here.amqp_url, [replies])[replies] == 2)
    assert answers(here, replies) == [("11", "c-1"), ("22", "c-2")]


@pytest.mark.parametrize("queue_type", ["classic", "stream"])
async def test_a_reply_whose_headers_are_larger_than_a_frame_is_refused(
    here: Place, replies: str, queue_type: str
) -> None:
    """RabbitMQ would close the connection for replies over it, again and again; so the handler fails at once."""
    refusals: list[str] = []

    async def handle(delivery: Delivery) -> None:
        try:
            delivery.reply(b"x", {"large": "x" * 200_000})
        except UsageError as error:
            refusals.append(str(error))
        delivery.reply(b"y" * 200_000, {"just": "x" * 130_000})

    with new_topic(here.amqp_url, 1, queue_type) as topic:
        ask(here, topic, replies, "1")
        async with here.member(topic, handle):
            await until(lambda: arrived(here.amqp_url, replies))
    assert len(refusals) == 1
    assert "more than the 131,0" in refusals[0]
    assert answers(here, replies) == [("y" * 200_000, "c-1")]


async def test_a_program_of_pika_s_asks_with_direct_reply_to(here: Place) -> None:
    """To RabbitMQ this pseudo-queue is not a queue."""
    got: list[tuple[str | None, bytes]] = []
    asked = threading.Event()

    def asking(topic: Topic) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(here.amqp_url))
        it = connection.channel()
        it.basic_consume(
            "amq.rabbitmq.reply-to", lambda _, __, properties, body: got.append((properties.correlation_id, body)), True
        )
        properties = BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="c1")
        it.basic_publish(topic.name, topic.routing_key(0), b"1", properties)
        while not got and not asked.is_set():
            connection.process_data_events(0.05)  # type: ignore[arg-type]  # it takes fractions
        connection.close()

    async def handle(delivery: Delivery) -> None:
        delivery.reply(b"one")

    with new_topic(here.amqp_url) as topic:
        async with here.member(topic, handle):
            thread = threading.Thread(target=asking, args=(topic,))
            thread.start()
            try:
                await until(lambda: got)
            finally:
                asked.set()
                thread.join()
    assert got == [("c1", b"one")]


async def test_who_fails_sends_nothing(here: Place, replies: str) -> None:
    """Of several replies the last is sent, once, when the handler has finished."""
    tries: list[None] = []

    async def handle(delivery: Delivery) -> None:
        delivery.reply(f"try {len(tries)}")
        tries.append(None)
        if len(tries) < 3:
            raise ValueError("not yet")
        delivery.reply("well")

    with new_topic(here.amqp_url) as topic:
        ask(here, topic, replies, "1")
        async with here.member(topic, handle, retries=SOON):
            await until(lambda: ready_messages(here.amqp_url, [replies])[replies])
    assert answers(here, replies) == [("well", "c-1")]


async def test_who_failed_for_good_sends_nothing(here: Place, replies: str) -> None:
    """The request is then a dead letter."""

    async def handle(delivery: Delivery) -> None:
        delivery.reply("no")
        raise ValueError

    with new_topic(here.amqp_url) as topic:
        ask(here, topic, replies, "1")
        async with here.member(topic, handle, retries=0, on_error="dead_letter"):
            await until(lambda: ready_messages(here.amqp_url, [f"{topic.name}.dead"])[f"{topic.name}.dead"])
    assert answers(here, replies) == []


async def test_replies_by_hand_and_of_batches(here: Place, replies: str) -> None:
    """Replies are sent when the message is acknowledged, which happens once."""

    async def handle(deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            delivery.reply(delivery.body)
        for delivery in deliveries:
            members[0].ack(delivery)
        with pytest.raises(UsageError, match="once"):
            members[0].ack(deliveries[-1])

    members: list[Any] = []
    with new_topic(here.amqp_url) as topic:
        ask(here, topic, replies, "1", "2", "3")
        async with here.member(topic, handle, ack="manual", batch=Batch(3)) as member:
            members.append(member)
            await until(lambda: ready_messages(here.amqp_url, [replies])[replies] == 3)
        await until_worked(here, topic)
    assert [body for body, _ in answers(here, replies)] == ["1", "2", "3"]


async def test_a_message_that_asks_for_no_reply_is_none_to_reply_to(here: Place) -> None:
    """The call raises."""
    said: list[str] = []

    async def handle(delivery: Delivery) -> None:
        try:
            delivery.reply(b"hello?")
        except UsageError as error:
            said.append(str(error))

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1)
        async with here.member(topic, handle):
            await until(lambda: said)
        await until_worked(here, topic)
    assert "has no reply_to" in said[0]


async def test_who_does_not_wait_any_more_holds_up_nobody(here: Place, caplog: pytest.LogCaptureFixture) -> None:
    """The queue for the replies is gone: that is logged, and the request is done."""
    seen: list[bytes] = []

    async def handle(delivery: Delivery) -> None:
        seen.append(delivery.body)
        delivery.reply(b"too late")

    with new_topic(here.amqp_url) as topic:
        ask(here, topic, unique("gone"), "1", "2")
        async with here.member(topic, handle):
            await until(lambda: caplog.text.count("is gone, to which a request") == 2)
        await until_worked(here, topic)
    assert seen == [b"1", b"2"]
    assert here.journal("abandoned") == []


async def test_a_reply_that_is_not_confirmed_leaves_its_request_in_the_queue(here: Place) -> None:
    """A full queue refuses it: the request is redelivered, and acknowledged once its reply has been accepted."""
    full = unique("full")

    async def handle(delivery: Delivery) -> None:
        delivery.reply(delivery.body)

    with new_topic(here.amqp_url) as topic, channel(here.amqp_url) as it:
        it.queue_declare(full, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        it.basic_publish("", full, b"there")
        ask(here, topic, full, "1", "2")
        async with here.member(topic, handle, settings=SETTINGS):
            await until(lambda: here.journal("abandoned"))
            assert here.journal("abandoned")[0].reason == "failed:PublishFailed"
            assert it.queue_purge(full).method.message_count == 1
            await until(lambda: arrived(here.amqp_url, full))
            first = answers(here, full)
            await until(lambda: arrived(here.amqp_url, full))
            assert sorted(first + answers(here, full)) == [("1", "c-1"), ("2", "c-2")]
        it.queue_delete(full)


@pytest.fixture
def full(amqp_url: str) -> Iterator[str]:
    """A queue for replies that refuses them, as it holds one already."""
    name = unique("full")
    with channel(amqp_url) as it:
        it.queue_declare(name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        it.basic_publish("", name, b"there")
        yield name
        it.queue_delete(name)


class Answering:
    """A handler that answers what asks for it, and an ``on_failure``."""

    def __init__(self) -> None:
        self.seen: list[bytes] = []
        self.failures: list[tuple[bytes, str, str]] = []

    async def handle(self, delivery: Delivery) -> None:
        self.seen.append(delivery.body)
        if delivery.properties.reply_to:
            delivery.reply(delivery.body)

    def on_failure(self, delivery: Delivery, error: Exception) -> None:
        assert isinstance(error, PublishFailed)
        self.failures.append((delivery.body, error.outcome, str(error)))


async def test_a_request_whose_reply_is_refused_for_good_is_dead_lettered(here: Place, full: str) -> None:
    """As if its handler had failed, with retries, though what is tried again is the reply; the others go on."""
    it = Answering()
    options: dict[str, Any] = {"retries": Retries(2, first_ms=5), "on_error": "dead_letter"}
    with new_topic(here.amqp_url) as topic:
        ask(here, topic, full, "1")
        here.publish(topic, "2", "3")
        async with here.member(topic, it.handle, on_failure=it.on_failure, **options):
            await until(lambda: read_dead_letters(here.amqp_url, topic.name))
            await until(lambda: it.seen == [b"1", b"2", b"3"])
        await until_worked(here, topic)
        (letter,) = read_dead_letters(here.amqp_url, topic.name)
    assert (letter.message_id, letter.failures) == ("m-1", 3)
    assert letter.error.startswith(f"PublishFailed: RabbitMQ has refused the reply to {full!r}")
    assert [failure[:2] for failure in it.failures] == [(b"1", "not_executed")] * 3
    assert here.journal("abandoned") == []


async def test_a_request_is_given_up_though_on_failure_does_not_return(
    here: Place, full: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It hears of the first refusal only, and left to itself after ``max_processing_ms``, as the log says."""
    it, calls, go_on = Answering(), list[bytes](), threading.Event()

    def hang(delivery: Delivery, _: Exception) -> None:
        calls.append(delivery.body)
        go_on.wait()

    options: dict[str, Any] = {
        "retries": SOON,
        "on_error": "dead_letter",
        "member": MemberSettings(max_processing_ms=200),
    }
    with new_topic(here.amqp_url) as topic:
        ask(here, topic, full, "1")
        here.publish(topic, "2", "3")
        async with here.member(topic, it.handle, on_failure=hang, **options):
            try:
                await until(lambda: read_dead_letters(here.amqp_url, topic.name))
                await until(lambda: it.seen == [b"1", b"2", b"3"])
                assert calls == [b"1"]
            finally:
                go_on.set()
        await until_worked(here, topic)
    assert caplog.text.count("on_failure has run for longer than") == 1
    assert here.journal("abandoned") == []


async def test_a_reply_that_is_refused_for_a_while_is_sent_again(here: Place, full: str) -> None:
    """The handler has done its work, and is not called again."""
    it = Answering()

    made = threading.Event()

    def make_room(*_: object) -> None:
        """Once: it may have been refused again in the meantime, and the next time its reply is there."""
        if not made.is_set():
            made.set()
            with channel(here.amqp_url) as other:
                other.queue_purge(full)

    with new_topic(here.amqp_url) as topic:
        ask(here, topic, full, "1")
        async with here.member(topic, it.handle, retries=SOON, on_failure=make_room):
            await until(lambda: answers(here, full) == [("1", "c-1")])
        await until_worked(here, topic)
    assert it.seen == [b"1"]
    assert here.journal("abandoned") == []


@pytest.fixture(scope="module")
def frugal_rabbitmq() -> Iterator[servers.OwnRabbitMQ]:
    """A RabbitMQ that takes a thousand bytes at most."""
    with servers.private_rabbitmq(settings={"max_message_size": "1000"}) as server:
        yield server


async def test_a_reply_larger_than_rabbitmq_takes_fails_its_request_alone(
    frugal_rabbitmq: servers.OwnRabbitMQ, here: Place, replies: str
) -> None:
    """RabbitMQ closes the channel over it, each time: so it is not sent again, and those sent beside it are."""
    url = frugal_rabbitmq.url
    with new_topic(url) as topic:
        there, it = Place(url, here.redis_url), Answering()

        async def handle(delivery: Delivery) -> None:
            await it.handle(delivery)
            if delivery.body == b"2":
                delivery.reply(b"x" * 2_000)

        with channel(url) as other:
            other.queue_declare(replies)
        ask(there, topic, replies, "1", "2", "3")
        async with there.member(topic, handle, on_error="dead_letter", on_failure=it.on_failure):
            await until(lambda: read_dead_letters(url, topic.name))
            await until_worked(there, topic)
        assert set(answers(there, replies)) == {("1", "c-1"), ("3", "c-3")}
        (letter,) = read_dead_letters(url, topic.name)
        assert (letter.message_id, letter.failures) == ("m-2", 1)
        assert sorted(it.seen) == [b"1", b"2", b"3"]
        there.close()


async def test_what_was_finished_behind_a_request_that_stays_is_not_repeated(here: Place, full: str) -> None:
    """Only the request comes again, for as long as nobody takes its reply."""
    it = Answering()
    with new_topic(here.amqp_url) as topic:
        ask(here, topic, full, "1")
        here.publish(topic, "2", "3")
        async with here.member(topic, it.handle, retries=Retries(1, first_ms=300)):
            await until(lambda: len(here.journal("abandoned")) == 2)
    assert here.journal("abandoned")[0].reason == "failed:PublishFailed"
    assert it.seen.count(b"1") >= 2
    assert (it.seen.count(b"2"), it.seen.count(b"3")) == (1, 1)


@pytest.mark.parametrize("queue_type", ["classic", "stream"])
async def test_a_reply_that_is_refused_can_halt_the_partition(here: Place, full: str, queue_type: str) -> None:
    """As any other failure."""
    it = Answering()
    with new_topic(here.amqp_url, 1, queue_type) as topic:
        ask(here, topic, full, "1")
        async with here.member(topic, it.handle, retries=0, on_error="halt"):
            await until(lambda: here.resources()[topic.queue_names[0]].halted)
    assert here.resources()[topic.queue_names[0]].halted == "PublishFailed"


async def test_a_reply_that_is_refused_can_end_the_membership(here: Place, full: str) -> None:
    """The request stays in its queue."""
    with new_topic(here.amqp_url) as topic:
        ask(here, topic, full, "1")
        member = here.member(topic, Answering().handle, retries=0, on_error="raise")
        with pytest.raises(PublishFailed, match="refused the reply"), anyio.fail_after(20):
            async with member:
                await member.wait_left()
        assert ready_messages(here.amqp_url, topic.queue_names) == {topic.queue_names[0]: 1}


async def test_a_partition_is_handed_over_while_a_refused_reply_waits(here: Place, full: str) -> None:
    """The next holder has the request, and answers it."""
    it = Answering()
    with new_topic(here.amqp_url) as topic:
        ask(here, topic, full, "1")
        later = Retries(3, first_ms=600_000, last_ms=600_000)
        async with here.member(topic, it.handle, retries=later, on_failure=it.on_failure):
            await until(lambda: it.failures)
        assert ready_messages(here.amqp_url, topic.queue_names) == {topic.queue_names[0]: 1}


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
            await until(lambda: [it.in_flight and it.in_flight.messages for it in first._workers.values()] == [50, 50])
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
            (worker,) = await until(lambda: list(member._workers.values()))
            await until(lambda: worker.acknowledged == 60)
            assert worker.in_flight.messages == 1
            assert arrived(alarmed.url, replies) == 0
            alarmed.end()
            await until_worked(here, topic)
        assert set(seen.values()) == {1}
        assert arrived(alarmed.url, replies) == 1
        it.queue_delete(replies)


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
                cut(first.connection)
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
            connection = member._replies._connection
            assert connection is not member.connection
            for count in (2, 3):
                gone = threading.Event()
                connection.submit(partial(connection.add_end_listener, partial(_set, gone)))
                cut(connection)
                await until(gone.is_set)
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
            assert member.connection.is_open
            amqp.heal()
            await until(lambda: arrived(here.amqp_url, replies))
        await until_worked(here, topic)
    through.close()
    assert set(answers(here, replies)) == {("1", "c-1")}


async def test_replies_in_memory() -> None:
    """They take a connection of their own there, too."""
    url = f"memory://{unique('broker')}"
    plain, topic = single_urls(url)[0], Topic(unique("topic"), 1)
    create_topic(url, topic)
    with place(url) as here, channel(plain) as it:
        it.queue_declare("replies")
        async with here.member(topic, lambda delivery: delivery.reply(delivery.body)) as member:
            with Publisher(url, topic) as publisher:
                publisher.publish("k", b"1", reply_to="replies", correlation_id="c-1")
            await until(lambda: it.queue_declare("replies", passive=True).method.message_count)
            assert member._replies._connection.is_open
        assert it.queue_declare(topic.queue_names[0], passive=True).method.message_count == 0


def _set(event: threading.Event, _: str) -> None:
    event.set()


def _has_arrived(here: Place, replies: str, count: int) -> bool:
    return arrived(here.amqp_url, replies) >= count


async def test_a_reply_under_way_when_its_connection_is_lost_is_sent_again(here: Place, replies: str) -> None:
    """RabbitMQ may have it or not, so that it may arrive twice. Its request is not handled again."""
    seen: list[bytes] = []

    def handle(delivery: Delivery) -> None:
        seen.append(delivery.body)
        delivery.reply(delivery.body)
        if delivery.body == b"2":
            member._replies._connection.submit(lambda: 1 / 0)  # ahead of the confirm

    with new_topic(here.amqp_url) as topic:
        ask(here, topic, replies, "1", "2", "3")
        member = here.member(topic, handle)
        async with member:
            await until(lambda: arrived(here.amqp_url, replies) >= 3)
        await until_worked(here, topic)
    assert {body for body, _ in answers(here, replies)} == {"1", "2", "3"}
    assert seen == [b"1", b"2", b"3"]
    assert here.journal("abandoned") == []


@pytest.mark.parametrize("ack", ["auto", "manual"])
async def test_a_reader_that_commits_by_itself_answers_first(here: Place, replies: str, ack: Any) -> None:
    """An offset is committed once the replies to everything up to it are confirmed; each request is answered once."""

    async def handle(delivery: Delivery) -> None:
        assert delivery.offset is not None
        delivery.reply(delivery.body)
        if delivery.body in {b"2", b"3"}:
            await member.commit(delivery.queue, delivery.offset)
            assert arrived(here.amqp_url, replies) == int(delivery.body)
            refused(delivery)
        if delivery.body in {b"3", b"4"} and ack == "manual":
            member.ack(delivery)

    with new_topic(here.amqp_url, 1, "stream") as topic:
        ask(here, topic, replies, "1", "2", "3", "4")
        async with here.member(topic, handle, ack=ack, streams=StreamSettings(start="first")) as member:
            await until(lambda: arrived(here.amqp_url, replies) >= 4)
        assert here.resources()[topic.queue_names[0]].committed == 3
    assert answers(here, replies) == [(it, f"c-{it}") for it in ("1", "2", "3", "4")]
    assert here.journal("abandoned") == []


async def test_an_offset_is_not_committed_before_its_reply_is_accepted(here: Place) -> None:
    """The commit raises, and the request comes again."""
    full = unique("full")
    refusals: list[PublishFailed] = []

    async def handle(delivery: Delivery) -> None:
        delivery.reply(delivery.body)
        try:
            await member.commit(delivery.queue, delivery.offset or 0)
        except PublishFailed as error:
            refusals.append(error)
            raise

    with new_topic(here.amqp_url, 1, "stream") as topic, channel(here.amqp_url) as it:
        it.queue_declare(full, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        it.basic_publish("", full, b"there")
        ask(here, topic, full, "1", "2")
        async with here.member(topic, handle, retries=0, streams=StreamSettings(start="first")) as member:
            await until(lambda: here.journal("abandoned"))
            assert refusals
            assert here.resources()[topic.queue_names[0]].committed == -1
            assert answers(here, full) == [("there", None)]
            await until(lambda: arrived(here.amqp_url, full))
            assert answers(here, full) == [("1", "c-1")]
        it.queue_delete(full)


async def test_no_commit_passes_a_request_whose_reply_was_refused(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """It would never be answered."""
    full = unique("full")
    refusals: list[PublishFailed] = []

    async def handle(deliveries: list[Delivery]) -> None:
        deliveries[0].reply(b"1")
        member.ack(deliveries[0])
        await until(lambda: "its reply is sent again" in caplog.text)
        try:
            await member.commit(deliveries[-1].queue, deliveries[-1].offset or 0)
        except PublishFailed as error:
            refusals.append(error)

    with new_topic(here.amqp_url, 1, "stream") as topic, channel(here.amqp_url) as it:
        it.queue_declare(full, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        it.basic_publish("", full, b"there")
        ask(here, topic, full, "1", "2")
        options: Any = {"ack": "manual", "batch": Batch(2), "streams": StreamSettings(start="first")}
        async with here.member(topic, handle, member=MemberSettings(drain_timeout_ms=100), **options) as member:
            await until(lambda: refusals)
        assert here.resources()[topic.queue_names[0]].committed == -1
        it.queue_delete(full)


@pytest.mark.parametrize("is_over", [False, True], ids=["while the group runs", "after its end"])
async def test_a_reply_after_the_handler_has_returned_is_refused(here: Place, replies: str, is_over: bool) -> None:
    """The request is acknowledged, so the reply would never be sent: answering later needs ack="manual"."""
    seen: list[Delivery] = []

    with new_topic(here.amqp_url) as topic:
        ask(here, topic, replies, "1", "2")
        async with here.member(topic, seen.append):
            await until(lambda: len(seen) == 2)
            if not is_over:  # the second is begun when the first has been settled
                refused(seen[0])
        if is_over:
            refused(seen[1])
        assert not seen[0]._drafts._replies  # nothing of it is kept, however long its consumer lives
    assert answers(here, replies) == []


def refused(delivery: Delivery) -> None:
    """Replying raises, and says what to do."""
    with pytest.raises(UsageError, match=r"too late.*ack='manual'"):
        delivery.reply("late")


async def test_another_thread_replies_and_acknowledges(here: Place, replies: str) -> None:
    """With ack="manual", a reply is accepted any time before the acknowledgement, and not after."""
    with ThreadPoolExecutor(2) as pool, new_topic(here.amqp_url) as topic:
        jobs: list[Future[None]] = []

        def answer(delivery: Delivery) -> None:
            delivery.reply(delivery.body)
            member.ack(delivery)
            with pytest.raises(UsageError, match="too late"):
                delivery.reply("again")

        member = here.member(topic, lambda delivery: jobs.append(pool.submit(answer, delivery)), ack="manual")
        ask(here, topic, replies, "1", "2")
        async with member:
            await until(lambda: ready_messages(here.amqp_url, [replies])[replies] == 2)
        await until_worked(here, topic)
    assert [job.exception() for job in jobs] == [None, None]
    assert sorted(body for body, _ in answers(here, replies)) == ["1", "2"]


async def test_a_reply_to_what_was_taken_away_is_refused(here: Place, replies: str) -> None:
    """It was not acknowledged (ack="manual") before its member left: another member answers it."""
    seen: list[Delivery] = []

    async def handle(delivery: Delivery) -> None:
        seen.append(delivery)

    with new_topic(here.amqp_url) as topic:
        ask(here, topic, replies, "1")
        async with here.member(topic, handle, ack="manual", member=MemberSettings(drain_timeout_ms=100)):
            await until(lambda: seen)
        with pytest.raises(UsageError, match="too late"):
            seen[0].reply("one")


@pytest.mark.parametrize(
    "to", ["amq.rabbitmq.reply-to.garbage.key", b"amq.rabbitmq.reply-to.\xff", b"r\xe9ponses"], ids=repr
)
async def test_an_address_where_nobody_waits_holds_up_nobody(here: Place, replies: str, to: Any) -> None:
    """RabbitMQ 3 closes the connection for replies over a direct reply-to that is none; and any publisher may write what
    is not UTF-8. The others are answered, each request is handled once.
    """
    seen: list[bytes] = []

    async def handle(delivery: Delivery) -> None:
        seen.append(delivery.body)
        delivery.reply(delivery.body)

    with new_topic(here.amqp_url, 3) as topic:
        with channel(here.amqp_url) as it:
            for number in range(9):
                properties = BasicProperties(reply_to=replies if number % 3 else to, correlation_id=f"c-{number}")
                it.basic_publish(topic.name, topic.routing_key(number % 3), str(number).encode(), properties)
        async with here.member(topic, handle):
            await until(lambda: arrived(here.amqp_url, replies) >= 6 and len(seen) >= 9)
        await until_worked(here, topic)
    assert sorted(seen) == [str(number).encode() for number in range(9)]
    assert {body for body, _ in answers(here, replies)} == {"1", "2", "4", "5", "7", "8"}
    assert here.journal("abandoned") == []


def test_only_the_reply_fails_over_which_connections_are_lost(amqp_url: str, replies: str) -> None:
    """Those that are sent together with it are sent again, one by one."""
    sender = Replies("g", amqp_url, "g/m", heartbeat_s=5)
    assert sender.send(reply_to(replies)).result(20)
    guilty = reply_to(replies)

    def cut_before_the_confirm() -> bool:
        sender._connection.submit(lambda: 1 / 0)
        return True

    guilty.wanted = cut_before_the_confirm
    others = [reply_to(replies) for _ in range(6)]
    together = [*others[:3], guilty, *others[3:]]
    written: Future[list[Future[bool]]] = Future()
    sender._connection.submit(lambda: written.set_result([sender.send(it) for it in together]))
    *_, last = written.result(20)
    assert last.result(20)
    assert [it.sent.result(20) for it in others] == [True] * 6
    with pytest.raises(PublishFailed, match="ZeroDivisionError"):
        guilty.sent.result(20)
    sender.close()


@pytest.mark.parametrize("fails_in", ["asking", "encoding"])
def test_a_reply_that_cannot_be_sent_fails_alone(amqp_url: str, replies: str, fails_in: str) -> None:
    """Whatever the reason: nobody waits for ever, and the connection is not lost over it."""
    lost: list[str] = []
    sender = Replies("g", amqp_url, "g/m", heartbeat_s=5)
    assert sender.send(reply_to(replies)).result(20)
    sender._connection._on_lost = lost.append
    guilty, others = reply_to(replies), [reply_to(replies) for _ in range(4)]
    if fails_in == "asking":
        guilty.wanted = lambda: bool(1 / 0)
    else:
        guilty.properties = cast("Any", BasicProperties(headers={"x": object()}))
    for reply in [*others[:2], guilty, *others[2:]]:
        sender.send(reply)
    with pytest.raises(PublishFailed, match="cannot be sent"):
        guilty.sent.result(20)
    assert [it.sent.result(20) for it in others] == [True] * 4
    assert guilty.is_refused
    assert lost == []
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
    assert (early.sent.result(20), late.sent.result(20)) == (True, True)
    for reply in refused:
        with pytest.raises(PublishFailed, match="confirmed none to that queue") as failure:
            reply.sent.result(20)
        assert (reply.is_refused, failure.value.outcome) == (True, "unknown")
    assert caplog.text.count(f"has not confirmed a reply to {silent!r}") == 1
    sender.close()


def test_a_large_reply_on_a_slow_link_is_no_silence(amqp_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer than a queue may for its confirm; and so does what waits behind it."""
    monkeypatch.setattr(reply_channel, "PATIENCE_S", 1.0)
    name = unique("slow")
    with channel(amqp_url) as it, proxy_to(amqp_url) as proxy:
        it.queue_declare(name)
        proxy.pace(1_000_000)
        sender = Replies("g", proxy.through(amqp_url), "g/m", heartbeat_s=5)
        replies = [reply_to(name, size) for size in (2_000_000, 1, 2_000_000)]
        for reply in replies:
            sender.send(reply)
        assert [it.sent.result(20) for it in replies] == [True] * 3
        assert it.queue_delete(name).method.message_count == len(replies)  # none was sent again
        sender.close()


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
    assert looked.result(20)
    sender.close()


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
    assert sender.send(reply_to(name)).result(20)
    with Leader(private_rabbitmq, name).silent():
        with pytest.raises(PublishFailed):
            sender.send(reply_to(name)).result(20)
        later = [reply_to(name) for _ in range(3)]
        for reply in later:
            sender.send(reply)
        monkeypatch.setattr(reply_channel, "PATIENCE_S", 20.0)
        sender._connection.submit(lambda: 1 / 0)  # what is under way and what waits outlives a lost connection, too
    assert [it.sent.result(20) for it in later] == [True] * 3
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
        sender.send(reply_to("answers")).result(20)
    monkeypatch.setattr(sender._connection, "connect", connect)
    assert sender.send(reply_to("answers")).result(20)
    sender._make_connection()
    assert sender.send(reply_to("answers")).result(20)
    sender.close()


def reply_to(queue: str, size: int = 4) -> Reply:
    return Reply.make(BasicProperties(reply_to=queue, correlation_id="c"), bytes(size), None, None)


async def test_a_reply_with_a_header_that_a_stream_does_not_take_is_refused_for_good(here: Place, replies: str) -> None:
    """RabbitMQ 3 closes the connection over it. It is not sent again, the others are answered, each request is handled once."""
    seen: list[bytes] = []
    stream = unique("stream")

    async def handle(delivery: Delivery) -> None:
        seen.append(delivery.body)
        delivery.reply(delivery.body, {"price": Decimal("1.5")} if delivery.properties.reply_to == stream else None)

    with new_topic(here.amqp_url) as topic:
        with channel(here.amqp_url) as it:
            it.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
        ask(here, topic, stream, "1")
        ask(here, topic, replies, "2", "3", "4")
        async with here.member(topic, handle, retries=Retries(2, first_ms=5), on_error="dead_letter"):
            await until(lambda: read_dead_letters(here.amqp_url, topic.name))
            await until(lambda: arrived(here.amqp_url, replies) == 3)
        await until_worked(here, topic)
        (letter,) = read_dead_letters(here.amqp_url, topic.name)
        with channel(here.amqp_url) as it:
            it.queue_delete(stream)
    assert seen == [b"1", b"2", b"3", b"4"]
    assert (letter.message_id, letter.failures) == ("m-1", 1)
    assert "541" in str(letter.error)
    assert here.journal("abandoned") == []
