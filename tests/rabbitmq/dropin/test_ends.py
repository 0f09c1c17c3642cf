"""How drop-in programs end: exceptions, lost connections, hung callbacks, forks; and how they go on."""

from __future__ import annotations

import queue
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from pika import exceptions as pika_errors
from tests.interruptions import interrupted
from tests.programs import NO_MORE_THREADS, create_group, programs
from tests.rabbitmq.dropin.parts import DEADLINE_S, SETTINGS, Broker, Handled, Program, connect, consume, ends, reasons
from tests.streams import cut

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.rabbitmq.dropin.connection import GroupConnection
from cobalance.settings import GroupSettings, MemberSettings


def test_an_exception_in_a_callback(broker: Broker, group: str) -> None:
    """start_consuming raises it, and may be called again; the unacknowledged message stays with this process."""
    (name,) = broker.declare(1)
    broker.publish(name, *range(3))
    seen = []

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        seen.append((body, method.delivery_tag))
        if body == b"1":
            raise KeyError(body)
        channel.basic_ack(method.delivery_tag)
        if body == b"2":
            channel.stop_consuming()

    with connect(broker, group) as connection:
        channel = consume(connection, [name], on_message)
        with pytest.raises(KeyError):
            channel.start_consuming()
        channel.start_consuming()
        channel.basic_ack(seen[1][1])
    assert [body for body, _ in seen] == [b"0", b"1", b"2"]
    assert broker.left(name) == []


def test_the_queue_goes_on_after_an_exception(broker: Broker, group: str) -> None:
    """A program that records the failure, settles the message and consumes again gets the following messages."""
    (name,) = broker.declare(1)
    broker.publish(name, "bad")
    seen: list[bytes] = []

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        seen.append(body)
        if body == b"bad":
            raise KeyError(method.delivery_tag)
        channel.basic_ack(method.delivery_tag)
        channel.stop_consuming()

    with connect(broker, group) as connection:
        channel = consume(connection, [name], on_message)
        with pytest.raises(KeyError) as raised:
            channel.start_consuming()
        channel.basic_ack(raised.value.args[0])
        broker.publish(name, "good")
        channel.start_consuming()
    assert seen == [b"bad", b"good"]
    assert broker.left(name) == []


def test_a_call_that_fails_while_leaving(broker: Broker, group: str) -> None:
    """Its error comes out of close, and the queue is handed over all the same."""
    (name,) = broker.declare(1)
    broker.publish(name, "a")
    connection = connect(broker, group, member=MemberSettings(drain_timeout_ms=60_000))
    consume(connection, [name], lambda channel, *_: channel.stop_consuming()).start_consuming()
    connection.add_callback_threadsafe(_interrupt)
    with pytest.raises(KeyboardInterrupt):
        connection.close()
    assert connection.is_closed
    assert ends(group) == {"released": 1}
    assert broker.left(name) == [("a", True)]


def test_ctrl_c(broker: Broker, group: str) -> None:
    """KeyboardInterrupt while waiting, stop_consuming, close: the usual way to end."""
    (name,) = broker.declare(1)
    with connect(broker, group) as connection:
        channel = consume(connection, [name], lambda *_: None)
        connection.add_callback_threadsafe(_interrupt)
        with pytest.raises(KeyboardInterrupt):
            channel.start_consuming()
        channel.stop_consuming()
    assert ends(group).get("abandoned") is None


def _interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("step", [pytest.param(9, id="some"), pytest.param(1, id="all", marks=pytest.mark.thorough)])
def test_leaving_that_a_signal_handler_interrupts(step: int, broker: Broker, group: str) -> None:
    """By raising, at any moment: leaving once more ends it, and the program may consume again."""
    (name,) = broker.declare(1)
    handled: list[bytes] = []

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        handled.append(body)
        channel.basic_ack(method.delivery_tag)

    moment, is_interrupted = 0, True
    with connect(broker, group) as connection:
        while is_interrupted:
            broker.publish(name, moment)
            consume(connection, [name], on_message)
            while len(handled) <= moment // step:
                connection.process_data_events(0.05)
            connection._cancelled.update(connection._consumers)  # as close() does
            is_interrupted = interrupted(connection.leave, moment)
            connection.leave()
            moment += step
    assert moment > 50
    assert len(handled) == moment // step


