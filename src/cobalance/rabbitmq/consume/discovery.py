"""Keeps a subscription's queues in step with RabbitMQ: its head, an elected member, looks and declares.

A head that cannot ask RabbitMQ steps down: it may be the only one that is cut off.

A list's version is the group's clock when the look began, so the latest look wins, and the list of a head that was
deposed meanwhile is ignored.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

import anyio

from cobalance.errors import CobalanceError, ServerError, Unreachable
from cobalance.member.declaration import digest
from cobalance.threads.worker_threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from cobalance.coordinator.client import Coordinator, ResourceRow, SubscriptionRow
    from cobalance.rabbitmq.topics.layouts import Look

log = logging.getLogger("cobalance.rabbitmq")

ELECTION_MS = 250
"""How often a member checks whether it has become the head."""


class Source(Protocol):
    """Finds queues."""

    @property
    def id(self) -> str:
        """The subscription shared by all members that look for the same queues."""

    def look(self, listed: Mapping[str, ResourceRow], ask_declared: Callable[[], Collection[str]]) -> Look:
        """What to consume now. Blocks.

        `listed`: the group's resources; `ask_declared` returns those that the subscription names.
        """


class Discovery:
    """Looks every `refresh_ms` while this member is the head of its subscription.

    Args:
        head: this member's id if it is the head, otherwise None.
    """

    def __init__(
        self,
        source: Source,
        coordinator: Coordinator,
        *,
        refresh_ms: int,
        head: Callable[[], str | None],
        is_connected: Callable[[], bool],
        declare: Callable[[tuple[str, ...], int], None],
        step_down: Callable[[], object],
    ) -> None:
        self._source, self._coordinator, self._refresh_ms = source, coordinator, refresh_ms
        self._is_connected = is_connected
        self._head, self._declare, self._step_down = head, declare, step_down
        self._trouble: tuple[int, str] | None = None
        self._over = False

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            looked_as, due_ms = None, 0
            while True:
                head = self._head()
                # Under another id it has rejoined: the group may have lost the list, and nobody else declares it.
                if head is not None and (head != looked_as or due_ms <= 0):
                    due_ms = await in_thread(self._look)
                looked_as = head
                pause_ms = min(ELECTION_MS, due_ms) if head is not None else ELECTION_MS
                await anyio.sleep(pause_ms / 1000)
                due_ms -= pause_ms
        finally:
            self._over = True

    def _look(self) -> int:
        """Looks once; returns when to look again, in ms."""
        try:
            state = self._coordinator.state()
            if int(state["recovering"]) > int(state["heard"]):  # claims are still coming in
                return ELECTION_MS
            look = self._find({row.name: row for row in self._coordinator.resources()})
            if look.resources is not None:
                self._compare(look.resources, int(state["heard"]))
        except CobalanceError as error:
            # A loss of the group's own connection is logged by the group, which may not have noticed it yet.
            is_logged = isinstance(error, Unreachable) and not (self._trouble and self._is_connected())
            trouble = (logging.INFO if is_logged else logging.WARNING, str(error))
            if trouble != self._trouble and not self._over:  # otherwise its connections were closed during a look
                log.log(trouble[0], "group %s: its queues could not be looked for. %s", self._coordinator.group, error)
            self._trouble = trouble
            return self._refresh_ms
        self._trouble = None
        return self._refresh_ms if look.again_in_ms is None else min(look.again_in_ms, self._refresh_ms)

    def _find(self, listed: Mapping[str, ResourceRow]) -> Look:
        try:
            return self._source.look(listed, lambda: self._ours(listed))
        except ServerError:
            with suppress(CobalanceError):
                self._step_down()
            raise

    def _ours(self, listed: Mapping[str, ResourceRow]) -> set[str]:
        """What the subscription names. Where Redis has lost that, also what was claimed: a queue that nothing else tells of
        may still have messages.
        """
        names = set(self._coordinator.declared(self._source.id))
        mine = self._mine()
        if mine is None or not mine.known:
            members = {row.id for row in self._coordinator.members() if row.subscription == self._source.id}
            names.update(name for name, row in listed.items() if row.owner in members)
        return names

    def _mine(self) -> SubscriptionRow | None:
        return next((row for row in self._coordinator.subscriptions() if row.id == self._source.id), None)

    def _compare(self, names: tuple[str, ...], heard_ms: int) -> None:
        mine = self._mine()
        if mine is not None and mine.known and mine.digest == digest(tuple(sorted(names))):
            return
        version = max(heard_ms, mine.version + 1 if mine is not None else 0)
        log.info("group %s: %d queues are to be consumed from now on", self._coordinator.group, len(names))
        self._declare(names, version)
