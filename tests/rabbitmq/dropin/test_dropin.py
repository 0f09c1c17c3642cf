"""Programs written for pika as members of a group: callbacks, loops, sharing, and what is refused."""

from __future__ import annotations

import itertools
import queue
import socket
import ssl
import threading
import time
from typing import Any

import pika
import pytest
from pika import exceptions as pika_errors
from tests.rabbitmq.dropin.parts import DEADLINE_S, Broker, Handled, Program, connect, consume

from cobalance.errors import Unguarded, UsageError
from cobalance.rabbitmq.dropin.connection import GroupConnection, GroupUnreachable, url_of


def test_callbacks_run_here_and_look_as_with_pika(broker: Broker, group: str) -> None:
    """On the thread that called start_consuming, in order, with unique tags and all that pika passes."""
    names = broker.declare(2)
    for name in names:
        broker.publish(name, *range(30))
    seen: list[tuple[str, int]] = []
    tags: list[int] = []

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        assert threading.current_thread() is threading.main_thread()
        assert isinstance(method, pika.spec.Basic.Deliver)
        assert isinstance(properties, pika.BasicProperties)
        assert (method.exchange, method.redelivered) == ("", False)
        assert method.consumer_tag in channel_tags
        assert method.routing_key
        seen.append((method.routing_key, int(body)))
        tags.append(method.delivery_tag or 0)
        channel.basic_ack(method.delivery_tag)
        if len(seen) == 60:
            channel.stop_consuming()

    connection = connect(broker, group)
    channel = connection.channel()
    channel_tags = {channel.basic_consume(name, on_message) for name in names}
    channel.start_consuming()
    connection.close()
    for name in names:
        assert [number for queue_name, number in seen if queue_name == name] == list(range(30))
        assert broker.left(name) == []
    assert tags == sorted(set(tags))
    assert connection.is_closed


def test_everything_else_goes_through_pika(broker: Broker, group: str) -> None:
    """Declaring, binding and publishing with confirms work, also from within a callback."""
    source, target = broker.declare(2)
    broker.publish(source, "a", "b")

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        channel.basic_publish("", target, body.upper(), properties, mandatory=True)
        channel.basic_ack(method.delivery_tag)
        if body == b"b":
            channel.stop_consuming()

    with connect(broker, group) as connection:
        channel = consume(connection, [source], on_message)
        channel.confirm_delivery()
        assert channel.connection is connection
        assert channel.is_open
        assert connection.is_open
        channel.exchange_declare(group, "fanout", auto_delete=True)
        channel.queue_bind(target, group)
        with pytest.raises(pika_errors.UnroutableError):
            channel.basic_publish("", "nowhere-at-all", b"", mandatory=True)
        channel.start_consuming()
    assert [body for body, _ in broker.left(target)] == ["A", "B"]


@pytest.mark.parametrize("arguments", [{}, {"x-queue-type": "quorum", "x-single-active-consumer": True}])
def test_two_programs_share(broker: Broker, group: str, arguments: dict[str, Any]) -> None:
    """The second takes half of the queues and returns them when it leaves; every message is handled once."""
    names = broker.declare(4, **arguments)
    handled: Handled = queue.SimpleQueue()
    first = Program(broker, group, names, handled)

    def round_(body: str) -> dict[str, Program]:
        for name in names:
            broker.publish(name, body)
        got = [handled.get(timeout=DEADLINE_S) for _ in names]
        assert sorted((name, said) for _, name, said in got) == sorted((name, body) for name in names)
        return {name: program for program, name, _ in got}

    assert set(round_("alone").values()) == {first}
    second = Program(broker, group, names, handled)
    number = 0
    while list(round_(f"{(number := number + 1)}").values()).count(second) < 2:
        pass
    second.stop()
    assert set(round_("alone again").values()) == {first}
    first.stop()
    assert [broker.ready(name) for name in names] == [0] * 4


def test_a_program_with_a_loop_of_its_own(broker: Broker, group: str) -> None:
    """process_data_events consumes for a while, and returns."""
    (name,) = broker.declare(1)
    broker.publish(name, *range(5))
    seen: list[bytes] = []

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        seen.append(body)
        channel.basic_ack(method.delivery_tag)

    with connect(broker, group) as connection:
        consume(connection, [name], on_message)
        while len(seen) < 5:
            connection.process_data_events(time_limit=0.01)
    assert broker.left(name) == []


