"""The interface between the coordinator and what runs its scripts: a real Redis, or one in this process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol

import attrs

from cobalance.coordinator.keys import DEFAULT_PREFIX
from cobalance.errors import Unreachable, UsageError

Reply = bytes | int | None | list["Reply"]
"""What a script returns, in terms of RESP2."""

OnHint = Callable[[str, int], None]
"""Called with (channel, version), or one of the numbers below for a version, on a transport's thread; must not block."""

RESYNC = -1
"""As a hint's version: ask."""

REPORT = -2
"""As a hint's version: report what is in flight."""

SETTINGS = -3
"""As a hint's version: the group's settings were changed."""

PRESENT = -4
"""As a hint's version: nothing to do; it was counted who listens."""

HINT_DIGITS = 16
"""The most that a published number has: versions are below 2**53, as Lua's numbers are."""

LISTENING = -(10**HINT_DIGITS)
"""As a hint's version, which nobody can publish: the subscription has begun. Hints may have been missed."""

DOUBTED = "IDENTITY"
"""First word of the error with which a script, having done nothing, asks for a fresh server identity."""

MALFORMED = "INVALID"
"""First word of the error with which a script, having done nothing, rejects its arguments."""

CERTAIN = "!"
"""Prefix of an identity that was read for this very call."""


CALL_TIMEOUT_MS = 2_000
"""How long a call waits for its answer unless another time is given."""


class PartlyListed(Unreachable):
    """Some nodes of a cluster do not answer, or are not known, so that not all groups can be listed."""

    def __init__(self, message: str, names: Collection[str]) -> None:
        super().__init__(message)
        self.names = names
        """The groups on the others."""


@attrs.frozen
class Listing:
    """The groups that could be listed. A node of a cluster that is silent hides none of the others."""

    names: Collection[str]
    problem: Unreachable | None = None
    """Why some may be missing; None if none is."""

    @classmethod
    def of(cls, list_groups: Callable[[], Collection[str]]) -> Listing:
        """What this lists.

        Raises:
            ServerError: nothing could be listed.
        """
        try:
            return cls(list_groups())
        except PartlyListed as error:
            return cls(sorted(error.names), error)

    def hidden(self, known: Iterable[str]) -> list[str]:
        """Those of the known groups that may only be missing here, and are not known to be gone."""
        return [] if self.problem is None else [it for it in known if it not in self.names]

    def check_complete(self) -> None:
        """Called by commands when they have shown what there is.

        Raises:
            Unreachable: some may be missing.
        """
        if self.problem is not None:
            raise self.problem


@attrs.frozen
class Script:
    """A Lua script, and the name under which Redis caches it."""

    name: str
    source: str = attrs.field(repr=False)
    sha: str

    @classmethod
    def of(cls, name: str, source: str) -> Script:
        return cls(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


class Listener(Protocol):
    """Receives hints from the coordinator. They may be lost; the versions in replies are authoritative."""

    def subscribe(self, channel: str) -> None:
        """Starts listening soon; :data:`LISTENING` for the channel says that it has started."""

    def unsubscribe(self, channel: str) -> None:
        """Stops listening soon; hints on their way may still arrive."""

    def renew(self) -> None:
        """Connects again soon, since the coordinator does not find it where it listens."""

    def close(self) -> None:
        """Closes the listener. May be called again."""


class Transport(Protocol):
    """Runs scripts, one at a time. Calls from several threads queue up."""

    def call(self, script: Script, keys: Sequence[str], args: Sequence[str | int | bytes]) -> Reply:
        """Runs the script once, without retries.

        One argument is put in front of the given ones: the identity of the server that runs this call, and of its data
        (Redis's run id and replication id), or "" if unknown; then a slash and the number of the database, unless that
        is 0; a listener adds the same to the names of channels. So ``ARGV[1]`` is the identity and ``ARGV[2]`` the first
        given argument. A script that has done nothing may answer with the error :data:`DOUBTED`: the identity is then
        read again, marked with :data:`CERTAIN`, and the script called with it.

        Raises:
            ServerError: it failed; ``outcome`` says whether it may have run.
        """

    def listen(self, on_hint: OnHint) -> Listener:
        """Starts receiving hints; connects, and reconnects, by itself."""

    def read_stream(self, key: str, after: str, count: int) -> list[tuple[str, dict[str, str]]]:
        """Up to `count` entries of a stream after an id ("0" for all), oldest first.

        Raises:
            ServerError: the stream could not be read.
        """

    def list_groups(self, key_prefix: str = DEFAULT_PREFIX) -> list[str]:
        """The names of all groups on this server with this key prefix, sorted.

        Raises:
            PartlyListed: some nodes of a cluster do not answer, or are not known.
            ServerError: they could not be read.
        """

    def close(self) -> None:
        """Closes all connections. May be called again; later calls raise Unreachable."""


_FORMS = (
    "redis://host[:port][/db], rediss://… (with TLS), redis+sentinel://host,host/service[/db], redis+cluster://host,host (each of them with "
    "user:password@ before the hosts where there is a password), unix:///path/to/socket[?db=0] or memory://NAME"
)


def not_a_coordinator_url(reason: str = "") -> UsageError:
    """The error for a URL that cannot be parsed. It does not repeat the URL, which may contain a password anywhere."""
    detail = f" ({reason})" if reason else ""
    return UsageError(
        f"The coordinator URL cannot be read{detail}. Give one of {_FORMS}; "
        f"in user names and passwords write special characters such as @ / : ? # & % as %40 %2F %3A %3F %23 %26 %25."
    )
