"""``memory://`` as an AMQP URL: the same answers as from RabbitMQ, or a refusal that says so."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, UnroutableError
from pika.exchange_type import ExchangeType
from pika.spec import BasicProperties
from tests.consumers import SETTINGS, WITHIN_S
from tests.names import unique

from cobalance import BlockingConsumerGroup, ConsumerGroup, Delivery, MatchingQueues, Publisher, Topic, create_topic
from cobalance.errors import QueueMismatch, TopicMismatch, TopicMissing, UsageError
from cobalance.rabbitmq import (
    Queue,
    delete_topic,
    grow_topic,
    learn_queue,
    read_dead_letters,
    read_topic,
    replay_dead_letters,
    verify_topic,
)
from cobalance.rabbitmq.dropin.connection import GroupConnection
from cobalance.rabbitmq.wire.address import single_urls
from cobalance.rabbitmq.wire.pika_internals import bare_close
from cobalance.testing import Churn
from cobalance.testing.broker import Broker

pytest_plugins = ["cobalance.testing.plugin"]

Open = Callable[[], BlockingChannel]


@pytest.fixture(params=["memory", "rabbitmq"])
def url(request: pytest.FixtureRequest) -> str:
    """Both must agree."""
    return f"memory://{unique('m')}" if request.param == "memory" else str(request.getfixturevalue("amqp_url"))


@pytest.fixture
def connect(url: str) -> Iterator[Open]:
    """Pika channels, each on a connection of its own."""
    opened: list[pika.BlockingConnection] = []

    def connect() -> BlockingChannel:
        opened.append(pika.BlockingConnection(pika.URLParameters(single_urls(url)[0])))
        return opened[-1].channel()

    yield connect
    for connection in opened:
        if connection.is_open:
            connection.close()


@pytest.fixture
def name(connect: Open) -> Iterator[str]:
    """The name of a queue or topic that is deleted afterwards."""
    made = unique("memory")
    yield made
    channel = connect()
    for queue in (made, f"{made}.dead", *(f"{made}-{number}" for number in range(4))):
        channel.queue_delete(queue)
    channel.exchange_delete(made)


KINDS: dict[str, dict[str, Any]] = {
    "classic": {"x-queue-type": "classic"},
    "quorum": {"x-queue-type": "quorum", "x-single-active-consumer": True},
}


@pytest.fixture(params=KINDS)
def queue(request: pytest.FixtureRequest, connect: Open, name: str) -> str:
    """A queue of either type, with the messages 0 to 4."""
    channel = connect()
    channel.queue_declare(name, durable=True, arguments=KINDS[request.param])
    channel.confirm_delivery()
    for number in range(5):
        channel.basic_publish("", name, str(number).encode(), BasicProperties(message_id=str(number)), mandatory=True)
    return name


def read(channel: BlockingChannel, queue: str, count: int) -> list[Any]:
    """This many deliveries, unacknowledged."""
    found = []
    for method, properties, body in channel.consume(queue, inactivity_timeout=WITHIN_S):
        found.append((method, properties, body))
        if len(found) == count:
            return found
    raise AssertionError("there are fewer")


def test_what_is_returned_keeps_its_place(connect: Open, queue: str) -> None:
    """After a closed channel or a nack, marked as redelivered."""
    channel = connect()
    first = read(channel, queue, 3)
    channel.basic_ack(first[0][0].delivery_tag)
    # pika cancels before it closes, which reorders what a quorum queue is just sending.
    bare_close(channel._impl)  # type: ignore[attr-defined]
    channel.connection.close()
    again = read(connect(), queue, 4)
    assert [body for _, _, body in again] == [b"1", b"2", b"3", b"4"]
    assert again[0][0].redelivered
    assert [it.message_id for _, it, _ in again] == ["1", "2", "3", "4"]


def test_a_prefetch_is_not_passed(connect: Open, queue: str) -> None:
    """Until something is acknowledged."""
    channel = connect()
    channel.basic_qos(prefetch_count=2)
    first = read(channel, queue, 2)
    assert next(channel.consume(queue, inactivity_timeout=0.2))[0] is None
    channel.basic_ack(first[1][0].delivery_tag, multiple=True)
    assert [body for _, _, body in read(channel, queue, 2)] == [b"2", b"3"]


def test_one_consumer_at_a_time(connect: Open, queue: str) -> None:
    """As its guard says: an exclusive consumer keeps others out, a single active one keeps them waiting."""
    channel, other = connect(), connect()
    seen: list[bytes] = []
    channel.queue_purge(queue)
    exclusive = queue_is_classic(other, queue)
    channel.basic_consume(queue, lambda _, __, ___, body: seen.append(body), auto_ack=True, exclusive=exclusive)

    def consume() -> None:
        other.basic_consume(queue, lambda _, __, ___, body: seen.append(b"other " + body), auto_ack=True)

    if exclusive:
        with pytest.raises(ChannelClosedByBroker, match="in exclusive use"):
            consume()
        return
    consume()
    for body in (b"0", b"1"):
        other.basic_publish("", queue, body)
        while not seen or not seen[-1].endswith(body):
            other.connection.process_data_events(0)
            if channel.is_open:
                channel.connection.process_data_events(0)
        if channel.is_open:
            channel.connection.close()
    assert seen == [b"0", b"other 1"]


def queue_is_classic(channel: BlockingChannel, queue: str) -> bool:
    probe = channel.connection.channel()
    try:
        probe.queue_declare(queue, durable=True, arguments=KINDS["classic"])
    except ChannelClosedByBroker:
        return False
    return True


def test_unroutable_messages_come_back(connect: Open, name: str) -> None:
    """If they were published as mandatory. A missing exchange closes the channel."""
    channel = connect()
    channel.confirm_delivery()
    with pytest.raises(UnroutableError):
        channel.basic_publish("", name, b"lost", mandatory=True)
    with pytest.raises(ChannelClosedByBroker, match="no exchange"):
        channel.basic_publish(name, "k", b"lost", mandatory=True)


def test_what_is_rejected_is_dead_lettered(connect: Open, name: str) -> None:
    """With origin and reason. A message that a quorum queue redelivers too often is dead-lettered too."""
    channel = connect()
    target = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.dead"}
    channel.queue_declare(f"{name}.dead", durable=True, arguments=KINDS["classic"])
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 1, **target})
    channel.confirm_delivery()
    for body in (b"rejected", b"returned"):
        channel.basic_publish("", name, body)
    channel.basic_reject(read(channel, name, 1)[0][0].delivery_tag, requeue=False)
    tries = []
    for _ in range(2):
        ((method, properties, _),) = read(channel, name, 1)
        tries.append((properties.headers or {}).get("x-delivery-count"))
        channel.basic_nack(method.delivery_tag, requeue=True)
    assert tries == [None, 1]
    dead = read(connect(), f"{name}.dead", 2)
    assert [(body, it.headers["x-death"][0]["reason"]) for _, it, body in dead] == [
        (b"rejected", "rejected"),
        (b"returned", "delivery_limit"),
    ]
    assert {it.headers["x-death"][0]["queue"] for _, it, _ in dead} == {name}


def test_topics_are_made_checked_and_deleted(url: str, name: str) -> None:
    """As on the command line."""
    with pytest.raises(TopicMissing):
        read_topic(url, name)
    topic = create_topic(url, Topic(name, 2, "quorum"))
    assert read_topic(url, name) == topic == verify_topic(url, topic)
    assert learn_queue(url, f"{name}-1") == topic.queues[1]
    with pytest.raises(TopicMismatch):
        create_topic(url, Topic(name, 3, "quorum"))
    with pytest.raises(QueueMismatch):
        verify_topic(url, Topic(name, 2))
    delete_topic(url, name)
    with pytest.raises(TopicMissing):
        read_topic(url, name)


def test_consumers_publishers_and_dead_letters(url: str, name: str) -> None:
    """Everything a program uses, one after the other."""
    topic, billed, dead_letters = create_topic(url, Topic(name, 2)), list[bytes](), list[bytes]()

    def bill(order: Delivery) -> None:
        if order.body == b"bad" and not dead_letters:
            raise ValueError(order.queue)
        billed.append(order.body)

    with BlockingConsumerGroup(
        "billing",
        name,
        bill,
        amqp_url=url,
        redis_url=f"memory://{name}",
        settings=SETTINGS,
        retries=1,
        on_error="dead_letter",
    ) as group:
        with Publisher(url, name) as publisher:
            for body in (b"1", b"bad", b"2"):
                publisher.publish("customer", body, {"n": 1}, message_id=body.decode())
        churn_until(lambda: billed == [b"1", b"2"])
        churn_until(lambda: read_dead_letters(url, name))
        (letter,) = read_dead_letters(url, name)
        assert (letter.message_id, letter.error[:10]) == ("bad", "ValueError")
        dead_letters.append(b"bad")
        replay_dead_letters(url, name)
        churn_until(lambda: billed == [b"1", b"2", b"bad"])
        assert len(group.tenures) == topic.partitions


def churn_until(condition: Callable[[], object]) -> None:
    Churn(unique("g"), Broker(unique("m"))).until(condition, WITHIN_S)


def test_large_messages_come_whole(url: str, name: str) -> None:
    """They take several frames; empty ones work too."""
    create_topic(url, Topic(name, 1))
    bodies, seen = [os.urandom(400_000), b"", b"x" * 131_064], list[bytes]()
    with Publisher(url, name) as publisher:
        for body in bodies:
            publisher.publish("k", body)
    options: dict[str, Any] = {"amqp_url": url, "redis_url": f"memory://{name}", "settings": SETTINGS}
    with BlockingConsumerGroup("g", name, lambda it: seen.append(it.body), **options):
        churn_until(lambda: len(seen) == 3)
    assert seen == bodies


# -- memory:// alone ---------------------------------------------------------------------------------------------------


def test_a_topic_grows_while_it_is_used(cobalance_broker: Broker, cobalance_group: Churn) -> None:
    """The order of each key is kept."""
    topic = cobalance_broker.create_topic("orders", 2)
    seen: list[bytes] = []
    cobalance_group.join("orders", lambda it: seen.append(it.body), refresh_ms=50)
    cobalance_broker.publish(topic, "customer", "1", "2")
    grow_topic(cobalance_broker.url, "orders", 4)
    cobalance_broker.publish("orders", "customer", "3")
    cobalance_group.until(lambda: len(seen) == 3)
    assert seen == [b"1", b"2", b"3"]


def test_the_drop_in_takes_it(cobalance_broker: Broker) -> None:
    """A program written for pika."""
    topic, seen = cobalance_broker.create_topic("orders"), list[bytes]()
    cobalance_broker.publish(topic, "k", "1", "2")
    parameters = pika.URLParameters(single_urls(cobalance_broker.url)[0])
    connection = GroupConnection(parameters, group="g", redis_url=f"memory://{unique('m')}")
    channel = connection.channel()

    def seen_one(_: Any, method: Any, __: Any, body: bytes) -> None:
        seen.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(seen) == 2:
            channel.stop_consuming()

    channel.basic_consume(topic.queue_names[0], seen_one)
    channel.start_consuming()
    connection.close()
    assert seen == [b"1", b"2"]


def call(url: str, do: Callable[[BlockingChannel], Any]) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(single_urls(url)[0]))
    try:
        do(connection.channel())
    finally:
        connection.close()


def expire_one(url: str) -> None:
    """A message that expires after a second."""
    send(url, BasicProperties(expiration="1000"))


def send(url: str, properties: BasicProperties) -> None:
    def publish(channel: BlockingChannel) -> None:
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"", properties)

    call(url, publish)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda url: create_topic(url, Topic("s", 1, "stream")), "memory:// has no queues of type 'stream'"),
        (
            lambda url: ConsumerGroup("g", MatchingQueues("o.*"), print, amqp_url=url)._subscribed.find(),
            "management API",
        ),
        (expire_one, "memory:// has no messages that expire"),
        (lambda url: send(url, BasicProperties(headers={"CC": ["q"]})), "memory:// has no copies by the header CC"),
        (
            lambda url: call(url, lambda it: it.exchange_declare("x", ExchangeType("fanout"))),
            "exchanges of type 'fanout'",
        ),
        (
            lambda url: call(url, lambda it: it.queue_declare("q", arguments={"x-max-length": 1})),
            "queues with x-max-length",
        ),
        (lambda url: call(url, lambda it: it.tx_select()), r"memory:// has no Tx.Select"),
    ],
    ids=["stream", "management", "expiration", "CC", "fanout", "x-max-length", "transactions"],
)
def test_what_it_does_not_do_is_refused(cobalance_broker: Broker, ask: Callable[[str], Any], words: str) -> None:
    """Rather than done wrongly."""
    with pytest.raises((UsageError, ChannelClosedByBroker), match=words):
        ask(cobalance_broker.url)


def test_a_name_is_one_broker() -> None:
    """Within this process. Another name is another broker, whose exclusive queues end with their owner."""
    create_topic("memory://one", Topic("t", 1))
    assert read_topic("memory://one", "t").partitions == 1
    with pytest.raises(TopicMissing, match="no topic"):
        read_topic("memory://two", "t")
    with pytest.raises(UsageError, match="memory://NAME"):
        create_topic("memory://", Topic("t", 1))
    assert Queue("t-0").name == "t-0"
