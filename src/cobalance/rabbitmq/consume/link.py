"""A member's connection to RabbitMQ: opened before it joins, restored whenever it is lost, closed when nothing is held."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from cobalance.errors import CobalanceError
from cobalance.rabbitmq.consume.channel_loss import STILL_UNCONNECTED, granted_patience_ms
from cobalance.rabbitmq.consume.crash_detection import CrashDetection, is_possible
from cobalance.rabbitmq.consume.one_broker import BrokerPlace
from cobalance.rabbitmq.partition.replies import Replies
from cobalance.rabbitmq.wire.address import virtual_host
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.reconnection import Reconnection
from cobalance.threads.worker_threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.group.membership import Membership
    from cobalance.group.patience import Patience

log = logging.getLogger("cobalance.rabbitmq")

LASTING_SESSIONS = 2


class Link:
    """Opened once, on the event loop.

    Args:
        unconnected_ms: how long a partition is kept unworked without it.
        on_proven: called with whether it is certain to exist; on its I/O thread.
    """

    connection: BrokerConnection
    replies: Replies
    reconnection: Reconnection
    crashes: CrashDetection | None = None
    lasting_ms = 0
    """A connection that is there for so long was not only there for a moment: RabbitMQ's silence ends one sooner."""

    def __init__(
        self, membership: Membership, amqp_url: str, unconnected_ms: int | None, on_proven: Callable[[bool], None]
    ) -> None:
        self._membership, self._amqp_url = membership, amqp_url
        self._unconnected_ms, self._on_proven = unconnected_ms, on_proven

    async def open(self, patience: Patience, session_timeout_ms: int) -> None:
        """Connects; raises what is wrong."""
        group, self.lasting_ms = self._membership.name, LASTING_SESSIONS * session_timeout_ms
        name, heartbeat_s = f"{group}/{self._membership.engine.session.name}", max(1, round(session_timeout_ms / 3_000))
        self.connection = BrokerConnection(
            self._amqp_url, name, heartbeat_s=heartbeat_s, on_lost=self._lost, on_proven=self._on_proven
        )
        self.replies = Replies(group, self._amqp_url, name, heartbeat_s=heartbeat_s)
        self.reconnection = Reconnection(group, self.connection, self._membership.confirm_held)
        await patience.call(self.reconnection.open)

    @property
    def place(self) -> BrokerPlace:
        """Where it is, or was last, connected to."""
        return BrokerPlace(self.connection.cluster, virtual_host(self._amqp_url))

    def detect_crashes(self, session_timeout_ms: int, *, guarded: bool) -> None:
        """Has members that die noticed at once, if that is possible; `guarded` is whether RabbitMQ guards all queues."""
        coordinator = self._membership.coordinator
        if is_possible(coordinator):
            self.crashes = CrashDetection(
                coordinator,
                self._membership.engine,
                self.connection,
                self._amqp_url,
                guarded=guarded,
                session_timeout_ms=session_timeout_ms,
            )
            self.crashes.connected()
            self._membership.hooks.joined.append(self.crashes.joined)

    async def wait_connected(self) -> None:
        """Returns once RabbitMQ is connected and the coordinator has confirmed, after the last loss, what is held."""
        await self.reconnection.wait_ready()

    async def close(self) -> None:
        """Undoes :meth:`open`, even if it was incomplete."""
        if self.crashes is not None:
            self.crashes.end()
        if hasattr(self, "reconnection"):
            await self.reconnection.wait_idle()
            await in_thread(self.replies.close)
            await in_thread(self.connection.close)

    def _lost(self, reason: str) -> None:  # on the I/O thread
        log.warning(
            "group %s: lost RabbitMQ at %s (%s); connecting again",
            *(self._membership.name, self.connection.place, reason),
        )
        if self.crashes is not None:
            self.crashes.lost()
        self._membership.soon(self._start_reconnecting)

    def _start_reconnecting(self) -> None:
        self.reconnection.lost()
        self._membership.tasks.start(self._reconnect)

    async def _reconnect(self) -> None:
        tasks = self._membership.tasks
        await tasks.run_service(self.reconnection.run)
        if self.crashes is not None:
            self.crashes.connected()
        if self._unconnected_ms and self.reconnection.away_ms >= granted_patience_ms(self._unconnected_ms):
            await tasks.run_service(self.try_again)

    async def try_again(self) -> None:
        """What rests because nobody had RabbitMQ may be worked now: this member has."""
        await in_thread(self._resume_unconnected)

    def _resume_unconnected(self) -> None:
        coordinator = self._membership.coordinator
        with suppress(CobalanceError):  # it is tried again by itself
            resting = [it.name for it in coordinator.resources() if it.paused_for == STILL_UNCONNECTED]
            if resting:
                coordinator.resume(*resting)
