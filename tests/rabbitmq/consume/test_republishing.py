"""Dead letters and messages sent back: what acted on RabbitMQ when they were published does not act again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pika.spec import BasicProperties
from tests.consumers import Place, channel, new_topic, place, until
from tests.names import unique

from cobalance import servers
from cobalance.errors import UsageError
from cobalance.rabbitmq import Delivery, Publisher, Topic, read_dead_letters, replay_dead_letters
from cobalance.rabbitmq.consume.republishing import republished
from cobalance.rabbitmq.model.encoding import Encoded
from cobalance.rabbitmq.topics.broker import ready_messages

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

OPTIONS: dict[str, Any] = {"retries": 0, "on_error": "dead_letter"}
TEN_MINUTES = "600000"


async def refuse(delivery: Delivery) -> None:
    raise ValueError(delivery.body.decode())


def send(url: str, topic: Topic, body: bytes, properties: BasicProperties) -> None:
    with channel(url) as it:
        it.basic_publish(topic.name, topic.routing_key(0), body, properties, mandatory=True)


def fill_frame(url: str, topic: Topic, room: int, **properties: Any) -> None:
    """Publishes a message whose headers leave that much room in the largest frame."""
    most = 131_072
    with Publisher(url, topic) as publisher:
        while True:
            try:
                publisher.publish("k", b"large", {"h": "x" * most}, **properties)
            except UsageError:
                most -= 1
            else:
                break
        publisher.publish("k", b"large", {"h": "x" * (most - room)}, **properties)
    with channel(url) as it:
        it.basic_get(topic.queue_names[0], auto_ack=True)


async def give_up(here: Place, topic: Topic, count: int = 1) -> None:
    """Has the handler fail until that many messages are dead letters."""
    async with here.member(topic, refuse, **OPTIONS):
        await until(lambda: len(read_dead_letters(here.amqp_url, topic.name)) == count)


def first_in(url: str, queue: str) -> BasicProperties:
    """The properties of the first message of a queue, where it stays."""
    with channel(url) as it:
        it.basic_qos(prefetch_count=1)
        properties: Any = next(it.consume(queue))[1]
    return BasicProperties(**vars(properties))


def reject_first(url: str, queue: str) -> None:
    """Has RabbitMQ dead-letter a message by itself."""
    with channel(url) as it:
        method: Any = next(it.consume(queue))[0]
        it.basic_reject(method.delivery_tag, requeue=False)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_a_dead_letter_does_not_expire(here: Place, kind: str) -> None:
    """Its time to live was for the queue that it was published to; it is kept in a header, also by a replay."""
    with new_topic(here.amqp_url, queue_type=kind) as topic:
        send(here.amqp_url, topic, b"short-lived", BasicProperties(expiration=TEN_MINUTES, priority=3, delivery_mode=2))
        await give_up(here, topic)
        dead = first_in(here.amqp_url, f"{topic.name}.dead")
        assert (dead.expiration, dead.priority, dead.delivery_mode) == (None, 3, 2)
        (letter,) = read_dead_letters(here.amqp_url, topic.name)
        assert letter.expiration == TEN_MINUTES
        replay_dead_letters(here.amqp_url, topic.name, everything=True)
        back = first_in(here.amqp_url, topic.queue_names[0])
        assert (back.expiration, (back.headers or {}).get("x-cobalance-expiration")) == (None, TEN_MINUTES)


async def test_the_time_to_live_of_what_rabbitmq_dead_letters_is_listed(here: Place) -> None:
    """RabbitMQ removes it, too, and says what it was."""
    with new_topic(here.amqp_url) as topic:
        send(here.amqp_url, topic, b"x", BasicProperties(expiration=TEN_MINUTES))
        reject_first(here.amqp_url, topic.queue_names[0])
        await until(lambda: read_dead_letters(here.amqp_url, topic.name))
        (letter,) = read_dead_letters(here.amqp_url, topic.name)
        assert letter.expiration == TEN_MINUTES


async def test_a_dead_letter_is_copied_to_nobody(here: Place) -> None:
    """One message with a ``CC`` is two, which fail once each. Copied again, they would fail without end."""
    first, second, dead = (unique(it) for it in ("first", "second", "dead"))
    target = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    handled: list[str] = []

    async def handle(delivery: Delivery) -> None:
        handled.append(delivery.queue)
        await refuse(delivery)

    with channel(here.amqp_url) as it:
        it.queue_declare(dead, durable=True)
        for name in (first, second):
            it.queue_declare(name, durable=True, arguments=target)
        it.basic_publish("", first, b"copied", BasicProperties(headers={"CC": [second], "tenant": "acme"}))
        async with here.member([first, second], handle, **OPTIONS):
            await until(lambda: (ready_messages(here.amqp_url, [dead])[dead] or 0) >= 2)
        assert sorted(handled) == [first, second]
        assert ready_messages(here.amqp_url, [first, second, dead]) == {first: 0, second: 0, dead: 2}
        headers = first_in(here.amqp_url, dead).headers or {}
        assert "CC" not in headers
        assert headers["tenant"] == "acme"
        for name in (first, second, dead):
            it.queue_delete(name)


@pytest.fixture(scope="module")
def alices_url(private_rabbitmq: servers.OwnRabbitMQ) -> str:
    """The RabbitMQ of these tests, as a user who is not the consumer's."""
    private_rabbitmq.control("add_user", "alice", "alice")
    private_rabbitmq.control("set_permissions", "alice", ".*", ".*", ".*")
    assert "guest:guest" in private_rabbitmq.url
    return private_rabbitmq.url.replace("guest:guest", "alice:alice")


