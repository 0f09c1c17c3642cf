"""Programs written for pika as members of a group: callbacks, acknowledgements, order, leaving, and what is refused."""

from __future__ import annotations

import itertools
import queue
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pika
import pytest
from pika import exceptions as pika_errors
from tests.programs import create_group, programs

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.errors import Unguarded, UsageError
from cobalance.journal import Journal
from cobalance.rabbitmq.dropin.connection import GroupConnection, GroupUnreachable, url_of
from cobalance.settings import GroupSettings, MemberSettings

SETTINGS = GroupSettings(
    session_timeout_ms=1_000, heartbeat_interval_ms=200, revocation_timeout_ms=4_000, gather_ms=20, rejoin_grace_ms=0
)
DEADLINE_S = 30


class Broker:
    """Queues for one test, and their contents."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self.queues: list[str] = []

    def declare(self, count: int, **arguments: Any) -> list[str]:
        names = [f"dropin-{uuid.uuid4().hex[:8]}" for _ in range(count)]
        for name in names:
            self._channel.queue_declare(name, durable=True, arguments=arguments or None)
        self.queues += names
        return names

    def declare_anew(self, name: str, **arguments: Any) -> None:
        self._channel.queue_delete(name)
        self._channel.queue_declare(name, durable=True, arguments=arguments)

    def publish(self, name: str, *bodies: object) -> None:
        for body in bodies:
            self._channel.basic_publish("", name, str(body).encode())

    def left(self, name: str) -> list[tuple[str, bool]]:
        """Empties a queue; returns each body, and whether it was delivered before."""
        found = []
        while (got := self._channel.basic_get(name, auto_ack=True))[0] is not None:
            method, _, body = got
            found.append(((body or b"").decode(), bool(method.redelivered)))  # type: ignore[union-attr]
        return found

    def ready(self, name: str) -> int | None:
        """Number of ready messages."""
        return self._channel.queue_declare(name, passive=True).method.message_count

    def close(self) -> None:
        for name in self.queues:
            self._channel.queue_delete(name)
        self._connection.close()


@pytest.fixture
def broker(amqp_url: str) -> Iterator[Broker]:
    broker = Broker(amqp_url)
    yield broker
    broker.close()


@pytest.fixture
def group() -> str:
    return f"dropin-{uuid.uuid4().hex[:8]}"


def connect(broker: Broker, group: str, **options: Any) -> GroupConnection:
    """A program's connection to a group in this process."""
    options = {"settings": SETTINGS, **options}
    return GroupConnection(broker.url, group=group, redis_url=f"memory://{group}", **options)


def consume(connection: GroupConnection, queues: list[str], callback: Any) -> Any:
    """What every program does; returns its channel."""
    channel = connection.channel()
    channel.basic_qos(prefetch_count=10)
    for name in queues:
        channel.basic_consume(name, callback)
    return channel


Handled = queue.SimpleQueue[tuple["Program", str, str]]
"""Who handled what: program, queue, body."""


class Program:
    """A program on a thread of its own, which records what it handles."""

    def __init__(self, broker: Broker, group: str, queues: list[str], handled: Handled, **options: Any) -> None:
        self._handled = handled
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._connection = connect(broker, group, **options)
        self._queues = queues
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def on_message(self, channel: Any, method: Any, _: Any, body: bytes) -> None:
        """Records and acknowledges."""
        self._handled.put((self, method.routing_key, body.decode()))
        channel.basic_ack(method.delivery_tag)

    def _run(self) -> None:
        try:
            with self._connection:
                consume(self._connection, self._queues, self.on_message).start_consuming()
        except BaseException as error:  # noqa: BLE001 -- shown by stop
            self.failure = error

    def stop(self) -> None:
        """Stops consuming, from the program's own thread, and waits until it has ended."""
        self._connection.add_callback_threadsafe(self._connection.stop)
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()
        assert self.failure is None


