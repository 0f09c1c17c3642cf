"""Closes the RabbitMQ connections of members whose session has expired, so that no one waits for a frozen process.

A frozen process (SIGSTOP, a paused virtual machine) keeps its queues until RabbitMQ has missed its heartbeats, up to
three of them. By then the group has long given its partitions to others, whom RabbitMQ refuses or does not serve. With
the management API, a member that was granted something checks whether another has expired lately, or has lost what was
kept for its return to an heir or to others, and has RabbitMQ close that member's connection. The frozen process wakes
up to a closed connection: its acks cannot arrive any more, and its commits and releases are fenced anyway.

A member that is cut off only from Redis looks the same and is closed as well, so with a management URL, a guard at the
broker no longer carries a member through its own Redis outage.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import anyio

from cobalance.errors import CobalanceError
from cobalance.journal import Journal, JournalFollower
from cobalance.rabbitmq.topics.management import close_connection, connection_names
from cobalance.threads.worker_threads import in_thread

if TYPE_CHECKING:
    from cobalance.coordinator.client import Coordinator

log = logging.getLogger("cobalance.rabbitmq")

LOOK_BACK_MS = 60_000
"""A member that expired earlier has lost its connection to RabbitMQ's heartbeats."""

SEARCH_S = 15.0
"""How long to look for an expired member's connection. The API lists connections some five seconds late."""

FIRST_PAUSE_S, LAST_PAUSE_S = 0.25, 2.0

BEREFT = frozenset({"expired_member", "expired", "inherited"})
"""Entries about a silent member, or about a resource it had.

A member whose resources are kept for its return (graced) is left alone until another is given them.
"""


class Fence:
    """Finds and closes the connections; its methods block."""

    def __init__(self, coordinator: Coordinator, amqp_url: str, management_url: str) -> None:
        self._coordinator, self._amqp_url, self._management_url = coordinator, amqp_url, management_url
        self._journal = Journal(coordinator.transport, coordinator.group, key_prefix=coordinator.key_prefix)
        self._follower: JournalFollower | None = None
        self._expired: dict[str, float] = {}
        """Process → when we read that its session had expired, on our own clock."""
        self._closed: set[str] = set()
        """Connections of theirs. They may be listed for some seconds more."""

    @property
    def pending(self) -> bool:
        """Whether connections are still being looked for."""
        return bool(self._expired)

    def sweep(self) -> int:
        """Closes connections of expired members; returns how many.

        Raises:
            ServerError: Redis or the management API did not answer; the next sweep makes up for it.
        """
        self._read_journal()
        if not self._expired:
            self._closed.clear()
            return 0
        for row in self._coordinator.members():
            if row.status != "graced":
                self._expired.pop(_process(row.id), None)
        owners = {f"{self._coordinator.group}/{process}": process for process in self._expired}
        found = [it for it in connection_names(self._amqp_url, self._management_url) if it[1] in owners]
        closed = 0
        for name, owner in found:
            process = owners[owner]
            if not self._is_over(process):
                self._expired.pop(process, None)
            elif name not in self._closed:  # the process may have others, which are not listed yet
                close_connection(self._amqp_url, self._management_url, name, "its member's session has expired")
                log.warning("closed the RabbitMQ connection of %s, whose session has expired", owner)
                self._closed.add(name)
                closed += 1
        return closed

    def _is_over(self, process: str) -> bool:
        """Asks about this process alone: it may have joined since the members were listed."""
        return all(row.status == "graced" for row in self._coordinator.members_of(process))

    def _read_journal(self) -> None:
        """Reads which sessions have expired: each is an entry, written in the step that frees what the member held."""
        if self._follower is None:
            state = self._coordinator.state()
            after = f"{max(0, int(state['heard']) - int(state['skew']) - LOOK_BACK_MS)}-0"
            self._follower = JournalFollower(self._journal, after)
        for entry in self._follower.entries():
            if entry.kind in BEREFT and entry.member:
                self._expired[_process(entry.member)] = time.monotonic()
            elif entry.kind == "joined" and entry.member:
                self._expired.pop(_process(entry.member), None)
        since = time.monotonic() - SEARCH_S
        self._expired = {process: at for process, at in self._expired.items() if at > since}


class Fencing:
    """Sweeps when something was granted, and a few more times: a holder may freeze before its session has expired."""

    def __init__(self, fence: Fence, session_timeout_ms: int) -> None:
        self._fence = fence
        self._again_for_s = 2 * session_timeout_ms / 1000
        self._wanted = anyio.Event()
        self._last_failure = ""
        self._over = False

    def look(self) -> None:
        """Something was granted. On the event loop."""
        self._wanted.set()

    async def run(self) -> None:
        """Runs until cancelled, which does not wait for a sweep: it goes on by itself, as far as it can."""
        try:
            while True:
                await self._wanted.wait()
                self._wanted = anyio.Event()
                pause_s, until = FIRST_PAUSE_S, anyio.current_time() + self._again_for_s
                while anyio.current_time() < until or self._fence.pending:
                    await in_thread(self._sweep)
                    with anyio.move_on_after(pause_s):
                        await self._wanted.wait()
                        break
                    pause_s = min(2 * pause_s, LAST_PAUSE_S)
        finally:
            self._over = True

    def _sweep(self) -> None:
        try:
            self._fence.sweep()
        except CobalanceError as error:
            if str(error) != self._last_failure and not self._over:  # not at every attempt
                self._last_failure = str(error)
                log.warning("group members that froze cannot be fenced: %s", error)


def _process(member: str) -> str:
    """A member's id is its process's name and a count."""
    return member.rpartition(".")[0]
