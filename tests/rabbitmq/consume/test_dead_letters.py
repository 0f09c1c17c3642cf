"""Dead letters: the reason in their headers and in the log, and listing, replaying and dropping them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pika.spec import BasicProperties
from tests.cli_process import cobalance
from tests.consumers import Place, Seen, bodies_in, channel, new_topic, until
from tests.names import unique

from cobalance.rabbitmq import Delivery, Topic, grow_topic, read_dead_letters, replay_dead_letters
from cobalance.rabbitmq.model.retries import Retries
from cobalance.rabbitmq.topics.broker import ready_messages

pytestmark = pytest.mark.anyio

ONCE = Retries(1, first_ms=5)
OPTIONS: dict[str, Any] = {"retries": ONCE, "on_error": "dead_letter"}


@pytest.fixture(params=["classic", "quorum"])
def topic(request: pytest.FixtureRequest, amqp_url: str) -> Iterator[Topic]:
    """Two partitions, for each kind of queue that dead-letters."""
    with new_topic(amqp_url, 2, request.param) as it:
        yield it


async def refuse(delivery: Delivery) -> None:
    if delivery.body == b"wrong":
        raise ValueError("no customer of that name")


async def given_up(here: Place, topic: Topic, handle: Any = refuse, **options: Any) -> None:
    """Publishes a message that the handler gives up on."""
    properties = BasicProperties(
        message_id="m1", headers={"tenant": "acme"}, content_type="text/plain", delivery_mode=2
    )
    with channel(here.amqp_url) as it:
        it.basic_publish(topic.name, topic.routing_key(1), b"wrong", properties, mandatory=True)
    async with here.member(topic, handle, **(OPTIONS | options)):
        await until(lambda: ready_messages(here.amqp_url, [f"{topic.name}.dead"])[f"{topic.name}.dead"])


async def test_a_dead_letter_says_what_was_wrong(here: Place, topic: Topic) -> None:
    """Its headers name the group, the error and the number of failures; the message's own properties are unchanged."""
    await given_up(here, topic)
    (letter,) = read_dead_letters(here.amqp_url, topic.name)
    assert letter.message_id == "m1"
    assert letter.queue == topic.queue_names[1]
    assert letter.error == "ValueError: no customer of that name"
    assert (letter.group, letter.failures, letter.size) == (here.group, 2, 5)
    with channel(here.amqp_url) as it:
        _, properties, _ = it.basic_get(f"{topic.name}.dead")
    assert properties is not None
    assert properties.content_type == "text/plain"
    assert properties.headers is not None
    assert properties.headers["tenant"] == "acme"


async def test_a_replayed_message_is_processed_as_it_was_published(here: Place, topic: Topic) -> None:
    """It comes from its original queue, with its own headers and without those about its death."""
    await given_up(here, topic)
    seen: list[Delivery] = []

    async def handle(delivery: Delivery) -> None:
        seen.append(delivery)

    (replayed,) = replay_dead_letters(here.amqp_url, topic.name)
    assert replayed.message_id == "m1"
    async with here.member(topic, handle):
        await until(lambda: seen)
    assert (seen[0].queue, seen[0].body) == (topic.queue_names[1], b"wrong")
    assert (seen[0].exchange, seen[0].routing_key) == (topic.name, topic.routing_key(1))
    assert dict(seen[0].headers) == {
        "tenant": "acme",
        "x-cobalance-exchange": topic.name,
        "x-cobalance-routing-key": topic.routing_key(1),
    }
    assert read_dead_letters(here.amqp_url, topic.name) == []


async def test_a_message_that_is_replayed_twice_is_still_the_one_that_was_published(here: Place, topic: Topic) -> None:
    """First its handler gives it up, then RabbitMQ, whose headers name the queue that it was sent back to."""
    await given_up(here, topic)
    replay_dead_letters(here.amqp_url, topic.name)
    with channel(here.amqp_url) as it:
        method: Any = next(it.consume(topic.queue_names[1]))[0]
        it.basic_reject(method.delivery_tag, requeue=False)
    await until(lambda: read_dead_letters(here.amqp_url, topic.name))
    (letter,) = read_dead_letters(here.amqp_url, topic.name)
    assert (letter.queue, letter.exchange, letter.routing_key) == (
        topic.queue_names[1],
        topic.name,
        topic.routing_key(1),
    )


