"""A bounded number of messages at a time."""

import threading
from collections import deque

from cobalance.threads.gate import Promise


class Room:
    """Lets in a bounded number of messages. Waiters are served first come, first served. Any thread."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._free = most
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, Promise[None]]] = deque()

    def enter(self, count: int = 1) -> Promise[None]:
        """Returns a promise that is done when there is room for ``count`` more."""
        turn: Promise[None] = Promise()
        with self._lock:
            self._waiting.append((count, turn))
            self._let_in()
        return turn

    def is_wanted(self, *, besides: Promise[None] | None = None) -> bool:
        """Whether somebody waits for room, other than by this request."""
        with self._lock:
            return any(turn is not besides for _, turn in self._waiting)

    def leave(self, count: int = 1) -> None:
        """Frees the room of ``count`` finished messages."""
        with self._lock:
            self._free += count
            self._let_in()

    def give_up(self, turn: Promise[None], count: int = 1) -> None:
        """Stops waiting; room granted in the meantime is returned."""
        with self._lock:
            if (count, turn) in self._waiting:
                self._waiting.remove((count, turn))  # It may have held up smaller requests behind it.
            else:
                self._free += count
            self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            count, turn = self._waiting[0]
            turn.set_result(None)  # first: if a signal handler interrupts this, the next call does it once more
            self._free -= count
            self._waiting.popleft()
