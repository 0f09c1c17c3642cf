"""Room for a bounded number of unfinished messages, in one partition and in the whole process."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future


class Room:
    """So many messages at a time. Who finds too little room waits in line, first come, first served. Any thread."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._free = most
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, Future[None]]] = deque()

    def enter(self, count: int) -> Future[None]:
        """Done when there is room for so many more."""
        turn: Future[None] = Future()
        with self._lock:
            self._waiting.append((count, turn))
        self._let_in()
        return turn

    def leave(self, count: int) -> None:
        """So many are finished."""
        with self._lock:
            self._free += count
        self._let_in()

    def give_up(self, count: int, turn: Future[None]) -> None:
        """Stops waiting; room that came in the meantime is given back."""
        if turn.cancel():
            self._let_in()  # It may have kept smaller ones waiting behind it.
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
    """What one tenure occupies of its partition's room and of the process's. The event loop enters, any thread leaves."""

    def __init__(self, per_partition: int | None, process: Room | None) -> None:
        self._rooms = [*([Room(per_partition)] if per_partition else []), *([process] if process else [])]
        self._lock = threading.Lock()
        self._occupied = 0

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return bool(self._rooms)

    def turns(self, count: int) -> "list[Turn]":
        """Turns to be waited for one after the other, before so many messages are handed to a handler."""
        return [Turn(room, count) for room in self._rooms]

    def entered(self, count: int) -> None:
        """All of the turns have come."""
        with self._lock:
            self._occupied += count

    def leave(self, count: int | None = None) -> None:
        """So many messages are finished, or all that there are: what is left of a lost channel comes again."""
        with self._lock:
            count = self._occupied if count is None else min(count, self._occupied)
            self._occupied -= count
        for room in self._rooms if count else ():
            room.leave(count)


class Turn:
    """A place in the line of one room."""

    def __init__(self, room: Room, count: int) -> None:
        self._room, self._count = room, count
        self._future: Future[None] | None = None

    def queue(self, notify: Callable[[], None]) -> None:
        """Gets in line; `notify` is called, on any thread, when it is our turn."""
        self._future = self._room.enter(self._count)
        self._future.add_done_callback(lambda _: notify())

    @property
    def has_come(self) -> bool:
        """There is room."""
        return self._future is not None and self._future.done()

    def give_up(self) -> None:
        """Stops waiting, or gives back the room."""
        if self._future is not None:
            self._room.give_up(self._count, self._future)
            self._future = None
