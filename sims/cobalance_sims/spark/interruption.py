"""Ctrl-C and SIGTERM: normally they interrupt; while a stream runs, they set a flag that is checked between two calls
to Spark.

An exception in the middle of a call to the JVM, which is how PySpark ends on Ctrl-C, breaks that conversation, and
leaves pages of tracebacks on the terminal.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from cobalance.threads.signals import ENDING, signals_handled


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Makes SIGTERM raise KeyboardInterrupt, so that cleanup runs."""

    def interrupt(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    with signals_handled(interrupt, signal.SIGTERM):
        yield


@contextmanager
def interruptible(kept: Callable[[], str] = str) -> Iterator[threading.Event]:
    """Makes Ctrl-C and SIGTERM raise a KeyboardInterrupt that says what is kept. Whatever fails after that fails because
    calls to Spark were broken off, and is the same interrupt. Give its event to :func:`quiet_interrupts`.
    """
    interrupted = threading.Event()

    def interrupt(_: int, __: FrameType | None) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    try:
        with signals_handled(interrupt, *ENDING):
            yield interrupted
    except KeyboardInterrupt:
        raise KeyboardInterrupt(kept()) from None
    except Exception:
        if not interrupted.is_set():
            raise
        raise KeyboardInterrupt(kept()) from None


@contextmanager
def quiet_interrupts(interrupted: threading.Event | None = None) -> Iterator[None]:
    """Makes Ctrl-C and SIGTERM set the event and raise KeyboardInterrupt, after which nothing is logged until the end.
    Enter it when Spark is there, since PySpark's start installs a handler of its own.
    """
    before = logging.root.manager.disable

    def interrupt(_: int, __: FrameType | None) -> None:
        logging.disable()
        if interrupted is not None:
            interrupted.set()
        raise KeyboardInterrupt

    try:
        with signals_handled(interrupt, *ENDING):
            yield
    finally:
        logging.disable(before)


@contextmanager
def stop_wished() -> Iterator[threading.Event]:
    """Makes Ctrl-C and SIGTERM set the event; a second signal does not wait: it raises KeyboardInterrupt."""
    wished = threading.Event()

    def wish(_: int, __: FrameType | None) -> None:
        if wished.is_set():
            raise KeyboardInterrupt
        wished.set()

    with signals_handled(wish, *ENDING):
        yield wished
