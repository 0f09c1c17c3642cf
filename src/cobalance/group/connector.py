"""Connects a member to its coordinator, in the name of its instance id if it has one. All of it blocks."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.errors import GroupActive, GroupExists, UnknownGroup
from cobalance.group.engine import call_timeout_ms
from cobalance.group.instance_file import InstanceFile
from cobalance.limits import check_members

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.coordinator.transport import Transport
    from cobalance.settings import GroupSettings


class Connector:
    """Of one member.

    Args:
        transport: used instead of `redis_url`, and never closed.
        settings_read: called with the settings of a group that there is.
    """

    former = ""
    """The dead member whose resources this process takes over at once."""

    def __init__(
        self,
        group: str,
        key_prefix: str,
        *,
        redis_url: str,
        transport: Transport | None,
        instance_id: str | None,
        settings_read: Callable[[GroupSettings], None],
    ) -> None:
        self._group, self._key_prefix = group, key_prefix
        self._redis_url, self._transport, self._settings_read = redis_url, transport, settings_read
        self._instance_id = instance_id
        self._file: InstanceFile | None = None

    def connect(self, settings: GroupSettings) -> Coordinator:
        """Checks that the server can be used; `settings` are those of a new group."""
        first = self._transport or open_transport(self._redis_url)
        try:
            session_ms = self._greet(first, settings)
        except BaseException:
            self._leave_instance()
            raise
        finally:
            self._close(first)
        lasting = self._transport or open_transport(self._redis_url, call_timeout_ms=call_timeout_ms(session_ms))
        return Coordinator(lasting, self._group, key_prefix=self._key_prefix)

    def _greet(self, transport: Transport, settings: GroupSettings) -> int:
        """Returns the group's session timeout."""
        coordinator = Coordinator(transport, self._group, key_prefix=self._key_prefix)
        if self._instance_id is not None:
            self._file = InstanceFile(coordinator, self._instance_id)
        try:
            coordinator.tick()
            check_members(self._group, int(coordinator.state()["members"]))
            self.former = "" if self._file is None else self._file.take(coordinator)
            settings = coordinator.settings()
            self._settings_read(settings)
        except UnknownGroup:
            if getattr(transport, "born_empty", False):  # in memory, nothing can have been held before
                with suppress(GroupExists, GroupActive):  # another member was faster
                    coordinator.create(settings)
        return settings.session_timeout_ms

    def joined(self, member: str) -> None:
        """The process is this member."""
        if self._file is not None:
            self._file.write(member)

    def time_calls(self, coordinator: Coordinator, timeout_ms: int) -> None:
        """A transport of the program's own keeps its timeout, one in memory has none."""
        set_timeout = getattr(coordinator.transport, "set_call_timeout", None)
        if self._transport is None and set_timeout is not None:
            set_timeout(timeout_ms)

    def disconnect(self, coordinator: Coordinator, *, has_left: bool = True) -> None:
        """Undoes :meth:`connect`. The instance id is kept by a process whose member may still hold something."""
        if has_left:
            self._leave_instance()
        self._close(coordinator.transport)

    def _leave_instance(self) -> None:
        if self._file is not None:
            self._file.close()

    def _close(self, transport: Transport) -> None:
        if self._transport is None:
            transport.close()
