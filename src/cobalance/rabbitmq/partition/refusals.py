"""How long a queue, or a stream's lock, is waited for that another consumer has."""

import attrs

from cobalance.backoff import Backoff

BACKOFF_MS = Backoff(10.0, 1_000.0)
"""While a former holder of ours is expected to let go: about a session after it died."""

PART_OF_WAIT, LONGEST_MS = 60, 30_000.0
"""Later the pauses grow with the wait: a stranger may have the queue for days."""


@attrs.define
class Refusals:
    """Of one tenure."""

    count: int = 0
    _waited_ms: float = attrs.field(default=0.0, init=False)

    def next_pause_ms(self) -> float:
        """Counts one more; returns how long to wait before the next try."""
        self.count += 1
        pause_ms = max(BACKOFF_MS.pause(self.count), min(self._waited_ms / PART_OF_WAIT, LONGEST_MS))
        self._waited_ms += pause_ms
        return pause_ms
