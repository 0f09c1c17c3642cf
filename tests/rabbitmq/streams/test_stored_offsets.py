"""Streams that clients of RabbitMQ's stream protocol read, too: each offset that they store takes one of the stream's."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing

import anyio
import pytest
from pika.channel import Channel
from tests.consumers import channel, place, until
from tests.rabbitmq.streams.test_consumer import Reader
from tests.rabbitmq.wire.test_containment import publish_unreadable
from tests.reading import Reading, committed, settings
from tests.streams import Stream, connected, new_stream

from cobalance import servers
from cobalance.admin import GroupAdmin
from cobalance.admin.offset_plan import plan
from cobalance.errors import ChannelLost, PermissionMissing
from cobalance.rabbitmq.model.stream_settings import Start
from cobalance.rabbitmq.streams.probe import first_offset, offset_since
from cobalance.rabbitmq.streams.start import offset_before
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.servers.ports import free_port

WAIT_S = 60

STORE_OFFSET, QUERY_OFFSET, PEER_PROPERTIES, HANDSHAKE, AUTHENTICATE, TUNE, OPEN = 10, 11, 17, 18, 19, 20, 21


class StreamClient:
    """As much of the stream protocol as it takes to store an offset."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._stream = self._socket.makefile("rb")
        self._asked = 0
        for key, content in (
            (PEER_PROPERTIES, struct.pack(">I", 0)),
            (HANDSHAKE, b""),
            (AUTHENTICATE, _text("PLAIN") + struct.pack(">I", 12) + b"\0guest\0guest"),
        ):
            self._ask(key, content)
        key, limits = self._receive()
        assert key == TUNE
        self._send(TUNE, limits)
        self._ask(OPEN, _text("/"))

    def store(self, stream: str, offset: int) -> None:
        """Returns once it is stored."""
        self._send(STORE_OFFSET, _text("reader") + _text(stream) + struct.pack(">Q", offset))
        while self._ask(QUERY_OFFSET, _text("reader") + _text(stream))[-8:] != struct.pack(">Q", offset):
            pass

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def _ask(self, key: int, content: bytes) -> bytes:
        self._asked += 1
        self._send(key, struct.pack(">I", self._asked) + content)
        answered, answer = self._receive()
        assert answered == key
        return answer

    def _send(self, key: int, content: bytes) -> None:
        self._socket.sendall(struct.pack(">IHH", 4 + len(content), key, 1) + content)

    def _receive(self) -> tuple[int, bytes]:
        (size,) = struct.unpack(">I", self._stream.read(4))
        frame = self._stream.read(size)
        return struct.unpack(">H", frame[:2])[0] & 0x7FFF, frame[4:]


def _text(it: str) -> bytes:
    return struct.pack(">H", len(it)) + it.encode()


@pytest.fixture(scope="module")
def stream_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(stream_port: int) -> Iterator[servers.OwnRabbitMQ]:
    """A RabbitMQ that speaks the stream protocol as well."""
    listener = {"stream.listeners.tcp.1": f"127.0.0.1:{stream_port}"}
    with servers.private_rabbitmq(plugins=["rabbitmq_stream"], settings=listener) as it:
        yield it


@pytest.fixture
def broker(server: servers.OwnRabbitMQ) -> str:
    """Its URL."""
    return server.url


@pytest.fixture
def connection(broker: str) -> Iterator[BrokerConnection]:
    it = BrokerConnection(broker, "test")
    it.connect()
    yield it
    it.close()


@pytest.fixture
def client(broker: str, stream_port: int) -> Iterator[StreamClient]:
    del broker  # started
    it = StreamClient(stream_port)
    yield it
    it.close()


@pytest.mark.parametrize("after", [-1, 0])
def test_offsets_without_a_message_are_no_messages_that_are_gone(
    broker: str, connection: BrokerConnection, client: StreamClient, after: int
) -> None:
    """A reader goes on behind them, whether it reads when they are stored or begins before them."""
    gaps: list[int] = []
    with new_stream(broker, 1) as stream:
        reading = Reader(connection, stream, -1, on_gap=noting(gaps)).start()
        assert reading.offsets(1) == [0]
        read = behind_stored_offsets(reading, client, stream)
        later = Reader(connection, stream, after, on_gap=noting(gaps)).start()
        assert later.offsets(2 - after) == [0, *read][after + 1 :]
    assert not gaps


