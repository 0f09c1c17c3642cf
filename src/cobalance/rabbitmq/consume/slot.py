"""Where one handler at a time runs for a partition.

A partition in order has one slot. Where order is kept by key it has as many as handlers run side by side, each with one
message, or one batch, of one key at a time.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import anyio.lowlevel

from cobalance.group.clock import awake_ms

if TYPE_CHECKING:
    from concurrent.futures import Future

    from cobalance.rabbitmq.consume.by_key import ByKey
    from cobalance.rabbitmq.consume.parcels import Parcel
    from cobalance.rabbitmq.consume.partition_worker import PartitionWorker
    from cobalance.rabbitmq.consume.watch import Watch

TURN_MS = 2
"""How long a slot keeps the event loop if its handler never waits: others wait as long for each slot that does so."""


class Slot:
    """One handler at a time. Its parcels are those to be worked next, in order; by key, all of one key."""

    def __init__(self, worker: PartitionWorker, watch: Watch, keys: ByKey | None = None) -> None:
        self.worker, self.watch, self.keys = worker, watch, keys
        self.parcels: deque[Parcel] = deque()
        self._turn_began = self._waits = 0

    def is_turn_over(self) -> bool:
        """Whether it is time for the event loop's other tasks, since handlers have not waited for so long."""
        waits = self.worker.tenure.work.waits
        if waits != self._waits:
            self._waits, self._turn_began = waits, awake_ms()
            return False
        return awake_ms() - self._turn_began >= TURN_MS

    async def end_turn(self) -> None:
        """Gives the event loop's other tasks their turn if it is time; called between parcels."""
        if self.is_turn_over():
            self.watch.idle()
            if self.keys is None or self.parcels:
                await anyio.lowlevel.checkpoint()
            else:
                await self.keys.rest()
            self._turn_began = awake_ms()

    def refill(self) -> bool:
        """Whether there is a parcel. By key, the next one whose turn it is is taken once the last ones are finished."""
        if not self.parcels and self.keys is not None and (parcel := self.keys.take()) is not None:
            self.parcels.append(parcel)
        return bool(self.parcels)

    def pop(self) -> Parcel:
        """The first parcel is finished, or given up."""
        parcel = self.parcels.popleft()
        if self.keys is not None and not self.parcels:
            self.keys.finish(parcel.key)
        return parcel

    def split(self, parcels: list[Parcel]) -> None:
        """Puts these in place of the first parcel, whose messages they hold."""
        self.parcels.popleft()
        self.parcels.extendleft(reversed(parcels))

    def put_back(self, at: float | None = None) -> None:
        """By key: the parcels are unfinished and come first again, not before a time if one is given."""
        if self.keys is not None and self.parcels:
            parcels, self.parcels = self.parcels, deque()
            self.keys.put_back(parcels[0].key, parcels, at)

    async def enter(self, count: int) -> bool:
        """Waits until there is room for this many messages; False if nothing may be begun any more."""
        worker = self.worker
        if not worker.share.limited or not worker.goes_on:
            return worker.goes_on
        self.watch.idle()  # a handler that waits in line is not hung
        turns = worker.share.turns(count)
        try:
            for turn in turns:
                await worker.wait_in_line(turn)
                if not turn.has_come:
                    return False
            worker.share.entered(count)
            turns = []
            return True
        finally:
            for turn in turns:
                turn.give_up()

    def begin(self) -> bool:
        """Returns whether the next parcel may be begun; called before each, by any thread."""
        if not self.worker.may_begin():
            return False
        self.watch.begin()
        return True

    def put_down(self, count: int) -> None:
        """Marks messages as not being worked at the moment, and frees their room."""
        self.watch.idle()
        self.worker.share.leave(count)

    def give_up_hung(self) -> Future[None] | None:
        """If its handler is hung and does not end, deals with the message; any thread. The result is done when that is."""
        give_up = self.watch.give_up
        return None if give_up is None else give_up()
