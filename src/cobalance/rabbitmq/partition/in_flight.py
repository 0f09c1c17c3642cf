"""Bounds the number of unfinished messages, per partition and per process."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future


class Room:
    """A bounded number of messages at a time. Waiters are served first come, first served. Any thread."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._free = most
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, Future[None]]] = deque()

    def enter(self, count: int) -> Future[None]:
        """Returns a future that is done when there is room for `count` more."""
        turn: Future[None] = Future()
        with self._lock:
            self._waiting.append((count, turn))
        self._let_in()
        return turn

    def leave(self, count: int) -> None:
        """Frees the room of `count` finished messages."""
        with self._lock:
            self._free += count
        self._let_in()

    def give_up(self, count: int, turn: Future[None]) -> None:
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


class Share:
    """A tenure's share of its partition's room and of the process's. The event loop enters; any thread leaves."""

    def __init__(self, per_partition: int | None, process: Room | None) -> None:
        self._rooms = [*([Room(per_partition)] if per_partition else []), *([process] if process else [])]
        self._lock = threading.Lock()
        self._occupied = 0

    @property
    def limited(self) -> bool:
        return bool(self._rooms)

    def turns(self, count: int) -> "list[Turn]":
        """The turns to wait for, one after the other, before this many messages are handed to a handler."""
        return [Turn(room, count) for room in self._rooms]

    def entered(self, count: int) -> None:
        """All of the turns have come."""
        with self._lock:
            self._occupied += count

    def leave(self, count: int | None = None) -> None:
        """Frees the room of `count` messages, or of all: what is left of a lost channel is redelivered."""
        with self._lock:
            count = self._occupied if count is None else min(count, self._occupied)
            self._occupied -= count
        for room in self._rooms if count else ():
            room.leave(count)


class Turn:
    """A place in the queue for one room."""

    def __init__(self, room: Room, count: int) -> None:
        self._room, self._count = room, count
        self._future: Future[None] | None = None

    def queue(self, notify: Callable[[], None]) -> None:
        """Gets in line; `notify` is called, on any thread, when it is our turn."""
        self._future = self._room.enter(self._count)
        self._future.add_done_callback(lambda _: notify())

    @property
    def has_come(self) -> bool:
        """Whether there is room."""
        return self._future is not None and self._future.done()

    def give_up(self) -> None:
        """Stops waiting, or returns the room."""
        if self._future is not None:
            self._room.give_up(self._count, self._future)
            self._future = None
