"""Answers in place of RabbitMQ's management API: wrong ones, endless ones, and its own."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Event
from urllib.parse import quote
from urllib.request import Request, urlopen

OK = b"HTTP/1.1 200 OK\r\n"


class Gateway(BaseHTTPRequestHandler):
    """Answers in place of the management API, or asks it."""

    behind, answer, drop = "", b"", "\n"

    def do_GET(self) -> None:
        body = self.answer or self.ask()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    do_DELETE = do_GET  # noqa: N815 -- the name that is called

    def ask(self) -> bytes:
        headers = {"Authorization": self.headers["Authorization"]}
        with urlopen(Request(f"{self.behind}{self.path.replace(self.drop, '')}", headers=headers)) as found:  # noqa: S310 -- it is a test's
            return bytes(found.read())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- its name
        """Does not log."""


@contextmanager
def gateway(behind: str = "", answer: bytes = b"", drop: str = "\n") -> Iterator[tuple[type[Gateway], str]]:
    """A gateway before the management API, which a test may change, and its URL. It leaves `drop` out of what is asked."""
    kind = type("OneGateway", (Gateway,), {"behind": behind, "answer": answer, "drop": quote(drop, safe="=")})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever)
        try:
            yield kind, f"http://guest:guest@127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@contextmanager
def trickling(beginning: bytes, more: bytes = b" ", pause_s: float = 0.05) -> Iterator[str]:
    """The URL of a management API that goes on with its answer for ever."""
    over = Event()

    class Trickle(BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65_536)
            with suppress(OSError):
                self.request.sendall(beginning)
                while not over.wait(pause_s):
                    self.request.sendall(more)

    with ThreadingTCPServer(("127.0.0.1", 0), Trickle) as server, ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever)
        try:
            yield f"http://guest:guest@127.0.0.1:{server.server_address[1]}"
        finally:
            over.set()
            server.shutdown()
