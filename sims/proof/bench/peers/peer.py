"""What a product has to offer to take part in the story."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Peer(Protocol):
    """A product with certain settings: makes the place of a story, names the member program, and publishes."""

    @property
    def name(self) -> str:
        """On the command line."""

    @property
    def title(self) -> str:
        """In the table."""

    @property
    def beat_s(self) -> float:
        """Its heartbeat interval: what happens at an unlucky moment of it takes longer, so the changes' moments vary by it."""

    @property
    def patience_s(self) -> float:
        """When a group that is not even by then is no longer waited for."""

    def open(self, partitions: int) -> Place:
        """Makes a new topic and a new group."""


class Place(Protocol):
    """One topic and one group, for one story."""

    @property
    def command(self) -> Sequence[str]:
        """Starts a member."""

    @property
    def environment(self) -> Mapping[str, str]:
        """What its processes find in theirs besides ours."""

    def publisher(self) -> Publisher:
        """Called, like the publisher's methods, in the thread that publishes."""

    def close(self) -> None:
        """Removes them."""


class Publisher(Protocol):
    def publish(self, partition: int, number: int) -> None:
        """Does not wait."""

    def rest(self, seconds: float) -> None:
        """Sleeps that long, and does what the connection needs meanwhile."""

    def close(self) -> None:
        """Returns once everything has been sent."""
