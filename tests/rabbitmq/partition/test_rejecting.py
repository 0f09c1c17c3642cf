"""A missing dead-letter target: messages stay in their queue, whichever way they are given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from tests.consumers import SETTINGS, WITHIN_S, Place, Seen, bodies_in, channel, new_topic, until
from tests.names import unique

from cobalance.errors import UsageError
from cobalance.rabbitmq import Delivery, create_topic, read_dead_letters
from cobalance.rabbitmq.dropin.connection import GroupConnection
from cobalance.rabbitmq.topics.broker import ready_messages
from cobalance.settings import MemberSettings

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

OWN = MemberSettings(max_processing_ms=200, drain_timeout_ms=1_000)


@pytest.fixture(params=["no exchange", "no queue", "no binding"])
def dead_end(request: pytest.FixtureRequest, amqp_url: str) -> Iterator[str]:
    """A queue whose dead letters would go nowhere."""
    name = unique("dead-end")
    target = "" if request.param == "no queue" else name
    arguments = {"x-dead-letter-exchange": target, "x-dead-letter-routing-key": f"{name}.dead"}
    with channel(amqp_url) as it:
        if request.param == "no binding":
            it.exchange_declare(name)
        it.queue_declare(name, durable=True, arguments=arguments)
        yield name
        it.queue_delete(name)
        it.exchange_delete(name)


class Rejecting:
    """A handler with manual acks that rejects bad messages."""

    def __init__(self) -> None:
        self.seen = Seen()
        self.member: Any = None

    async def handle(self, delivery: Delivery) -> None:
        if self.seen.note(delivery) == "bad":
            self.member.reject(delivery)
        else:
            self.member.ack(delivery)


async def test_a_message_that_is_rejected_by_hand_stays_where_its_target_is_not_there(
    here: Place, dead_end: str, caplog: pytest.LogCaptureFixture
) -> None:
    """RabbitMQ would drop it.

    Its partition waits with it in front, and on_failure is called. Messages acknowledged behind it are done.
    """
    reported: list[tuple[str, str]] = []
    rejecting = Rejecting()
    here.publish(dead_end, 1, "bad", 2)
    options: Any = {"ack": "manual", "on_failure": lambda it, error: reported.append((it.body.decode(), str(error)))}
    async with here.member([dead_end], rejecting.handle, **options) as rejecting.member:
        await until(lambda: here.journal("abandoned"))
    assert bodies_in(here.amqp_url, dead_end) == ["bad"]
    assert "cannot be dead-lettered" in caplog.text
    assert reported[0][0] == "bad"
    assert here.journal("abandoned")[0].reason == "failed:PublishFailed"


async def test_it_is_dead_lettered_as_soon_as_its_target_is_there(here: Place) -> None:
    """A topic's dead-letter queue was deleted and comes back: nothing is lost, no acked message redelivered."""
    rejecting = Rejecting()
    with new_topic(here.amqp_url) as topic:
        with channel(here.amqp_url) as it:
            it.queue_delete(f"{topic.name}.dead")
        here.publish(topic, "bad", 2)
        async with here.member(topic, rejecting.handle, ack="manual") as rejecting.member:
            await until(lambda: here.resources()[topic.queue_names[0]].paused_until_ms)
            create_topic(here.amqp_url, topic)
            here.coordinator.resume(topic.queue_names[0])
            await until(lambda: read_dead_letters(here.amqp_url, topic.name))
            here.publish(topic, 3)
            await until(lambda: rejecting.seen.bodies[-1] == "3")
        assert rejecting.seen.bodies.count("2") == 1
        assert [it.message_id for it in read_dead_letters(here.amqp_url, topic.name)] == ["mbad"]
        assert ready_messages(here.amqp_url, topic.queue_names) == {topic.queue_names[0]: 0}


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
async def test_many_rejected_at_once_are_dead_letters_in_their_order(here: Place, queue_type: str) -> None:
    """Each once, acknowledged when RabbitMQ has confirmed it, and before the partition moves to another member."""
    held: list[Delivery] = []

    async def hold(delivery: Delivery) -> None:
        held.append(delivery)

    with new_topic(here.amqp_url, 1, queue_type) as topic:
        here.publish(topic, *range(100))
        async with here.member(topic, hold, ack="manual") as member:
            await until(lambda: len(held) == 100)
            for delivery in held:
                member.reject(delivery)
            with pytest.raises(UsageError, match="once"):
                member.reject(held[0])
            with pytest.raises(UsageError, match="once"):
                member.ack(held[1])
        assert ready_messages(here.amqp_url, topic.queue_names) == {topic.queue_names[0]: 0}
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == [str(it) for it in range(100)]


async def test_a_queue_without_a_target_refuses_to_have_its_messages_rejected(here: Place) -> None:
    """They would be lost. The call raises, and the message can still be acknowledged."""
    refused: list[str] = []

    async def handle(delivery: Delivery) -> None:
        try:
            members[0].reject(delivery)
        except UsageError as error:
            refused.append(str(error))

    members: list[Any] = []
    with new_topic(here.amqp_url, dead_letter=False) as topic:
        here.publish(topic, 1)
        async with here.member(topic, handle, ack="manual", member=OWN) as member:
            members.append(member)
            await until(lambda: refused)
        assert "no dead-letter target" in refused[0]
        assert bodies_in(here.amqp_url, topic.queue_names[0]) == ["1"]


async def test_a_message_that_a_thread_never_finishes_stays_where_its_target_is_not_there(
    here: Place, dead_end: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its member was asked to stop and gives it up, but does not drop it."""
    go_on = threading.Event()

    def handle(_: Delivery) -> None:
        if go_on.is_set():
            raise RuntimeError("handed out again before the member has left")
        go_on.wait()

    here.publish(dead_end, 1, 2)
    options: Any = {"member": OWN, "on_error": "dead_letter", "retries": 9}
    try:
        async with here.member([dead_end], handle, **options):
            await until(lambda: here.journal("abandoned"))
            go_on.set()
    finally:
        go_on.set()
    assert bodies_in(here.amqp_url, dead_end) == ["1", "2"]
    assert "cannot be dead-lettered" in caplog.text


@pytest.mark.parametrize("refuse", ["basic_nack", "basic_reject"])
@pytest.mark.parametrize("dead_end", ["no exchange", "no queue"], indirect=True)  # bindings cannot be queried
def test_a_program_of_pika_s_keeps_what_it_rejects(here: Place, dead_end: str, refuse: str) -> None:
    """The message is handled again, like one that is requeued."""
    seen: list[str] = []

    def on_message(it: Any, method: Any, _: Any, body: bytes) -> None:
        seen.append(body.decode())
        if body == b"bad":
            getattr(it, refuse)(method.delivery_tag, requeue=False)

    here.publish(dead_end, "bad", 2)
    connection = GroupConnection(
        pika.URLParameters(here.amqp_url), group=here.group, redis_url=here.redis_url, settings=SETTINGS
    )
    with connection:
        connection.channel().basic_consume(dead_end, on_message)
        give_up_at = time.monotonic() + WITHIN_S
        while len(seen) < 2 and time.monotonic() < give_up_at:
            connection.process_data_events(time_limit=0.05)
    assert seen == ["bad", "bad"]
    assert bodies_in(here.amqp_url, dead_end) == ["bad", "2"]
