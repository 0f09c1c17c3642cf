"""Waits that a signal handler may interrupt.

A thread that waits for a future, an event or a condition of the standard library locks it for a moment. Interrupted
just then by an exception it stays locked, and the thread that is to set it waits for ever. With a :class:`Gate` or a
:class:`Promise` the waiting thread uses only operations that are either done or not when a handler runs, of which none
has to be undone.

A signal that arrives just as a thread begins to wait does not interrupt it: Python runs the handler once the wait has
ended. So none here lasts longer than ``LOOK_S``; then the next one begins.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextvars import copy_context
from threading import Lock
from typing import Any, Generic, TypeVar

from cobalance.threads.log_lines import ServiceThread

T = TypeVar("T")

LOOK_S = 0.5


class Gate:
    """Opens once, for all who wait. Any thread."""

    __slots__ = ("_parked", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._parked: set[Lock] = set()

    def open(self) -> None:
        """Does nothing if it is open."""
        self.is_open = True  # first: a thread that parks from here on sees it
        try:
            while self._parked:
                self._parked.pop().release()
        except KeyError:  # another thread opens it, too
            pass

    def wait(self, timeout_s: float | None = None) -> bool:
        """Returns once it is open; False on timeout."""
        return self.is_open or self._park(timeout_s)

    def _park(self, timeout_s: float | None) -> bool:
        parked = Lock()
        parked.acquire()
        give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            self._parked.add(parked)
            while not self.is_open:
                left_s = LOOK_S if give_up_at is None else min(LOOK_S, give_up_at - time.monotonic())
                if left_s <= 0:
                    return False
                parked.acquire(timeout=left_s)
            return True
        finally:
            self._parked.discard(parked)


class Promise(Generic[T]):
    """A result that one thread sets for others. Like a future of the standard library, but without a lock: setting it
    once more, where a handler interrupted that, does no harm.
    """

    def __init__(self) -> None:
        self._gate = Gate()
        self._result: Any = None
        self._error: BaseException | None = None
        self.is_set = False
        """Whether there is a result, or an exception."""
        self._callbacks: list[Callable[[Promise[T]], object]] = []

    def done(self) -> bool:
        """Whether nobody has to wait for it any more."""
        return self._gate.is_open

    def set_result(self, result: T) -> None:
        self._result, self.is_set = result, True
        self.cancel()

    def set_exception(self, error: BaseException) -> None:
        self._error, self.is_set = error, True
        self.cancel()

    def cancel(self) -> None:
        """Lets nobody wait for it any longer. A result that was set stays."""
        self._gate.open()
        for call in tuple(self._callbacks):
            call(self)

    def add_done_callback(self, call: Callable[[Promise[T]], object]) -> None:
        """Calls a function when it is done, on any thread; perhaps more than once."""
        self._callbacks.append(call)
        if self.done():
            call(self)

    def result(self) -> T:
        """The result, once it is set, however long that takes.

        Raises:
            CancelledError: it will never be set.
        """
        error = self.exception()
        try:
            if error is not None:
                raise error
            return self._result  # type: ignore[no-any-return]
        finally:
            del self, error  # the exception's traceback refers to this frame

    def exception(self) -> BaseException | None:
        """The exception instead, or None if there is a result."""
        self._gate.wait()
        if not self.is_set:
            raise CancelledError
        return self._error


def shielded(call: Callable[[], T]) -> T:
    """Returns the result of a call, made on a thread of its own: a handler that raises interrupts only the wait for it."""
    answer: Promise[T] = Promise()
    thread = ServiceThread(copy_context().run, "cobalance call", (_carry_out, call, answer))
    try:
        thread.start()
    except RuntimeError:
        if thread.ident is not None:  # a handler's
            raise
        return call()  # the system gives no thread
    return answer.result()


def _carry_out(call: Callable[[], T], answer: Promise[T]) -> None:
    try:
        answer.set_result(call())
    except BaseException as error:  # noqa: BLE001 -- raised where the result is awaited
        answer.set_exception(error)
