"""Messages that wait for a retry while others go on, each at the head of a line of those with its key.

    failed ──▶ head of its key's line ──due──▶ tried ──finished, or given up──▶ the next in the line is due at once
                        ▲                         │
                        └─────── failed ──────────┘

They stay unacknowledged, so that RabbitMQ has them whatever happens here.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from cobalance.rabbitmq.consume.parcels import Parcel


class Parked:
    """The parked messages of one tenure. Pure; `now` and times are monotonic ms."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, deque[Parcel]] = {}
        self._due: dict[Hashable, float] = {}

    def __bool__(self) -> bool:
        return bool(self._lines)

    def park(self, parcel: Parcel, until: float) -> None:
        """Parks a parcel that has failed, as the first of its key."""
        self._lines.setdefault(parcel.key, deque([parcel]))
        self._due[parcel.key] = until

    def queue(self, parcel: Parcel) -> bool:
        """Puts a parcel behind a parked one with its key; False if there is none."""
        line = self._lines.get(parcel.key)
        if line is None:
            return False
        line.append(parcel)
        return True

    def due(self, now: float) -> Parcel | None:
        """Returns a parcel that may be retried now, and leaves it in place."""
        if not self._due:
            return None
        key = min(self._due, key=lambda it: self._due[it])
        return self._lines[key][0] if self._due[key] <= now else None

    def next_in(self, now: float) -> float | None:
        """How long until something is due; None if nothing is parked."""
        return max(0.0, min(self._due.values()) - now) if self._due else None

    def leave(self, parcel: Parcel, now: float) -> None:
        """The parcel was finished or given up. Does nothing if it was not parked."""
        line = self._lines.get(parcel.key)
        if line is None or line[0] is not parcel:
            return
        line.popleft()
        if line:
            self._due[parcel.key] = now
        else:
            del self._lines[parcel.key], self._due[parcel.key]

    def clear(self) -> list[Parcel]:
        """Removes and returns everything parked."""
        lines, self._lines, self._due = self._lines, {}, {}
        return [parcel for line in lines.values() for parcel in line]
