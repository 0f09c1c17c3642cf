"""One scenario of a peer's test list, and where it is checked here."""

from __future__ import annotations

import attrs


@attrs.frozen
class PeerTest:
    """Tests that show at least what ``shows`` says; or, where there is nothing to show, why not."""

    number: int
    name: str
    """The peer's name for it."""
    shows: str
    """What has to hold here: what the peer asserts, strengthened where it left something open."""
    tests: tuple[str, ...] = ()
    """Pytest node ids. One without a parameter in brackets means all its parameters."""
    why_not: str = ""


@attrs.frozen
class PeerList:
    """One complete list of a peer."""

    title: str
    source: str
    count: int
    """How many scenarios the peer's list has."""
    rows: tuple[PeerTest, ...]


def row(number: int, name: str, shows: str, *tests: str) -> PeerTest:
    """A scenario that is checked here."""
    return PeerTest(number, name, shows, tests)


def cannot_apply(number: int, name: str, why_not: str) -> PeerTest:
    """A scenario about something that does not exist here."""
    return PeerTest(number, name, "", (), why_not)
