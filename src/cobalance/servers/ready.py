"""Detects when a server that was just started is ready."""

import socket
import time
from collections.abc import Callable
from typing import Protocol

from cobalance.servers.ports import HOST
from cobalance.servers.unavailable import ServerUnavailable

ANSWER_TIMEOUT_S = 2.0
"""Timeout of one probe."""

POLL_S = 0.02
"""Servers do not announce that they are listening, so they are polled."""

AMQP_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD_FRAME = b"\x01"


class Starting(Protocol):
    name: str

    def wait_exit(self, timeout_s: float) -> bool:
        """Waits up to timeout_s, and returns whether it has ended."""

    def log_tail(self) -> str:
        """The end of its log, for error messages."""


def redis_answers(port: int) -> bool:
    """Whether a Redis on this port has loaded its data. One that first requires a password is ready too."""
    return _answer(port, b"PING\r\n").startswith((b"+PONG", b"-NOAUTH"))


def amqp_answers(port: int) -> bool:
    """Whether a RabbitMQ on this port answers the protocol header with Connection.Start."""
    return _answer(port, AMQP_HEADER).startswith(METHOD_FRAME)


def http_answers(port: int) -> bool:
    """Whether an HTTP server on this port answers at all."""
    return _answer(port, b"HEAD / HTTP/1.0\r\n\r\n").startswith(b"HTTP/")


def accepts(port: int) -> bool:
    """Whether anything on this port accepts connections."""
    try:
        with socket.create_connection((HOST, port), ANSWER_TIMEOUT_S):
            return True
    except OSError:
        return False


def wait_until_ready(answers: Callable[[], bool], server: Starting, timeout_s: float) -> None:
    """Waits until the server answers. Raises with the end of its log if it exits or takes too long."""
    deadline_s = time.monotonic() + timeout_s
    while not answers():
        if server.wait_exit(POLL_S):
            raise ServerUnavailable(
                f"{server.name} ended while it was starting. Its log ends with:\n{server.log_tail()}"
            )
        if time.monotonic() > deadline_s:
            raise ServerUnavailable(
                f"{server.name} did not answer within {timeout_s:g} s. Its log ends with:\n{server.log_tail()}"
            )


def _answer(port: int, question: bytes) -> bytes:
    try:
        with socket.create_connection((HOST, port), ANSWER_TIMEOUT_S) as connection:
            connection.sendall(question)
            return connection.recv(64)
    except OSError:
        return b""
