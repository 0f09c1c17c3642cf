"""Dead letters that are sent back: where they go, and as what."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from pika.spec import BasicProperties
from tests.cli_process import cobalance
from tests.consumers import Place, channel, new_topic, until
from tests.names import unique
from tests.rabbitmq.consume.test_dead_letters import OPTIONS, given_up, refuse
from tests.rabbitmq.wire.test_containment import publish_unreadable

from cobalance.errors import UsageError
from cobalance.rabbitmq import (
    Delivery,
    Topic,
    grow_topic,
    read_dead_letters,
    replay_dead_letters,
)
from cobalance.rabbitmq.consume.dead_letters import DeadLetter
from cobalance.rabbitmq.model.encoding import Encoded
from cobalance.rabbitmq.topics.admin import connected
from cobalance.rabbitmq.topics.broker import ready_messages
from cobalance.rabbitmq.wire.header_table import HEADERS, entries, put_together, table_of, taken_apart
from cobalance.rabbitmq.wire.pika_internals import Received

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


@pytest.fixture(params=["classic", pytest.param("quorum", marks=pytest.mark.thorough)])
def topic(request: pytest.FixtureRequest, amqp_url: str) -> Iterator[Topic]:
    """Two partitions, for each kind of queue that dead-letters."""
    with new_topic(amqp_url, 2, request.param) as it:
        yield it


async def test_a_replayed_message_is_processed_as_it_was_published(here: Place, topic: Topic) -> None:
    """It comes from its original queue, with its own headers and without those about its death."""
    await given_up(here, topic)
    seen: list[Delivery] = []

    async def handle(delivery: Delivery) -> None:
        seen.append(delivery)

    (replayed,) = replay_dead_letters(here.amqp_url, topic.name, everything=True)
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
    replay_dead_letters(here.amqp_url, topic.name, everything=True)
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
        replay_dead_letters(here.amqp_url, topic.name, everything=True)
        assert it.queue_declare(other, passive=True).method.message_count == 0
    assert ready_messages(here.amqp_url, [topic.queue_names[1]]) == {topic.queue_names[1]: 1}


async def test_a_message_of_a_topic_that_has_grown_is_replayed_to_where_it_is_consumed(
    here: Place, topic: Topic
) -> None:
    """Its own queue is drained, and nobody consumes it any more, or it is pruned."""
    await given_up(here, topic)
    grown = grow_topic(here.amqp_url, topic.name, 3)
    replay_dead_letters(here.amqp_url, topic.name, everything=True)
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


def first_in(amqp_url: str, queue: str, count: int) -> list[str]:
    """Consumes that many messages of a queue."""
    with channel(amqp_url) as it:
        arriving: Any = it.consume(queue, auto_ack=True)
        return [body.decode() for _, (_, _, body) in zip(range(count), arriving, strict=False)]


async def test_looking_keeps_the_order_in_which_they_are_replayed(here: Place, topic: Topic) -> None:
    """A quorum queue shuffles what more than 32 consumers return, and each basic.get counts as one."""
    died_in = BasicProperties(headers={"x-cobalance-queue": topic.queue_names[1]}, delivery_mode=2)
    with channel(here.amqp_url) as it:
        for number in range(60):
            it.basic_publish("", f"{topic.name}.dead", str(number).encode(), died_in, mandatory=True)
    for most in (100, 40):
        assert len(read_dead_letters(here.amqp_url, topic.name, most=most)) == min(60, most)
        await until(lambda: ready_messages(here.amqp_url, [f"{topic.name}.dead"])[f"{topic.name}.dead"] == 60)
    assert len(replay_dead_letters(here.amqp_url, topic.name, everything=True)) == 60
    assert first_in(here.amqp_url, topic.queue_names[1], 60) == [str(number) for number in range(60)]


async def test_one_that_cannot_be_read_stays_and_the_others_are_replayed(
    here: Place, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    """The group that took it out of a partition, to which it would not go back, finds it in the listing, and can drop it."""
    env, dead = {"COBALANCE_AMQP_URL": here.amqp_url}, f"{topic.name}.dead"
    await given_up(here, topic)
    publish_unreadable(here.amqp_url, dead)
    with channel(here.amqp_url) as it:
        it.basic_publish("", dead, b"behind", BasicProperties(headers={"x-cobalance-queue": topic.queue_names[1]}))
    assert len(read_dead_letters(here.amqp_url, topic.name)) == 3
    replayed = cobalance("deadletters", topic.name, "replay", environment=env)
    assert replayed.code == 0
    assert "replayed 2 messages" in replayed.err
    assert "a dead letter of 10 bytes stays: its headers cannot be read (ValueError)" in caplog.text
    assert first_in(here.amqp_url, topic.queue_names[1], 2) == ["wrong", "behind"]
    (left,) = read_dead_letters(here.amqp_url, topic.name)
    assert (left.message_id, left.error) == (None, "its headers cannot be read (ValueError)")
    dropped = cobalance("deadletters", topic.name, "drop", "--yes", environment=env)
    assert (dropped.code, "dropped 1 message\n" in dropped.err) == (0, True)
    assert read_dead_letters(here.amqp_url, topic.name) == []


ODD = {
    b"price": b"d" + struct.pack(">d", 9.99),
    b"large": b"d" + struct.pack(">d", 1e20),
    b"small": b"f" + struct.pack(">f", 0.5),
    b"\xff": b"S" + struct.pack(">I", 2) + b"\xff\xfe",
}


async def test_headers_of_other_clients_are_replayed_as_they_are(here: Place, topic: Topic) -> None:
    """Also when the message has been dead-lettered by a group, and was listed often."""
    with channel(here.amqp_url) as it:
        odd = Encoded(put_together({HEADERS: table_of(ODD)}))
        it.basic_publish(topic.name, topic.routing_key(1), b"wrong", odd, mandatory=True)
    async with here.member(topic, refuse, **OPTIONS):
        await until(lambda: ready_messages(here.amqp_url, [f"{topic.name}.dead"])[f"{topic.name}.dead"])
    for _ in range(12):
        assert len(read_dead_letters(here.amqp_url, topic.name)) == 1
    assert len(replay_dead_letters(here.amqp_url, topic.name, everything=True)) == 1
    with connected(here.amqp_url) as admin, admin.channel(topic.name) as it:
        _, properties, _ = next(it.consume(topic.queue_names[1]))
    assert isinstance(properties, Received)
    headers = entries(taken_apart(properties.encoded)[HEADERS])
    assert {name: headers.get(name) for name in ODD} == ODD


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


@pytest.mark.parametrize("has_died", [True, False], ids=["RabbitMQ has moved it", "a stranger has put it there"])
async def test_a_publisher_has_no_say_in_where_a_replay_goes(here: Place, topic: Topic, has_died: bool) -> None:
    """Its rights may end at the topic, while the operator's do not."""
    with new_topic(here.amqp_url) as payroll, channel(here.amqp_url) as it:
        made_up = BasicProperties(message_id="m1", headers={"x-cobalance-queue": payroll.queue_names[0]})
        if has_died:
            it.basic_publish(topic.name, topic.routing_key(1), b"pay mallory", made_up, mandatory=True)
            method: Any = next(it.consume(topic.queue_names[1]))[0]
            it.basic_reject(method.delivery_tag, requeue=False)
            it.cancel()
        else:
            it.basic_publish("", f"{topic.name}.dead", b"pay mallory", made_up, mandatory=True)
        await until(lambda: ready_messages(here.amqp_url, [f"{topic.name}.dead"])[f"{topic.name}.dead"])
        if has_died:
            replay_dead_letters(here.amqp_url, topic.name, everything=True)
        else:
            with pytest.raises(UsageError, match="has its dead letters elsewhere"):
                replay_dead_letters(here.amqp_url, topic.name, everything=True)
        assert ready_messages(here.amqp_url, [payroll.queue_names[0], topic.queue_names[1]]) == {
            payroll.queue_names[0]: 0,
            topic.queue_names[1]: int(has_died),
        }


