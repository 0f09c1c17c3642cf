"""Keeps a group's resource list in step with RabbitMQ: the elected coordinator looks, and declares what it finds.

A list's version is the group's clock when the look began, so whoever has looked later wins, and a coordinator that was deposed
in the middle of a look declares what is ignored.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.to_thread

from cobalance.declaration import digest
from cobalance.errors import CobalanceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cobalance.coordinator.client import Coordinator, ResourceRow
    from cobalance.rabbitmq.layouts import Look

log = logging.getLogger("cobalance.rabbitmq")

ELECTION_MS = 250
"""How often a member looks whether it has become the coordinator."""


class Source(Protocol):
    """Knows where queues are to be found."""

    def look(self, listed: Mapping[str, ResourceRow]) -> Look:
        """What to consume now, given the group's resources. Blocks."""


class Discovery:
    """Looks every `refresh_ms`, while this member is the coordinator."""

    def __init__(
        self,
        source: Source,
        coordinator: Coordinator,
        *,
        refresh_ms: int,
        is_coordinator: Callable[[], bool],
        declare: Callable[[tuple[str, ...], int], None],
    ) -> None:
        self._source, self._coordinator, self._refresh_ms = source, coordinator, refresh_ms
        self._is_coordinator, self._declare = is_coordinator, declare
        self._trouble = ""

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            pause_ms = ELECTION_MS
            if self._is_coordinator():
                pause_ms = await anyio.to_thread.run_sync(self._look, abandon_on_cancel=True)
            await anyio.sleep(pause_ms / 1000)

    def _look(self) -> int:
        """Looks once; returns when to look again, in ms."""
        try:
            state = self._coordinator.state()
            if int(state["recovering"]) > int(state["heard"]):  # claims are still coming in
                return ELECTION_MS
            look = self._source.look({row.name: row for row in self._coordinator.resources()})
        except CobalanceError as error:
            if str(error) != self._trouble:
                log.warning("group %s: its queues could not be looked for. %s", self._coordinator.group, error)
            self._trouble = str(error)
            return self._refresh_ms
        self._trouble = ""
        if look.resources is not None:
            self._compare(look.resources, state)
        return self._refresh_ms if look.again_in_ms is None else look.again_in_ms

    def _compare(self, names: tuple[str, ...], state: Mapping[str, str]) -> None:
        if digest(tuple(sorted(names))) == state["list_hash"] and state["list_done"] == "1":
            return
        version = max(int(state["heard"]), int(state["list_version"]) + 1)
        log.info("group %s: %d queues are to be consumed from now on", self._coordinator.group, len(names))
        self._declare(names, version)
