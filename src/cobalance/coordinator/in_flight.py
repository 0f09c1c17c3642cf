"""What a member tells of its messages in flight: sent ahead to it, and not acknowledged yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_TOLD = 500
"""One answer tells of no more resources, those first whose oldest message is oldest."""


@attrs.frozen
class InFlight:
    """Of one resource."""

    messages: int
    oldest_ms: int
    """How long ago the oldest of them came, to a tenth of a second."""


@attrs.frozen
class InFlightReport:
    """One member's."""

    at_ms: int
    """When it came, on the group's clock."""
    by_resource: dict[str, InFlight] | None
    """None where there is nothing that a member could know, as of work that is not messages."""
    is_complete: bool = True
    """What it holds and does not name has nothing in flight."""

    def of(self, resource: str) -> InFlight | None:
        """None is "not known"."""
        if self.by_resource is None:
            return None
        return self.by_resource.get(resource, InFlight(0, 0) if self.is_complete else None)

    @classmethod
    def read(cls, text: str) -> Self | None:
        """From a row of ``describe``; None when the member has told nothing yet."""
        if not text:
            return None
        at, *words = text.split()
        if not words:
            return cls(int(at), None)
        it = iter(words[1:])
        told = {name: InFlight(int(messages), int(oldest)) for name, messages, oldest in zip(it, it, it, strict=True)}
        return cls(int(at), told, words[0] == "all")


def written(found: Iterable[tuple[str, InFlight]]) -> str:
    """As a member tells it."""
    some = sorted(((name, it) for name, it in found if it.messages), key=lambda named: -named[1].oldest_ms)
    words = ["all" if len(some) <= MOST_TOLD else "oldest"]
    for name, it in some[:MOST_TOLD]:
        words += [name, str(it.messages), str(it.oldest_ms)]
    return " ".join(words)