async def test_a_replayed_message_goes_to_nobody_but_its_own_queue(here: Place, topic: Topic) -> None:
    """It is not published again to whatever else is bound to its exchange."""
    await given_up(here, topic)
    with channel(here.amqp_url) as it:
        other = str(it.queue_declare("", exclusive=True).method.queue)
        it.queue_bind(other, topic.name, topic.routing_key(1))
        replay_dead_letters(here.amqp_url, topic.name)
        assert it.queue_declare(other, passive=True).method.message_count == 0
    assert ready_messages(here.amqp_url, [topic.queue_names[1]]) == {topic.queue_names[1]: 1}


async def test_a_message_of_a_topic_that_has_grown_is_replayed_to_where_it_is_consumed(
    here: Place, topic: Topic
) -> None:
    """Its own queue is drained, and nobody consumes it any more, or it is pruned."""
    await given_up(here, topic)
    grown = grow_topic(here.amqp_url, topic.name, 3)
    replay_dead_letters(here.amqp_url, topic.name)
    assert ready_messages(here.amqp_url, [*topic.queue_names, *grown.queue_names]) == {
        **dict.fromkeys([*topic.queue_names, *grown.queue_names], 0),
        grown.queue_names[1]: 1,
    }
    seen: list[Delivery] = []

    async def handle(delivery: Delivery) -> None:
        seen.append(delivery)

    async with here.member(topic, handle):
        await until(lambda: seen)
    assert (seen[0].queue, seen[0].routing_key) == (grown.queue_names[1], topic.routing_key(1))


async def test_what_cannot_be_sent_back_stays_a_dead_letter(here: Place, topic: Topic) -> None:
    """Its queue may be gone: nothing is acknowledged before RabbitMQ has confirmed it."""
    await given_up(here, topic)
    with channel(here.amqp_url) as it:
        it.queue_delete(topic.queue_names[1])
    outcome = cobalance("deadletters", topic.name, "replay", environment={"COBALANCE_AMQP_URL": here.amqp_url})
    assert outcome.code == 1
    assert f"no queue takes routing key '{topic.queue_names[1]}'" in outcome.err
    assert [it.message_id for it in read_dead_letters(here.amqp_url, topic.name)] == ["m1"]


async def test_looking_is_harmless(here: Place, topic: Topic) -> None:
    """Listing often drops nothing, though a quorum queue counts and may limit deliveries without an ack."""
    await given_up(here, topic)
    for _ in range(25):
        assert len(read_dead_letters(here.amqp_url, topic.name)) == 1
    with channel(here.amqp_url) as it:
        _, properties, _ = it.basic_get(f"{topic.name}.dead")
    assert properties is not None
    assert (properties.headers or {}).get("x-delivery-count", 0) <= 11


async def test_what_rabbitmq_moved_by_itself_can_be_replayed_too(here: Place, topic: Topic) -> None:
    """Its headers are then RabbitMQ's."""
    here.publish(topic, "x", partition=1)
    with channel(here.amqp_url) as it:
        method: Any = next(it.consume(topic.queue_names[1]))[0]
        it.basic_reject(method.delivery_tag, requeue=False)
    await until(lambda: ready_messages(here.amqp_url, [f"{topic.name}.dead"])[f"{topic.name}.dead"])
    (letter,) = read_dead_letters(here.amqp_url, topic.name)
    assert (letter.queue, letter.error) == (topic.queue_names[1], "rejected")
    replay_dead_letters(here.amqp_url, topic.name, "mx")
    assert ready_messages(here.amqp_url, [topic.queue_names[1]]) == {topic.queue_names[1]: 1}