def test_consuming_again_after_stopping(broker: Broker, group: str) -> None:
    """A new basic_consume joins the group again."""
    (name,) = broker.declare(1)
    seen: list[bytes] = []

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        seen.append(body)
        channel.basic_ack(method.delivery_tag)
        channel.stop_consuming()

    with connect(broker, group) as connection:
        for body in ("a", "b"):
            broker.publish(name, body)
            consume(connection, [name], on_message).start_consuming()
    assert seen == [b"a", b"b"]


def test_lost_connections(broker: Broker, group: str) -> None:
    """The group's connection is restored and unacknowledged messages are redelivered; late acks have no effect.

    The connection for everything else is not missed until it is used.
    """
    (name,) = broker.declare(1)
    broker.publish(name, *range(5))
    seen: list[tuple[int, bool]] = []
    tags: list[int] = []

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        seen.append((int(body), method.redelivered))
        tags.append(method.delivery_tag)
        if len(seen) == 3:
            _cut(connection)
        elif len(seen) == 5:
            channel.basic_ack(tags[0])
        elif len(seen) == 8:
            channel.basic_ack(method.delivery_tag, multiple=True)
            channel.stop_consuming()

    connection = connect(broker, group)
    channel = consume(connection, [name], on_message)
    channel.start_consuming()
    with pytest.raises(pika_errors.AMQPError):
        channel.basic_publish("", name, b"")
    connection.close()
    assert seen == [*((n, False) for n in range(3)), *((n, True) for n in range(5))]
    assert broker.left(name) == []


def _cut(connection: GroupConnection) -> None:
    """Drops both of its TCP connections, and returns once the group has noticed."""
    noticed = cut(connection._membership._group.partitions.connection)  # type: ignore[union-attr]
    _cut_own(connection)
    assert noticed.wait(DEADLINE_S)


def _cut_own(connection: GroupConnection) -> None:
    """Drops the TCP connection that the group does not use."""
    own: Any = connection._pika
    own._impl._transport._sock.shutdown(socket.SHUT_RDWR)


def test_a_program_that_connects_again_after_a_lost_connection(broker: Broker, group: str) -> None:
    """The usual recovery loop: an error of the lost connection ends the membership, so that the next one has the queue."""
    (name,) = broker.declare(1)
    broker.publish(name, *range(3))
    seen: list[tuple[int, bool]] = []

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        seen.append((int(body), method.redelivered))
        if len(seen) == 2:
            _cut_own(channel.connection)
        channel.basic_publish("", "nowhere", b"")
        channel.basic_ack(method.delivery_tag)
        if len(seen) == 4:
            channel.stop_consuming()

    rounds: list[GroupConnection] = []  # keeps them
    while len(seen) < 4:
        try:
            rounds.append(connect(broker, group))
            consume(rounds[-1], [name], on_message).start_consuming()
        except pika_errors.AMQPConnectionError:
            assert ends(group) == {"released": 1}
    rounds[-1].close()
    assert len(rounds) == 2
    assert seen == [(0, False), (1, False), (1, True), (2, True)]
    assert broker.left(name) == []


def test_consuming_again_on_a_lost_connection(broker: Broker, group: str) -> None:
    """A channel that is kept goes on consuming: it becomes a member again."""
    (name,) = broker.declare(1)
    broker.publish(name, "a")
    seen: list[bool] = []

    def on_message(channel: Any, method: Any, _: Any, __: bytes) -> None:
        seen.append(method.redelivered)
        if len(seen) == 1:
            _cut_own(channel.connection)
            channel.basic_publish("", "nowhere", b"")
        channel.basic_ack(method.delivery_tag)
        channel.stop_consuming()

    connection = connect(broker, group)
    channel = consume(connection, [name], on_message)
    with pytest.raises(pika_errors.AMQPConnectionError):
        channel.start_consuming()
    channel.start_consuming()
    connection.close()
    assert seen == [False, True]
    assert broker.left(name) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pika's sockets