@pytest.fixture
def theirs(private_rabbitmq: servers.OwnRabbitMQ) -> Iterator[Place]:
    with place(private_rabbitmq.url) as it:
        yield it


@pytest.mark.thorough
async def test_what_another_user_published_is_dead_lettered_and_replayed(theirs: Place, alices_url: str) -> None:
    """RabbitMQ accepts no ``user_id`` but that of the connection, so its place is a header."""
    with new_topic(theirs.amqp_url) as topic:
        for body in (b"1", b"2"):
            send(alices_url, topic, body, BasicProperties(user_id="alice"))
        await give_up(theirs, topic, 2)
        assert [it.user_id for it in read_dead_letters(theirs.amqp_url, topic.name)] == ["alice"] * 2
        replay_dead_letters(theirs.amqp_url, topic.name, everything=True)
        back = first_in(theirs.amqp_url, topic.queue_names[0])
        assert (back.user_id, (back.headers or {}).get("x-cobalance-user-id")) == (None, "alice")
        await give_up(theirs, topic, 2)
        assert [it.user_id for it in read_dead_letters(theirs.amqp_url, topic.name)] == ["alice"] * 2


async def test_what_rabbitmq_dead_lettered_for_another_user_is_replayed(theirs: Place, alices_url: str) -> None:
    """RabbitMQ keeps the property when it moves a message by itself."""
    with new_topic(theirs.amqp_url) as topic:
        send(alices_url, topic, b"x", BasicProperties(user_id="alice"))
        reject_first(theirs.amqp_url, topic.queue_names[0])
        await until(lambda: read_dead_letters(theirs.amqp_url, topic.name))
        assert len(replay_dead_letters(theirs.amqp_url, topic.name, everything=True)) == 1
        assert first_in(theirs.amqp_url, topic.queue_names[0]).user_id is None


async def test_what_another_user_published_may_be_listed_often(theirs: Place, alices_url: str) -> None:
    """A dead letter in a quorum queue is published again after many listings, before RabbitMQ 4 would drop it."""
    with new_topic(theirs.amqp_url, queue_type="quorum") as topic:
        send(alices_url, topic, b"x", BasicProperties(user_id="alice"))
        reject_first(theirs.amqp_url, topic.queue_names[0])
        await until(lambda: read_dead_letters(theirs.amqp_url, topic.name))
        for _ in range(25):
            assert [it.user_id for it in read_dead_letters(theirs.amqp_url, topic.name)] == ["alice"]


