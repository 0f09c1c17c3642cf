"""Replies that RabbitMQ refuses, or nobody waits for, and what becomes of their requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, cast

import anyio
import pytest
from pika.spec import BasicProperties
from tests.consumers import SETTINGS, Place, channel, new_topic, until
from tests.names import unique
from tests.rabbitmq.partition.replying import SOON, Answering, answers, arrived, ask, reply_to, until_worked

from cobalance import servers
from cobalance.errors import PublishFailed, UsageError
from cobalance.rabbitmq import Delivery, read_dead_letters
from cobalance.rabbitmq.model.batches import Batch
from cobalance.rabbitmq.model.retries import Retries
from cobalance.rabbitmq.model.stream_settings import StreamSettings
from cobalance.rabbitmq.partition.replies import Replies
from cobalance.rabbitmq.topics.broker import ready_messages
from cobalance.settings import MemberSettings

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


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
    it, patient = Answering(), Retries(1_000, first_ms=5, last_ms=50)  # room is made beside the retries
    begun, made = threading.Event(), threading.Event()

    def make_room(*_: object) -> None:
        """Once: it may have been refused again in the meantime, and the next time its reply is there."""
        if not begun.is_set():
            begun.set()
            with channel(here.amqp_url) as other:
                other.queue_purge(full)
            made.set()

    with new_topic(here.amqp_url) as topic:
        ask(here, topic, full, "1")
        async with here.member(topic, it.handle, retries=patient, on_failure=make_room):
            await until(made.is_set)  # to look for answers takes what fills the queue
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
        with pytest.raises(PublishFailed, match="refused the reply"), anyio.fail_after(60):
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


@pytest.mark.parametrize(
    "to", ["amq.rabbitmq.reply-to.garbage.key", b"amq.rabbitmq.reply-to.\xff", b"r\xe9ponses"], ids=repr
)
async def test_an_address_where_nobody_waits_holds_up_nobody(here: Place, replies: str, to: Any) -> None:
    """RabbitMQ 3 closes the connection for replies over a malformed direct reply-to; and any publisher may write what
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


@pytest.mark.parametrize("fails_in", ["asking", "encoding"])
def test_a_reply_that_cannot_be_sent_fails_alone(amqp_url: str, replies: str, fails_in: str) -> None:
    """Whatever the reason: nobody waits for ever, and the connection is not lost over it."""
    lost: list[str] = []
    sender = Replies("g", amqp_url, "g/m", heartbeat_s=5)
    assert sender.send(reply_to(replies)).result(60)
    sender._connection._on_lost = lost.append
    guilty, others = reply_to(replies), [reply_to(replies) for _ in range(4)]
    if fails_in == "asking":
        guilty.wanted = lambda: bool(1 / 0)
    else:
        guilty.properties = cast("Any", BasicProperties(headers={"x": object()}))
    for reply in [*others[:2], guilty, *others[2:]]:
        sender.send(reply)
    with pytest.raises(PublishFailed, match="cannot be sent"):
        guilty.sent.result(60)
    assert [it.sent.result(60) for it in others] == [True] * 4
    assert guilty.is_refused
    assert lost == []
    sender.close()


@pytest.mark.thorough
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