def test_a_loop_goes_on_after_stopping(broker: Broker, group: str) -> None:
    """The loop still handles timers and other threads' calls, so they may still acknowledge."""
    (name,) = broker.declare(1)
    broker.publish(name, "a")
    tags: list[int] = []
    rounds = itertools.count()

    def on_message(channel: Any, method: Any, _: Any, __: bytes) -> None:
        tags.append(method.delivery_tag)
        channel.stop_consuming()

    def acknowledge() -> None:
        channel.basic_ack(tags.pop())

    with connect(broker, group) as connection:
        channel = consume(connection, [name], on_message)
        channel.start_consuming()
        connection.call_later(0.2, lambda: connection.add_callback_threadsafe(acknowledge))
        while tags:
            connection.process_data_events(None if next(rounds) % 2 else 1)
    assert next(rounds) < 100
    assert broker.left(name) == []


def test_sleeping_takes_its_time(broker: Broker, group: str) -> None:
    """It does so whatever happens meanwhile, and also when nothing is consumed any more."""
    (name,) = broker.declare(1)
    broker.publish(name, "a")

    def on_message(channel: Any, method: Any, _: Any, __: bytes) -> None:
        channel.basic_ack(method.delivery_tag)
        channel.stop_consuming()

    with connect(broker, group) as connection:
        consume(connection, [name], on_message)
        for _ in range(2):
            begin = time.monotonic()
            connection.sleep(0.5)
            assert time.monotonic() - begin >= 0.5
    assert broker.left(name) == []


def test_a_call_that_asks_for_itself_again(broker: Broker, group: str) -> None:
    """A program that polls this way still gets its messages."""
    (name,) = broker.declare(1)
    broker.publish(name, "a")

    def on_message(channel: Any, method: Any, _: Any, __: bytes) -> None:
        channel.basic_ack(method.delivery_tag)
        channel.stop_consuming()

    def poll() -> None:
        connection.add_callback_threadsafe(poll)

    with connect(broker, group) as connection:
        channel = consume(connection, [name], on_message)
        poll()
        channel.start_consuming()
    assert broker.left(name) == []


def test_consuming_nothing(broker: Broker, group: str) -> None:
    """It ends at once, as with pika: on a channel without consumers, and after stop_consuming has removed them."""
    names = broker.declare(2)
    with connect(broker, group) as connection:
        other = connection.channel()
        other.start_consuming()
        channel = consume(connection, names, None)
        other.start_consuming()
        channel.stop_consuming()
        channel.start_consuming()


def test_a_timer_of_the_program(broker: Broker, group: str) -> None:
    """call_later works as with pika while no message arrives."""
    with connect(broker, group) as connection:
        channel = consume(connection, broker.declare(1), None)
        connection.call_later(0.01, channel.stop_consuming)
        channel.start_consuming()


@pytest.mark.parametrize("nap", ["sleep", "process_data_events"])
def test_callbacks_run_one_at_a_time(broker: Broker, group: str, nap: str) -> None:
    """Messages, timers and other threads' calls wait, also while a callback lets pika work."""
    (name,) = broker.declare(1)
    broker.publish(name, *range(4))
    steps: list[str] = []

    def step(what: str) -> None:
        steps.append(f"begin {what}")
        getattr(connection, nap)(0.05)
        steps.append(f"end {what}")

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        connection.add_callback_threadsafe(lambda: step(f"call {int(body)}"))
        connection.call_later(0, lambda: step(f"timer {int(body)}"))
        step(f"message {int(body)}")
        channel.basic_ack(method.delivery_tag)

    with connect(broker, group) as connection:
        consume(connection, [name], on_message)
        while len(steps) < 24:
            connection.process_data_events(0.05)
    assert [step.removeprefix("begin ") for step in steps[::2]] == [step.removeprefix("end ") for step in steps[1::2]]
    assert [step for step in steps if step.startswith("end m")] == [f"end message {n}" for n in range(4)]
    assert broker.left(name) == []


def test_consuming_cannot_begin_in_a_callback(broker: Broker, group: str) -> None:
    """As with pika, in any kind of callback."""
    (name,) = broker.declare(1)
    broker.publish(name, "a")

    def on_message(channel: Any, method: Any, _: Any, __: bytes) -> None:
        with pytest.raises(pika_errors.ReentrancyError):
            channel.start_consuming()
        channel.basic_ack(method.delivery_tag)
        connection.call_later(0, in_a_timer)

    def in_a_timer() -> None:
        with pytest.raises(pika_errors.ReentrancyError):
            channel.start_consuming()
        channel.stop_consuming()

    with connect(broker, group) as connection:
        channel = consume(connection, [name], on_message)
        channel.start_consuming()
    assert broker.left(name) == []


# -- acknowledging -----------------------------------------------------------------------------------------------------