def test_behind_an_unreadable_message_as_well(broker: str, connection: BrokerConnection, client: StreamClient) -> None:
    """The offset of the oldest message cannot be read, so it is asked whether the last one processed is still there."""
    gaps: list[int] = []
    with new_stream(broker, 0) as stream:
        publish_unreadable(broker, stream.name)
        stream.append(2)
        reading = Reader(connection, stream, 1, on_gap=noting(gaps)).start()
        assert reading.offsets(1) == [2]
        behind_stored_offsets(reading, client, stream)
    assert not gaps


@pytest.fixture
def few(server: servers.OwnRabbitMQ) -> Iterator[str]:
    """A user whose permission to read a test may withdraw."""
    server.control("add_user", "few", "few")
    server.control("set_permissions", "few", ".*", ".*", ".*")
    yield server.url.replace("guest:guest", "few:few")
    server.control("delete_user", "few")


@pytest.mark.thorough
def test_a_stream_that_may_not_be_examined_has_lost_nothing(
    server: servers.OwnRabbitMQ, few: str, client: StreamClient
) -> None:
    """RabbitMQ goes on serving a consumer whose user may not read any more, but refuses the query."""
    gaps: list[int] = []
    with new_stream(server.url, 1) as stream, connected(few) as connection:
        reading = Reader(connection, stream, -1, on_gap=noting(gaps)).start()
        assert reading.offsets(1) == [0]
        server.control("set_permissions", "few", ".*", ".*", "^$")
        store_offsets(client, stream)
        assert isinstance(reading.events.get(timeout=WAIT_S).error, PermissionMissing)
        assert reading.consumer.position == 0
        server.control("set_permissions", "few", ".*", ".*", ".*")
        again = Reader(connection, stream, 0, on_gap=noting(gaps)).start()
        assert len(again.offsets(2)) == 2
    assert not gaps


