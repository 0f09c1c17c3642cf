"""A RabbitMQ that can also be reached by TLS, with a certificate of a private authority."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

from tests.faults.certificates import Certificates

from cobalance import servers
from cobalance.servers.ports import free_port


class Secured:
    """The server, and URLs to it."""

    def __init__(self, folder: Path) -> None:
        self.files, self.port = Certificates.make(folder), free_port()
        settings = {
            "listeners.ssl.default": f"127.0.0.1:{self.port}",
            "ssl_options.cacertfile": str(self.files.authority),
            "ssl_options.certfile": str(self.files.certificate),
            "ssl_options.keyfile": str(self.files.key),
        }
        self.server = servers.private_rabbitmq(settings=settings)
        self.server.control("await_startup")  # RabbitMQ opens that port after that of AMQP

    def url(self, *, host: str = "localhost", authority: Path | None = None, user: str = "guest:guest") -> str:
        """A URL; by default one that works."""
        return f"amqps://{user}@{host}:{self.port}/%2F?cacertfile={quote(str(authority or self.files.authority))}"
