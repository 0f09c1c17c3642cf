"""Waits that a signal handler may interrupt.

A thread that waits for a future, an event or a condition of the standard library locks it for a moment. Interrupted
just then by an exception it stays locked, and the thread that is to set it waits for ever. With a :class:`Gate` the
waiting thread uses only operations that are either done or not when a handler runs, of which none has to be undone.

A signal that arrives just as a thread begins to wait does not interrupt it: Python runs the handler once the wait has
ended. So none here lasts longer than ``LOOK_S``; then the next one begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock
from typing import NoReturn, TypeVar

from cobalance.threads.log_lines import ServiceThread

T = TypeVar("T")

LOOK_S = 0.5


class Gate:
    """Opens once, for all who wait. Any thread."""

    __slots__ = ("_parked", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._parked: list[Lock] = []

    def open(self) -> None:
        """Does nothing if it is open."""
        self.is_open = True  # first: a thread that parks from here on sees it
        try:
            while self._parked:
                self._parked.pop().release()
        except IndexError:  # another thread opens it, too
            pass

    def wait(self, timeout_s: float | None = None) -> bool:
        """Returns once it is open; False on timeout."""
        return self.is_open or self._park(timeout_s)

    def _park(self, timeout_s: float | None) -> bool:
        parked = Lock()
        parked.acquire()
        self._parked.append(parked)
        give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.is_open:
            left_s = LOOK_S if give_up_at is None else min(LOOK_S, give_up_at - time.monotonic())
            if left_s <= 0:
                return False
            parked.acquire(timeout=left_s)
        return True


def ended(future: Future[T]) -> Future[T]:
    """The future once it is done, however long that takes."""
    gate = Gate()
    future.add_done_callback(lambda _: gate.open())
    gate.wait()
    return future


def shielded(call: Callable[[], T]) -> T:
    """Returns the result of a call, made on a thread of its own: a handler that raises interrupts only the wait for it."""
    answer: SimpleQueue[Callable[[], T]] = SimpleQueue()
    thread = ServiceThread(copy_context().run, "cobalance call", (_carry_out, call, answer))
    try:
        thread.start()
    except RuntimeError:
        if thread.ident is not None:  # a handler's
            raise
        return call()  # the system gives no thread
    while True:
        try:
            result = answer.get(timeout=LOOK_S)
        except Empty:
            continue
        return result()


def _carry_out(call: Callable[[], T], answer: SimpleQueue[Callable[[], T]]) -> None:
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 -- raised where the result is awaited
        answer.put(partial(_fail, error))
    else:
        answer.put(lambda: result)


def _fail(error: BaseException) -> NoReturn:
    raise error