def test_what_a_group_cannot_do(broker: Broker, group: str) -> None:
    """Each error says what to do instead."""
    (name,) = broker.declare(1)
    with connect(broker, group) as connection:
        channel = connection.channel()
        with pytest.raises(UsageError, match="auto_ack"):
            channel.basic_consume(name, print, auto_ack=True)
        with pytest.raises(UsageError, match="arguments"):
            channel.basic_consume(name, print, arguments={"x-priority": 1})
        with pytest.raises(UsageError, match="basic_consume"):
            channel.consume(name)
        with pytest.raises(UsageError, match="basic_nack"):
            channel.basic_recover()
        with pytest.raises(UsageError, match="basic_get"):
            channel.basic_get(name)
        with pytest.raises(UsageError, match="named by the server"):
            channel.basic_consume("amq.gen-1234", print)
        with pytest.raises(UsageError, match="unknown"):
            channel.basic_ack(7)
        channel.basic_consume(name, print)
        with pytest.raises(UsageError, match="only one"):
            channel.basic_consume(name, print)
        assert channel.basic_get(name, auto_ack=True) == (None, None, None)


def test_a_missing_queue(broker: Broker, group: str) -> None:
    """The error is pika's own, raised at the same place."""
    with connect(broker, group) as connection, pytest.raises(pika_errors.ChannelClosedByBroker, match="404"):
        connection.channel().basic_consume("dropin-nowhere", print)


def test_an_unguarded_queue(broker: Broker, group: str) -> None:
    """RabbitMQ serves a quorum queue to any number of consumers, so this must be requested."""
    (name,) = broker.declare(1, **{"x-queue-type": "quorum"})
    with connect(broker, group) as connection:
        channel = consume(connection, [name], lambda *_: None)
        with pytest.raises(Unguarded):
            channel.start_consuming()
    with connect(broker, group, require_guard=False) as connection:
        channel = consume(connection, [name], lambda *_: None)
        connection.add_callback_threadsafe(channel.stop_consuming)
        channel.start_consuming()


@pytest.mark.parametrize("require_guard", [True, False])
def test_a_stream(broker: Broker, group: str, *, require_guard: bool) -> None:
    """Nobody would know where its next holder goes on: RabbitMQ shows a consumer what is published from then on."""
    names = broker.declare(1, **{"x-queue-type": "stream"})
    with connect(broker, group, require_guard=require_guard) as connection:
        channel = consume(connection, names, lambda *_: None)
        connection.call_later(0, channel.stop_consuming)
        with pytest.raises(Unguarded, match="is a stream"):
            channel.start_consuming()


def test_a_queue_that_was_declared_anew(broker: Broker, group: str) -> None:
    """It is consumed as it is now."""
    (name,) = broker.declare(1)
    handled: Handled = queue.SimpleQueue()
    program = Program(broker, group, [name], handled)
    broker.publish(name, "a")
    assert handled.get(timeout=DEADLINE_S)[2] == "a"
    broker.declare_anew(name, **{"x-message-ttl": 600_000})
    broker.publish(name, "b")
    assert handled.get(timeout=DEADLINE_S)[2] == "b"
    program.stop()


def test_unreachable_servers(broker: Broker, group: str) -> None:
    """Both errors are ones on which programs written for pika retry."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(pika_errors.AMQPConnectionError):
        GroupConnection(f"amqp://guest:guest@127.0.0.1:{port}/", group=group)
    with GroupConnection(broker.url, group=group, redis_url=f"redis://127.0.0.1:{port}") as connection:
        channel = consume(connection, broker.declare(1), lambda *_: None)
        with pytest.raises(pika_errors.AMQPConnectionError) as raised:
            channel.start_consuming()
    assert isinstance(raised.value, GroupUnreachable)
    assert str(port) in str(raised.value)


def test_url_of_parameters() -> None:
    """Special characters are escaped, the heartbeat is left out, and no repr shows a password."""
    login = pika.PlainCredentials("me@home", "p/w:?")
    parameters = pika.ConnectionParameters("::1", 5673, "/a b", login, heartbeat=600)
    assert url_of(parameters) == "amqp://me%40home:p%2Fw%3A%3F@[::1]:5673/%2Fa%20b"
    assert url_of(pika.URLParameters("amqp://u:p@h/%2F?heartbeat=5")) == "amqp://u:p@h:5672/%2F"
    tls = pika.ConnectionParameters("h", ssl_options=pika.SSLOptions(ssl.create_default_context()))
    with pytest.raises(UsageError, match="amqps://"):
        url_of(tls)