async def test_the_command_lists_replays_and_drops(here: Place, topic: Topic) -> None:
    """The command asks before it deletes anything, and names the ids that it did not find."""
    env = {"COBALANCE_AMQP_URL": here.amqp_url}
    await given_up(here, topic)
    listed = cobalance("deadletters", topic.name, environment=env)
    assert listed.code == 0
    assert "ValueError: no customer of that name" in listed.out
    assert topic.queue_names[1] in listed.out
    assert "wrong" not in listed.out
    as_json = json.loads(cobalance("deadletters", topic.name, "list", "--json", environment=env).out)
    assert [it["message_id"] for it in as_json] == ["m1"]
    assert cobalance("deadletters", topic.name, "drop", environment=env).code == 2
    missing = cobalance("deadletters", topic.name, "replay", "m2", environment=env)
    assert missing.code == 1
    assert "m2" in missing.err
    assert cobalance("deadletters", topic.name, "drop", "m1", environment=env).code == 0
    assert read_dead_letters(here.amqp_url, topic.name) == []
    assert cobalance("deadletters", topic.name, "drop", "--yes", environment=env).code == 0
    assert cobalance("deadletters", "nothing", environment=env).code == 1


async def test_the_log_says_what_was_wrong(here: Place, caplog: pytest.LogCaptureFixture) -> None:
    """The traceback is logged at the first failure and at the last."""
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, "wrong")
        with caplog.at_level(logging.WARNING):
            async with here.member(topic, refuse, **OPTIONS):
                await until(lambda: ready_messages(here.amqp_url, [f"{topic.name}.dead"])[f"{topic.name}.dead"])
    levels = [it.levelname for it in caplog.records if "ValueError: no customer of that name" in it.getMessage()]
    assert levels == ["WARNING", "ERROR"]
    assert 'raise ValueError("no customer of that name")' in caplog.text


async def test_who_is_careful_has_the_type_only(here: Place, caplog: pytest.LogCaptureFixture) -> None:
    """With ``log_exceptions=False`` only the type is logged: exception texts may quote a message."""
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, "wrong")
        with caplog.at_level(logging.WARNING):
            async with here.member(topic, refuse, log_exceptions=False, **OPTIONS):
                await until(lambda: ready_messages(here.amqp_url, [f"{topic.name}.dead"])[f"{topic.name}.dead"])
    assert "ValueError" in caplog.text
    assert "no customer" not in caplog.text


@pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "async"])
async def test_on_failure_is_called_after_each_failure(here: Place, is_plain: bool) -> None:
    """It gets the message and the handler's exception; an error of its own is logged and changes nothing."""
    reported: list[tuple[str, str]] = []

    def tell(delivery: Delivery, error: Exception) -> None:
        reported.append((delivery.body.decode(), str(error)))
        raise RuntimeError("the pager is off")

    async def tell_async(delivery: Delivery, error: Exception) -> None:
        tell(delivery, error)

    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        seen.note(delivery)
        await refuse(delivery)

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, "wrong", "good")
        on_failure: Any = tell if is_plain else tell_async
        async with here.member(topic, handle, on_failure=on_failure, **OPTIONS):
            assert await seen.wait(3) == ["wrong", "wrong", "good"]
    assert reported == [("wrong", "no customer of that name")] * 2


@pytest.mark.parametrize("target", ["no exchange", "no queue"])
async def test_a_dead_letter_target_that_is_not_there_loses_nothing(
    here: Place, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    """RabbitMQ would drop the message; it stays, its partition waits, and the log names what is missing."""
    name = unique("dead-end")
    arguments = {
        "x-dead-letter-exchange": "" if target == "no queue" else name,
        "x-dead-letter-routing-key": f"{name}.dead",
    }
    with channel(here.amqp_url) as it:
        it.queue_declare(name, durable=True, arguments=arguments)
    here.publish(name, "wrong", "good")
    async with here.member([name], refuse, **OPTIONS):
        await until(lambda: here.journal("abandoned"))
    assert bodies_in(here.amqp_url, name) == ["wrong", "good"]
    assert "cannot be dead-lettered, and RabbitMQ might drop it" in caplog.text
    with channel(here.amqp_url) as it:
        it.queue_delete(name)


def test_the_help_says_what_replaying_does() -> None:
    outcome = cobalance("deadletters", "--help", environment={})
    assert "goes to the end of its queue" in " ".join(outcome.out.split())