def test_a_connection_that_is_dropped_without_closing_gives_its_queues_back(broker: Broker, group: str) -> None:
    """A loop that starts over after any exception gets them, as it would with pika."""
    (name,) = broker.declare(1)
    broker.publish(name, "a", "b")
    seen: list[tuple[bytes, bool]] = []

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        seen.append((body, method.redelivered))
        if len(seen) == 1:
            raise KeyError(body)
        channel.basic_ack(method.delivery_tag)
        if body == b"b":
            channel.stop_consuming()

    with suppress(KeyError):
        consume(connect(broker, group), [name], on_message).start_consuming()
    with connect(broker, group) as connection:
        connection.call_later(DEADLINE_S, connection.stop)
        consume(connection, [name], on_message).start_consuming()
    assert seen == [(b"a", False), (b"a", True), (b"b", True)]
    assert broker.left(name) == []


class Hanging(Program):
    """A program whose callback does not return until released."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.release, self.hung = threading.Event(), threading.Event()
        super().__init__(*args, **options)

    def on_message(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """Hangs first."""
        self.hung.set()
        assert self.release.wait(4 * DEADLINE_S)  # beyond those of the test
        super().on_message(channel, method, properties, body)


def test_a_queue_is_not_released_while_its_callback_runs(broker: Broker, group: str) -> None:
    """A callback cannot be stopped: the next holder waits, here for much longer than a handover takes."""
    names = broker.declare(2)
    for name in names:
        broker.publish(name, "a", "b")
    handled: Handled = queue.SimpleQueue()
    first = Hanging(broker, group, names, handled, member=MemberSettings(max_processing_ms=400))
    assert first.hung.wait(DEADLINE_S)
    second = Program(broker, group, names, handled)
    (free,) = {name for _, name, _ in (handled.get(timeout=DEADLINE_S) for _ in range(2))}
    (hung,) = set(names) - {free}
    with pytest.raises(queue.Empty):
        handled.get(timeout=1)
    assert set(reasons(group)) == {"hung"}  # the other program's, which may get it back before this one has joined
    first.release.set()
    rest = [handled.get(timeout=DEADLINE_S) for _ in range(3)]
    assert [(who, name, body) for who, name, body in rest] == [
        (first, hung, "a"),  # whose acknowledgement came too late
        (second, hung, "a"),
        (second, hung, "b"),
    ]
    first.stop()
    second.stop()


def test_a_callback_may_leave(broker: Broker, group: str) -> None:
    """Leaving cannot wait for the callback that it is called in."""
    (name,) = broker.declare(1)
    broker.publish(name, "a", "b")
    with connect(broker, group) as connection:

        def leave(channel: Any, *_: Any) -> None:
            began = time.monotonic()
            channel.close()
            assert time.monotonic() - began < SETTINGS.session_timeout_ms / 1000

        consume(connection, [name], leave).start_consuming()
    assert broker.left(name) == [("a", True), ("b", True)]


@pytest.mark.thorough
def test_a_hung_callback_costs_the_program_its_queues(broker: Broker, group: str) -> None:
    """It loses every queue that has messages for its one thread. The membership goes on."""
    names = broker.declare(4)
    for name in names:
        broker.publish(name, "a")
    handled: Handled = queue.SimpleQueue()
    # Long enough for the other one to join: what nobody else could try waits for longer and longer.
    member = MemberSettings(max_processing_ms=8_000, drain_timeout_ms=1_000)
    first = Hanging(broker, group, names, handled, member=member)
    assert first.hung.wait(DEADLINE_S)
    second = Program(broker, group, names, handled)
    got = sorted((name, body) for _, name, body in (handled.get(timeout=DEADLINE_S) for _ in names))
    assert got == sorted((name, "a") for name in names)
    assert reasons(group).count("overlap") == 1
    first.release.set()
    first.stop()
    second.stop()
    assert ends(group).get("expired") is None


@pytest.mark.parametrize("python", ["before 3.12", "since 3.12"])
@pytest.mark.thorough
def test_leaves_when_the_program_ends_without_closing(
    redis_url: str, amqp_url: str, broker: Broker, group: str, *, python: str, tmp_path: Any
) -> None:
    """An exception ends the program; the interpreter's exit still hands everything over, though no thread can be started."""
    names = broker.declare(2)
    broker.publish(names[0], "x")
    create_group(redis_url, group, GroupSettings())
    program = tmp_path / "program.py"
    program.write_text(
        f"{NO_MORE_THREADS}"
        f"from cobalance.rabbitmq.dropin.connection import GroupConnection\n"
        f"def on_message(*_):\n"
        f"    {'end_as_python_3_12()' if python == 'since 3.12' else ''}\n"
        f"    raise SystemExit(0)\n"
        f"channel = GroupConnection({amqp_url!r}, group={group!r}, redis_url={redis_url!r}).channel()\n"
        f"for name in {names!r}: channel.basic_consume(name, on_message)\n"
        f"channel.start_consuming()\n"
    )
    with programs(redis_url, amqp_url) as run:
        run.wait(run.start(program))
        assert run.errors() == ""
    transport = open_transport(redis_url)
    coordinator = Coordinator(transport, group)
    assert [row for row in coordinator.resources() if row.owner] == []
    transport.close()
    assert broker.left(names[0]) == [("x", True)]


