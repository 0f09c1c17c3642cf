"""The seam between the coordinator and what runs its scripts: a real Redis, or one in this process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol

import attrs

from cobalance.coordinator.keys import DEFAULT_PREFIX
from cobalance.errors import UsageError

Reply = bytes | int | None | list["Reply"]
"""What a script returns, as RESP2 carries it."""

OnHint = Callable[[str, int], None]
"""Told (channel, version), or (channel, -1) for "resync now". Called on a transport's thread; must not block."""

RESYNC = -1
"""The version of a hint that says: hints may have been missed, ask."""

REPORT = -2
"""The version of one that says: somebody wants to know what is in flight."""

SETTINGS = -3
"""The version of one that says: somebody has changed the group's settings."""

DOUBTED = "IDENTITY"
"""The first word of the error with which a script that did nothing asks for the server's identity anew."""

MALFORMED = "INVALID"
"""The first word of the error with which a script refuses its arguments, having done nothing."""

CERTAIN = "!"
"""Stands before an identity that was read for this very call."""


@attrs.frozen
class Script:
    """A Lua script and the name Redis caches it under."""

    name: str
    source: str = attrs.field(repr=False)
    sha: str

    @classmethod
    def of(cls, name: str, source: str) -> Script:
        """A script from its text."""
        return cls(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


class Listener(Protocol):
    """Hints from the coordinator. They may be lost; the versions in replies are the truth."""

    def subscribe(self, channel: str) -> None:
        """Begins to listen, soon; a resync hint for the channel says that it has begun."""

    def unsubscribe(self, channel: str) -> None:
        """Ends listening, soon; hints on their way may still arrive."""

    def close(self) -> None:
        """Ends the listener for good. May be called again."""


class Transport(Protocol):
    """Runs scripts, one at a time. Calls from several threads queue up."""

    def call(self, script: Script, keys: Sequence[str], args: Sequence[str | int | bytes]) -> Reply:
        """Runs the script once, and never again by itself.

        One argument is put in front of yours: the identity of the server that runs this very call, and of its data (Redis's
        run id and replication id), or "" where it cannot be known. So ``ARGV[1]`` is the identity and ``ARGV[2]`` your first
        argument. A script may answer with the error :data:`DOUBTED`, having done nothing: then the identity is read
        anew, marked :data:`CERTAIN`, and the script called with it.

        Raises:
            ServerError: it did not end well; ``outcome`` says whether it may have run.
        """

    def listen(self, on_hint: OnHint) -> Listener:
        """Begins to receive hints; it connects, and reconnects, by itself."""

    def read_stream(self, key: str, after: str, count: int) -> list[tuple[str, dict[str, str]]]:
        """At most `count` entries of a stream that come after an id ("0" for all), oldest first.

        Raises:
            ServerError: it could not be read.
        """

    def list_groups(self, key_prefix: str = DEFAULT_PREFIX) -> list[str]:
        """The names of all groups on this server whose keys begin so, sorted.

        Raises:
            ServerError: it could not be read.
        """

    def close(self) -> None:
        """Releases all connections. May be called again; calls afterwards raise Unreachable."""


_FORMS = (
    "redis://host[:port][/db], rediss://… (with TLS), redis+sentinel://host,host/service[/db], redis+cluster://host,host (each of them with "
    "user:password@ before the hosts where there is a password), unix:///path/to/socket[?db=0] or memory://NAME"
)


def not_a_coordinator_url(reason: str = "") -> UsageError:
    """The error for a URL that cannot be read. It does not repeat the URL: where its password lies is anybody's guess."""
    detail = f" ({reason})" if reason else ""
    return UsageError(
        f"The coordinator URL cannot be read{detail}. Give one of {_FORMS}; "
        f"in user names and passwords write special characters such as @ / : # % as %40 %2F %3A %23 %25."
    )
