"""The fault proxy's faults do what their names say, as seen from ordinary sockets on both sides."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest
from tests.faults.proxy import HOST, FaultProxy

WAIT_S = 60.0


class Line:
    """A client's and a server's socket, with the proxy between them."""

    def __init__(self, proxy: FaultProxy, listening: socket.socket) -> None:
        self.client = socket.create_connection((HOST, proxy.port), WAIT_S)
        self.server, _ = listening.accept()
        self.server.settimeout(WAIT_S)

    def close(self) -> None:
        self.client.close()
        self.server.close()


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """The server behind the proxy."""
    with socket.create_server((HOST, 0)) as opened:
        opened.settimeout(WAIT_S)
        yield opened


@pytest.fixture
def proxy(listening: socket.socket) -> Iterator[FaultProxy]:
    """A proxy without faults yet."""
    with FaultProxy(listening.getsockname()[1]) as opened:
        yield opened


@pytest.fixture
def line(proxy: FaultProxy, listening: socket.socket) -> Iterator[Line]:
    """A connection through it that has carried something each way."""
    opened = Line(proxy, listening)
    opened.client.sendall(b"ping")
    assert opened.server.recv(4) == b"ping"
    opened.server.sendall(b"pong")
    assert opened.client.recv(4) == b"pong"
    yield opened
    opened.close()


def silent(end: socket.socket, seconds: float = 0.2) -> bool:
    """Whether nothing arrives for a while."""
    end.settimeout(seconds)
    try:
        end.recv(1)
    except TimeoutError:
        return True
    finally:
        end.settimeout(WAIT_S)
    return False


def test_a_delay_is_a_longer_way_and_keeps_order(proxy: FaultProxy, line: Line) -> None:
    """Two pieces sent at once both arrive after one delay, not the second after two."""
    proxy.delay(3_000, "to_server")
    started = time.monotonic()
    line.client.sendall(b"a")
    line.client.sendall(b"b")
    assert line.server.recv(1) == b"a"
    first = time.monotonic()
    assert line.server.recv(1) == b"b"
    assert first - started >= 3
    assert time.monotonic() - first < 3


def test_a_black_hole_in_one_direction_holds_back_and_loses_nothing(proxy: FaultProxy, line: Line) -> None:
    """The request arrives; its answer does not, until the fault is removed."""
    proxy.black_hole("to_client")
    line.client.sendall(b"question")
    assert line.server.recv(8) == b"question"
    line.server.sendall(b"answer")
    assert silent(line.client)
    proxy.heal()
    assert line.client.recv(6) == b"answer"


def test_a_black_hole_does_not_tell_of_an_end(proxy: FaultProxy, line: Line) -> None:
    """A closed peer behind it still appears to be connected."""
    proxy.black_hole()
    line.client.close()
    assert silent(line.server)
    proxy.heal()
    assert line.server.recv(1) == b""


def test_a_reset_reaches_both_ends(proxy: FaultProxy, line: Line) -> None:
    """As from a firewall that forgot the connection."""
    proxy.reset()
    for end in (line.client, line.server):
        with pytest.raises(ConnectionResetError):
            end.recv(1)


def test_a_cut_comes_after_so_many_bytes(proxy: FaultProxy, line: Line, listening: socket.socket) -> None:
    """In the middle of what is sent. Later connections are cut too, until the fault is removed."""
    proxy.cut_after(3)
    for cut in (line, Line(proxy, listening)):
        cut.client.sendall(b"abcdef")
        assert cut.server.recv(6) == b"abc"
        with pytest.raises(ConnectionResetError):
            cut.server.recv(1)
        cut.close()
    proxy.heal()
    healed = Line(proxy, listening)
    healed.client.sendall(b"abcdef")
    assert healed.server.recv(6) == b"abcdef"
    healed.close()


def test_refused_connections_leave_the_others_alone(proxy: FaultProxy, line: Line, listening: socket.socket) -> None:
    """New ones are refused; open ones continue; without the fault, the proxy listens where it did."""
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, proxy.port), WAIT_S)
    line.client.sendall(b"still here")
    assert line.server.recv(10) == b"still here"
    proxy.heal()
    again = Line(proxy, listening)
    again.client.sendall(b"again")
    assert again.server.recv(5) == b"again"
    again.close()


def test_nobody_else_gets_the_port_of_a_proxy_that_refuses(proxy: FaultProxy) -> None:
    """Other programs are given free ports all the time, and it could not listen again."""
    proxy.refuse()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((HOST, proxy.port))
    proxy.heal()


def test_an_ended_connection_ends_at_the_other_side(proxy: FaultProxy, line: Line) -> None:
    """Without a fault a proxy is just a wire."""
    line.client.close()
    assert line.server.recv(1) == b""
    line.server.close()
    while proxy.connections:
        time.sleep(0)  # the proxy's own bookkeeping, which ends with the sockets
