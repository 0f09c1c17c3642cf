"""URLs that name several hosts: ``redis+sentinel://[user:password@]host[:port],host…/service[/db]`` and ``redis+cluster://…``."""

from __future__ import annotations

from typing import Protocol
from urllib.parse import parse_qsl, quote, unquote, urlencode

import attrs

from cobalance.coordinator.redis.address import RedisAddress
from cobalance.coordinator.transport import not_a_coordinator_url

SENTINEL_PORT = 26379


class RedisSource(Protocol):
    """Locates the server for each new connection, since it may have moved."""

    @property
    def place(self) -> str:
        """For messages; contains no secrets."""

    @property
    def database(self) -> str:
        """See :class:`RedisAddress`."""

    def locate(self, timeout_ms: int) -> RedisAddress:
        """The server to connect to now. Raises redis-py's errors and OSError if it cannot be determined."""


@attrs.frozen
class HostsUrl:
    """The parts of such a URL."""

    scheme: str
    """redis or rediss."""
    login: str = attrs.field(repr=False)
    """"user:password@" as written, or ""."""
    hosts: tuple[str, ...]
    path: tuple[str, ...]
    query: tuple[tuple[str, str], ...] = attrs.field(repr=False)

    @classmethod
    def parse(cls, url: str) -> HostsUrl:
        """Parses a URL. A comma, colon or at sign in the password has to be percent-encoded only if it is ambiguous."""
        scheme, _, rest = url.partition("://")
        end = next((at for at, character in enumerate(rest) if character in "/?#"), len(rest))
        login, at, hosts = rest[:end].rpartition("@")
        path, _, query = rest[end:].partition("?")
        named = tuple(host.strip() for host in hosts.split(",") if host.strip())
        if not named:
            raise not_a_coordinator_url("no host is named")
        words = tuple(unquote(word) for word in path.strip("/").split("/") if word)
        return cls(scheme.partition("+")[0], login + at, named, words, tuple(parse_qsl(query)))

    def address(
        self, host: str, *, login: str, database: str = "", without: frozenset[str] = frozenset()
    ) -> RedisAddress:
        """The address of one host, as an ordinary URL would name it."""
        query = urlencode([pair for pair in self.query if pair[0] not in without])
        return RedisAddress.parse(f"{self.scheme}://{login}{host}/{database}?{query}")


def login_of(user: str, password: str) -> str:
    """The part of a URL before the host."""
    return f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else ""


def shown(scheme: str, hosts: tuple[str, ...], *path: str) -> str:
    """A URL for messages."""
    return "/".join((f"{scheme}://{','.join(hosts)}", *path))
