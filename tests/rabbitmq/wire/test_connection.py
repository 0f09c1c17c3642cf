"""The connection on its own thread: errors are clear, losses are reported, and secrets stay secret."""

import logging
import queue
import socket
import threading
import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from pika import spec
from pika.channel import Channel
from pika.frame import Method
from tests.streams import cut

from cobalance.errors import (
    AuthenticationRefused,
    CobalanceError,
    NotRabbitMQ,
    Unreachable,
    UsageError,
    VirtualHostMissing,
)
from cobalance.rabbitmq.wire.connection import NO_FAREWELL, BrokerConnection
from cobalance.rabbitmq.wire.failures import loss_reason

SECRET = "s3cret-p4ssword"
WAIT_S = 60


@contextmanager
def connected(url: str, **arguments: object) -> Iterator[BrokerConnection]:
    """A connection that is open within the block."""
    connection = BrokerConnection(url, "group/member", **arguments)  # type: ignore[arg-type]
    connection.connect()
    try:
        yield connection
    finally:
        connection.close()


def receive(connection: BrokerConnection, method: Any) -> None:
    """Has the connection receive a frame, as if from the broker."""
    frame = Method(0, method).marshal()
    connection.submit(lambda: connection._pika._on_data_available(frame))  # type: ignore[union-attr]


def with_parts(
    url: str, *, user: str = "guest", password: str = SECRET, port: int | None = None, vhost: str = "%2F"
) -> str:
    """The URL with other credentials, port and virtual host."""
    parts = urlsplit(url)
    return f"amqp://{user}:{password}@{parts.hostname}:{port or parts.port}/{vhost}"


@contextmanager
def listener(reply: bytes | None) -> Iterator[int]:
    """A server that answers anything with `reply`, or, for None, never."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        held = []

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                held.append(client)
                if reply is not None:
                    client.recv(100)
                    client.sendall(reply)
                    client.close()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        for client in held:
            client.close()


def failure(url: str, timeout_ms: int = 10_000) -> CobalanceError:
    """The error of connecting there, after checking that no way of printing it shows a secret."""
    connection = BrokerConnection(url, "group/member")
    with pytest.raises(CobalanceError) as raised:
        connection.connect(timeout_ms)
    error = raised.value
    shown = "".join(traceback.format_exception(error)) + repr(error) + repr(connection)
    while (cause := error.__cause__ or error.__context__) is not None:
        shown, error = shown + repr(cause), cause  # type: ignore[assignment]
    assert SECRET not in shown
    assert not connection.is_open
    return raised.value


def test_wrong_password(amqp_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """The error names the place; no log, including pika's, contains the password."""
    caplog.set_level(logging.DEBUG)
    error = failure(with_parts(amqp_url))
    assert isinstance(error, AuthenticationRefused)
    assert str(urlsplit(amqp_url).port) in str(error)
    assert SECRET not in caplog.text


def test_missing_virtual_host(amqp_url: str) -> None:
    """The user may be valid elsewhere."""
    url = with_parts(amqp_url, password="guest", vhost="nowhere")
    error = failure(url)
    assert isinstance(error, VirtualHostMissing)
    assert "'nowhere'" in str(error)


def test_closed_port() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    error = failure(f"amqp://guest:{SECRET}@127.0.0.1:{port}/")
    assert isinstance(error, Unreachable)
    assert "connection refused" in str(error)


def test_unknown_host() -> None:
    """The name does not resolve."""
    error = failure(f"amqp://guest:{SECRET}@nowhere.invalid/")
    assert isinstance(error, Unreachable)
    assert "nowhere.invalid:5672" in str(error)