def test_a_query_that_failed_is_repeated(broker: str, client: StreamClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here another holds the last channel that the connection may have, until the query has failed once."""
    gaps: list[int] = []
    failures: list[BaseException | None] = []
    held: list[Channel] = []

    def ask(connection: BrokerConnection, stream: str, offset: int) -> Future[int | None]:
        asked = offset_since(connection, stream, offset)
        asked.add_done_callback(note)
        return asked

    def note(asked: Future[int | None]) -> None:
        failures.append(asked.exception())
        if held:
            held.pop().close()

    monkeypatch.setattr("cobalance.rabbitmq.streams.consumer.offset_since", ask)
    with new_stream(broker, 1) as stream, connected(f"{broker}?channel_max=2") as connection:
        reading = Reader(connection, stream, -1, on_gap=noting(gaps)).start()
        assert reading.offsets(1) == [0]
        opened = threading.Event()
        connection.submit(lambda: held.append(connection.open_channel(lambda _: opened.set())))
        assert opened.wait(WAIT_S)
        store_offsets(client, stream)
        assert len(reading.offsets(2)) == 2
    assert [isinstance(it, ChannelLost) for it in failures[:2]] == [True, False]
    assert not gaps


def test_messages_wait_while_rabbitmq_is_slow(
    broker: str,
    connection: BrokerConnection,
    client: StreamClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """That no message comes for two seconds does not mean that there is none."""
    gaps: list[int] = []
    module = "cobalance.rabbitmq.streams.consumer"
    for question in (first_offset, offset_since):
        monkeypatch.setattr(f"{module}.{question.__name__}", slow_once(question))
    monkeypatch.setattr("cobalance.rabbitmq.streams.continuity.DOUBT_MS", 10)
    with new_stream(broker, 1) as stream:
        reading = Reader(connection, stream, -1, on_gap=noting(gaps)).start()
        assert reading.offsets(1) == [0]
        store_offsets(client, stream)
        assert len(reading.offsets(2)) == 2
    assert not gaps
    assert "does not say where it begins" in caplog.text


def slow_once(question: Callable[..., Future[int | None]]) -> Callable[..., Future[int | None]]:
    """The first time nothing has come when it is no longer waited for."""
    nothing: Future[int | None] = Future()
    nothing.set_result(None)
    answers = [nothing]
    return lambda *args, **options: answers.pop() if answers else question(*args, **options)


@pytest.mark.parametrize("unreadable", [False, True])
def test_a_stream_that_was_made_anew_is_not_taken_for_the_old_one(
    broker: str, connection: BrokerConnection, client: StreamClient, *, unreadable: bool
) -> None:
    """Its beginning would be skipped: there are offsets without a message where the position was."""
    gaps: list[int] = []
    with new_stream(broker, 8) as stream:
        stream.make_anew()
        if unreadable:
            publish_unreadable(broker, stream.name)
        stream.append(4)
        store_offsets(client, stream)
        reading = Reader(connection, stream, 7, on_gap=noting(gaps)).start()
        assert "has older messages, but none at offset 7" in str(reading.events.get(timeout=WAIT_S).error)
        assert reading.consumer.position == 7
    assert not gaps


def test_a_position_that_is_chosen_is_that_of_a_message(
    broker: str, connection: BrokerConnection, client: StreamClient
) -> None:
    """Or the reader could not tell the stream from another; it goes on at the next message."""
    with new_stream(broker, 2) as stream:
        store_offsets(client, stream)
        first = anyio.run(offset_before, connection, stream.name, 4) + 1
        (step,) = plan(4, [stream.name], {}, broker, "scope")
        assert first == step.next > 4
        reading = Reader(connection, stream, step.committed).start()
        assert reading.offsets(2) == [first, first + 1]


@pytest.mark.parametrize("start", ["first", "next"])
def test_a_stream_in_which_nothing_is_but_offsets_is_begun(
    broker: str, connection: BrokerConnection, client: StreamClient, start: Start
) -> None:
    """Otherwise it would be looked up until something is published, which "next" then skips."""
    with new_stream(broker) as stream:
        until_counted(broker, client, stream)
        after = anyio.run(offset_before, connection, stream.name, start)
        stream.append(2)
        assert len(Reader(connection, stream, after).start().offsets(2)) == 2


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.thorough
async def test_such_a_stream_leaves_the_rest_of_the_group_described(
    broker: str, redis_url: str, client: StreamClient
) -> None:
    """Only its own lag is unknown."""
    told: list[str] = []
    with place(broker, redis_url) as here, new_stream(broker, 3) as other, new_stream(broker) as stream:
        until_counted(broker, client, stream)
        async with here.member([stream.name, other.name], Reading().handle, streams=settings(commit_every=1)):
            await until(lambda: (committed(here, stream), committed(here, other)) == (-1, 2))
        with closing(GroupAdmin(redis_url, amqp_url=broker)) as admin:
            backlogs = admin.backlogs(admin.describe(here.group), on_unknown=told.append)
    assert {name: it.lag for name, it in backlogs.items()} == {stream.name: None, other.name: 0}
    assert stream.name in told[0]


def until_counted(broker: str, client: StreamClient, stream: Stream) -> None:
    """Stores offsets until RabbitMQ counts them, which takes it some seconds."""
    with channel(broker) as it:
        for number in range(100_000):
            client.store(stream.name, number)
            if it.queue_declare(stream.name, passive=True).method.message_count:
                return
    raise AssertionError("they are never counted")


def store_offsets(client: StreamClient, stream: Stream) -> None:
    """Stores some, and publishes two messages behind them."""
    for number in range(5):
        client.store(stream.name, number)
    stream.append(2)


def behind_stored_offsets(reading: Reader, client: StreamClient, stream: Stream) -> list[int | None]:
    """Stores offsets, and reads what is published then; returns its offsets."""
    store_offsets(client, stream)
    read = reading.offsets(2)
    assert (read[0] or 0) > 4
    assert reading.consumer.position == read[1]
    return read


def noting(gaps: list[int]) -> Callable[[int], bool]:
    def on_gap(first: int) -> bool:
        gaps.append(first)
        return False

    return on_gap
