"""What becomes of a member whose event loop is blocked, or gone: what nobody works there goes to others."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.group.assignment import Assignment
    from cobalance.group.roster import Roster
    from cobalance.settings import MemberSettings
    from cobalance.threads.event_loop import Attendance

log = logging.getLogger("cobalance")

UNBLOCK = "call what blocks in a thread, as is done with a handler that is a plain function"


class LoopWatch:
    """Looks at the event loop of one member, on its engine's thread.

    Args:
        leave: has the member leave, for a reason and with an advice.
        give_up: gives one resource up.
        disown: gives up everything that only the event loop could finish.
    """

    def __init__(
        self,
        group: str,
        own: MemberSettings,
        attendance: Attendance,
        roster: Roster,
        *,
        leave: Callable[[str, str], None],
        give_up: Callable[[Assignment], None],
        disown: Callable[[], None],
    ) -> None:
        self._group, self._own, self._attendance, self._roster = group, own, attendance, roster
        self._leave, self._give_up, self._disown = leave, give_up, disown
        self._blocked = self._unworked = False

    def look(self, now: int) -> None:
        """Does what is due. Called every so often."""
        missing = self._attendance.missing(now)
        if missing is not None:
            self._leave(missing, "leave the group (its `async with`) before the event loop is stopped or closed")
        if self._attendance.over:
            self._disown()
        else:
            self._attend_blocked(self._blocked_ms(now), now)

    def _blocked_ms(self, now: int) -> int:
        since = self._attendance.blocked_since(now)
        blocked_ms = 0 if since is None else now - since
        if since is not None and not self._blocked:
            log.warning(
                "group %s: its event loop has been blocked for %d ms. If that lasts %d ms more, it leaves, or, where something may be worked "
                "there, gives up what is certainly not; %s",
                *(self._group, blocked_ms, self._own.drain_timeout_ms, UNBLOCK),
            )
        self._blocked = since is not None
        return blocked_ms

    def _attend_blocked(self, blocked_ms: int, now: int) -> None:
        """What may be worked there, such as by a leader's block, is kept. Otherwise the member leaves, since a member
        that only gives up what it has is given as much again. One that stays is, too: it gives that up as slowly.

        A loop that goes on ends a leader's block some time before it answers, so two looks in a row decide on leaving.
        """
        was_unworked, self._unworked = self._unworked, False
        if not blocked_ms:
            return
        held = [it for it in self._roster.everything() if it.held]
        idle = [it for it in held if it.surely_idle]
        self._unworked = all(
            it in idle or it.busy_since is not None for it in held
        )  # who is busy gets the drain timeout
        patience_ms = self._own.max_processing_ms + self._own.drain_timeout_ms
        if blocked_ms < patience_ms:
            return
        if self._unworked:
            if not was_unworked:
                return
            self._leave(f"its event loop has been blocked for {blocked_ms} ms", UNBLOCK)
        else:
            idle = [it for it in idle if now - it.since >= patience_ms]
            if idle:
                log.warning(
                    "group %s: its event loop has been blocked for %d ms, so this process gives up %s",
                    *(self._group, blocked_ms, ", ".join(sorted(it.resource for it in idle))),
                )
        for it in idle:
            self._give_up(it)
            if it.surely_idle:  # still: the event loop may go on at any moment
                it.loop_stopped()
