"""What has to happen between a lost connection to RabbitMQ and the next message.

RabbitMQ gave the queues free when the connection ended, so another member may have been let in meanwhile. The member therefore
connects, asks the coordinator what it still holds, and only then lets its consumers subscribe again; what it has lost by then
was aborted before.
"""

from __future__ import annotations

import logging
from functools import partial
from random import SystemRandom
from typing import TYPE_CHECKING

import anyio

from cobalance.errors import CobalanceError, Unreachable
from cobalance.group.engine import monotonic_ms
from cobalance.group.event_log import seconds
from cobalance.threads.worker_threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from cobalance.rabbitmq.wire.connection import BrokerConnection

log = logging.getLogger("cobalance.rabbitmq")

FIRST_MS, LAST_MS = 50, 5_000
"""Waits between attempts double from the first to the last; each is shortened at random, so that members do not come as one."""

CONNECT_TIMEOUT_MS = 5_000
"""Per host. Leaving the group waits for an attempt that is under way."""

_random = SystemRandom()


class Reconnection:
    """Opens the connection, and brings it back whenever it was lost.

    `confirm` returns once the coordinator has told what the member still holds.
    """

    def __init__(self, group: str, connection: BrokerConnection, confirm: Callable[[], Awaitable[None]]) -> None:
        self._group, self._connection, self._confirm = group, connection, confirm
        self._ready = anyio.Event()
        self._losses = self._healed = 0
        self._running, self._told = False, ""
        self._attempted = anyio.Event()  # Set unless an attempt is under way.
        self._attempted.set()

    async def open(self) -> None:
        """The first connection, with nothing held yet. Raises what is wrong."""
        await in_thread(self._connection.connect, lambda _: self._connection.close())
        self._ready.set()

    async def wait_ready(self) -> None:
        """Returns once consumers may subscribe."""
        await self._ready.wait()

    def lost(self) -> None:
        """Nobody subscribes until :meth:`run` has come to its end."""
        self._losses += 1
        if self._ready.is_set():
            self._ready = anyio.Event()

    async def wait_idle(self) -> None:
        """Returns once no attempt is under way. When :meth:`run` was cancelled before, none follows, and what was opened can be closed."""
        await self._attempted.wait()

    async def run(self) -> None:
        """After :meth:`lost`: until there is a connection and the coordinator has confirmed what is held, since its last loss."""
        if self._running:
            return
        self._running, lost_at = True, monotonic_ms()
        while self._healed < self._losses:
            losses = self._losses
            await self._connect()
            await self._confirm()
            self._healed = losses
        back = (self._group, self._connection.place, seconds(monotonic_ms() - lost_at))
        log.info("group %s: connected to RabbitMQ at %s again, after %s", *back)
        self._ready.set()
        self._running = False

    def _tell(self, error: CobalanceError) -> None:
        """Once each; that it is lost was told already."""
        if str(error) != self._told:
            level = logging.INFO if isinstance(error, Unreachable) else logging.WARNING
            log.log(level, "group %s: %s; trying again", self._group, error)
        self._told = str(error)

    async def _connect(self) -> None:
        delay_ms, self._told = FIRST_MS, ""
        while not self._connection.is_open:
            await anyio.sleep(delay_ms * _random.uniform(0.5, 1.0) / 1000)
            self._attempted = anyio.Event()
            try:
                with anyio.CancelScope(shield=True):  # who leaves waits for it, and closes what it has opened
                    await in_thread(partial(self._connection.connect, CONNECT_TIMEOUT_MS))
            except CobalanceError as error:
                self._tell(error)
                delay_ms = min(2 * delay_ms, LAST_MS)
            finally:
                self._attempted.set()
