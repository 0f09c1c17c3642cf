"""Since when a partition's handler has been running, and what follows when that is too long.

A handler that runs past ``max_processing_ms`` is hung. One on the event loop is cancelled, which is a failure of its message like any
other. A thread cannot be: that is logged, and the thread is waited for. What goes on for ``drain_timeout_ms`` more, in spite of that or
because it blocks the event loop, is the session's to judge: it takes the partition away.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

from cobalance.group.engine import monotonic_ms
from cobalance.group.stopping import Stoppable, tell_again

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from cobalance.settings import MemberSettings

    GiveUp = Callable[[], Future[None] | None]

LEAST_MS = 5
"""It looks no more often."""


class Watch:
    """Of one partition. ``begin`` and ``idle`` are called before and after each message, by any thread."""

    def __init__(self, own: MemberSettings, worked: Callable[[int], None]) -> None:
        self.most_ms = own.max_processing_ms
        self._cleanup_ms = own.drain_timeout_ms
        self._worked = worked
        self._since: int | None = None
        self._hung_since: int | None = None
        """The same as above, once that has been too long."""
        self._call: Stoppable | None = None
        self._tell: Callable[[], None] | None = None
        self.give_up: GiveUp | None = None
        """What is to be done about the message at hand when its handler never ends; any thread. Done when that is."""

    def begin(self) -> None:
        """A message is begun."""
        now, since = monotonic_ms(), self._since
        if since is not None:
            self._worked(now - since)
        self._since = now

    def idle(self) -> None:
        """No handler runs."""
        since, self._since = self._since, None
        if since is not None:
            self._worked(monotonic_ms() - since)

    @property
    def is_busy(self) -> bool:
        """A message was begun, and nobody has said that no handler runs."""
        return self._since is not None

    @property
    def busy_since(self) -> int | None:
        """For the session, to which a handler is hung that has been running for ``max_processing_ms``: later than it was until it has
        had its time to stop, too.
        """
        since = self._since
        if since is None:
            return None
        now = monotonic_ms()
        return since if now - since >= self.most_ms + self._cleanup_ms else max(since, now - self.most_ms // 2)

    @contextmanager
    def stopping(self, call: Stoppable, give_up: GiveUp) -> Iterator[None]:
        """While the handler runs on the event loop."""
        self._call, self.give_up = call, give_up
        try:
            with call.running():
                yield
        finally:
            self._call = self.give_up = None

    @contextmanager
    def telling(self, tell: Callable[[], None], give_up: GiveUp) -> Iterator[None]:
        """While it runs in a thread: `tell` says that it is hung."""
        self._tell, self.give_up = tell, give_up
        try:
            yield
        finally:
            self._tell = self.give_up = None

    async def run(self) -> None:
        """Looks whenever a handler may be hung by then."""
        async with anyio.create_task_group() as tasks:
            while True:
                since, left = self._since, self.most_ms
                if since is not None and since != self._hung_since:
                    left = since + self.most_ms - monotonic_ms()
                    if left <= 0:
                        self._hung_since = since
                        self._hang(tasks.start_soon)
                await anyio.sleep(max(left, LEAST_MS) / 1000)

    def _hang(self, start_soon: Callable[..., object]) -> None:
        if self._tell is not None:
            self._tell()
        if self._call is not None:
            self._call.scope.cancel()
            start_soon(_tell_again, self._call)


async def _tell_again(call: Stoppable) -> None:
    """Also when the worker is stopped meanwhile: nobody else tells it, and it would be left alone for good."""
    with anyio.CancelScope(shield=True):
        await tell_again([call])
