"""Dead letters: the reason in their headers and in the log, and listing, replaying and dropping them."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from pika.exchange_type import ExchangeType
from pika.spec import BasicProperties
from tests.cli_process import cobalance
from tests.consumers import WITHIN_S, Place, Seen, bodies_in, channel, new_topic, place, until
from tests.faults.rabbitmq_servers import Leader
from tests.names import unique
from tests.rabbitmq.wire.test_containment import publish_unreadable

from cobalance.errors import PublishFailed, TopicInUse, Unreachable, UsageError
from cobalance.rabbitmq import (
    Delivery,
    Topic,
    drop_dead_letters,
    grow_topic,
    read_dead_letters,
    replay_dead_letters,
)
from cobalance.rabbitmq.consume import dead_letter_sender
from cobalance.rabbitmq.consume.dead_letter_sender import DeadLetterSender, Reason
from cobalance.rabbitmq.consume.dead_letter_target import Target, required_target
from cobalance.rabbitmq.consume.dead_letters import Homes
from cobalance.rabbitmq.model.queues import Queue
from cobalance.rabbitmq.model.retries import Retries
from cobalance.rabbitmq.topics.admin import connected
from cobalance.rabbitmq.topics.broker import ready_messages
from cobalance.servers import OwnRabbitMQ

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

ONCE = Retries(1, first_ms=5)
OPTIONS: dict[str, Any] = {"retries": ONCE, "on_error": "dead_letter"}


@pytest.fixture(params=["classic", pytest.param("quorum", marks=pytest.mark.thorough)])
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


def publish_dead(amqp_url: str, topic: Topic, *ids: str) -> None:
    """Dead letters of the second partition."""
    with channel(amqp_url) as it:
        it.confirm_delivery()
        for name in ids:
            headers = {"x-cobalance-queue": topic.queue_names[1], "x-cobalance-error": "ValueError"}
            properties = BasicProperties(message_id=name, headers=headers, delivery_mode=2)
            it.basic_publish("", f"{topic.name}.dead", b"", properties, mandatory=True)


async def refuse_oddly(delivery: Delivery) -> None:
    """JSON may hold half a character, and so do names of files that are not UTF-8; here behind a lot of blanks."""
    name = json.loads('"\\ud800"')
    raise ValueError(f"unknown {delivery.body!r}: {name} {' ' * 100_000}{'a-' * 50_000}")


async def test_any_error_can_be_said_of_a_dead_letter(here: Place, topic: Topic) -> None:
    """Nothing that a message makes its handler say keeps it from the dead letters."""
    await given_up(here, topic, refuse_oddly)
    (letter,) = read_dead_letters(here.amqp_url, topic.name)
    assert letter.error.startswith("ValueError: unknown b'wrong': \\ud800")


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


async def test_names_that_are_not_utf_8_are_kept(here: Place, topic: Topic) -> None:
    """They are shown with a backslash; the replayed message has them as they were, also when it is given up again."""
    odd: Any = b"orders.caf\xe9"
    exchange, seen = unique("exchange"), list[Delivery]()

    def handle(delivery: Delivery) -> None:
        seen.append(delivery)
        if len(seen) == 1:
            raise ValueError

    with channel(here.amqp_url) as it:
        it.exchange_declare(exchange, ExchangeType("topic"))
        it.queue_bind(topic.queue_names[1], exchange, "orders.#")
        it.basic_publish(exchange, odd, b"x", mandatory=True)
        async with here.member(topic, handle, retries=0, on_error="dead_letter"):
            (letter,) = await until(lambda: read_dead_letters(here.amqp_url, topic.name))
            assert (letter.exchange, letter.routing_key) == (exchange, r"orders.caf\xe9")
            replay_dead_letters(here.amqp_url, topic.name, everything=True)
            await until(lambda: len(seen) == 2)
        it.exchange_delete(exchange)
    assert [(it.exchange, it.routing_key) for it in seen] == [(exchange, odd), (exchange, odd)]


async def test_a_dead_letter_is_sent_with_the_key_that_its_message_had(here: Place) -> None:
    """Also if it is not UTF-8: the bindings of the dead-letter exchange are for it."""
    queue, dead, exchange = unique("queue"), unique("dead"), unique("exchange")
    odd: Any = queue.encode() + b".caf\xe9"
    with channel(here.amqp_url) as it:
        it.exchange_declare(exchange, ExchangeType("topic"), auto_delete=True)
        it.queue_declare(dead)
        it.queue_bind(dead, exchange, f"{queue}.#")
        it.queue_declare(queue, durable=True, arguments={"x-dead-letter-exchange": exchange})
        it.queue_bind(queue, "amq.topic", f"{queue}.#")
        it.basic_publish("amq.topic", odd, b"wrong", mandatory=True)
        async with here.member([queue], refuse, retries=0, on_error="dead_letter"):
            await until(lambda: ready_messages(here.amqp_url, [dead])[dead])
        method, properties, _ = it.basic_get(dead, auto_ack=True)
        assert method is not None
        assert method.routing_key == odd
        assert properties is not None
        assert (properties.headers or {})["x-death"][0]["routing-keys"] == [odd]
        it.queue_delete(queue)
        it.queue_delete(dead)


async def test_looking_is_harmless(here: Place, topic: Topic) -> None:
    """Listing often drops nothing, though a quorum queue counts and may limit deliveries without an ack."""
    await given_up(here, topic)
    for _ in range(25):
        assert len(read_dead_letters(here.amqp_url, topic.name)) == 1
    with channel(here.amqp_url) as it:
        _, properties, _ = it.basic_get(f"{topic.name}.dead")
    assert properties is not None
    assert (properties.headers or {}).get("x-delivery-count", 0) <= 11


@contextmanager
def topic_with_delivery_limit(url: str) -> Iterator[Topic]:
    """RabbitMQ 4 gives every quorum queue a limit of 20; here the dead letters have it with any RabbitMQ."""
    with new_topic(url, queue_type="quorum") as topic, channel(url) as it:
        dead = f"{topic.name}.dead"
        it.queue_delete(dead)
        it.queue_declare(dead, durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 20})
        yield topic


@pytest.mark.parametrize("fails", [False, True], ids=["another id", "the first cannot be sent back"])
async def test_what_is_not_settled_outlives_a_delivery_limit(here: Place, fails: bool) -> None:
    """All keep their order, though some were also listed."""
    with topic_with_delivery_limit(here.amqp_url) as topic:
        dead = f"{topic.name}.dead"
        here.publish(dead, *range(4))
        for times in range(25):
            await until(lambda: ready_messages(here.amqp_url, [dead])[dead] == 4)
            if fails:
                with pytest.raises(UsageError, match="m0 does not say which queue"):
                    replay_dead_letters(here.amqp_url, topic.name, everything=True)
            elif times < 15:
                read_dead_letters(here.amqp_url, topic.name, most=2)
            else:
                assert replay_dead_letters(here.amqp_url, topic.name, "m9") == []
        await until(lambda: ready_messages(here.amqp_url, [dead])[dead] == 4)
        assert bodies_in(here.amqp_url, dead) == ["0", "1", "2", "3"]


async def test_what_cannot_be_read_outlives_a_delivery_limit(here: Place) -> None:
    """Its deliveries are counted, and it is published again, without decoding it."""
    with topic_with_delivery_limit(here.amqp_url) as topic:
        dead = f"{topic.name}.dead"
        publish_unreadable(here.amqp_url, dead)
        for _ in range(25):
            await until(lambda: ready_messages(here.amqp_url, [dead])[dead] == 1)
            (letter,) = read_dead_letters(here.amqp_url, topic.name)
            assert letter.error == "its headers cannot be read (ValueError)"


@pytest.mark.thorough
def test_who_may_not_publish_cannot_look_at_what_that_would_delete(private_rabbitmq: OwnRabbitMQ) -> None:
    """The error says which permission is missing."""
    url = private_rabbitmq.url
    private_rabbitmq.control("add_user", "reader", "reader")
    private_rabbitmq.control("set_permissions", "reader", "", "", ".*")
    with place(url) as here, topic_with_delivery_limit(url) as topic:
        here.publish(f"{topic.name}.dead", "x")
        for _ in range(25):
            with pytest.raises(PublishFailed, match=r"Nothing was taken out .* permission to write"):
                read_dead_letters(url.replace("guest:guest", "reader:reader"), topic.name)
        assert bodies_in(url, f"{topic.name}.dead") == ["x"]
    private_rabbitmq.control("delete_user", "reader")


@pytest.mark.thorough
def test_an_alarm_keeps_dead_letters_from_being_looked_at(private_rabbitmq: OwnRabbitMQ) -> None:
    """They could not be published again, so that each look would bring RabbitMQ closer to deleting them."""
    with place(private_rabbitmq.url) as here, topic_with_delivery_limit(private_rabbitmq.url) as topic:
        here.publish(f"{topic.name}.dead", "x")
        private_rabbitmq.control("set_vm_memory_high_watermark", "0.000001")
        try:
            with pytest.raises(PublishFailed, match="during an alarm"):
                read_dead_letters(here.amqp_url, topic.name)
        finally:
            private_rabbitmq.control("set_vm_memory_high_watermark", "0.4")
        with connected(here.amqp_url) as admin, admin.channel(topic.name) as it:
            _, properties, _ = it.basic_get(f"{topic.name}.dead")
        assert properties is not None
        assert (properties.headers or {}).get("x-delivery-count", 0) == 0


"""Headers of other clients: pika cannot write what it reads of these."""


@pytest.mark.parametrize(
    "headers",
    [
        {"x-death": "notalist"},
        {
            "x-death": [1],
            "x-cobalance-queue": 5,
            "x-cobalance-exchange": 5,
            "x-cobalance-routing-key": {"a": 1},
            "x-cobalance-failures": "many",
            "x-cobalance-error": ["e"],
            "x-cobalance-group": True,
            "x-cobalance-expiration": 5,
            "x-cobalance-user-id": [],
            "x-delivery-count": "many",
        },
        {
            "x-death": [{"queue": 5, "reason": 7, "routing-keys": "k", "time": "now", "exchange": True}],
            "x-cobalance-queue": "q" * 300,
            "x-cobalance-exchange": "e" * 300,
            "x-cobalance-routing-key": "k" * 300,
        },
    ],
    ids=["no list", "no mapping", "too long"],
)
async def test_headers_that_a_publisher_has_made_up_hinder_nobody(
    here: Place, topic: Topic, headers: dict[str, Any]
) -> None:
    """Anyone may set the headers by which RabbitMQ and we describe a death, to anything."""
    properties = BasicProperties(message_id="m1", headers=headers)
    with channel(here.amqp_url) as it:
        it.basic_publish(topic.name, topic.routing_key(1), b"wrong", properties, mandatory=True)
    async with here.member(topic, refuse, **OPTIONS):
        await until(lambda: ready_messages(here.amqp_url, [f"{topic.name}.dead"])[f"{topic.name}.dead"])
    (letter,) = read_dead_letters(here.amqp_url, topic.name)
    assert (letter.message_id, letter.queue, letter.group) == ("m1", topic.queue_names[1], here.group)
    assert (letter.exchange, letter.routing_key) == (topic.name, topic.routing_key(1))
    with channel(here.amqp_url) as it:  # a stranger's dead letter
        it.basic_publish("", f"{topic.name}.dead", b"strange", BasicProperties(message_id="m2", headers=headers))
    own, strange = read_dead_letters(here.amqp_url, topic.name)
    assert (own.message_id, strange.message_id) == ("m1", "m2")
    assert (strange.queue, strange.group, strange.failures, strange.died_at) == (None, None, None, None)
    assert strange.error == "unknown"
    assert cobalance("deadletters", topic.name, environment={"COBALANCE_AMQP_URL": here.amqp_url}).code == 0
    replay_dead_letters(here.amqp_url, topic.name, "m1")
    assert ready_messages(here.amqp_url, [topic.queue_names[1]]) == {topic.queue_names[1]: 1}


async def test_a_message_that_is_given_up_again_counts_as_when_rabbitmq_rejects_it(here: Place, topic: Topic) -> None:
    """Programs count the tries of a message that comes back from a retry queue by what ``x-death`` says."""
    earlier = [
        {"queue": "retry", "reason": "expired", "count": "made up"},  # RabbitMQ would lose the message by it
        {"queue": "retry", "reason": "expired", "count": 3},
        {"queue": topic.queue_names[1], "reason": "rejected", "count": 3},
    ]
    with channel(here.amqp_url) as it:
        properties = BasicProperties(headers={"x-death": earlier})
        it.basic_publish(topic.name, topic.routing_key(1), b"wrong", properties, mandatory=True)
    async with here.member(topic, refuse, **OPTIONS):
        await until(lambda: ready_messages(here.amqp_url, [f"{topic.name}.dead"])[f"{topic.name}.dead"])
    with channel(here.amqp_url) as it:
        _, found, _ = it.basic_get(f"{topic.name}.dead")
    assert found is not None
    assert found.headers is not None
    deaths = found.headers["x-death"]
    assert [(it["queue"], it["reason"], it["count"]) for it in deaths] == [
        (topic.queue_names[1], "rejected", 4),
        ("retry", "expired", 3),
    ]
    assert (deaths[0]["exchange"], deaths[0]["routing-keys"]) == (topic.name, [topic.routing_key(1)])


@pytest.mark.parametrize("by_exchange", [False, True], ids=["directly", "by an exchange"])
async def test_a_queue_that_is_no_partition_can_have_its_dead_letters_there(here: Place, by_exchange: bool) -> None:
    """They go back to it."""
    name = unique("legacy")
    exchange = unique("dead") if by_exchange else ""
    arguments = {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": f"{name}.dead"}
    with channel(here.amqp_url) as it:
        it.queue_declare(name, durable=True, arguments=arguments)
        it.queue_declare(f"{name}.dead", durable=True)
        if by_exchange:
            it.exchange_declare(exchange, "fanout", durable=True)  # type: ignore[arg-type]  # text will do
            it.queue_bind(f"{name}.dead", exchange)
    here.publish(name, "wrong")
    async with here.member([name], refuse, **OPTIONS):
        await until(lambda: ready_messages(here.amqp_url, [f"{name}.dead"])[f"{name}.dead"])
    replay_dead_letters(here.amqp_url, name, everything=True)
    assert bodies_in(here.amqp_url, name) == ["wrong"]
    with channel(here.amqp_url) as it:
        it.queue_delete(name)
        it.queue_delete(f"{name}.dead")
        if by_exchange:
            it.exchange_delete(exchange)


def test_a_topic_stays_as_it_is_while_its_dead_letters_are_replayed(
    amqp_url: str, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prune deletes queues that nothing is published to any more: a replay after a growth would send to them."""
    publish_dead(amqp_url, topic, "m1", "m2")
    find, found = Homes.find, list[str | None]()

    def find_alone(*arguments: Any) -> str | None:
        with connected(amqp_url) as other, pytest.raises(TopicInUse), other.changing(topic.name, patience_s=0):
            ...
        found.append(find(*arguments))
        return found[-1]

    monkeypatch.setattr(Homes, "find", find_alone)
    replay_dead_letters(amqp_url, topic.name, everything=True)
    assert found == [topic.queue_names[1]] * 2
    grow_topic(amqp_url, topic.name, 3)
    assert ready_messages(amqp_url, topic.queue_names) == {topic.queue_names[0]: 0, topic.queue_names[1]: 2}


