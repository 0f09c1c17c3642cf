"""What happens between a lost connection to RabbitMQ and the next message.

RabbitMQ released the queues when the connection ended, so another member may hold them by now. The member connects,
asks the coordinator what it still holds, and only then lets its consumers subscribe again; partitions lost by then have
been aborted before.
"""

from __future__ import annotations

import logging
from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING

import anyio

from cobalance.backoff import Backoff
from cobalance.errors import CobalanceError, Unreachable
from cobalance.group.clock import monotonic_ms
from cobalance.group.event_log import seconds
from cobalance.threads.worker_threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cobalance.rabbitmq.wire.connection import BrokerConnection

log = logging.getLogger("cobalance.rabbitmq")

BACKOFF_MS = Backoff(50, 5_000)
"""Before each attempt; jitter keeps members from reconnecting all at once. The pauses grow on until a connection has
lasted for the longest: RabbitMQ may accept each, and end it at the first channel."""

CONNECT_TIMEOUT_MS = 5_000
"""For all hosts. Leaving the group waits for an attempt in progress."""

_random = SystemRandom()


class Reconnection:
    """Opens the connection, and restores it whenever it is lost.

    `confirm` returns once the coordinator has said what the member still holds.
    """

    def __init__(self, group: str, connection: BrokerConnection, confirm: Callable[[], Awaitable[None]]) -> None:
        self._group, self._connection, self._confirm = group, connection, confirm
        self._ready = anyio.Event()
        self.losses = self._healed = self._attempts = 0
        """The first: how many connections were lost so far."""
        self._connected_at = monotonic_ms()
        self.away_ms = 0
        """How long RabbitMQ was away the last time."""
        self._running, self._last_logged = False, ""
        self._attempted = anyio.Event()  # Set unless an attempt is in progress.
        self._attempted.set()

    async def open(self) -> None:
        """Makes the first connection, while the member holds nothing. Raises what is wrong."""
        await in_thread(self._connection.connect, lambda _: self._connection.close())
        self._connected_at = monotonic_ms()
        self._ready.set()

    async def wait_ready(self) -> None:
        """Returns once consumers may subscribe."""
        await self._ready.wait()

    def lost(self) -> None:
        """Keeps consumers from subscribing until :meth:`run` has finished."""
        self.losses += 1
        if monotonic_ms() - self._connected_at >= BACKOFF_MS.longest:
            self._attempts = 0
        if self._ready.is_set():
            self._ready = anyio.Event()

    async def wait_idle(self) -> None:
        """Returns once no attempt is in progress.

        If :meth:`run` was cancelled before, none follows, and a connection that was opened can be closed.
        """
        await self._attempted.wait()

    async def run(self) -> None:
        """Runs after :meth:`lost`; returns once connected and the coordinator has confirmed what the member holds."""
        if self._running:
            return
        self._running, lost_at = True, monotonic_ms()
        while self._healed < self.losses:
            losses = self.losses
            await self._connect()
            await self._confirm()
            self._healed = losses
        self.away_ms = monotonic_ms() - lost_at
        back = (self._group, self._connection.place, seconds(self.away_ms))
        log.info("group %s: connected to RabbitMQ at %s again, after %s", *back)
        self._ready.set()
        self._running = False

    def _log_once(self, error: CobalanceError) -> None:
        """Logs each failure once; the loss itself has been logged already."""
        if str(error) != self._last_logged:
            level = logging.INFO if isinstance(error, Unreachable) else logging.WARNING
            log.log(level, "group %s: %s; trying again", self._group, error)
        self._last_logged = str(error)

    async def _connect(self) -> None:
        self._last_logged = ""
        while not self._connection.is_open:
            self._attempts += 1
            await anyio.sleep(BACKOFF_MS.pause(self._attempts) * _random.uniform(0.5, 1.0) / 1000)
            self._attempted = anyio.Event()
            try:
                with anyio.CancelScope(shield=True):  # a leaving member waits for the attempt and closes what it opened
                    await in_thread(partial(self._connection.connect, CONNECT_TIMEOUT_MS))
                self._connected_at = monotonic_ms()
            except CobalanceError as error:
                self._log_once(error)
            finally:
                self._attempted.set()