# -- consuming ---------------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("refuse", ["basic_nack", "basic_reject"])
def test_requeue_keeps_the_order(broker: Broker, group: str, refuse: str) -> None:
    """A refused message is handled again, as redelivered, before any younger one; other queues go on."""
    names = broker.declare(2)
    broker.publish(names[0], *range(5))
    broker.publish(names[1], *range(5))
    seen: list[tuple[str, int, bool]] = []

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        seen.append((method.routing_key, int(body), method.redelivered))
        if method.routing_key == names[0] and body == b"2" and len(seen) < 10:
            getattr(channel, refuse)(method.delivery_tag)
        else:
            channel.basic_ack(method.delivery_tag)
        if len(seen) == 12:
            channel.stop_consuming()

    # Two refusals fit before the tenth message, because the lane waits 0.1 s and then 0.2 s while the other queue goes
    # on.
    with connect(broker, group) as connection:
        consume(connection, names, on_message)
        while sum(1 for name, number, _ in seen if (name, number) == (names[0], 4)) == 0:
            connection.process_data_events(time_limit=0.05)
    steps = [(number, again) for name, number, again in seen if name == names[0]]
    tries = [step for step in steps if step[0] == 2]
    assert tries[0] == (2, False)
    assert len(tries) > 1
    assert set(tries[1:]) == {(2, True)}
    assert [number for number, _ in steps] == [0, 1, *[2] * len(tries), 3, 4]
    assert [number for name, number, _ in seen if name == names[1]] == [0, 1, 2, 3, 4]
    assert broker.left(names[0]) == []