def test_one_process_at_a_time_has_the_dead_letters_in_hand(
    amqp_url: str, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another would miss them, and say that there are none, or put some back behind others."""
    monkeypatch.setattr("cobalance.rabbitmq.topics.admin.LOCK_PATIENCE_S", 0.1)
    publish_dead(amqp_url, topic, "m1", "m2")
    find, refused = Homes.find, list[str]()

    def find_meanwhile(*arguments: Any) -> str | None:
        for others in (read_dead_letters, partial(drop_dead_letters, everything=True)):
            with pytest.raises(TopicInUse, match="listed, replayed or dropped") as raised:
                others(amqp_url, topic.name)
            refused.append(str(raised.value))
        return find(*arguments)

    monkeypatch.setattr(Homes, "find", find_meanwhile)
    assert len(replay_dead_letters(amqp_url, topic.name, everything=True)) == 2
    assert len(refused) == 4
    assert read_dead_letters(amqp_url, topic.name) == []


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


def test_what_publishers_wrote_is_shown_in_one_line_each(amqp_url: str, topic: Topic) -> None:
    """An id may be anything that AMQP holds: it makes no row of its own, steers no terminal, and breaks no JSON. It is
    found as JSON has it, and as the table shows it.
    """
    env, dead = {"COBALANCE_AMQP_URL": amqp_url}, f"{topic.name}.dead"
    ids: list[Any] = [b"\xff", "a\x1b[2J\nFAKE row", "good"]
    headers = {"x-cobalance-queue": topic.queue_names[0], "x-cobalance-error": "E: \x1b]0;title\x07\nsecond"}
    with channel(amqp_url) as it:
        for id_ in ids:
            it.basic_publish("", dead, b"x", BasicProperties(message_id=id_, user_id="guest", headers=headers))
    listed = cobalance("deadletters", topic.name, environment=env).out
    assert len(listed.splitlines()) == 4
    assert listed.count(r"E: \x1b]0;title\x07\nsecond") == 3
    assert "\x1b" not in listed
    as_json = json.loads(cobalance("deadletters", topic.name, "--json", environment=env).out)
    assert [it["message_id"] for it in as_json] == [r"\xff", *ids[1:]]
    replayed = cobalance("deadletters", topic.name, "replay", r"\xff", "--json", environment=env)
    assert (replayed.code, [it["message_id"] for it in json.loads(replayed.out)]) == (0, [r"\xff"])
    dropped = cobalance("deadletters", topic.name, "drop", r"a\x1b[2J\nFAKE row", environment=env)
    assert (dropped.code, dropped.out.count("FAKE row")) == (0, 1)
    assert [it.message_id for it in read_dead_letters(amqp_url, topic.name)] == ["good"]
    assert ready_messages(amqp_url, [topic.queue_names[0]]) == {topic.queue_names[0]: 1}


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
    """It gets the message and the handler's exception, and sees the program's context variables; an error of its own is
    logged and changes nothing.
    """
    reported: list[tuple[str, str, str]] = []
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    tenant.set("acme")

    def tell(delivery: Delivery, error: Exception) -> None:
        reported.append((delivery.body.decode(), str(error), tenant.get()))
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
    assert reported == [("wrong", "no customer of that name", "acme")] * 2


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


@pytest.mark.thorough
def test_a_target_that_does_not_confirm_holds_up_no_other(
    private_rabbitmq: OwnRabbitMQ, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As one without a majority: what goes there fails, and is sent apart from then on, until it confirms one."""
    monkeypatch.setattr(dead_letter_sender, "connected", partial(connected, timeout_ms=1_500))
    url, reason = private_rabbitmq.url, Reason("g", "why")
    with new_topic(url, 1, "quorum") as bad, new_topic(url) as good:
        sender = DeadLetterSender(url)

        def send(topic: Topic, *bodies: bytes) -> list[Any]:
            return [sender.send(topic.queues[0], Delivery.fake(it, topic=topic), reason) for it in bodies]

        with Leader(private_rabbitmq, f"{bad.name}.dead").silent():
            lost, kept = send(bad, b"1"), send(good, b"2")
            lost += send(bad, b"3")
            kept += send(good, b"4")
            assert [type(it.exception(WITHIN_S)) for it in lost] == [Unreachable] * 2
            assert [it.exception(WITHIN_S) for it in kept] == [None] * 2
            (late,) = send(bad, b"5")
            assert [it.exception(WITHIN_S) for it in send(good, b"6")] == [None]
            assert isinstance(late.exception(WITHIN_S), Unreachable)
        assert caplog.text.count("has not confirmed a dead letter") == 1
        assert send(bad, b"7")[0].exception(WITHIN_S) is None
        assert bodies_in(url, f"{good.name}.dead") == ["2", "4", "6"]


@pytest.mark.thorough
def test_a_silent_target_behind_an_exchange_holds_up_no_other(
    private_rabbitmq: OwnRabbitMQ, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each dead letter keeps the routing key that its publisher chose: none of them holds up those of other queues."""
    monkeypatch.setattr(dead_letter_sender, "connected", partial(connected, timeout_ms=1_500))
    url, exchange, sink, reason = private_rabbitmq.url, unique("dlx"), unique("sink"), Reason("g", "why")
    bad = Queue(unique("bad"), {"x-dead-letter-exchange": exchange})
    with new_topic(url) as good:
        with channel(url) as it:
            it.exchange_declare(exchange, "topic")  # type: ignore[arg-type]  # text will do
            for queue, kind, keys in ((sink, "quorum", "order.*"), (f"{sink}.other", "classic", "other")):
                it.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
                it.queue_bind(queue, exchange, keys)
        sender = DeadLetterSender(url)

        def send(key: str) -> Any:
            delivery = Delivery.fake(b"bad")
            delivery.method.routing_key = key
            return sender.send(bad, delivery, reason)

        with Leader(private_rabbitmq, sink).silent():
            lost = [send(f"order.{number}") for number in range(3)]
            others = [send("other")]
            kept = sender.send(good.queues[0], Delivery.fake(b"1", topic=good), reason)
            assert kept.exception(WITHIN_S) is None
            assert [it.done() for it in lost] == [True, False, False]
            for number in range(3, 5):
                lost.append(send(f"order.{number}"))
                kept = sender.send(good.queues[0], Delivery.fake(b"2", topic=good), reason)
                assert kept.exception(WITHIN_S) is None
                assert not lost[-1].done()
            assert [type(it.exception(WITHIN_S)) for it in lost] == [Unreachable] * 5
            assert [it.exception(WITHIN_S) for it in others] == [None]
        assert caplog.text.count("has not confirmed a dead letter") == 1
        assert send("order.4").exception(WITHIN_S) is None
        assert not sender._silent


CLAIMED = {"x-cobalance-exchange": "orders", "x-cobalance-routing-key": "claimed"}


@pytest.mark.parametrize(
    ("arguments", "published_to", "goes_to"),
    [
        ({"x-dead-letter-exchange": ""}, ("orders", "k"), ("", "k")),
        ({"x-dead-letter-exchange": ""}, ("", "q"), ("", "q")),
        ({"x-dead-letter-exchange": "dlx"}, ("orders", "k"), ("dlx", "k")),
        ({"x-dead-letter-exchange": "dlx"}, ("", "k"), ("dlx", "k")),
        ({"x-dead-letter-exchange": "dlx"}, ("", "q"), ("dlx", "claimed")),
        ({"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "d"}, ("", "q"), ("dlx", "d")),
        ({"x-dead-letter-exchange": "dlx"}, ("orders", b"caf\xe9"), ("dlx", b"caf\xe9")),
    ],
)
def test_a_header_sends_no_dead_letter_elsewhere(
    arguments: dict[str, Any], published_to: tuple[str, str], goes_to: tuple[str, str]
) -> None:
    """Any publisher may set it. It is read where a replay puts a message: behind an exchange, straight in its queue."""
    delivery = Delivery.fake(headers=CLAIMED)
    delivery.method.exchange, delivery.method.routing_key = published_to
    assert required_target(Queue("q", arguments), delivery) == Target(*goes_to)


@pytest.mark.parametrize("settle", [drop_dead_letters, replay_dead_letters])
@pytest.mark.parametrize(
    ("ids", "everything", "complaint"),
    [
        ((), False, "everything=True"),
        (("m1",), True, "everything=True"),
        ((["m1"],), False, "id of a message"),
        ((), 1, "everything"),
    ],
    ids=["an empty selection", "both", "a list", "a number"],
)
def test_no_ids_are_not_all_messages(
    settle: Callable[..., Any], ids: tuple[Any, ...], everything: Any, complaint: str, here: Place
) -> None:
    """What a program selected may be nothing: it deletes or replays nothing then."""
    with new_topic(here.amqp_url) as topic:
        here.publish(f"{topic.name}.dead", 1)
        with pytest.raises(UsageError, match=complaint):
            settle(here.amqp_url, topic.name, *ids, everything=everything)
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["1"]


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_many_that_are_dropped_are_gone(queue_type: Any, here: Place) -> None:
    """RabbitMQ's channel drops what it holds back of a quorum queue's acks when it is closed."""
    with new_topic(here.amqp_url, 1, queue_type) as topic:
        for _ in range(3):
            here.publish(f"{topic.name}.dead", *range(130))
            assert len(drop_dead_letters(here.amqp_url, topic.name, everything=True)) == 130
        assert bodies_in(here.amqp_url, f"{topic.name}.dead") == []


def test_an_internal_exchange_takes_no_dead_letter(amqp_url: str) -> None:
    """Only RabbitMQ itself may publish to it: no permission helps."""
    exchange = unique("internal")
    with channel(amqp_url) as it:
        it.exchange_declare(exchange, ExchangeType("fanout"), internal=True)
    queue = Queue(unique("queue"), {"x-dead-letter-exchange": exchange})
    sent = DeadLetterSender(amqp_url).send(queue, Delivery.fake(b"1"), Reason("g", "why"))
    with pytest.raises(PublishFailed, match=rf"exchange '{exchange}', .* is internal: .*declare it without internal"):
        sent.result(WITHIN_S)
    with channel(amqp_url) as it:
        it.exchange_delete(exchange)


def test_a_dead_letter_that_a_stream_does_not_take(amqp_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """RabbitMQ 3 closes the connection over it. Its target is not silent, and what follows gets there."""
    name = unique("stream")
    queue = Queue(name, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.dead"})
    with channel(amqp_url) as it:
        it.queue_declare(f"{name}.dead", durable=True, arguments={"x-queue-type": "stream"})
    sender, reason = DeadLetterSender(amqp_url), Reason("g", "why")
    sent = [
        sender.send(queue, Delivery.fake(body, headers=headers), reason)
        for body, headers in ((b"1", {"price": Decimal("1.5")}), (b"2", {}), (b"3", {}))
    ]
    with pytest.raises(PublishFailed, match="do its headers have a Decimal"):
        sent[0].result(WITHIN_S)
    assert [it.exception(WITHIN_S) for it in sent[1:]] == [None, None]
    assert "has not confirmed a dead letter" not in caplog.text
    with channel(amqp_url) as it:
        it.queue_delete(f"{name}.dead")
