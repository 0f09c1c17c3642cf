"""Membership for programs without async: the same group, with work and callbacks in threads.

The event loop runs on a background thread, so blocking in work or a callback holds up only its own thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.coordinator.keys import DEFAULT_PREFIX
from cobalance.coordinator.open import DEFAULT_REDIS_URL
from cobalance.group.blocking import BlockingMembership, BlockingTenure
from cobalance.group.group import Group
from cobalance.limits import check_callables

__all__ = ["BlockingGroup", "BlockingTenure"]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cobalance.coordinator.transport import Transport
    from cobalance.group.blocking import BlockingListener
    from cobalance.group.tenure import Tenure
    from cobalance.settings import GroupSettings, MemberSettings

    BlockingWork = Callable[[BlockingTenure], None]


class BlockingGroup(BlockingMembership):
    """Membership in a group for the duration of a ``with`` block.

    Callbacks and exceptions are as in :class:`cobalance.Group`, except that callbacks are plain functions, each called
    in a thread, and that ``work(tenure)`` has its own thread for each tenure.

    A thread cannot be cancelled, so ``work`` must return soon after ``tenure.active`` becomes false. Until it has
    returned, nothing else in this process works that resource. If it never returns, it delays the end of the ``with``
    by at most the drain timeout and the session timeout.

    An exception in ``work`` or a callback ends the membership gracefully: :meth:`wait_left` returns, and the end of the
    ``with`` raises it, including ``sys.exit()``. Meanwhile it is available as :attr:`failed`.
    """

    def __init__(
        self,
        name: str,
        resources: Iterable[str] | None = None,
        *,
        redis_url: str = DEFAULT_REDIS_URL,
        settings: GroupSettings | None = None,
        member: MemberSettings | None = None,
        work: BlockingWork | None = None,
        on_assigned: BlockingListener | None = None,
        on_revoked: BlockingListener | None = None,
        on_lost: BlockingListener | None = None,
        resources_version: int | None = None,
        transport: Transport | None = None,
        log_exceptions: bool = True,
        key_prefix: str = DEFAULT_PREFIX,
        connect_timeout_s: float = 0,
    ) -> None:
        check_callables(work=work, on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost)
        self._blocking_work = work
        group = Group(
            name,
            resources,
            redis_url=redis_url,
            settings=settings,
            member=member,
            work=None if work is None else self._run_work,
            on_assigned=self._listener(on_assigned),
            on_revoked=self._listener(on_revoked),
            on_lost=self._listener(on_lost),
            resources_version=resources_version,
            transport=transport,
            log_exceptions=log_exceptions,
            key_prefix=key_prefix,
            connect_timeout_s=connect_timeout_s,
        )
        super().__init__(group)

    def declare(self, resources: Iterable[str], version: int) -> None:
        """Declares the resource list; see :meth:`cobalance.Group.declare`."""
        self._group.declare(resources, version)

    async def _run_work(self, tenure: Tenure) -> None:
        if self._blocking_work is not None:
            work, wrapped = self._blocking_work, self._wrap(tenure)
            tasks = self._group.membership.tasks
            with tasks.contain():
                await tasks.in_thread(lambda: work(wrapped))
