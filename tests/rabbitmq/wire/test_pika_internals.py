"""The private parts of pika that are relied upon: a new release that changes them fails here, and shows where."""

import logging
import queue
import time
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import BasicProperties, BlockingConnection, SelectConnection, URLParameters, spec
from pika.adapters.select_connection import EPollPoller, IOLoop
from pika.channel import Channel
from pika.exceptions import ChannelClosedByBroker, InvalidFrameError, StreamLostError
from pika.frame import Body, Frame, Header, Heartbeat, Method
from tests.faults.proxy import proxy_to
from tests.names import unique

from cobalance.errors import Unreachable
from cobalance.rabbitmq.topics.admin import connected
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.pika_internals import (
    PatientConnection,
    QuickConnection,
    bare_close,
    bare_close_blocking,
    calling_back,
    close_loop,
    frame_max,
    look_for_all,
)

WAIT_S = 60
QUEUE = "internals"


@pytest.fixture
def connection(amqp_url: str) -> Iterator[BrokerConnection]:
    """An open connection."""
    made = BrokerConnection(amqp_url, "test/internals")
    made.connect()
    yield made
    made.close()


def consuming(connection: BrokerConnection, messages: queue.SimpleQueue[tuple[BasicProperties, bytes]]) -> Channel:
    """A channel that consumes a new queue into `messages`."""
    ready: Future[Channel] = Future()

    def opened(channel: Channel) -> None:
        channel.queue_declare(QUEUE, auto_delete=True)
        channel.basic_consume(
            QUEUE,
            lambda _, __, properties, body: messages.put((properties, body)),
            callback=lambda _: ready.set_result(channel),
        )

    connection.submit(lambda: connection.open_channel(opened))
    return ready.result(WAIT_S)


def test_a_blocking_connections_largest_frame_is_what_was_agreed(amqp_url: str) -> None:
    """RabbitMQ closes the connection over a larger one. Its own default is 128 KiB."""
    parameters = URLParameters(amqp_url)
    for asked, agreed in ((parameters.frame_max, 131_072), (8_192, 8_192)):
        parameters.frame_max = asked
        connection = BlockingConnection(parameters)
        assert frame_max(connection) == agreed
        connection.close()


def test_pikas_resolver_of_our_hosts_is_recognised(caplog: pytest.LogCaptureFixture) -> None:
    """It is a thread of pika's own: what it logs of a connection of ours is lowered, and of any other is not."""
    unresolved = f"{unique('host')}.invalid"
    with caplog.at_level(logging.INFO), pytest.raises(Unreachable):
        BrokerConnection(f"amqp://{unresolved}", "test/internals").connect()
    assert [record.message for record in caplog.records if record.name.startswith("pika")] == []
    with caplog.at_level(logging.INFO):
        theirs = SelectConnection(
            URLParameters(f"amqp://{unresolved}"), on_open_error_callback=lambda it, _: it.ioloop.stop()
        )
        theirs.ioloop.start()
    theirs.ioloop.close()
    resolver = "pika.adapters.utils.selector_ioloop_adapter"
    assert [record.levelname for record in caplog.records if record.name == resolver] == ["ERROR"]


