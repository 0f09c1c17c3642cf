"""One HTTP request, whose answer is bounded: servers of any kind may listen at an address, and answer without end."""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping


class NoAnswerError(Exception):
    """There was none in time, or not in HTTP. Its text is the kind of the failure."""


def call_http(
    method: str,
    host: str,
    port: int,
    path: str,
    *,
    timeout_s: float,
    most: int,
    headers: Mapping[str, str] | None = None,
    context: ssl.SSLContext | None = None,
) -> tuple[int, bytes]:
    """Returns the status, and of the body at most so many bytes.

    Raises:
        NoAnswerError: there was none within the timeout, which includes connecting.
    """
    until = time.monotonic() + timeout_s
    try:
        connection = http.client.HTTPConnection(host, port)
        try:
            connection.sock = cast("socket.socket", _Timed(_connected(host, port, context, until), until))
            connection.request(method, path, headers=headers or {})
            response = connection.getresponse()
            return response.status, response.read(most)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, UnicodeError) as error:  # the last if the host cannot be a name
        raise NoAnswerError(type(error).__name__) from None


class _Timed:
    """A socket with one deadline for everything: the timeout of a socket begins again with each byte that comes."""

    def __init__(self, sock: socket.socket, until: float) -> None:
        self._sock, self._until = sock, until
        self.close = sock.close

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(_left_s(self._until))
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        del mode
        return io.BufferedReader(TimedInput(self._sock, self._until))


class TimedInput(io.RawIOBase):
    """What a socket is sent until a moment of the monotonic clock, in s; then reading raises TimeoutError."""

    def __init__(self, sock: socket.socket, until: float) -> None:
        self._sock, self._until, self._file = sock, until, sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(_left_s(self._until))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


def _left_s(until: float) -> float:
    left_s = until - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _connected(host: str, port: int, context: ssl.SSLContext | None, until: float) -> socket.socket:
    """Tries each address of the host: none that is silent takes the time of the others."""
    failure = OSError()
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for untried, (family, kind, protocol, _, address) in zip(range(len(addresses), 0, -1), addresses, strict=True):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(_left_s(until) / untried)
            sock.connect(address)
            sock.settimeout(_left_s(until))
            return context.wrap_socket(sock, server_hostname=host) if context else sock
        except OSError as error:
            sock.close()
            failure = error
    raise failure
