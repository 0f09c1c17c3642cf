"""Redis behind Sentinel: the Sentinels are asked for the current master before every connection.

Sentinel may promote a replica that lacks the last writes, and an old master may go on answering for a while. Neither
needs special treatment: the new server has another run id, and perhaps an older version of the group, so members claim
what they hold; and an old master that was demoted refuses writes, whereupon the connection is made again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from redis import exceptions as redis_errors
from redis.sentinel import MasterNotFoundError

from cobalance.coordinator.redis.hosts import SENTINEL_PORT, HostsUrl, login_of, shown
from cobalance.coordinator.transport import not_a_coordinator_url

if TYPE_CHECKING:
    from cobalance.coordinator.redis.address import RedisAddress

_AT_LEAST_ASKED = 2
"""This many Sentinels are asked for one connection, though they do not answer."""

_OWN_OPTIONS = frozenset({"sentinel_username", "sentinel_password"})


class SentinelSource:
    """Locates the master of one service."""

    def __init__(self, url: str) -> None:
        """Parses a ``redis+sentinel://`` URL, or ``rediss+sentinel://`` if Sentinels and servers use TLS.

        Raises:
            UsageError: it is not one.
        """
        parts = HostsUrl.parse(url)
        if not 1 <= len(parts.path) <= 2:
            raise not_a_coordinator_url(
                "after the Sentinels comes the name of the service, and perhaps a database: /NAME/0"
            )
        self._service = parts.path[0]
        self.place = shown(f"{parts.scheme}+sentinel", parts.hosts, self._service)
        options = dict(parts.query)
        login = login_of(options.get("sentinel_username", ""), options.get("sentinel_password", ""))
        self._sentinels = tuple(
            parts.address(_with_port(host), login=login, without=_OWN_OPTIONS) for host in parts.hosts
        )
        self._has_answered = False
        self._server = parts.address(
            "master", login=parts.login, database="/".join(parts.path[1:]), without=_OWN_OPTIONS
        )

    def __repr__(self) -> str:
        return f"<SentinelSource {self.place}>"

    @property
    def database(self) -> str:
        """See :class:`RedisAddress`."""
        return self._server.database

    def locate(self, timeout_ms: int) -> RedisAddress:
        """The master's address, from the first Sentinel that knows it; those that do not answer take no longer than two timeouts."""
        reasons, until = list[str](), time.monotonic() + timeout_ms / 1000
        for number, sentinel in enumerate(self._sentinels):
            if number >= _AT_LEAST_ASKED and self._has_answered and time.monotonic() >= until:
                reasons.append("the others are asked next time")  # a member has to hear from Redis within its session
                break
            try:
                found = self._ask(sentinel, timeout_ms)
            except (redis_errors.RedisError, OSError) as error:
                reasons.append(f"{sentinel.place}: {_reason(error)}")
            else:
                if found is not None:
                    self._has_answered = True
                    self._move(sentinel, to_front=True)
                    return self._server.at(*found)
                reasons.append(f"{sentinel.place}: it does not watch that service")
            self._move(sentinel, to_front=False)
        raise MasterNotFoundError(f"no Sentinel names the master of {self._service!r}: {'; '.join(reasons)}")

    def _ask(self, sentinel: RedisAddress, timeout_ms: int) -> tuple[str, int] | None:
        connection = sentinel.connection(timeout_ms)
        try:
            connection.connect()
            connection.send_command(*("SENTINEL", "get-master-addr-by-name", self._service))
            reply = connection.read_response()
        finally:
            connection.disconnect()
        return (reply[0].decode(), int(reply[1])) if reply else None

    def _move(self, sentinel: RedisAddress, *, to_front: bool) -> None:
        """The one that answered is asked first the next time, those that did not come last. Other threads may be asking."""
        others = tuple(it for it in self._sentinels if it is not sentinel)
        self._sentinels = (sentinel, *others) if to_front else (*others, sentinel)


def _with_port(host: str) -> str:
    has_port = ":" in host.rpartition("]")[2]
    return host if has_port else f"{host}:{SENTINEL_PORT}"


def _reason(error: Exception) -> str:
    if isinstance(error, redis_errors.AuthenticationError) or "NOAUTH" in str(error):
        return "it wants a password, or another one: ?sentinel_password=…"
    if "unknown command" in str(error):
        return "it is not a Sentinel"
    return " ".join(str(error).split())[:100] or type(error).__name__
