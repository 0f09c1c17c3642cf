"""The clocks of a process: one for what it has agreed with others, one for its own work.

Leases, deadlines and proofs run on while the machine is suspended (a closed lid, hibernation), since the coordinator and
the broker go on meanwhile. How long a handler has run, or an event loop has been blocked, is counted while the machine is
awake: a member that slept with it has not hung.
"""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""On Linux, CLOCK_MONOTONIC stands still in a suspended machine, and with it ``time.monotonic``; on macOS only the
latter does. Elsewhere neither is known to."""


def monotonic_ms() -> int:
    """The member's own clock, unaffected by changes of the wall clock. It counts the time that the machine sleeps."""
    return (time.monotonic_ns() if _CLOCK is None else time.clock_gettime_ns(_CLOCK)) // 1_000_000


def awake_ms() -> int:
    """How long the machine has been awake, from an arbitrary beginning."""
    return time.monotonic_ns() // 1_000_000
