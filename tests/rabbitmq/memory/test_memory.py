"""``memory://`` by itself: its names, what tests may do to it, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker
from pika.exchange_type import ExchangeType
from pika.spec import BasicProperties
from tests.names import unique
from tests.rabbitmq.memory.clients import Client

from cobalance import ConsumerGroup, Delivery, MatchingQueues, StreamSettings, Topic, create_topic
from cobalance.errors import TopicMissing, UsageError
from cobalance.rabbitmq import Queue, grow_topic, read_topic
from cobalance.rabbitmq.dropin.connection import GroupConnection
from cobalance.rabbitmq.memory import MemoryRabbitMQ
from cobalance.rabbitmq.wire.address import single_urls
from cobalance.testing import Churn
from cobalance.testing.broker import Broker

pytest_plugins = ["cobalance.testing.plugin"]


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


def send(url: str, properties: BasicProperties) -> None:
    def publish(channel: BlockingChannel) -> None:
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"", properties)

    call(url, publish)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (
            lambda url: ConsumerGroup("g", MatchingQueues("o.*"), print, amqp_url=url)._subscribed.find(),
            "management API",
        ),
        (lambda url: send(url, BasicProperties(headers={"CC": ["q"]})), "memory:// has no copies by the header CC"),
        (
            lambda url: call(url, lambda it: it.exchange_declare("x", ExchangeType("headers"))),
            "exchanges of type 'headers'",
        ),
        (
            lambda url: call(url, lambda it: it.queue_declare("q", arguments={"x-max-length": 1})),
            "classic queues with x-max-length",
        ),
        (
            lambda url: call(
                url, lambda it: [it.queue_declare("q"), it.basic_consume("q", print, arguments={"x-credit": 1})]
            ),
            "consumers with x-credit",
        ),
        (lambda url: call(url, lambda it: it.tx_select()), r"memory:// has no Tx.Select"),
    ],
    ids=["management", "CC", "headers", "x-max-length", "credit", "transactions"],
)
def test_what_it_does_not_do_is_refused(cobalance_broker: Broker, ask: Callable[[str], Any], words: str) -> None:
    """Rather than done wrongly."""
    with pytest.raises((UsageError, ChannelClosedByBroker), match=words):
        ask(cobalance_broker.url)


def test_a_stream_is_handed_over_where_it_was(cobalance_broker: Broker, cobalance_group: Churn) -> None:
    """Whether its holder leaves or crashes: what was committed does not come again, and nothing is skipped."""
    topic = cobalance_broker.create_topic("payments", queue_type="stream")
    seen: list[tuple[bytes, int | None]] = []
    begin = StreamSettings(start="first", commit_every=1)

    def read(delivery: Delivery) -> None:
        seen.append((delivery.body, delivery.offset))

    cobalance_broker.publish(topic, "customer", "1", "2")
    first = cobalance_group.join("payments", read, streams=begin)
    cobalance_group.until(lambda: cobalance_group.committed() == {"payments-0": 1})
    cobalance_group.leave(first)
    cobalance_broker.publish(topic, "customer", "3")
    second = cobalance_group.join("payments", read, streams=begin)
    cobalance_group.until(lambda: cobalance_group.committed() == {"payments-0": 2})
    cobalance_group.crash(second)
    cobalance_broker.publish(topic, "customer", "4")
    cobalance_group.join("payments", read, streams=begin)
    cobalance_group.until(lambda: len(seen) == 4)
    assert seen == [(b"1", 0), (b"2", 1), (b"3", 2), (b"4", 3)]
    assert cobalance_broker.ready("payments-0") == [b"1", b"2", b"3", b"4"]
    assert not cobalance_broker.is_empty(topic)


def test_time_passes_when_a_test_says_so(cobalance_broker: Broker) -> None:
    """For messages, queues and streams, in the order of what is due."""
    client = Client(single_urls(cobalance_broker.url)[0])
    for name, target in (("retry", "work"), ("work", "retry")):
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
        client.channel.queue_declare(
            name, arguments={**arguments, **({"x-message-ttl": 60_000} if name == "retry" else {})}
        )
    client.publish("retry", "1")
    cobalance_broker.advance(59.9)
    assert (cobalance_broker.ready("retry"), cobalance_broker.ready("work")) == ([b"1"], [])
    cobalance_broker.advance(0.1)
    assert (cobalance_broker.ready("retry"), cobalance_broker.ready("work")) == ([], [b"1"])
    client.channel.queue_declare("log", durable=True, arguments={"x-queue-type": "stream"})
    client.publish("log", "old")
    cobalance_broker.advance(3600)
    client.publish("log", "new")
    client.consume("log", 10, arguments={"x-stream-offset": "30m"})
    assert client.bodies(1) == ["new"]
    client.disconnect()


def test_a_broker_that_is_closed_drops_its_clients_and_begins_anew() -> None:
    """Twice is no harm. A later user of the name finds nothing."""
    name = unique("m")
    server = MemoryRabbitMQ.named(name)
    client = Client(server.url)
    client.channel.queue_declare("q")
    server.close()
    server.close()
    with pytest.raises(AMQPConnectionError):
        client.until(lambda: not client.connection.is_open)
    again = MemoryRabbitMQ.named(name)
    assert again.call(lambda broker: list(broker.queues)) == []
    again.close()


def test_a_client_is_shut_out() -> None:
    """By the name of its connection: what it held goes to others, and it cannot connect before it is let in."""
    server = MemoryRabbitMQ.named(unique("m"))
    named = f"{server.url}?client_properties=%7B%27connection_name%27%3A%27holder%27%7D"
    holder, other = Client(named), Client(server.url)
    other.channel.queue_declare("q")
    other.publish("q", "1")
    holder.consume("q", exclusive=True)
    holder.take(1)
    server.shut_out("holder")
    other.consume("q", exclusive=True)
    assert other.take(1)[0].redelivered
    with pytest.raises(AMQPConnectionError):
        holder.until(lambda: not holder.connection.is_open)
    with pytest.raises(AMQPConnectionError):
        Client(named)
    server.let_in("holder")
    Client(named).disconnect()
    other.disconnect()


def test_a_name_is_one_broker() -> None:
    """Within this process. Another name is another broker, whose exclusive queues end with their owner."""
    create_topic("memory://one", Topic("t", 1))
    assert read_topic("memory://one", "t").partitions == 1
    with pytest.raises(TopicMissing, match="no topic"):
        read_topic("memory://two", "t")
    with pytest.raises(UsageError, match="memory://NAME"):
        create_topic("memory://", Topic("t", 1))
    assert Queue("t-0").name == "t-0"