def test_a_bare_close_sends_nothing_but_channel_close(
    connection: BrokerConnection, caplog: pytest.LogCaptureFixture
) -> None:
    """No basic.cancel, no reject for what still arrives, no error in the log; and pika reports CloseOk."""
    channel = consuming(connection, queue.SimpleQueue())
    sent: list[str] = []
    closed: Future[None] = Future()
    send = connection._pika._send_method  # type: ignore[union-attr]

    def spy(number: int, method: object, content: object = None) -> None:
        sent.append(type(method).__name__)
        send(number, method, content)

    def close() -> None:
        for number in range(100):
            channel.basic_publish("", QUEUE, str(number).encode())
        connection._pika._send_method = spy  # type: ignore[union-attr]
        channel.add_on_close_callback(lambda *_: closed.set_result(None))
        bare_close(channel)

    connection.submit(close)
    closed.result(WAIT_S)
    assert sent == [spec.Channel.Close.__name__]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_blocking_channel_is_closed_as_barely(amqp_url: str) -> None:
    """No basic.cancel, and no reject for what it has not handed out yet."""
    connection = BlockingConnection(URLParameters(amqp_url))
    channel = connection.channel()
    channel.queue_declare(QUEUE, exclusive=True)
    for number in range(3):
        channel.basic_publish("", QUEUE, str(number).encode())
    next(channel.consume(QUEUE))
    sent: list[str] = []
    impl: Any = connection._impl  # type: ignore[attr-defined]
    send = impl._send_method

    def spy(number: int, method: object, content: object = None) -> None:
        sent.append(type(method).__name__)
        send(number, method, content)

    impl._send_method = spy
    bare_close_blocking(channel)
    assert (sent, channel.is_closed) == ([spec.Channel.Close.__name__], True)
    connection.close()


def test_pika_calls_nothing_back_meanwhile(amqp_url: str) -> None:
    """Not even a timer that is due, until afterwards. While pika itself is calling back, that is reported."""
    connection = BlockingConnection(URLParameters(amqp_url))
    outermost: list[bool] = []

    def timer() -> None:
        with calling_back(connection) as first:
            outermost.append(first)

    connection.call_later(0, timer)
    with calling_back(connection) as first:
        connection.process_data_events(0.05)  # type: ignore[arg-type]
        assert first
        assert not outermost
    connection.process_data_events()
    assert outermost == [False]
    connection.close()


@pytest.mark.parametrize("size", [0, 1, 4_000, 500_000])
def test_deliveries_arrive_whole_on_the_short_way(connection: BrokerConnection, size: int) -> None:
    """Without a body, in one frame, and in several."""
    messages: queue.SimpleQueue[tuple[BasicProperties, bytes]] = queue.SimpleQueue()
    channel = consuming(connection, messages)
    body = bytes(number % 251 for number in range(size))
    connection.submit(lambda: channel.basic_publish("", QUEUE, body, BasicProperties(headers={"n": size})))
    properties, received = messages.get(timeout=WAIT_S)
    assert received == body
    assert properties.headers == {"n": size}


class Recorder:
    """Stands in for a channel, and records what reaches it."""

    def __init__(self) -> None:
        self.frames: list[str] = []

    def _handle_content_frame(self, frame: Frame) -> None:
        self.frames.append(repr(frame))

    def other_method(self, frame: Frame) -> bool:
        """What pika's table of callbacks handles."""
        if isinstance(frame, Method) and not isinstance(frame.method, spec.Basic.Deliver):
            self._handle_content_frame(frame)
            return True
        return False

    def received(self) -> None:
        """A heartbeat."""
        self.frames.append("heartbeat")


def frames_read(kind: type[SelectConnection], chunks: list[bytes]) -> tuple[list[str], int, int, bytes]:
    """What a connection reads from bytes that arrive in these chunks."""
    connection: Any = kind.__new__(kind)
    recorder = Recorder()
    connection._frame_buffer, connection.bytes_received, connection.frames_received = b"", 0, 0
    connection._channels, connection._heartbeat_checker = {1: recorder}, recorder
    connection._process_callbacks = recorder.other_method
    for chunk in chunks:
        connection._on_data_available(chunk)
    unread = 0 if kind is SelectConnection else len(connection._frame_buffer)  # of which pika counts nothing
    return recorder.frames, connection.frames_received, connection.bytes_received - unread, connection._frame_buffer


def message(body: bytes) -> bytes:
    """The frames of a delivery, its body in pieces of 100 bytes."""
    properties = BasicProperties(headers={"n": len(body), "text": "ü"}, message_id="m-1")
    frames: list[Any] = [
        Method(1, spec.Basic.Deliver("tag", 7, False, "orders", "3")),
        Header(1, len(body), properties),
    ]
    frames += [Body(1, body[at : at + 100]) for at in range(0, len(body), 100)]
    return b"".join(frame.marshal() for frame in frames)


