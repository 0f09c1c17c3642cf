"""Ends what tasks publish and has timed out: messages without a confirm, and waits for room.

All have the same timeout, so one thread watches the oldest: a timer for each would cost more than sending it.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Overdue:
    """The timeouts of one publisher, ended on a thread that lives while anything is watched."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1000
        self._lock = threading.Lock()
        self._begun: deque[tuple[float, weakref.ref[Any], Callable[[Any], object]]] = deque()  # weak: most end in time
        self._running = False

    def watch(self, it: T, end: Callable[[T], object]) -> None:
        """Calls ``end`` on it after the timeout, unless it is gone by then. Any thread.

        Raises:
            RuntimeError: the system gives no thread for it, so it is not watched.
        """
        begun = time.monotonic() + self._timeout_s, weakref.ref(it), end
        with self._lock:
            while self._begun and self._begun[0][1]() is None:
                self._begun.popleft()
            self._begun.append(begun)
        if not self._running:
            try:
                threading.Thread(target=self._run, name="cobalance overdue", daemon=True).start()
            except RuntimeError:
                with self._lock:
                    self._begun.remove(begun)
                raise

    def _run(self) -> None:
        with self._lock:
            if self._running:  # two calls asked for a thread
                return
            self._running = True
        while (sleep_s := self._next_s()) is not None:
            time.sleep(sleep_s)  # anything begun meanwhile has more time than this
            for it, end in self._take_overdue():
                end(it)

    def _next_s(self) -> float | None:
        with self._lock:
            self._running = bool(self._begun)
            return max(0.0, self._begun[0][0] - time.monotonic()) if self._begun else None

    def _take_overdue(self) -> list[tuple[Any, Callable[[Any], object]]]:
        now, overdue = time.monotonic(), []
        with self._lock:
            while self._begun and self._begun[0][0] <= now:
                _, it, end = self._begun.popleft()
                overdue.append((it(), end))
        return [(it, end) for it, end in overdue if it is not None]
