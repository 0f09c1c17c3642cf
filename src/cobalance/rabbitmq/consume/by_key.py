"""Works the messages of one partition side by side, those of a key one after another.

As many handlers run as there are places: the group's, for which its partitions queue, or a single one of the partition's
own where only a failed message is to wait while others go on. A slot that has finished a message takes the next one
itself. Another slot is opened when one has begun a message and more are ready, so a handler that never waits works
through all of them alone, and costs no task a message.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import anyio.lowlevel

from cobalance.errors import UsageError
from cobalance.group.clock import monotonic_ms
from cobalance.group.stopping import task_cancelled
from cobalance.rabbitmq.consume.parcels import Parcel
from cobalance.rabbitmq.consume.slot import Slot
from cobalance.rabbitmq.consume.watch import Watch
from cobalance.rabbitmq.model.retries import incomparable
from cobalance.rabbitmq.partition.in_flight import Turn
from cobalance.rabbitmq.partition.key_order import Key, KeyOrder, Keys
from cobalance.threads.cancellation import is_cancellation, is_expected, is_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
    from typing import Any

    from cobalance.rabbitmq.consume.partition_worker import PartitionWorker
    from cobalance.rabbitmq.partition.delivery import Delivery
    from cobalance.threads.room import Room

    StartSoon = Callable[..., object]
    """Starts a task of the worker's."""
    Serve = Callable[[Slot], Coroutine[Any, Any, None]]


