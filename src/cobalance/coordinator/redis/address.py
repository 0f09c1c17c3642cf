"""Parses a coordinator URL: where a Redis is, and how to connect to it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, cast
from urllib.parse import unquote, urlsplit

import attrs
from redis.backoff import NoBackoff
from redis.connection import Connection, parse_url
from redis.retry import Retry

from cobalance.coordinator.transport import not_a_coordinator_url
from cobalance.errors import UsageError

_CONNECT_TIMEOUT_MS = 2000
"""Upper bound for setting up a connection; a call's shorter timeout takes precedence."""

_POOL_OPTIONS = ("max_connections", "timeout", "connection_class")


class Wire(Protocol):
    """The part of redis-py's connection that is used here; redis-py leaves most of it untyped."""

    def connect(self) -> None:
        """Opens the socket and logs in."""

    def on_connect(self) -> None:
        """Logs in and selects the database."""

    def disconnect(self) -> None:
        """Closes the socket, if there is one."""

    def send_command(self, *words: str | int | bytes) -> None:
        """Sends one command, connecting first if necessary."""

    def can_read(self, timeout: float) -> bool:
        """Waits for data, up to a timeout in seconds. Raises if the peer has closed."""

    def read_response(self) -> Any:
        """Returns the next reply, or raises an error reply."""


class NotConnected:
    """Stands in for a connection before the first one is made. Only ``disconnect`` is ever called."""

    def connect(self) -> None:
        raise NotImplementedError

    on_connect = connect

    def disconnect(self) -> None: ...

    def send_command(self, *words: str | int | bytes) -> None:
        raise NotImplementedError

    def can_read(self, timeout: float) -> bool:
        raise NotImplementedError

    def read_response(self) -> Any:
        raise NotImplementedError


OnConnect = Callable[[Wire], None]


@attrs.frozen
class RedisAddress:
    """The server that a URL names. Neither its repr nor `place` holds a secret."""

    place: str
    """Scheme, host, port and database, for messages."""
    _connection_class: Callable[..., object] = attrs.field(repr=False)
    _options: dict[str, Any] = attrs.field(repr=False)

    @classmethod
    def parse(cls, url: str) -> RedisAddress:
        """Parses a ``redis://``, ``rediss://`` or ``unix://`` URL.

        Raises:
            UsageError: it is not one, or has an unknown option.
        """
        options = _options(url)
        if isinstance(options, str):
            raise not_a_coordinator_url(options)
        connection_class = options.pop("connection_class", Connection)
        for name in _POOL_OPTIONS:
            options.pop(name, None)
        address = cls(_place(url.partition("://")[0], options), connection_class, options)
        address.connection(_CONNECT_TIMEOUT_MS)  # Reveals unknown options now, rather than when it is too late.
        return address

    def locate(self, timeout_ms: int) -> RedisAddress:
        """Returns itself: this server stays where it is."""
        del timeout_ms
        return self

    def at(self, host: str, port: int) -> RedisAddress:
        """Another server with the same login and options."""
        options = {**self._options, "host": host, "port": port}
        return RedisAddress(_place(self.place.partition("://")[0], options), self._connection_class, options)

    def connection(self, timeout_ms: int, on_connect: OnConnect | None = None) -> Wire:
        """Creates a connection that is not yet connected. It never retries: a script sent twice may run twice.

        Raises:
            UsageError: the URL has an unknown option.
        """
        ours = {
            "retry": Retry(NoBackoff(), 0),
            "retry_on_timeout": False,
            "retry_on_error": [],
            "protocol": 2,
            "decode_responses": False,
            "health_check_interval": 0,
            "socket_timeout": timeout_ms / 1000,
            "socket_connect_timeout": min(timeout_ms, _CONNECT_TIMEOUT_MS) / 1000,
            "redis_connect_func": on_connect,
        }
        with suppress(TypeError):
            return _unnamed(self._connection_class(**{**self._options, **ours}))
        # Its name may be a part of a password.
        raise UsageError(
            f"The coordinator URL for {self.place} has an unknown option after its '?'. There are username, password, db, client_name, "
            "those of redis-py's connections, and with TLS ssl_ca_certs, ssl_certfile, ssl_keyfile. In a password write & as %26."
        )

    @property
    def database(self) -> str:
        """How the channels of its database end, since Redis has one set of them for all: "/3"; "" for number 0."""
        number = self._options.get("db")
        return f"/{number}" if number else ""

    @property
    def is_tcp(self) -> bool:
        """Whether it uses plain TCP, without TLS."""
        return self._connection_class is Connection

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of a TCP server."""
        return self._options.get("host", "localhost"), self._options.get("port", 6379)


def _unnamed(connection: object) -> Wire:
    """Keeps redis-py from sending its name: CLIENT SETINFO needs a permission of its own, and a refusal goes into the
    ACL log.
    """
    for name in ("driver_info", "lib_name", "lib_version"):  # the first since redis-py 7.1, the others before
        setattr(connection, name, None)
    return cast("Wire", connection)


def _options(url: str) -> dict[str, Any] | str:
    """Returns redis-py's options for the URL, or what is wrong with it: redis-py's own message may quote part of a
    password.
    """
    try:
        url.encode()
        parts = urlsplit(url)
        options: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
    except ValueError:
        return "its port, one of its options or one of its characters is not valid"
    path = unquote(parts.path).strip("/")
    if parts.scheme != "unix" and path and not path.isdigit():
        return "what follows the host is the number of a database"
    if parts.scheme == "unix" and not path:
        return "a path to the socket is missing"
    if parts.scheme == "rediss" and options.get("ssl_cert_reqs") != "none":
        options.setdefault("ssl_check_hostname", True)  # redis-py 5 would accept any host's certificate
    return options


def _place(scheme: str, options: dict[str, Any]) -> str:
    database = f"/{options['db']}" if options.get("db") else ""
    if "path" in options:
        return f"unix://{options['path']}"
    host = options.get("host", "localhost")
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{options.get('port', 6379)}{database}"
