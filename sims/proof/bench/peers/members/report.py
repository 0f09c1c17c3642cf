"""What a member process of any product writes to standard output: a line for each thing that happens to it.

A line is ``PROCESS KIND PARTITION NUMBER AT``: `started` before the process joins anything, `begun` and `ended` around each
message's handler. AT is on the clock that all processes of a machine share.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

HANDLER_S = 0.002
"""How long each handler takes."""


def started() -> None:
    """All is imported; the group comes next."""
    _write("started", -1, -1)


def begun(partition: int, number: int) -> None:
    """A handler begins."""
    _write("begun", partition, number)


def ended(partition: int, number: int) -> None:
    """It has ended, and the message is about to be acknowledged."""
    _write("ended", partition, number)


def _write(kind: str, partition: int, number: int) -> None:
    # In one piece, so that the lines of several processes do not mix.
    os.write(1, f"{os.getpid()} {kind} {partition} {number} {time.monotonic():.6f}\n".encode())


def partition_of(queue: str) -> int:
    """`orders-7` → 7."""
    return int(queue.rpartition("-")[2])


def end_with_parent() -> None:
    """Ends this process as soon as its parent is gone: that holds the other end of standard input."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def on_sigterm(stop: Callable[[], None]) -> None:
    """`stop` is called when the member is to leave."""
    signal.signal(signal.SIGTERM, lambda *_: stop())