OTHERS = [
    Method(1, spec.Basic.QosOk()).marshal(),
    Heartbeat().marshal(),
    Method(1, spec.Channel.CloseOk()).marshal(),
]


@given(st.lists(st.sampled_from([message(b""), message(b"x" * 99), message(b"\xce" * 250), *OTHERS])), st.data())
def test_any_stream_in_any_chunks_is_read_as_pika_reads_it(parts: list[bytes], data: st.DataObject) -> None:
    """The same frames in the same order, the same counters, the same rest; bytes are counted as they arrive."""
    stream = b"".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    chunks = [stream[a:b] for a, b in pairwise([0, *cuts])]  # the rest is still on its way
    assert frames_read(QuickConnection, chunks) == frames_read(SelectConnection, chunks)


def test_a_broken_frame_is_left_to_pika() -> None:
    """Then pika ends the connection."""
    broken = message(b"x")[:-1] + b"!"
    for kind in (QuickConnection, SelectConnection):
        with pytest.raises(InvalidFrameError):
            frames_read(kind, [broken])


@pytest.mark.parametrize(
    "name", ["_on_data_available", "_read_frame", "_trim_frame_buffer", "_deliver_frame_to_channel"]
)
def test_the_methods_that_we_build_on_are_there(name: str) -> None:
    """If pika renamed one, our override would be dead code without notice."""
    assert callable(getattr(SelectConnection, name))


def test_a_connection_that_is_lost_as_an_answer_becomes_overdue_is_reported_as_lost(amqp_url: str) -> None:
    """As during an alarm: pika gives up a blocked connection after the same time as we do."""
    connection = PatientConnection(URLParameters(amqp_url), 0.2)
    impl = connection._impl

    def lose() -> None:
        impl._terminate_stream(StreamLostError("lost"))
        time.sleep(0.3)  # The loss takes effect after this, and then the answer is overdue.

    impl.ioloop.call_later(0.05, lose)
    with pytest.raises(StreamLostError, match="lost"):
        connection._flush_output(lambda: False)


def test_a_connection_that_is_lost_between_calls_leaves_nothing_open(amqp_url: str) -> None:
    """As by a RabbitMQ that shuts down as soon as it has let us in."""
    with proxy_to(amqp_url) as proxy, connected(proxy.through(amqp_url)) as admin:
        connection: Any = admin._connection
        loop = connection._impl.ioloop
        proxy.reset()
        while connection.is_open:
            loop.poll()
            loop.process_timeouts()
        assert loop._poller._w_interrupt is not None, "pika has not closed it"
    assert loop._poller._w_interrupt is None


def test_a_loop_without_a_selector_is_closed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the system had no file descriptor left for it. Its sockets are closed, too."""

    def fail(_: object) -> None:
        raise OSError("no more files")

    monkeypatch.setattr(EPollPoller, "_init_poller", fail)
    loop = IOLoop()
    with pytest.raises(OSError, match="no more files"):
        loop.start()
    waker = loop._poller._w_interrupt  # type: ignore[attr-defined]
    close_loop(loop)
    assert waker.fileno() == -1


def test_queues_that_are_looked_for_in_one_round_trip(amqp_url: str) -> None:
    """RabbitMQ closes the channel over the first that does not exist, and names it."""
    with connected(amqp_url) as admin, admin.channel("all") as channel:
        names = [unique("looked-for") for _ in range(3)]
        for name in names:
            channel.queue_declare(name, exclusive=True)
        look_for_all(channel, names)
        with pytest.raises(ChannelClosedByBroker, match="no queue 'missing-1'"):
            look_for_all(channel, [names[0], "missing-1", "missing-2", names[1]])
