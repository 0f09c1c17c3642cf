"""Watches how long a handler has been running, and reacts when that is too long.

A handler that runs past ``max_processing_ms`` is hung. On the event loop it is cancelled, which fails its message like
any other error. A thread cannot be cancelled: this is logged, and the thread is waited for. If a handler goes on for
another ``drain_timeout_ms``, despite the cancellation or because it blocks the event loop, the session takes the
partition away.
"""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

import anyio

from cobalance.group.clock import awake_ms
from cobalance.group.stopping import Stoppable, tell_again

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cobalance.settings import MemberSettings

    GiveUp = Callable[[], Future[None] | None]

LEAST_MS = 5
"""The shortest interval between checks."""

ATTEMPT: ContextVar[Stoppable | None] = ContextVar("ATTEMPT", default=None)
"""The attempt that runs on the event loop here. Only a watch cancels its scope, once the handler is hung."""


class Watch:
    """Watches one handler at a time. ``begin`` and ``idle`` are called before and after each message, by any thread."""

    def __init__(self, own: MemberSettings, worked: Callable[[int], None]) -> None:
        self.most_ms = own.max_processing_ms
        self._cleanup_ms = own.drain_timeout_ms
        self._worked = worked
        self._since: int | None = None
        self._counts = True
        self._hung_since: int | None = None
        """The value of ``_since`` that was found hung."""
        self._call: Stoppable | None = None
        self._awaited: Future[None] | None = None
        """Done when that has ended."""
        self._report_hung: Callable[[], None] | None = None
        self.give_up: GiveUp | None = None
        """Deals with the current message if its handler never ends; any thread. The result is done when that is."""

    def begin(self, *, counts: bool = True) -> None:
        """A message is begun; or, if it does not count, something else that runs no longer than a handler may."""
        now, since = awake_ms(), self._since
        if since is not None and self._counts:
            self._worked(now - since)
        self._since, self._counts = now, counts

    def idle(self) -> None:
        """No handler runs."""
        since, self._since = self._since, None
        if since is not None and self._counts:
            self._worked(awake_ms() - since)

    @property
    def is_busy(self) -> bool:
        """Whether a message was begun, and `idle` was not called since."""
        return self._since is not None

    @property
    def running_ms(self) -> int:
        """For how long the handler has run so far; 0 if none does."""
        since = self._since
        return 0 if since is None or not self._counts else awake_ms() - since

    @property
    def is_overdue(self) -> bool:
        """Whether the handler has run for longer than ``max_processing_ms``."""
        since = self._since
        return since is not None and awake_ms() - since > self.most_ms

    @property
    def busy_since(self) -> int | None:
        """When the handler began, for the session, which considers it hung after ``max_processing_ms``.

        Later than it really was, until the handler has also had its time to stop.
        """
        since = self._since
        if since is None:
            return None
        now = awake_ms()
        return since if now - since >= self.most_ms + self._cleanup_ms else max(since, now - self.most_ms // 2)

    @contextmanager
    def stopping(self, call: Stoppable, give_up: GiveUp) -> Iterator[None]:
        """Wraps a handler on the event loop."""
        self._call, self.give_up = call, give_up
        outside = ATTEMPT.set(call)
        try:
            with call.running():
                yield
        finally:
            ATTEMPT.reset(outside)
            self._call = self.give_up = None
            self._tell_ended()

    @contextmanager
    def telling(self, tell: Callable[[], None], give_up: GiveUp) -> Iterator[None]:
        """Wraps a handler in a thread; `tell` reports that it is hung."""
        self._report_hung, self.give_up = tell, give_up
        try:
            yield
        finally:
            self._report_hung = self.give_up = None
            self._tell_ended()

    def handler_ended(self) -> Future[None] | None:
        """Done when the handler that runs has ended; None if none does. One call at a time, any thread."""
        ended = self._awaited = Future[None]()
        is_running = self._call is not None or self._report_hung is not None  # asked last, as it may end meanwhile
        return ended if is_running else None

    def _tell_ended(self) -> None:
        awaited, self._awaited = self._awaited, None
        if awaited is not None:
            end(awaited)

    def check(self, start_soon: Callable[..., object]) -> int:
        """Reacts if the handler has become hung; returns in how many ms it may have."""
        since = self._since
        if since is None or since == self._hung_since:
            return self.most_ms
        left = since + self.most_ms - awake_ms()
        if left <= 0:
            self._hung_since = since
            self._hang(start_soon)
        return max(left, LEAST_MS)

    def _hang(self, start_soon: Callable[..., object]) -> None:
        if self._report_hung is not None:
            self._report_hung()
        if self._call is not None:
            self._call.scope.cancel()
            start_soon(_cancel_again, self._call)


async def watch_over(watches: Callable[[], Sequence[Watch]]) -> None:
    """Checks them whenever a handler may have become hung."""
    async with anyio.create_task_group() as tasks:
        while True:
            left_ms = min(watch.check(tasks.start_soon) for watch in watches())
            await anyio.sleep(left_ms / 1000)


async def _cancel_again(call: Stoppable) -> None:
    """Cancels again, even if the worker is stopped meanwhile: otherwise the handler might never end."""
    with anyio.CancelScope(shield=True):
        await tell_again([call])


def end(future: Future[None]) -> None:
    """It is done now, unless it was before."""
    with suppress(InvalidStateError):
        future.set_result(None)
