"""What is relied upon of pika's private parts: a new pika release that changes them fails here, and says where."""

import queue
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from pika import BasicProperties, SelectConnection, spec
from pika.channel import Channel

from cobalance.rabbitmq.connection import BrokerConnection
from cobalance.rabbitmq.pika_internals import QuickConnection, bare_close

WAIT_S = 20
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


def test_a_bare_close_sends_nothing_but_channel_close(
    connection: BrokerConnection, caplog: pytest.LogCaptureFixture
) -> None:
    """No basic.cancel, no reject for what still arrives, no error in the log; and pika tells when CloseOk has come."""
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


@pytest.mark.parametrize("name", ["_process_frame", "_deliver_frame_to_channel", "_on_data_available"])
def test_the_methods_that_we_build_on_are_there(name: str) -> None:
    """Should pika rename one, an override of ours would be dead code that nobody notices."""
    assert callable(getattr(SelectConnection, name))
    assert QuickConnection._process_frame is not SelectConnection._process_frame  # type: ignore[attr-defined]