async def test_a_dead_letter_goes_back_to_where_it_died_whatever_its_publisher_wrote(here: Place, topic: Topic) -> None:
    """The listing says the same."""
    own, other = topic.queue_names[1], topic.queue_names[0]
    death = {"queue": other, "reason": "rejected", "count": 2**63 - 1, "exchange": "", "routing-keys": ["k"]}
    claims = {"x-cobalance-queue": other, "x-death": [death, death | {"queue": own}]}
    with channel(here.amqp_url) as it:
        for name in ("rejected", "wrong"):
            properties = BasicProperties(message_id=name, headers=claims)
            it.basic_publish("", own, name.encode(), properties, mandatory=True)
            if name == "rejected":
                method: Any = next(it.consume(own))[0]
                it.basic_reject(method.delivery_tag, requeue=False)
                it.cancel()
    async with here.member(topic, refuse, **OPTIONS):
        await until(lambda: len(read_dead_letters(here.amqp_url, topic.name)) == 2)
    letters = read_dead_letters(here.amqp_url, topic.name)
    assert {it.message_id: it.queue for it in letters} == {"rejected": own, "wrong": own}
    replay_dead_letters(here.amqp_url, topic.name, everything=True)
    assert ready_messages(here.amqp_url, [own, other]) == {own: 2, other: 0}


