"""Redis behind Sentinel: the Sentinels are asked for the current master before every connection.

Sentinel may promote a replica that lacks the last writes, and an old master may go on answering for a while. Neither
needs special treatment: the new server has another run id, and perhaps an older version of the group, so members claim
what they hold; and an old master that was demoted refuses writes, whereupon the connection is made again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis import exceptions as redis_errors
from redis.sentinel import MasterNotFoundError

from cobalance.coordinator.redis.hosts import SENTINEL_PORT, HostsUrl, login_of, shown
from cobalance.coordinator.transport import not_a_coordinator_url

if TYPE_CHECKING:
    from cobalance.coordinator.redis.address import RedisAddress

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
        self._sentinels = [parts.address(_with_port(host), login=login, without=_OWN_OPTIONS) for host in parts.hosts]
        self._server = parts.address(
            "master", login=parts.login, database="/".join(parts.path[1:]), without=_OWN_OPTIONS
        )

    def __repr__(self) -> str:
        return f"<SentinelSource {self.place}>"

    def locate(self, timeout_ms: int) -> RedisAddress:
        """The master's address, from the first Sentinel that knows it."""
        reasons = []
        for sentinel in tuple(self._sentinels):
            try:
                found = self._ask(sentinel, timeout_ms)
            except (redis_errors.RedisError, OSError) as error:
                reasons.append(f"{sentinel.place}: {_reason(error)}")
                continue
            if found is not None:
                self._prefer(sentinel)
                return self._server.at(*found)
            reasons.append(f"{sentinel.place}: it does not watch that service")
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

    def _prefer(self, sentinel: RedisAddress) -> None:
        """Asks the Sentinel that answered first the next time."""
        self._sentinels.remove(sentinel)
        self._sentinels.insert(0, sentinel)


def _with_port(host: str) -> str:
    has_port = ":" in host.rpartition("]")[2]
    return host if has_port else f"{host}:{SENTINEL_PORT}"


def _reason(error: Exception) -> str:
    if isinstance(error, redis_errors.AuthenticationError) or "NOAUTH" in str(error):
        return "it wants a password, or another one: ?sentinel_password=…"
    return " ".join(str(error).split())[:100] or type(error).__name__
