"""Until when messages that have arrived are begun, once a partition was asked back.

Half of the time that is left to the deadline is for what has arrived; the other half is for the handler that runs then.
If the deadline is moved forward, half of the time that is left counts from when this is heard.
"""

import attrs


@attrs.define
class HalfTime:
    """For one revocation. Times are ms of one clock."""

    until: int | None = None
    """None while no deadline is known."""

    def hear(self, now: int, abort_at: int) -> int:
        """Hears of a deadline; returns the time from which nothing more is begun, which is never moved back."""
        half = (now + abort_at) // 2
        self.until = half if self.until is None else min(self.until, half)
        return self.until

    def is_over(self, now: int) -> bool:
        """Whether nothing more is begun."""
        return self.until is not None and now >= self.until
