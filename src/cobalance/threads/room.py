"""A bounded number of messages at a time."""

import threading
from collections import deque
from concurrent.futures import Future


class Room:
    """Lets in a bounded number of messages. Waiters are served first come, first served. Any thread."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._free = most
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, Future[None]]] = deque()

    def enter(self, count: int = 1) -> Future[None]:
        """Returns a future that is done when there is room for ``count`` more."""
        turn: Future[None] = Future()
        with self._lock:
            if self._waiting or count > self._free:
                self._waiting.append((count, turn))
                return turn
            self._free -= count
        turn.set_result(None)
        return turn

    def is_wanted(self, *, besides: Future[None] | None = None) -> bool:
        """Whether somebody waits for room, other than by this request."""
        with self._lock:
            return any(turn is not besides and not turn.cancelled() for _, turn in self._waiting)

    def leave(self, count: int = 1) -> None:
        """Frees the room of ``count`` finished messages."""
        with self._lock:
            self._free += count
        self._let_in()

    def give_up(self, turn: Future[None], count: int = 1) -> None:
        """Stops waiting; room granted in the meantime is returned."""
        if turn.cancel():
            self._let_in()  # It may have held up smaller requests behind it.
        else:
            self.leave(count)

    def _let_in(self) -> None:
        admitted = []
        with self._lock:
            while self._waiting and (self._waiting[0][1].cancelled() or self._waiting[0][0] <= self._free):
                count, turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    self._free -= count
                    admitted.append(turn)
        for turn in admitted:
            turn.set_result(None)
