"""How long a member may rely on its session, by its own monotonic clock, and when it retries. Times are in ms."""

from __future__ import annotations

import attrs

from cobalance.backoff import Backoff

FIRST_RETRY_MS = 20


@attrs.define
class Lease:
    """Counts from the *first* send of the last answered request, or from its last refusal: whichever attempt arrived, the
    coordinator cannot have counted from earlier.
    """

    session_ms: int
    """The session timeout as far as known: the group's, once it has answered."""
    until: int | None = None
    """When the member must have stopped; ``None`` before the first answer."""
    retry_at: int | None = None
    """When the outstanding request is sent again; ``None`` while an attempt is under way."""
    _first_sent_at: int = 0
    _sent_at: int = 0
    _failures: int = 0

    def first_sent(self, now: int) -> None:
        self._first_sent_at = self._sent_at = now
        self._failures, self.retry_at = 0, None

    def sent_again(self, now: int) -> None:
        self._sent_at, self.retry_at = now, None

    def renewed(self, session_timeout_ms: int) -> None:
        """The request was answered. A tenth of the session is reserved for stopping."""
        self.session_ms = session_timeout_ms
        self.until = self._first_sent_at + session_timeout_ms - session_timeout_ms // 10
        self.retry_at = None

    def forget(self) -> None:
        """The session has ended."""
        self.until = None

    def refused(self, now: int, session_timeout_ms: int, ends_at: int | None = None) -> None:
        """The coordinator takes it later, perhaps; it is sent again as if there had been no answer, and just after the
        session that stands in its way ends. No session has begun, so the next attempt's cannot begin before now.
        """
        self.session_ms, self._first_sent_at = session_timeout_ms, now
        self.failed(now)
        if ends_at is not None and ends_at >= now and self.retry_at is not None:
            self.retry_at = min(self.retry_at, max(ends_at + 1, now + FIRST_RETRY_MS))

    def failed(self, now: int) -> None:
        """The request got no answer. Attempts follow each other within a third of the session timeout, including the
        time spent waiting, so that no live claim misses the window in which a recovering group takes claims.
        """
        self._failures += 1
        delay = int(Backoff(FIRST_RETRY_MS, self.session_ms // 6).pause(self._failures))
        self.retry_at = max(now, min(now + delay, self._sent_at + self.session_ms // 3))

    def retry_due(self, now: int) -> bool:
        """Whether the outstanding request should be sent again now."""
        return self.retry_at is not None and now >= self.retry_at

    def over(self, now: int) -> bool:
        """Whether the member must have stopped by now."""
        return self.until is not None and now >= self.until

    def over_by(self, now: int, extra_ms: int) -> bool:
        """Whether it has been over for this long."""
        return self.until is not None and now >= self.until + extra_ms

    def times(self, now: int, extra_ms: int) -> list[int]:
        """When to check again."""
        times = [] if self.retry_at is None else [self.retry_at]
        if self.until is not None and self.until + extra_ms > now:
            times.append(self.until if self.until > now else self.until + extra_ms)
        return times