class ByKey:
    """The unfinished messages of one partition, and the slots that work them."""

    def __init__(
        self,
        worker: PartitionWorker,
        serve: Serve,
        *,
        key_of: Callable[[Delivery], Hashable],
        places: Room,
        most: int = 1,
    ) -> None:
        self._worker, self._serve, self._key_of, self._places, self._most = worker, serve, key_of, places, most
        self._lock = threading.Lock()  # guards the order, the keys and the flags below; slots may be threads
        self._order, self._keys = KeyOrder[Parcel](), Keys()
        self._closed = False
        self._asked = self._opening = False
        """Whether another slot was asked for; whether one was opened and has begun nothing yet."""
        self._turn: Turn | None = None
        self._unused: set[Turn] = set()
        """The places of slots that have not run yet; a task that is cancelled before that never does."""
        self._idle: list[Slot] = []
        self._running = self._resting = 0
        self._error: BaseException | None = None

    # -- for the worker (event loop) -----------------------------------------------------------------------------------

    def add(self, deliveries: Iterable[Delivery]) -> None:
        """Messages have been taken from the channel."""
        arrived = [self._keyed(it) for it in deliveries]
        with self._lock:
            for parcel, key in arrived:
                self._add(parcel, key)

    def open_slots(self, start_soon: StartSoon) -> None:
        """Opens a slot if something may be begun and there is a place; called whenever that may have changed."""
        with self._lock:
            self._asked = False
            is_ready = self._order.is_ready(monotonic_ms())
            wanted = is_ready and not self._opening and not (self._resting and self._turn is None)
        if not (wanted and self._worker.goes_on and self._error is None):
            self._stop_waiting()
            return
        if self._turn is None:
            self._turn = Turn(self._places, 1)
            self._turn.queue(self._worker.wake)
        if self._turn.has_come:
            turn, self._turn = self._turn, None
            with self._lock:
                self._opening = True
            self._running += 1
            self._unused.add(turn)
            start_soon(self._run, turn)

    @property
    def next_in(self) -> float | None:
        """In how many ms something is due that waits; None if nothing waits, or there is no place for it."""
        with self._lock:
            return None if self._turn is not None else self._order.next_in(monotonic_ms())

    @property
    def has_work(self) -> bool:
        """Whether a handler runs or may be called; what waits for its next try does not count."""
        with self._lock:
            return self._running > 0 or self._order.is_ready(monotonic_ms())

    @property
    def is_idle(self) -> bool:
        """Whether no handler runs."""
        return not self._running

    def raise_failure(self) -> None:
        """Raises what ends the membership, once no handler runs any more."""
        if self._error is not None and self.is_idle:
            raise self._error

    @property
    def has_failed(self) -> bool:
        """Whether a failure is about to end the membership."""
        return self._error is not None

    def reopen(self) -> None:
        """There is a new channel."""
        self._closed = False

    def close(self) -> None:
        """Begins nothing more: what was not begun returns to the queue with the close of the channel."""
        self._stop_waiting()
        while self._unused:
            self._unused.pop().give_up()
        with self._lock:
            self._closed = True
            left = self._order.clear()
            for key in {it.key for it in left if it.key not in self._order}:
                self._keys.forget(key)
        self._return(left)

    async def rest(self) -> None:
        """A slot that is about to take another parcel gives others their turn. None is opened in its place meanwhile: a
        handler that never waits works alone.
        """
        self._resting += 1
        try:
            await anyio.lowlevel.checkpoint()
        finally:
            self._resting -= 1

    # -- for slots (any thread) ----------------------------------------------------------------------------------------

    def take(self) -> Parcel | None:
        """The next parcel to begin; None if there is none now, or its place is wanted by another partition."""
        with self._lock:
            begins, self._opening = self._opening, False
        if not self._worker.goes_on or not (begins or self._may_stay):
            return None
        with self._lock:
            now = monotonic_ms()
            parcel = None if self._closed or self._error is not None else self._take(now)
            ask = not self._asked and self._order.is_ready(now)
            self._asked = self._asked or ask
        if ask:
            self._worker.wake()
        return parcel

    @property
    def _may_stay(self) -> bool:
        """Whether no other partition waits for a place."""
        turn = self._turn
        return not self._places.is_wanted(besides=None if turn is None else turn.promise)

    def _take(self, now: float) -> Parcel | None:
        first = self._order.take(now)
        if first is None or self._most == 1 or first.failures or first.flaw or len(first.deliveries) > 1:
            return first  # a batch that was put back is complete
        if self._worker.tenure.tries and first.deliveries[0].redelivered:  # it may be why its partition was given up
            return first
        taken = [first]
        while len(taken) < self._most and (parcel := self._order.take_next(first.key, _has_failed)) is not None:
            taken.append(parcel)
        return Parcel(tuple(it for parcel in taken for it in parcel.deliveries), key=first.key)

    def finish(self, key: Key) -> None:
        """What was taken of this key is finished."""
        with self._lock:
            self._finish(key)

    def put_back(self, key: Key, parcels: Sequence[Parcel], at: float | None) -> None:
        """What was taken of this key is unfinished; it comes first again, or returns to the queue if this is closed."""
        with self._lock:
            closed = self._closed
            if closed:
                self._finish(key)
            else:
                self._order.put_back(key, parcels, at)
        if closed:
            self._return(parcels)

    def _finish(self, key: Key) -> None:
        self._order.finish(key)
        if key not in self._order:
            self._keys.forget(key)

    async def _run(self, turn: Turn) -> None:
        self._unused.discard(turn)
        slot = self._idle.pop() if self._idle else self._new_slot()
        try:
            await self._serve(slot)
        except BaseException as error:
            if is_expected(error):
                raise
            if is_cancellation(error):
                error = task_cancelled(error)
            self._error = error if self._error is None else self._error  # raised by the worker once no handler runs
        finally:
            slot.watch.idle()
            slot.put_back()
            self._idle.append(slot)
            self._running -= 1
            turn.give_up()
            self._worker.wake()

    def _new_slot(self) -> Slot:
        slot = Slot(self._worker, Watch(self._worker.partitions.own, self._worker.tenure.worked), self)
        self._worker.slots.append(slot)
        return slot

    def _keyed(self, delivery: Delivery) -> tuple[Parcel, Hashable]:
        """A parcel, and what the program says its key is. Without one, it waits for nothing, and fails when its turn comes."""
        parcel = Parcel((delivery,), self._worker.earlier.take(delivery))
        try:
            return parcel, self._key_of(delivery)
        except UsageError as error:
            parcel.flaw = error
            return parcel, parcel

    def _add(self, parcel: Parcel, key: Hashable) -> None:
        try:
            parcel.key = self._keys.find(key)
        except BaseException as error:
            if not is_failure(error):
                raise
            parcel.key, parcel.flaw = self._keys.find(parcel), incomparable(error)
        self._order.add(parcel)

    def _stop_waiting(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.give_up()

    def _return(self, parcels: Sequence[Parcel]) -> None:
        self._worker.earlier.note(parcels)
        for parcel in parcels:
            for delivery in parcel.deliveries:
                self._worker.put_back(delivery)


def _has_failed(parcel: Parcel) -> bool:
    return parcel.failures > 0
