"""Requests and their replies: ``delivery.reply``."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pika
import pytest
from pika.spec import BasicProperties
from tests.consumers import Place, channel, new_topic, place, until
from tests.names import unique
from tests.rabbitmq.partition.replying import SOON, answers, arrived, ask, until_worked

from cobalance.errors import UsageError
from cobalance.rabbitmq import Delivery, Publisher, Topic, create_topic
from cobalance.rabbitmq.model.batches import Batch
from cobalance.rabbitmq.model.stream_settings import StreamSettings
from cobalance.rabbitmq.topics.broker import ready_messages
from cobalance.rabbitmq.wire.address import single_urls
from cobalance.settings import MemberSettings

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


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
            assert member.partitions.link.replies._connection.is_open
        assert it.queue_declare(topic.queue_names[0], passive=True).method.message_count == 0


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