@pytest.mark.parametrize("reply", [b"-ERR unknown command\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_port_that_speaks_something_else(reply: bytes) -> None:
    """Redis, or a web server."""
    with listener(reply) as port:
        assert isinstance(failure(f"amqp://guest:{SECRET}@127.0.0.1:{port}/"), NotRabbitMQ)


@pytest.mark.parametrize("reply", [b"", b"\x01\0", b"\x01\0\0\0\0\x01\xff"])
def test_one_that_hangs_up_without_a_word_may_be_a_proxy_to_a_rabbitmq_that_is_down(reply: bytes) -> None:
    """So a retry is worthwhile; the same if it closes the connection during its greeting."""
    with listener(reply) as port:
        error = failure(f"amqp://guest:{SECRET}@127.0.0.1:{port}/")
    assert isinstance(error, Unreachable)
    assert "starting" in str(error)


def test_a_port_that_never_answers() -> None:
    """The timeout covers the handshake, too; it may be a RabbitMQ that is merely frozen."""
    with listener(None) as port:
        error = failure(f"amqp://guest:{SECRET}@127.0.0.1:{port}/", 300)
    assert isinstance(error, Unreachable)
    assert "no answer in time" in str(error)


def test_no_tls_there(amqp_url: str) -> None:
    """amqps:// to a plain port."""
    url = with_parts(amqp_url).replace("amqp:", "amqps:")
    assert isinstance(failure(url), Unreachable | NotRabbitMQ)


@pytest.mark.parametrize(
    "url",
    [
        f"http://guest:{SECRET}@localhost/",
        f"amqp://guest:{SECRET}/{SECRET}@localhost/",
        f"amqp://guest:{SECRET}@localhost:{SECRET}/",
        f"amqp://guest:{SECRET}@localhost/?heartbeat={SECRET}",
        SECRET,
    ],
)
def test_a_malformed_url(url: str) -> None:
    """The message says what a URL looks like, and does not quote this one."""
    with pytest.raises(UsageError) as raised:
        BrokerConnection(url, "group/member").connect()
    assert SECRET not in "".join(traceback.format_exception(raised.value)) + repr(raised.value.__context__)


@pytest.mark.parametrize("option", ["heartbeat=ten", "heartbeat=10&socket_timeout=-1"])
def test_an_option_with_an_invalid_value_is_named(option: str) -> None:
    """Only by its name: part of a password that was not percent-encoded may look like an option."""
    name = option.rpartition("&")[2].partition("=")[0]
    with pytest.raises(UsageError, match=f"invalid value of its option {name}"):
        BrokerConnection(f"amqp://guest:guest@localhost/?{option}", "test").connect()
    with pytest.raises(UsageError, match=r"unknown option.*there are .*heartbeat") as unknown:
        BrokerConnection("amqp://guest:guest@localhost/?heartbeet=10", "test").connect()
    assert "heartbeet" not in str(unknown.value)
    with pytest.raises(UsageError) as caught:
        BrokerConnection(f"amqp://guest:5/?word={option}@localhost/", "test").connect()
    assert "word" not in str(caught.value).replace("password", "")


def test_heartbeat_of_the_caller_unless_the_url_has_one(amqp_url: str) -> None:
    """The session timeout determines it, the operator can override it."""
    with connected(amqp_url, heartbeat_s=7) as ours, connected(f"{amqp_url}?heartbeat=13", heartbeat_s=7) as theirs:
        assert (parameters(ours).heartbeat, parameters(theirs).heartbeat) == (7, 13)
        assert parameters(ours).client_properties["connection_name"] == "group/member"


def parameters(connection: BrokerConnection) -> Any:
    """The negotiated parameters."""
    return connection._pika.params  # type: ignore[union-attr]


def test_jobs_run_in_order_on_the_io_thread(amqp_url: str) -> None:
    """From any thread, and never on the caller's."""
    done = queue.SimpleQueue[tuple[int, str]]()
    with connected(amqp_url) as connection:
        for number in range(100):
            connection.submit(lambda number=number: done.put((number, threading.current_thread().name)))  # type: ignore[misc]
        assert [done.get(timeout=WAIT_S) for _ in range(100)] == [(n, "amqp group/member") for n in range(100)]


def test_another_thread_with_the_number_of_the_one_that_has_ended(
    amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system gives numbers again: that one may wait for the connection."""
    with connected(amqp_url) as connection:
        told = queue.SimpleQueue[bool]()
        connection.submit(lambda: told.put(connection.is_own_thread))
        assert told.get(timeout=WAIT_S)
    monkeypatch.setattr(connection._thread, "_ident", threading.get_ident())
    assert not connection.is_own_thread


def test_a_lost_connection_is_told_once_and_can_be_made_again(amqp_url: str) -> None:
    """The end listeners are called first, so that partitions know before the member rejoins."""
    heard = queue.SimpleQueue[str]()
    with connected(amqp_url, on_lost=lambda reason: heard.put(f"lost: {reason}")) as connection:
        connection.submit(lambda: connection.add_end_listener(lambda _: heard.put("ended")))
        cut(connection)
        assert heard.get(timeout=WAIT_S) == "ended"
        assert heard.get(timeout=WAIT_S).startswith("lost: ")
        assert not connection.is_open
        assert not connection.submit(lambda: heard.put("never"))
        connection._thread.join(WAIT_S)  # type: ignore[union-attr]
        connection.connect()
        connection.submit(lambda: heard.put("again"))
        assert heard.get(timeout=WAIT_S) == "again"
    assert heard.empty()


def test_a_connection_is_not_lost_for_the_reason_of_an_earlier_one(amqp_url: str) -> None:
    """As if RabbitMQ did not answer when it is closed: nothing is heard of why it ended."""
    heard = queue.SimpleQueue[str]()
    with connected(amqp_url, on_lost=heard.put) as connection:
        cut(connection)
        assert heard.get(timeout=WAIT_S) != NO_FAREWELL
        connection.connect()
        connection.submit(connection._loop.stop)  # type: ignore[union-attr]
        assert heard.get(timeout=WAIT_S) == NO_FAREWELL


def fail() -> None:
    """A job with a bug."""
    raise ZeroDivisionError("a bug")


@pytest.mark.parametrize("how", ["given up", "failed", "cut"])
def test_channels_are_closed_however_their_connection_ends(
    amqp_url: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What comes late, on the next connection, must not take one for open. They hear of it before anybody else does."""
    heard, late = queue.SimpleQueue[Any](), queue.SimpleQueue[bool]()

    def listen(channel: Channel) -> None:
        channel.add_on_close_callback(lambda _, error: heard.put(loss_reason(error)))
        connection.add_end_listener(lambda _: heard.put("ended"))
        heard.put(channel)

    with connected(amqp_url, on_lost=heard.put) as connection:
        connection.submit(lambda: connection.open_channel(listen))
        channel = heard.get(timeout=WAIT_S)
        if how == "cut":
            cut(connection)
        else:
            connection.submit({"given up": connection._loop.stop, "failed": fail}[how])  # type: ignore[union-attr]
        reason, ended, lost = (heard.get(timeout=WAIT_S) for _ in range(3))
        assert (reason, ended) == (lost, "ended")
        connection.connect()
        connection.submit(lambda: late.put(channel.is_open))
        assert late.get(timeout=WAIT_S) is False
    assert "failed after its end" not in caplog.text


def test_closing_is_no_loss(amqp_url: str) -> None:
    """No loss is reported, and closing twice is harmless."""
    heard = queue.SimpleQueue[str]()
    with connected(amqp_url, on_lost=heard.put) as connection:
        connection.close()
        assert not connection.is_open
    assert heard.empty()


def test_blocked_and_unblocked_are_told(amqp_url: str) -> None:
    """A memory alarm at the broker."""
    heard = queue.SimpleQueue[bool]()
    with connected(amqp_url, on_blocked=heard.put) as connection:
        receive(connection, spec.Connection.Blocked("low on memory"))
        assert heard.get(timeout=WAIT_S) is True
        assert connection.blocked
        receive(connection, spec.Connection.Unblocked())
        assert heard.get(timeout=WAIT_S) is False
        assert not connection.blocked


@pytest.mark.parametrize("kind", [ZeroDivisionError, SystemExit])
def test_a_failing_job_ends_the_connection_and_says_so(
    amqp_url: str, caplog: pytest.LogCaptureFixture, kind: type[BaseException]
) -> None:
    """An I/O thread that dies unnoticed would be worse than any loss. The log says where it failed."""
    heard = queue.SimpleQueue[str]()

    def fail() -> None:
        raise kind("a bug")

    with connected(amqp_url, on_lost=heard.put) as connection:
        connection.submit(fail)
        assert "a bug" in heard.get(timeout=WAIT_S)
        assert "in fail" in caplog.text
        connection.connect()
        connection.submit(lambda: connection.add_end_listener(lambda _: fail()))
    assert caplog.text.count("in fail") == 2