def test_rejected_messages_are_dead_lettered(broker: Broker, group: str) -> None:
    """basic_nack and basic_reject without requeue."""
    (dead,) = broker.declare(1)
    (name,) = broker.declare(1, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    broker.publish(name, *range(4))

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        if body == b"1":
            channel.basic_reject(method.delivery_tag, requeue=False)
        elif body == b"2":
            channel.basic_nack(method.delivery_tag, requeue=False)
        else:
            channel.basic_ack(method.delivery_tag)
        if body == b"3":
            channel.stop_consuming()

    with connect(broker, group) as connection:
        consume(connection, [name], on_message).start_consuming()
    assert broker.left(name) == []
    assert [body for body, _ in broker.left(dead)] == ["1", "2"]


def test_one_ack_covers_all_earlier_messages_of_its_channel(broker: Broker, group: str) -> None:
    """One ack covers all earlier messages of all queues of its channel, as in pika; a tag can be used once."""
    names = broker.declare(2)
    for name in names:
        broker.publish(name, *range(3))
    tags: list[int] = []

    def on_message(channel: Any, method: Any, _: Any, __: bytes) -> None:
        tags.append(method.delivery_tag)
        if len(tags) == 5:
            channel.basic_ack(method.delivery_tag, multiple=True)
            with pytest.raises(UsageError, match="unknown"):
                channel.basic_ack(tags[0])
        if len(tags) == 6:
            channel.basic_ack(0, multiple=True)
            channel.stop_consuming()

    with connect(broker, group) as connection:
        consume(connection, names, on_message).start_consuming()
    assert [broker.left(name) for name in names] == [[], []]


SETTLING = {"ack": ("basic_ack", {}), "nack": ("basic_nack", {"requeue": False})}


@pytest.mark.parametrize("is_all", [False, True], ids=["up to a tag", "all"])
@pytest.mark.parametrize("how", SETTLING)
def test_multiple_ends_at_its_channel(broker: Broker, group: str, how: str, is_all: bool) -> None:
    """What another channel has not acknowledged stays unacknowledged, however much older it is."""
    (dead,) = broker.declare(1)
    older, younger = broker.declare(2, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    broker.publish(older, "a", "b")
    seen: list[str] = []

    def keep(_: Any, __: Any, ___: Any, body: bytes) -> None:
        seen.append(body.decode())
        if len(seen) == 2:
            broker.publish(younger, "c", "d")

    def settle(channel: Any, method: Any, _: Any, body: bytes) -> None:
        seen.append(body.decode())
        if body == b"d":
            name, options = SETTLING[how]
            getattr(channel, name)(0 if is_all else method.delivery_tag, multiple=True, **options)
            channel.stop_consuming()

    with connect(broker, group) as connection:
        consume(connection, [older], keep)
        consume(connection, [younger], settle).start_consuming()
    assert seen == ["a", "b", "c", "d"]
    assert broker.left(younger) == []
    assert [body for body, _ in broker.left(dead)] == (["c", "d"] if how == "nack" else [])
    assert broker.left(older) == [("a", True), ("b", True)]


def test_what_is_not_acknowledged_goes_back_in_order(broker: Broker, group: str) -> None:
    """As with pika, closing returns it to the queue; the process still leaves at once."""
    (name,) = broker.declare(1)
    broker.publish(name, *range(6))

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        if int(body) < 2:
            channel.basic_ack(method.delivery_tag)
        if body == b"4":
            channel.stop_consuming()

    with connect(broker, group, member=MemberSettings(drain_timeout_ms=60_000)) as connection:
        consume(connection, [name], on_message).start_consuming()
    assert broker.left(name) == [("2", True), ("3", True), ("4", True), ("5", True)]
    assert _ends(group) == {"released": 1}


@pytest.mark.parametrize("unacknowledged", [["0"], ["1", "3"], ["0", "1", "2", "3"]], ids="-".join)
def test_gaps_go_back_when_the_program_closes(broker: Broker, group: str, unacknowledged: list[str]) -> None:
    """Nobody can acknowledge any more, so leaving does not wait for it; younger messages stay acknowledged."""
    (name,) = broker.declare(1)
    broker.publish(name, *range(4))

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        if body.decode() not in unacknowledged:
            channel.basic_ack(method.delivery_tag)
        if body == b"3":
            channel.stop_consuming()

    with connect(broker, group, member=MemberSettings(drain_timeout_ms=60_000)) as connection:
        consume(connection, [name], on_message).start_consuming()
    assert _ends(group) == {"released": 1}
    assert broker.left(name) == [(body, True) for body in unacknowledged]


def test_a_message_to_be_handled_again_behind_an_acknowledged_one_moves_with_its_queue(
    broker: Broker, group: str
) -> None:
    """A revocation does not wait for it: the next holder gets it."""
    names = broker.declare(2)
    for name in names:
        broker.publish(name, "a", "b")
    handled: Handled = queue.SimpleQueue()
    first = Refusing(broker, group, names, handled)
    assert sorted(handled.get(timeout=DEADLINE_S)[2] for _ in names) == ["b", "b"]
    second = Program(broker, group, names, handled)
    who, _, body = handled.get(timeout=DEADLINE_S)
    assert (who, body) == (second, "a")
    assert _ends(group) == {"released": 1}
    first.stop()
    assert handled.get(timeout=DEADLINE_S)[::2] == (second, "a")
    second.stop()
    assert [broker.left(name) for name in names] == [[], []]


class Refusing(Program):
    """A program that acknowledges b, and asks for a again, time after time."""

    def __init__(self, *args: Any) -> None:
        self._refused: dict[str, int] = {}
        super().__init__(*args)

    def on_message(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """Refuses a once b is acknowledged, and from then on."""
        if body == b"b":
            super().on_message(channel, method, properties, body)
            channel.basic_nack(self._refused[method.routing_key])
        elif method.redelivered:
            channel.basic_nack(method.delivery_tag)
        self._refused[method.routing_key] = method.delivery_tag


def test_acknowledging_from_other_threads(broker: Broker, group: str) -> None:
    """As pika recommends for long tasks: threads acknowledge through the connection, also after stop_consuming."""
    (name,) = broker.declare(1)
    broker.publish(name, *range(5))
    stopped = threading.Event()
    threads = []

    def work(channel: Any, tag: int) -> None:
        assert stopped.wait(DEADLINE_S)
        channel.connection.add_callback_threadsafe(lambda: channel.basic_ack(tag))

    def on_message(channel: Any, method: Any, _: Any, __: bytes) -> None:
        threads.append(threading.Thread(target=work, args=(channel, method.delivery_tag)))
        threads[-1].start()
        if len(threads) == 5:
            channel.stop_consuming()

    with connect(broker, group) as connection:
        consume(connection, [name], on_message).start_consuming()
        stopped.set()
        for thread in threads:
            thread.join()
    assert broker.left(name) == []


def _ends(group: str) -> dict[str, int]:
    """How the tenures of a group in this process ended."""
    transport = open_transport(f"memory://{group}")
    kinds = [entry.kind for entry in Journal(transport, group).entries()]
    transport.close()
    return {kind: kinds.count(kind) for kind in ("released", "abandoned", "forced", "expired") if kind in kinds}


def _reasons(group: str) -> list[str]:
    """Why tenures of a group in this process were given up."""
    transport = open_transport(f"memory://{group}")
    reasons = [entry.reason or "" for entry in Journal(transport, group).entries() if entry.kind == "abandoned"]
    transport.close()
    return reasons


# -- channels ----------------------------------------------------------------------------------------------------------


def test_a_callback_may_use_a_channel_of_its_own(broker: Broker, group: str) -> None:
    """For example to publish on: stopping or closing a channel that consumes nothing ends only that channel."""
    source, target = broker.declare(2)
    broker.publish(source, *range(3))

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        with connection.channel() as other:
            other.basic_publish("", target, body)
            other.stop_consuming()
        channel.basic_ack(method.delivery_tag)
        if body == b"2":
            channel.stop_consuming()

    with connect(broker, group) as connection:
        consume(connection, [source], on_message).start_consuming()
    assert [body for body, _ in broker.left(target)] == ["0", "1", "2"]
    assert broker.left(source) == []


def test_a_closed_channel_consumes_nothing(broker: Broker, group: str) -> None:
    """Its queues leave the group, whether consuming has begun or not."""
    names = broker.declare(2)
    for name in names:
        broker.publish(name, "a")
    seen: list[str] = []

    def on_message(channel: Any, method: Any, _: Any, __: bytes) -> None:
        seen.append(method.routing_key)
        channel.basic_ack(method.delivery_tag)
        channel.close()

    with connect(broker, group) as connection:
        closed, kept = (consume(connection, [name], on_message) for name in names)
        closed.close()
        kept.start_consuming()
        assert not kept.is_open
    assert seen == names[1:]
    assert [broker.ready(name) for name in names] == [1, 0]


def test_each_channel_counts_its_own_tags(broker: Broker, group: str) -> None:
    """From 1, so that a program may acknowledge every tenth message; no channel knows the tags of another."""
    names = broker.declare(2)
    broker.publish(names[0], *range(3))
    broker.publish(names[1], *range(3))
    tags: dict[str, list[int]] = {name: [] for name in names}

    def on_message(_: Any, method: Any, __: Any, ___: bytes) -> None:
        tags[method.routing_key].append(method.delivery_tag)
        if sum(map(len, tags.values())) == 6:
            first.stop_consuming()

    with connect(broker, group) as connection:
        first, second = (consume(connection, [name], on_message) for name in names)
        first.start_consuming()
        first.basic_ack(3)
        with pytest.raises(UsageError, match="unknown"):
            first.basic_ack(3)
        second.basic_ack(3, multiple=True)
        first.basic_ack(2, multiple=True)
    assert list(tags.values()) == [[1, 2, 3]] * 2
    assert [broker.left(name) for name in names] == [[], []]


def test_each_channel_has_its_own_prefetch(broker: Broker, group: str) -> None:
    """It holds for consumers that begin afterwards, as in RabbitMQ: a batch of 20 fits beside a channel of one by one."""
    batched, single = broker.declare(2)
    broker.publish(batched, *range(20))
    broker.publish(single, *range(3))
    seen: list[str] = []

    def on_message(_: Any, method: Any, __: Any, ___: bytes) -> None:
        seen.append(method.routing_key)
        if seen.count(batched) == 20 and single in seen:
            batches.stop_consuming()

    with connect(broker, group) as connection:
        batches, singles = connection.channel(), connection.channel()
        batches.basic_qos(prefetch_count=20)
        batches.basic_consume(batched, on_message)
        singles.basic_qos(prefetch_count=1)
        singles.basic_consume(single, on_message)
        batches.start_consuming()
        assert broker.ready(single) == 2
        batches.basic_ack(0, multiple=True)
    assert seen.count(single) == 1


def test_consumer_tags_belong_to_their_channel(broker: Broker, group: str) -> None:
    """Two channels may use the same one, and each cancels its own."""
    names = broker.declare(2)
    broker.publish(names[1], "a")
    seen: list[str] = []

    def on_message(channel: Any, method: Any, _: Any, __: bytes) -> None:
        seen.append(method.routing_key)
        channel.basic_ack(method.delivery_tag)
        assert channel.basic_cancel("mine") == []

    with connect(broker, group) as connection:
        first, second = connection.channel(), connection.channel()
        for channel, name in zip((first, second), names, strict=True):
            channel.basic_consume(name, on_message, consumer_tag="mine")
        with pytest.raises(pika_errors.DuplicateConsumerTag):
            first.basic_consume(broker.declare(1)[0], on_message, consumer_tag="mine")
        assert (first.consumer_tags, second.consumer_tags) == (["mine"], ["mine"])
        first.basic_cancel("mine")
        assert (first.consumer_tags, second.consumer_tags) == ([], ["mine"])
        second.start_consuming()
        assert second.consumer_tags == []
    assert seen == [names[1]]


def test_a_channel_that_stops_does_not_stop_the_one_that_consumes(broker: Broker, group: str) -> None:
    """As in pika. What was not acknowledged comes again, and an acknowledgement under its old tag has no effect."""
    names = broker.declare(2)
    broker.publish(names[0], "a", "b")
    seen: list[tuple[str, int]] = []

    def on_first(channel: Any, method: Any, _: Any, body: bytes) -> None:
        seen.append((body.decode(), method.delivery_tag))
        if len(seen) == 2:
            broker.publish(names[1], "c")
        elif len(seen) == 5:
            channel.basic_ack(1)
            channel.basic_ack(2, multiple=True)
            channel.basic_ack(3)
            channel.stop_consuming()

    def on_second(channel: Any, method: Any, _: Any, body: bytes) -> None:
        seen.append((body.decode(), method.delivery_tag))
        channel.basic_ack(method.delivery_tag)
        channel.stop_consuming()

    with connect(broker, group) as connection:
        channel = consume(connection, [names[0]], on_first)
        consume(connection, [names[1]], on_second)
        channel.start_consuming()
    assert seen == [("a", 1), ("b", 2), ("c", 1), ("a", 3), ("b", 4)]
    assert [broker.left(name) for name in names] == [[("b", True)], []]


@pytest.mark.parametrize("end", ["stop_consuming", "close"])
def test_the_end_of_one_channel_leaves_the_others_their_consumers(broker: Broker, group: str, end: str) -> None:
    """The next start_consuming joins the group with what is left."""
    names = broker.declare(2)
    seen: list[str] = []

    def on_message(channel: Any, method: Any, _: Any, __: bytes) -> None:
        seen.append(method.routing_key)
        channel.basic_ack(method.delivery_tag)
        getattr(channel, end)()

    with connect(broker, group) as connection:
        for name, channel in [(name, consume(connection, [name], on_message)) for name in names]:
            broker.publish(name, "a")
            channel.start_consuming()
    assert seen == names
    assert [broker.ready(name) for name in names] == [0, 0]


# -- failures ----------------------------------------------------------------------------------------------------------


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
    assert _ends(group) == {"released": 1}
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
    assert _ends(group).get("abandoned") is None


def _interrupt() -> None:
    raise KeyboardInterrupt


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
    lost = threading.Event()
    inner = connection._membership._group.connection  # type: ignore[union-attr]
    transport = inner._pika._transport  # type: ignore[union-attr]
    inner.submit(lambda: inner.add_end_listener(lambda _: lost.set()))
    inner.submit(lambda: transport._sock.shutdown(socket.SHUT_RDWR))
    _cut_own(connection)
    assert lost.wait(DEADLINE_S)


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
            assert _ends(group) == {"released": 1}
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
    """A loop that begins anew after any exception gets them, as it would with pika."""
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
    assert set(_reasons(group)) == {"hung"}  # the other program's, which may get it back before this one has joined
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


def test_a_hung_callback_costs_the_program_its_queues(broker: Broker, group: str) -> None:
    """It loses every queue that has messages for its one thread. The membership goes on."""
    names = broker.declare(4)
    for name in names:
        broker.publish(name, "a")
    handled: Handled = queue.SimpleQueue()
    # Long enough for the other one to join: what nobody else could try waits for longer and longer.
    member = MemberSettings(max_processing_ms=3_000, drain_timeout_ms=1_000)
    first = Hanging(broker, group, names, handled, member=member)
    assert first.hung.wait(DEADLINE_S)
    second = Program(broker, group, names, handled)
    got = sorted((name, body) for _, name, body in (handled.get(timeout=DEADLINE_S) for _ in names))
    assert got == sorted((name, "a") for name in names)
    assert _reasons(group).count("overlap") == 1
    first.release.set()
    first.stop()
    second.stop()
    assert _ends(group).get("expired") is None


def test_leaves_when_the_program_ends_without_closing(
    redis_url: str, amqp_url: str, broker: Broker, group: str, tmp_path: Any
) -> None:
    """An exception ends the program; the interpreter's exit still hands everything over."""
    names = broker.declare(2)
    broker.publish(names[0], "x")
    create_group(redis_url, group, GroupSettings())
    program = tmp_path / "program.py"
    program.write_text(
        f"from cobalance.rabbitmq.dropin.connection import GroupConnection\n"
        f"def on_message(*_): raise SystemExit(0)\n"
        f"channel = GroupConnection({amqp_url!r}, group={group!r}, redis_url={redis_url!r}).channel()\n"
        f"for name in {names!r}: channel.basic_consume(name, on_message)\n"
        f"channel.start_consuming()\n"
    )
    with programs(redis_url, amqp_url) as run:
        run.wait(run.start(program))
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