FORKING = """
import contextlib, os, signal, sys
from cobalance.rabbitmq.dropin.connection import GroupConnection
amqp_url, redis_url, group, name, scope = sys.argv[1:]
def on_message(channel, method, _, body):
    if body == b"fork":
        child = os.fork()
        if not child:
            signal.alarm(10)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
    channel.basic_ack(method.delivery_tag)
    if body == b"stop":
        channel.basic_publish("", name, b"still connected")
        channel.stop_consuming()
connection = GroupConnection(amqp_url, group=group, redis_url=redis_url)
with connection if scope == "with" else contextlib.nullcontext():
    with connection.channel() if scope == "with" else contextlib.nullcontext(connection.channel()) as channel:
        channel.basic_consume(name, on_message)
        channel.start_consuming()
"""


@pytest.mark.parametrize("scope", ["with", "without"])
@pytest.mark.thorough
def test_a_fork_may_end(broker: Broker, group: str, tmp_path: Any, scope: str) -> None:
    """A callback forks, and the child ends in some way: membership and connections stay with the parent."""
    (name,) = broker.declare(1)
    broker.publish(name, "fork", "stop")
    program = tmp_path / "program.py"
    program.write_text(FORKING)
    redis_url = f"memory://{group}"
    with programs(redis_url, broker.url) as run:
        run.wait(run.start(program, broker.url, redis_url, group, name, scope))
    assert [body for body, _ in broker.left(name)] == ["still connected"]


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_it_is_ready_while_it_consumes(broker: Broker, group: str) -> None:
    """As a probe in another thread sees it."""
    (name,) = broker.declare(1)
    broker.publish(name, "a")
    seen = []

    def on_message(channel: Any, method: Any, _: Any, __: bytes) -> None:
        seen.append(connection.health)
        channel.basic_ack(method.delivery_tag)
        channel.stop_consuming()

    with connect(broker, group) as connection:
        channel = consume(connection, [name], on_message)
        assert (connection.health.live, connection.health.ready) == (True, False)
        channel.start_consuming()
        assert (connection.health.live, connection.health.ready) == (True, False)
    (while_it_consumes,) = seen
    assert (while_it_consumes.state, while_it_consumes.ready, while_it_consumes.held) == ("member", True, 1)