def test_the_help_says_what_replaying_does() -> None:
    outcome = cobalance("deadletters", "--help", environment={})
    assert "goes to the end of its queue" in " ".join(outcome.out.split())


def died(*deaths: tuple[str, str]) -> str | None:
    """The queue that a dead letter of ``orders`` with these (reason, queue), the last first, goes back to."""
    headers = {"x-death": [{"reason": reason, "queue": name} for reason, name in deaths]}
    return DeadLetter.read("orders", BasicProperties(headers=headers), 0).queue


def test_a_queue_in_which_a_dead_letter_only_waited_is_not_its_own() -> None:
    """An operator had parked it, with a time to live; a partition's own time to live is another matter."""
    assert died(("expired", "parked"), ("rejected", "orders-3")) == "orders-3"
    assert died(("expired", "parked-1"), ("maxlen", "parked"), ("rejected", "orders.v2-3")) == "orders.v2-3"
    assert died(("expired", "parked"), ("rejected", "orders")) == "orders"
    assert died(("expired", "orders-3"), ("rejected", "legacy")) == "orders-3"
    assert died(("expired", "orders-3"), ("rejected", "orders-1")) == "orders-3"
    assert died(("rejected", "legacy"), ("rejected", "orders-3")) == "legacy"
    assert died(("expired", "parked")) == "parked"
    assert died() is None


def test_a_queue_of_another_topic_is_not_its_own() -> None:
    """The message was rejected there before, or its publisher says so, and has now expired here."""
    assert died(("expired", "legacy"), ("rejected", "victim")) == "legacy"
    assert died(("expired", "legacy"), ("rejected", "payroll-0")) == "legacy"
    assert died(("expired", "legacy"), ("rejected", "victim"), ("rejected", "orders-3")) == "legacy"


async def test_a_message_that_expired_goes_back_to_its_queue_whatever_its_publisher_wrote(here: Place) -> None:
    """RabbitMQ's own entry is the first of ``x-death``."""
    name, victim = unique("invoices"), unique("victim")
    to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.dead", "x-message-ttl": 1}
    with channel(here.amqp_url) as it:
        for queue in (victim, f"{name}.dead"):
            it.queue_declare(queue, durable=True)
        it.queue_declare(name, durable=True, arguments=to_dead)
        claim = {"x-death": [{"queue": victim, "reason": "rejected", "count": 1, "exchange": "", "routing-keys": []}]}
        it.basic_publish("", name, b"pay 1000", BasicProperties(headers=claim), mandatory=True)
        await until(lambda: ready_messages(here.amqp_url, [f"{name}.dead"])[f"{name}.dead"])
        (replayed,) = replay_dead_letters(here.amqp_url, name, everything=True)
        assert (replayed.queue, replayed.error) == (name, "expired")
        assert ready_messages(here.amqp_url, [victim]) == {victim: 0}
        for queue in (victim, name, f"{name}.dead"):
            it.queue_delete(queue)
