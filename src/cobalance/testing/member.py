"""One process of a group, as far as a test is concerned: an event loop of its own, and its own ways to both servers."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cobalance.errors import MembershipError
from cobalance.threads.portal import EventLoopThread, call_in
from cobalance.threads.worker_threads import Daemons

if TYPE_CHECKING:
    from concurrent.futures import Future

    from anyio.from_thread import BlockingPortal

    from cobalance.group.group import Group
    from cobalance.testing.transport import OwnTransport


class Member:
    """Made by :class:`cobalance.testing.Churn`."""

    def __init__(self, group: Group, transport: OwnTransport) -> None:
        self.group = group
        """For what a test asks of it: ``tenures``, ``failed`` …"""
        self.transport = transport
        self._thread = EventLoopThread()
        self._portal: BlockingPortal = self._thread.__enter__()
        self._ended: Future[None] | None = None

    def start(self) -> None:
        """Joins."""
        try:
            call_in(self._portal, self.group.start)
        except BaseException:
            self._thread.__exit__(None)
            raise

    @property
    def id(self) -> str:
        """Its id at the coordinator."""
        return self.group.member

    @property
    def holds(self) -> set[str]:
        """What it has now."""
        return set(self.group.tenures)

    def stop(self) -> None:
        """Leaves gracefully. What has ended it before is raised here, unless it has crashed."""
        crashed, self._ended = self._ended, self._ended or Daemons().start(lambda: None)
        if crashed is not None:
            crashed.result()
            return
        try:
            call_in(self._portal, self.group.stop)
        finally:
            self._thread.__exit__(None)

    def die(self) -> None:
        """Its handlers are cancelled wherever they are; nothing is told to anybody."""
        self._portal.call(self.group.abandon)
        self._ended = Daemons().start(self._bury)

    def _bury(self) -> None:
        with suppress(MembershipError):
            call_in(self._portal, self.group.stop)
        self._thread.__exit__(None)


def connection_name(group: Any) -> str:
    """What its connection to RabbitMQ is called; empty without one."""
    connection = getattr(group, "connection", None)
    return "" if connection is None else str(connection.name)
