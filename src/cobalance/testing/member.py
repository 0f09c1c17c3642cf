"""One member in a test, with its own event loop and its own connections to both servers."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cobalance.errors import MembershipError
from cobalance.threads.portal import EventLoopThread, now
from cobalance.threads.worker_threads import Daemons

if TYPE_CHECKING:
    from concurrent.futures import Future

    from cobalance.group.group import Group
    from cobalance.testing.transport import OwnTransport


class Member:
    """Created by :class:`cobalance.testing.Churn`."""

    def __init__(self, group: Group, transport: OwnTransport) -> None:
        self.group = group
        """The group object, for its ``tenures``, ``failed`` and so on."""
        self.transport = transport
        self._event_loop = EventLoopThread().__enter__()
        self._ended: Future[None] | None = None

    def start(self) -> None:
        """Joins the group."""
        try:
            self._event_loop.call(self.group.start)
        except BaseException:
            self._event_loop.__exit__(None)
            raise

    @property
    def id(self) -> str:
        """Its member id."""
        return self.group.member

    @property
    def holds(self) -> set[str]:
        """The resources it holds now."""
        return set(self.group.tenures)

    def stop(self) -> None:
        """Leaves gracefully. Raises what ended the membership before, unless it has crashed."""
        crashed, self._ended = self._ended, self._ended or Daemons().start(lambda: None)
        if crashed is not None:
            crashed.result()
            return
        try:
            self._event_loop.call(self.group.stop)
        finally:
            self._event_loop.__exit__(None)

    def die(self) -> None:
        """Cancels its handlers wherever they are, without notifying anyone."""
        self._event_loop.call(now, self.group.membership.abandon)
        self._ended = Daemons().start(self._bury)

    def _bury(self) -> None:
        with suppress(MembershipError):
            self._event_loop.call(self.group.stop)
        self._event_loop.__exit__(None)


def connection_name(group: Any) -> str:
    """The name of its RabbitMQ connection; empty if it has none."""
    connection = getattr(getattr(group, "partitions", None), "connection", None)
    return "" if connection is None else str(connection.name)
