"""The outcomes of published messages, and a count of failures that nobody has checked."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from cobalance.errors import PublishFailed, ServerError
from cobalance.threads.gate import Gate

log = logging.getLogger("cobalance.rabbitmq")


class Outcome(Future[int]):
    """A future for the partition number, set once the broker has the message for good; PublishFailed otherwise.

    It cannot be cancelled: the message may already have been sent. A signal handler may interrupt whoever waits for it;
    see :mod:`cobalance.threads.gate`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()
        self.unseen: Failures | None = None
        """Counts this failure until someone looks at the outcome."""
        self.period = 0
        self._gate = Gate()
        self._callbacks: deque[Callable[[Future[int]], Any]] = deque()
        super().add_done_callback(Outcome._open)  # type: ignore[arg-type]  # a bound method would keep itself alive

    def done(self) -> bool:
        """See `concurrent.futures.Future`."""
        return self._gate.is_open

    def running(self) -> bool:
        """See `concurrent.futures.Future`."""
        return not self._gate.is_open

    def cancel(self) -> bool:
        """Does nothing, and says so."""
        return False

    def cancelled(self) -> bool:
        """Never; see `cancel`."""
        return False

    def result(self, timeout: float | None = None) -> int:
        """See `concurrent.futures.Future`."""
        try:
            self._wait(timeout)
            return super().result(0)
        finally:
            self._seen()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See `concurrent.futures.Future`."""
        self._wait(timeout)
        error = super().exception(0)
        self._seen()
        return error

    def _wait(self, timeout: float | None) -> None:
        if not self._gate.wait(timeout):
            raise TimeoutError

    def add_done_callback(self, fn: Callable[[Future[int]], Any]) -> None:
        """See `concurrent.futures.Future`. What `fn` raises is logged, `SystemExit` on the publisher's thread included."""
        if self.done():  # it is called at once, in the caller's thread
            self._call(fn)
            return
        self._callbacks.append(fn)
        if self.done():
            self._open()

    def _open(self) -> None:
        self._gate.open()
        while self._callbacks:
            try:
                self._call(self._callbacks.popleft())
            except IndexError:  # another thread calls the last one
                return
            except BaseException:  # it would end the thread, and others are still to be told
                log.exception("a callback of a published message's future has ended like a thread: it only ends itself")

    def _call(self, fn: Callable[[Future[int]], Any]) -> None:
        try:
            fn(self)
        except Exception:
            log.exception("a callback of a published message's future has failed")

    def _seen(self) -> None:
        if self.unseen is not None and self.done():
            self.unseen.remove(self)


class Failures:
    """Counts failed messages whose outcome nobody has checked. It does not keep them: there may be many."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._period = self._count = 0
        self._last: ServerError | None = None

    def add(self, outcome: Outcome, error: ServerError) -> None:
        """Counts a failure; call this before setting it on the outcome."""
        with self._lock:
            self._count += 1
            self._last, outcome.unseen, outcome.period = error, self, self._period

    def remove(self, outcome: Outcome) -> None:
        """The outcome has been checked."""
        with self._lock:
            unseen, outcome.unseen = outcome.unseen, None  # first: an interrupted call counts it once more than due
            if unseen is not None and outcome.period == self._period:
                self._count -= 1

    def take(self) -> PublishFailed | None:
        """Returns one error for all unchecked failures, and starts counting again."""
        with self._lock:
            count, last, self._count, self._last = self._count, self._last, 0, None
            self._period += 1
        if not count or last is None:
            return None
        return PublishFailed(
            f"{count} message{'s' * (count > 1)} failed that nobody has waited for, nor looked at their futures. The last: {last}",
            outcome=last.outcome,
        )
