"""What a coordinator URL means: where a Redis is, and how we connect to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast
from urllib.parse import unquote, urlsplit

import attrs
from redis.backoff import NoBackoff
from redis.connection import Connection, parse_url
from redis.retry import Retry

from cobalance.coordinator.transport import not_a_coordinator_url
from cobalance.errors import UsageError

_CONNECT_TIMEOUT_MS = 2000
"""Setting up a connection never takes longer; a call with a shorter timeout shortens it."""

_POOL_OPTIONS = ("max_connections", "timeout", "connection_class")


class Wire(Protocol):
    """What we use of a connection of redis-py, which leaves most of it untyped."""

    def connect(self) -> None:
        """Opens the socket and logs in."""

    def on_connect(self) -> None:
        """Logs in and selects the database."""

    def disconnect(self) -> None:
        """Closes the socket, if there is one."""

    def send_command(self, *words: str | int | bytes) -> None:
        """Sends one command; connects first if need be."""

    def can_read(self, timeout: float) -> bool:
        """Whether anything has come within so many seconds. Raises when the peer has closed."""

    def read_response(self) -> Any:
        """The next reply; an error reply is raised."""


class NotConnected:
    """Before the first connection: nothing to end, nothing to ask."""

    def connect(self) -> None:
        """Never called, like all that follow but one."""
        raise NotImplementedError

    on_connect = connect

    def disconnect(self) -> None:
        """Nothing to do."""

    def send_command(self, *words: str | int | bytes) -> None:
        """See above."""
        raise NotImplementedError

    def can_read(self, timeout: float) -> bool:
        """See above."""
        raise NotImplementedError

    def read_response(self) -> Any:
        """See above."""
        raise NotImplementedError


OnConnect = Callable[[Wire], None]


@attrs.frozen
class RedisAddress:
    """The server a URL names. Its repr, and `place`, hold no secret."""

    place: str
    """Scheme, host, port and database, for messages."""
    _connection_class: Callable[..., object] = attrs.field(repr=False)
    _options: dict[str, Any] = attrs.field(repr=False)

    @classmethod
    def parse(cls, url: str) -> RedisAddress:
        """Reads a ``redis://``, ``rediss://`` or ``unix://`` URL.

        Raises:
            UsageError: it is not one, or has an option that does not exist.
        """
        options = _options(url)
        if isinstance(options, str):
            raise not_a_coordinator_url(options)
        connection_class = options.pop("connection_class", Connection)
        for name in _POOL_OPTIONS:
            options.pop(name, None)
        address = cls(_place(url.partition("://")[0], options), connection_class, options)
        address.connection(_CONNECT_TIMEOUT_MS)  # An option that does not exist shows now, and not when it is too late.
        return address

    def locate(self, timeout_ms: int) -> RedisAddress:
        """Itself: a server that stays where it is."""
        del timeout_ms
        return self

    def at(self, host: str, port: int) -> RedisAddress:
        """Another server, with the same login and options."""
        options = {**self._options, "host": host, "port": port}
        return RedisAddress(_place(self.place.partition("://")[0], options), self._connection_class, options)

    def connection(self, timeout_ms: int, on_connect: OnConnect | None = None) -> Wire:
        """A connection, not yet connected. It never retries: a script that was sent twice may run twice.

        Raises:
            UsageError: the URL has an option that does not exist.
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
        try:
            return _unnamed(self._connection_class(**{**self._options, **ours}))
        except TypeError as error:
            unknown = str(error).rpartition("argument ")[2]
        raise UsageError(
            f"The coordinator URL for {self.place} has an unknown option {unknown} after its '?'; remove it."
        )

    @property
    def is_tcp(self) -> bool:
        """Plain TCP, without TLS."""
        return self._connection_class is Connection

    @property
    def address(self) -> tuple[str, int]:
        """Host and port, of a TCP server."""
        return self._options.get("host", "localhost"), self._options.get("port", 6379)


def _unnamed(connection: object) -> Wire:
    """It keeps redis-py's name to itself: CLIENT SETINFO needs a permission of its own, and a refusal goes into the ACL log."""
    for name in ("driver_info", "lib_name", "lib_version"):  # the first since redis-py 7.1, the others before
        setattr(connection, name, None)
    return cast("Wire", connection)


def _options(url: str) -> dict[str, Any] | str:
    """What redis-py reads from the URL, or what is wrong with it. Its own words may quote a piece of a password."""
    try:
        parts = urlsplit(url)
        options: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
    except ValueError:
        return "its port or one of its options is not valid"
    path = unquote(parts.path).strip("/")
    if parts.scheme != "unix" and path and not path.isdigit():
        return "what follows the host is the number of a database"
    if parts.scheme == "unix" and not path:
        return "a path to the socket is missing"
    if parts.scheme == "rediss" and options.get("ssl_cert_reqs") != "none":
        options.setdefault("ssl_check_hostname", True)  # redis-py 5 would accept anybody's certificate.
    return options


def _place(scheme: str, options: dict[str, Any]) -> str:
    database = f"/{options['db']}" if options.get("db") else ""
    if "path" in options:
        return f"unix://{options['path']}"
    host = options.get("host", "localhost")
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{options.get('port', 6379)}{database}"
