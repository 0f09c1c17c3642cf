"""Withdraws messages that have timed out.

All have the same timeout, so one thread watches the oldest: a timer for each would cost more than sending it.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.rabbitmq.publish.confirms import Message


class Overdue:
    """The timeouts of one publisher. `withdraw` is called on a thread that lives while messages are watched."""

    def __init__(self, timeout_ms: int, withdraw: Callable[[Message], None]) -> None:
        self._timeout_s, self._withdraw = timeout_ms / 1000, withdraw
        self._lock = threading.Lock()
        self._sent: deque[tuple[float, weakref.ref[Message]]] = deque()  # weak: settled messages need not be kept
        self._running = False

    def watch(self, message: Message) -> None:
        """Watches a message that was just sent. Any thread."""
        sent = time.monotonic() + self._timeout_s, weakref.ref(message)
        with self._lock:
            while self._sent and self._sent[0][1]() is None:
                self._sent.popleft()
            self._sent.append(sent)
            first, self._running = not self._running, True
        if first:
            threading.Thread(target=self._run, name="cobalance overdue", daemon=True).start()

    def _run(self) -> None:
        while (sleep_s := self._next_s()) is not None:
            time.sleep(sleep_s)  # anything sent meanwhile has more time than this
            for message in self._take_overdue():
                self._withdraw(message)

    def _next_s(self) -> float | None:
        with self._lock:
            self._running = bool(self._sent)
            return max(0.0, self._sent[0][0] - time.monotonic()) if self._sent else None

    def _take_overdue(self) -> list[Message]:
        now, overdue = time.monotonic(), []
        with self._lock:
            while self._sent and self._sent[0][0] <= now:
                overdue.append(self._sent.popleft()[1]())
        return [message for message in overdue if message is not None]
