"""Bounds the number of unfinished messages, per partition and per process."""

import threading
from collections.abc import Callable

from cobalance.threads.gate import Promise
from cobalance.threads.room import Room


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
        self.promise: Promise[None] | None = None
        """The request for room, while it waits or has been granted."""

    def queue(self, notify: Callable[[], None]) -> None:
        """Gets in line; `notify` is called, on any thread, when it is our turn."""
        self.promise = self._room.enter(self._count)
        self.promise.add_done_callback(lambda _: notify())

    @property
    def has_come(self) -> bool:
        """Whether there is room."""
        return self.promise is not None and self.promise.done()

    def give_up(self) -> None:
        """Stops waiting, or returns the room."""
        if self.promise is not None:
            self._room.give_up(self.promise, self._count)
            self.promise = None
