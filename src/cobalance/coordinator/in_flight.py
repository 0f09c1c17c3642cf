"""A member's report of its messages in flight, delivered to it and not acknowledged yet, and of what it got done."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Self

import attrs

from cobalance.lazy import importing

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_TOLD = 500
"""The most resources in one report; those with the oldest messages come first."""


UNKNOWN = "?"
"""Stands for the number of messages, and for the version."""

ITSELF = "*"
"""Stands for the member where a resource is expected. No resource may have that name, and a reader that does not know of it
sees one of which nothing is known.
"""


PLACE = "^"
"""The same for where it consumes."""


@attrs.frozen
class InFlight:
    """Messages in flight of one resource."""

    messages: int
    oldest_ms: int
    """Age of the oldest one, to a tenth of a second."""


_NOTHING = InFlight(0, 0)


@attrs.frozen
class InFlightReport:
    """The report of one member."""

    at_ms: int
    """When it arrived, in group time."""
    by_resource: dict[str, InFlight | None] | None
    """None if the member cannot know, for instance because its work is not messages; of one resource, because it does not
    consume it yet, or not at the moment.
    """
    is_complete: bool = True
    """Whether held resources that are not listed have nothing in flight."""
    handled: int | None = None
    """How many messages it has acknowledged so far; None if it does not say."""
    occupied_ms: int | None = None
    """For how long that has taken all that it can do; None if it does not say."""
    library_version: str | None = attrs.field(default=None, kw_only=True)
    """The version of Cobalance that it runs; None if it does not say."""
    last_ack_ago_ms: int | None = attrs.field(default=None, kw_only=True)
    """How long before this report it last acknowledged a message; None if it has not yet, or does not say."""
    place: str | None = attrs.field(default=None, kw_only=True)
    """Where it consumes, in one word of the broker's part; None if it does not say."""

    def of(self, resource: str) -> InFlight | None:
        """The messages of one resource in flight; None if unknown."""
        if self.by_resource is None:
            return None
        return self.by_resource.get(resource, _NOTHING if self.is_complete else None)

    def is_kept_waiting(self, resource: str) -> bool:
        """Whether it says that it does not consume the resource."""
        return self.by_resource is not None and self.by_resource.get(resource, _NOTHING) is None

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Parses a row of ``describe``; None if the member has not reported yet, or somebody else has written there."""
        try:
            return cls._parsed(text) if text else None
        except ValueError:
            return None

    @classmethod
    def _parsed(cls, text: str) -> Self:
        at, *words = text.split()
        if not words:
            return cls(int(at), None)
        it = iter(words[1:])
        rows = {name: (messages, about) for name, messages, about in zip(it, it, it, strict=True)}
        place = rows.pop(PLACE, (UNKNOWN, None))[1]
        version, _, ago = rows.pop(ITSELF, (UNKNOWN, UNKNOWN))[1].partition("/")
        queues = {
            name: None if messages == UNKNOWN else InFlight(int(messages), int(oldest))
            for name, (messages, oldest) in rows.items()
        }
        kind, *counts = words[0].split("/")
        return cls(
            *(int(at), queues, kind == "all"),
            *map(int, counts),
            library_version=None if version == UNKNOWN else version,
            last_ack_ago_ms=int(ago) if ago else None,
            place=place,
        )


@cache
def _library_version() -> str:
    with importing:
        from importlib.metadata import PackageNotFoundError, version

    try:
        return version("cobalance")
    except PackageNotFoundError:
        return UNKNOWN


def written(
    found: Iterable[tuple[str, InFlight | None]] | None,
    *counts: int,
    last_ack_ago_ms: int | None = None,
    place: str | None = None,
) -> str:
    """Counts are what it has handled, and for how long that occupied it, as far as it says so. None is unknown, and so is
    everything that is left out.
    """
    itself = [ITSELF, UNKNOWN, _library_version() + (f"/{last_ack_ago_ms}" if last_ack_ago_ms is not None else "")]
    if place is not None:
        itself += [PLACE, UNKNOWN, place]
    if found is None:
        return " ".join(["oldest", *itself])
    named = [*found]
    some = sorted(((name, it) for name, it in named if it and it.messages), key=lambda named: -named[1].oldest_ms)
    unknown = [name for name, it in named if it is None]
    is_all = len(some) + len(unknown) <= MOST_TOLD
    words = ["/".join(["all" if is_all else "oldest", *map(str, counts)])]
    for name, it in some[:MOST_TOLD]:
        words += [name, str(it.messages), str(it.oldest_ms)]
    for name in unknown if is_all else ():
        words += [name, UNKNOWN, "0"]
    return " ".join([*words, *itself])
