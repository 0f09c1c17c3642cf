"""Signal handlers for the length of a ``with``."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SignalHandler = Callable[[int, FrameType | None], object]

ENDING = (signal.SIGINT, signal.SIGTERM)
"""What Ctrl-C and a service manager send."""


@contextmanager
def signals_handled(handler: SignalHandler, *signals: signal.Signals) -> Iterator[None]:
    """Python allows this in the main thread alone; elsewhere signals are left alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
