"""A member's report of its messages in flight, delivered to it and not acknowledged yet, and of what it got done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_TOLD = 500
"""The most resources in one report; those with the oldest messages come first."""


@attrs.frozen
class InFlight:
    """Messages in flight of one resource."""

    messages: int
    oldest_ms: int
    """Age of the oldest one, to a tenth of a second."""


@attrs.frozen
class InFlightReport:
    """The report of one member."""

    at_ms: int
    """When it arrived, in group time."""
    by_resource: dict[str, InFlight] | None
    """None if the member cannot know, for instance because its work is not messages."""
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
        return self.by_resource.get(resource, InFlight(0, 0) if self.is_complete else None)

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
        told = {name: InFlight(int(messages), int(oldest)) for name, messages, oldest in zip(it, it, it, strict=True)}
        kind, *counts = words[0].split("/")
        return cls(int(at), told, kind == "all", *map(int, counts))


def written(found: Iterable[tuple[str, InFlight]], *counts: int) -> str:
    """Counts are what it has handled, and for how long that occupied it, as far as it says so."""
    some = sorted(((name, it) for name, it in found if it.messages), key=lambda named: -named[1].oldest_ms)
    words = ["/".join(["all" if len(some) <= MOST_TOLD else "oldest", *map(str, counts)])]
    for name, it in some[:MOST_TOLD]:
        words += [name, str(it.messages), str(it.oldest_ms)]
    return " ".join(words)