def decoded(properties: Encoded) -> BasicProperties:
    it = BasicProperties()
    it.decode(b"".join(properties.encode()))
    return it


def test_only_what_would_act_again_is_left_out() -> None:
    """Everything else is as it was published, and the original is not touched."""
    headers = {"CC": ["a"], "BCC": ["b"], "x-delivery-count": 3, "x-stream-offset": 7, "x-delay": 50, "tenant": "acme"}
    published = BasicProperties(headers=headers, expiration="5", user_id="alice", priority=4, reply_to="answers")
    again = decoded(republished(published))
    assert again.headers == {
        "x-delay": 50,
        "tenant": "acme",
        "x-cobalance-expiration": "5",
        "x-cobalance-user-id": "alice",
    }
    assert (again.expiration, again.user_id, again.priority, again.reply_to) == (None, None, 4, "answers")
    assert (published.headers, published.expiration, published.user_id) == (headers, "5", "alice")
    assert decoded(republished(BasicProperties(headers={"CC": []}))).headers is None


def test_a_header_of_our_own_that_amqp_cannot_hold_is_left_out() -> None:
    """The message has to arrive, whatever is said about it."""
    own = {"x-cobalance-queue": "orders-1", "x-cobalance-error": "\ud800", "x-cobalance-failures": 2**70}
    assert decoded(republished(BasicProperties(), own)).headers == {"x-cobalance-queue": "orders-1"}


@pytest.mark.parametrize(
    ("room", "told"),
    [
        (700, {"ValueError", "group", "queue", "exchange"}),
        (450, {"rejected", "group", "queue", "exchange"}),
        (250, {"rejected", "queue", "exchange"}),
        (0, set()),
    ],
)
async def test_a_message_whose_headers_fill_a_frame_is_dead_lettered(here: Place, room: int, told: set[str]) -> None:
    """RabbitMQ closes the connection over a larger frame, so the message goes without what does not fit."""
    with new_topic(here.amqp_url) as topic:
        fill_frame(here.amqp_url, topic, room, message_id="m1")
        async with here.member(topic, fail_at_length, **OPTIONS):
            await until(lambda: ready_messages(here.amqp_url, [f"{topic.name}.dead"])[f"{topic.name}.dead"])
        (letter,) = read_dead_letters(here.amqp_url, topic.name)
        assert (letter.message_id, letter.size) == ("m1", 5)
        known = {"queue": letter.queue, "exchange": letter.exchange, "group": letter.group}
        error = letter.error.partition(":")[0]
        assert {name for name, value in known.items() if value is not None} | {error} - {"unknown"} == told
        if letter.queue is not None:
            replay_dead_letters(here.amqp_url, topic.name, everything=True)
            assert ready_messages(here.amqp_url, topic.queue_names) == {topic.queue_names[0]: 1}


async def test_what_fills_a_frame_is_sent_back_although_its_user_was_no_header(here: Place) -> None:
    """RabbitMQ itself has moved it, so it had all the room that our headers take after a replay."""
    with new_topic(here.amqp_url) as topic:
        fill_frame(here.amqp_url, topic, 0, user_id="guest", expiration_ms=600_000)
        reject_first(here.amqp_url, topic.queue_names[0])
        await until(lambda: read_dead_letters(here.amqp_url, topic.name))
        (letter,) = read_dead_letters(here.amqp_url, topic.name)
        assert letter.queue == topic.queue_names[0]
        replay_dead_letters(here.amqp_url, topic.name, everything=True)
        assert ready_messages(here.amqp_url, topic.queue_names) == {topic.queue_names[0]: 1}


async def fail_at_length(_: Delivery) -> None:
    raise ValueError("x" * 500)
