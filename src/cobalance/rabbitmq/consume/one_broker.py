"""Keeps a group at one broker: another virtual host has queues of the same names, but with other messages.

The group assigns a queue by its name, so a member elsewhere would leave this queue's messages to nobody, and read streams at
offsets of others. Every member reports its place along with what it has in flight. A member refuses to join while others
are elsewhere; of two that join at the same time, the later one leaves soon after. Once all members have left, the group may
move. A member that has not reported, such as one of an older version, is not seen.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Self
from urllib.parse import quote, unquote

import anyio
import attrs

from cobalance.errors import CobalanceError, GroupActive
from cobalance.threads.worker_threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cobalance.coordinator.client import MemberRow
    from cobalance.group.membership import Membership

SAMPLE = 20
"""All members are at one place, so a few tell which; a large group need not be read as a whole by each that enters."""


@attrs.frozen
class BrokerPlace:
    """Where queues are: a virtual host of a cluster."""

    cluster: str
    vhost: str

    def __str__(self) -> str:
        return f"virtual host {self.vhost!r} of cluster {self.cluster!r}"

    @property
    def written(self) -> str:
        """One word."""
        return f"{quote(self.cluster, safe='@')}/{quote(self.vhost, safe='')}"

    @classmethod
    def read(cls, text: str) -> Self:
        cluster, _, vhost = text.partition("/")
        return cls(unquote(cluster), unquote(vhost))

    def is_apart_from(self, other: Self) -> bool:
        """Whether it is certainly not the same place. A cluster without a name goes by that of the node that is asked
        (name@host), so two of these may be one cluster.
        """
        are_named = all(it.cluster and "@" not in it.cluster for it in (self, other))
        return self.vhost != other.vhost or (are_named and self.cluster != other.cluster)


class OneBroker:
    """Checks that no other member is elsewhere."""

    def __init__(self, membership: Membership, place: BrokerPlace) -> None:
        self._membership, self._coordinator, self._place = membership, membership.coordinator, place
        membership.hooks.joined.append(lambda _: membership.engine.report())

    def check(self) -> None:
        """Before joining. Silent if Redis does not answer; joining says so. Blocks.

        Raises:
            GroupActive: there are members elsewhere.
        """
        rows: list[MemberRow] = []
        with suppress(CobalanceError):
            rows = self._coordinator.sample_members(SAMPLE)
        for _, there in self._apart(rows):
            raise GroupActive(self._in_words(there))

    async def watch(self, pause_ms: int) -> None:
        """Once joined, and at intervals: leaves if a member that joined before is elsewhere."""
        engine = self._membership.engine
        while True:
            if (there := await in_thread(self._place_of_older)) is not None:
                return engine.confirm(partial(engine.fail, self._in_words(there)))
            await anyio.sleep(pause_ms / 1000)

    def _place_of_older(self) -> BrokerPlace | None:
        with suppress(CobalanceError):
            if any(self._apart(self._coordinator.sample_members(SAMPLE))):
                rows = list(self._coordinator.members())
                joined = [_age(row) for row in rows if row.id == self._membership.engine.session.member]
                return next((there for row, there in self._apart(rows) if joined and _age(row) < joined[0]), None)
        return None

    def _apart(self, rows: Iterable[MemberRow]) -> Iterator[tuple[MemberRow, BrokerPlace]]:
        for row in rows:
            there = BrokerPlace.read(row.in_flight.place) if row.in_flight and row.in_flight.place else self._place
            if self._place.is_apart_from(there):
                yield row, there

    def _in_words(self, there: BrokerPlace) -> str:
        return (
            f"group {self._coordinator.group!r} has members at {there}, and this one is at {self._place}, whose queues have other messages "
            f"under the same names. For a group of its own there, give it another name or, as for a second environment, another key_prefix; "
            f"to move the group, stop all its members first, and wait until their sessions have ended"
        )


def _age(row: MemberRow) -> tuple[int, str]:
    return row.joined_ms, row.id
