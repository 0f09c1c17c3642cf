"""A member's report of its messages in flight, delivered to it and not acknowledged yet, and of what it got done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_TOLD = 500
"""The most resources in one report; those with the oldest messages come first."""


UNKNOWN = "?"
"""Stands for the number of messages."""


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
        told = {
            name: None if messages == UNKNOWN else InFlight(int(messages), int(oldest))
            for name, messages, oldest in zip(it, it, it, strict=True)
        }
        kind, *counts = words[0].split("/")
        return cls(int(at), told, kind == "all", *map(int, counts))


def written(found: Iterable[tuple[str, InFlight | None]], *counts: int) -> str:
    """Counts are what it has handled, and for how long that occupied it, as far as it says so. None is unknown, and so is
    everything that is left out.
    """
    named = [*found]
    some = sorted(((name, it) for name, it in named if it and it.messages), key=lambda named: -named[1].oldest_ms)
    unknown = [name for name, it in named if it is None]
    is_all = len(some) + len(unknown) <= MOST_TOLD
    words = ["/".join(["all" if is_all else "oldest", *map(str, counts)])]
    for name, it in some[:MOST_TOLD]:
        words += [name, str(it.messages), str(it.oldest_ms)]
    for name in unknown if is_all else ():
        words += [name, UNKNOWN, "0"]
    return " ".join(words)
