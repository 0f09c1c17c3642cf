"""How long a member may believe in its session, by its own monotonic clock, and when it asks again. All times in ms."""

from __future__ import annotations

import attrs

FIRST_RETRY_MS = 20


@attrs.define
class Lease:
    """The lease counts from the *first* send of the last answered request: the coordinator cannot have counted from
    earlier, whichever of the repeats it was that arrived."""

    until: int | None = None
    """When the member must have stopped; ``None`` before the first answer."""
    retry_at: int | None = None
    """When the outstanding request is sent again; ``None`` while an attempt is under way."""
    _first_sent_at: int = 0
    _failures: int = 0

    def first_sent(self, now: int) -> None:
        """A new request goes out."""
        self._first_sent_at, self._failures, self.retry_at = now, 0, None

    def sent_again(self) -> None:
        """The outstanding request goes out once more."""
        self.retry_at = None

    def renewed(self, session_timeout_ms: int) -> None:
        """An answer came. A tenth of the session is kept back for stopping."""
        self.until = self._first_sent_at + session_timeout_ms - session_timeout_ms // 10
        self.retry_at = None

    def failed(self, now: int, session_timeout_ms: int) -> None:
        """No answer came. Retries come at a sixth of the session timeout or faster, so that no live claim misses the
        window in which a recovering group takes claims (design: a third)."""
        self._failures += 1
        delay = min(FIRST_RETRY_MS * 2 ** min(self._failures - 1, 16), session_timeout_ms // 6)
        self.retry_at = now + delay

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
        """When to look again."""
        if self.until is None:
            return []
        return [at for at in (self.until, self.until + extra_ms) if at > now]
