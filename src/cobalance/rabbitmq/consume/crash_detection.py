"""What one member does so that a killed process's partitions go on at once: the protocol's README says why that is safe
("Crashes seen at once").

It has RabbitMQ keep its last will, and vouches meanwhile that RabbitMQ guards whatever it holds, for as long as its
connection lasts. It looks after the wills of others, unless it has just lost its own connection: what cut it off may have cut off
the others as well, and all of their connections at once.
"""

from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

from cobalance.group.clock import monotonic_ms
from cobalance.rabbitmq.consume.crash_watch import CrashWatch
from cobalance.rabbitmq.consume.last_will import LastWill, wills_queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.coordinator.client import Coordinator
    from cobalance.group.engine import Engine
    from cobalance.rabbitmq.consume.last_will import Will
    from cobalance.rabbitmq.wire.connection import BrokerConnection

log = logging.getLogger("cobalance.rabbitmq")


class CrashDetection:
    """The witnesses of one member's end, and its looks at others. Any thread; only :meth:`check_guard` blocks.

    Args:
        guarded: whether RabbitMQ guards everything that the member knows of. If not, it only looks at others.
        session_timeout_ms: for this long after it has connected again, it looks at nobody.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        engine: Engine,
        connection: BrokerConnection,
        amqp_url: str,
        *,
        guarded: bool,
        session_timeout_ms: int,
    ) -> None:
        self._coordinator, self._engine = coordinator, engine
        self._guarded, self._session_timeout_ms = guarded, session_timeout_ms
        self._watch = CrashWatch(coordinator)
        self._will = LastWill(wills_queue(coordinator.scope), connection, amqp_url, self._suspect, self._kept)
        self._was_lost, self._looks_from = False, 0

    def connected(self) -> None:
        """There is a new connection to RabbitMQ. The first is there before the member joins: the one whose place it takes
        may have died just now.
        """
        if self._was_lost:
            self._looks_from = monotonic_ms() + self._session_timeout_ms
        self._will.keep(connection=uuid.uuid4().hex)

    def lost(self) -> None:
        """The connection is gone, and this process lives."""
        self._was_lost = True
        self._engine.vouch(None)

    def joined(self, member: str) -> None:
        """The process is this member now."""
        if self._guarded:
            self._will.keep(member)

    def _kept(self, connection: str | None) -> None:
        """RabbitMQ keeps the will, or has delivered it although this process lives."""
        if self._guarded:
            self._engine.vouch(connection)

    def check_guard(self, *, guarded: bool) -> None:
        """Before anything is worked that was not known in the beginning. Blocks if nothing guards it.

        Raises:
            ServerError: the coordinator may still count on a guard, so it must not be worked yet.
        """
        if not guarded:
            self._guarded = False
            self._engine.vouching.withdraw()

    def _suspect(self, will: Will, done: Callable[[], object]) -> None:
        if monotonic_ms() >= self._looks_from:
            self._watch.suspect(will, done)
            return
        log.debug(
            "group %s: nobody looks at member %s, since this process was cut off, too: its session decides",
            *(self._coordinator.group, will.member),
        )
        done()

    def end(self) -> None:
        """The member has left."""
        self._will.withdraw()


def is_possible(coordinator: Coordinator) -> bool:
    """Not where all members are in one process, which dies as a whole."""
    return not getattr(coordinator.transport, "born_empty", False)
