"""A small HTTP listener on threads of its own, so that it answers whatever the event loop does.

It serves a few pages, read-only. Without being told otherwise it listens on this machine only. A page of the internet
could have a browser on this machine ask it under a name that resolves to 127.0.0.1, so names in ``Host`` have to be
known; addresses need not be. Each connection has a thread, so their number and the time for a request are limited.
"""

from __future__ import annotations

import io
import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

import attrs

from cobalance.errors import CobalanceError, UnknownGroup, UsageError
from cobalance.http_call import TimedInput
from cobalance.limits import check_integer, check_kind

LOCALHOST = "127.0.0.1"

PATIENCE_S = 5.0
"""How long a client may take to send its whole request, and as long again to take the answer's head, and its body."""

MOST_CONNECTIONS = 64
"""More at once are closed without an answer."""


@attrs.frozen
class Answer:
    """What a page says."""

    status: int
    body: bytes
    content_type: str = "application/json"


Page = Callable[[], Answer]
Pages = Mapping[str, Page]
FindPage = Callable[[str], Page | None]
"""Path → page, for paths that have a name in them."""


def status_of(error: CobalanceError) -> HTTPStatus:
    """404 for what there is not, 400 for what makes no sense, 503 if a server fails."""
    if isinstance(error, UnknownGroup):
        return HTTPStatus.NOT_FOUND
    return HTTPStatus.BAD_REQUEST if isinstance(error, UsageError) else HTTPStatus.SERVICE_UNAVAILABLE


class HttpListener:
    """Serves pages from :meth:`start` to :meth:`close`, or for the length of a ``with``.

    Args:
        pages: path → what answers.
        host: the address to listen at; 0.0.0.0 or :: for all.
        port: 0 chooses a free one; see ``port``.
        hosts: names under which it may be asked, besides ``localhost``, the name of this machine and ``host``.
        find_page: finds the page of a path that is not among ``pages``. Paths are percent-encoded.
    """

    def __init__(
        self,
        pages: Pages,
        *,
        host: str = LOCALHOST,
        port: int = 0,
        hosts: Collection[str] = frozenset(),
        find_page: FindPage = lambda _: None,
    ) -> None:
        check_kind("host", host, str)
        check_integer("port", port, least=0, most=65_535)
        self._host, self.port = host, port
        self._find_page: FindPage = lambda path: pages.get(path) or find_page(path)
        self._names = {name.lower() for name in (*hosts, host, "localhost", socket.gethostname())}
        self._server: _Server | None = None

    def start(self) -> None:
        """Starts to listen.

        Raises:
            UsageError: it cannot listen there, or does so already.
        """
        if self._server is not None:
            raise UsageError("it listens already")
        try:
            self._server = _Server(self._host, self.port, self._find_page, self._names)
        except OSError as error:
            raise UsageError(
                f"cannot listen at {self._host}, port {self.port} ({error.strerror}): choose another port, or an address of this machine"
            ) from None
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name=f"cobalance-http-{self.port}", daemon=True).start()

    def close(self) -> None:
        """Stops listening. May be called again."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_known(host: str, names: Collection[str]) -> bool:
    """Whether a request with this ``Host`` is meant for us: an address, or one of these names."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in names
    return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, find_page: FindPage, names: Collection[str]) -> None:
        self.find_page, self.names = find_page, names
        self.serving: set[Any] = set()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Request)

    def process_request(self, request: Any, client_address: Any) -> None:
        if len(self.serving) >= MOST_CONNECTIONS:
            self.shutdown_request(request)
            return
        self.serving.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.serving.discard(request)
        super().shutdown_request(request)

    def answer(self, host: str, path: str) -> Answer:
        if not is_known(host, self.names):
            return Answer(HTTPStatus.MISDIRECTED_REQUEST, b'{"error": "this is not the Host of this server"}\n')
        page = self.find_page(path)
        return Answer(HTTPStatus.NOT_FOUND, b'{"error": "no such page"}\n') if page is None else page()

    def handle_error(self, *_: Any) -> None:
        """Clients may go when they like."""


class _Request(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "cobalance", ""

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(TimedInput(self.connection, time.monotonic() + PATIENCE_S))

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        answer = self.server.answer(self.headers.get("Host", ""), urlsplit(self.path).path)
        self.connection.settimeout(PATIENCE_S)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if with_body:
            self.wfile.write(answer.body)

    def log_message(self, *_: object) -> None:
        """Probes come every few seconds."""
