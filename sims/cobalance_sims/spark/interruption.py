"""Ctrl-C and SIGTERM: at any other time an interruption, while a stream runs a wish that is met between two questions to Spark.

An exception in the middle of a question to the JVM, which is how PySpark ends on Ctrl-C, leaves that conversation torn, and pages of
tracebacks on the terminal.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], object]


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Inside, SIGTERM raises KeyboardInterrupt, so that what is to be tidied up is."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled(interrupt, signal.SIGTERM):
        yield


@contextmanager
def quiet_interrupts() -> Iterator[None]:
    """Inside, Ctrl-C and SIGTERM raise KeyboardInterrupt, and nothing is logged any more until the end. Enter it when Spark is there,
    since PySpark's start puts a handler of its own in place.
    """
    before = logging.root.manager.disable

    def interrupt(_: int, __: FrameType | None) -> None:
        logging.disable()
        raise KeyboardInterrupt

    try:
        with _handled(interrupt, signal.SIGINT, signal.SIGTERM):
            yield
    finally:
        logging.disable(before)


@contextmanager
def stop_wished() -> Iterator[threading.Event]:
    """Inside, Ctrl-C and SIGTERM set the event; who asks twice does not wait: KeyboardInterrupt."""
    wished = threading.Event()

    def wish(_: int, __: FrameType | None) -> None:
        if wished.is_set():
            raise KeyboardInterrupt
        wished.set()

    with _handled(wish, signal.SIGINT, signal.SIGTERM):
        yield wished


@contextmanager
def _handled(handler: Handler, *signals: signal.Signals) -> Iterator[None]:
    """Python allows this in the main thread alone; elsewhere signals are nobody's business."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {it: signal.signal(it, handler) for it in signals}
    try:
        yield
    finally:
        for it, old in before.items():
            signal.signal(it, old)
