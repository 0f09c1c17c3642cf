"""The outcomes of published messages, and a count of failures that nobody has checked."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from cobalance.errors import PublishFailed, ServerError

log = logging.getLogger("cobalance.rabbitmq")


class Outcome(Future[int]):
    """A future for the partition number, set once the broker has the message for good; PublishFailed otherwise.

    It cannot be cancelled: the message may already have been sent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.set_running_or_notify_cancel()
        self.unseen: Failures | None = None
        """Counts this failure until someone looks at the outcome."""
        self.period = 0

    def result(self, timeout: float | None = None) -> int:
        """See `concurrent.futures.Future`."""
        try:
            return super().result(timeout)
        finally:
            self._seen()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """See `concurrent.futures.Future`."""
        error = super().exception(timeout)
        self._seen()
        return error

    def add_done_callback(self, fn: Callable[[Future[int]], Any]) -> None:
        """See `concurrent.futures.Future`. What `fn` raises is logged, `SystemExit` on the publisher's thread included."""
        is_there = self.done()  # then it is called at once, in the caller's thread

        def call(outcome: Future[int]) -> None:
            try:
                fn(outcome)
            except Exception:
                raise
            except BaseException:  # concurrent.futures lets it through, and others are still to be told
                if is_there:
                    raise
                log.exception("a callback of a published message's future has ended like a thread: it only ends itself")

        super().add_done_callback(call)

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
            if outcome.unseen is not None and outcome.period == self._period:
                self._count -= 1
            outcome.unseen = None

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
