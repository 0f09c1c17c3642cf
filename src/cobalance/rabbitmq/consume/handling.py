"""From a partition's messages to the user's handler: in order, tried again, and given up as configured.

Messages travel in parcels: one message each, or a batch. A slot works one parcel at a time. A plain function handles as
many parcels as it can in one visit to a thread; every decision and every wait happens on the event loop.

    parcel ──handler──▶ returned: acknowledged, unless acks are manual
              │  ▲
        failed│  │after a pause, which the end of the tenure cuts short: then the parcel goes back to the queue
              ▼  │
            retries left? ──no──▶ a batch is split, and its messages are tried one at a time; a single message is given
                                  up: its partition rests for a while (pause), it is dead-lettered, the partition is
                                  halted (also with pause, if the handler returned something), or the membership ends
                                  (raise)
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from cobalance.errors import CobalanceError
from cobalance.group.stopping import Stoppable, is_escape
from cobalance.group.worker import is_async
from cobalance.rabbitmq.consume.handlers import check_handler, refuse_result
from cobalance.rabbitmq.consume.parcels import Parcel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from concurrent.futures import Future

    from cobalance.rabbitmq.consume.failure_policy import FailurePolicy
    from cobalance.rabbitmq.consume.handlers import BatchHandler, Handler
    from cobalance.rabbitmq.consume.partition_worker import PartitionWorker
    from cobalance.rabbitmq.consume.slot import Slot
    from cobalance.rabbitmq.model.batches import Batch
    from cobalance.rabbitmq.partition.delivery import Delivery

    Outcome = tuple[Exception | None, Awaitable[object] | None]
    InThread = Callable[[Callable[[], Outcome]], Awaitable[Outcome]]


class Handling:
    """Works the messages of all partitions of one member."""

    def __init__(
        self,
        handler: Handler | BatchHandler,
        *,
        manual: bool,
        batch: Batch | None,
        policy: FailurePolicy,
    ) -> None:
        check_handler(handler)
        self._handler: Any = handler
        self._manual, self.batch, self._policy = manual, batch, policy
        self._in_thread = not is_async(handler)

    async def work(self, deliveries: Sequence[Delivery], slot: Slot, in_thread: InThread) -> int:
        """Works messages in order, as long as the worker goes on; returns how many are done with.

        The others are to be redelivered.

        `in_thread` calls a plain function in a thread, and does not return before that thread is done.
        """
        slot.parcels = deque(self._pack(deliveries, slot.worker))
        await self.serve(slot, in_thread)
        left, slot.parcels = slot.parcels, deque()
        slot.worker.earlier.note(left)
        return left[0].tag - deliveries[0].delivery_tag if left else len(deliveries)

    async def serve(self, slot: Slot, in_thread: InThread) -> None:
        """Works the parcels of a slot one after the other, as long as there are any and the worker goes on."""
        while slot.refill() and await self._work_first(slot, in_thread):
            if not self._in_thread:
                await slot.end_turn()

    async def _work_first(self, slot: Slot, in_thread: InThread) -> bool:
        """Works the first parcel and those behind it. Returns whether to go on."""
        front = slot.parcels[0]
        if slot.worker.has_settled(front):  # since it failed, or was put off
            slot.pop()
            return slot.worker.goes_on
        if not await slot.enter(len(front.deliveries)):
            return False
        error = front.flaw or await self._attempt(slot, in_thread)
        if error is not None:
            return await self._policy.follow(slot, error)
        if slot.parcels and slot.parcels[0] is front:  # it was not begun after all
            slot.put_down(len(front.deliveries))
            return False
        return not slot.parcels or slot.worker.goes_on

    def _pack(self, deliveries: Sequence[Delivery], worker: PartitionWorker) -> Iterable[Parcel]:
        """A batch has failed as often as each of its messages."""
        size, room = 1 if self.batch is None else self.batch.most, 0
        parts: list[tuple[int, list[Delivery]]] = []
        is_suspect = worker.tenure.tries > 0  # what comes again comes first, and any of it may be the reason
        for delivery in deliveries:
            failures = worker.earlier.take(delivery)
            is_suspect = is_suspect and delivery.redelivered
            is_alone = is_suspect or self._policy.is_last_try(failures)
            if room == 0 or is_alone or failures != parts[-1][0]:
                parts.append((failures, []))
                room = 1 if is_alone else size
            parts[-1][1].append(delivery)
            room -= 1
        return (Parcel(tuple(part), failures) for failures, part in parts)

    # -- calling the handler -------------------------------------------------------------------------------------------

    async def _attempt(self, slot: Slot, in_thread: InThread) -> Exception | None:
        """Has the handler work the slot's parcels; returns what it raised over the one that is first now."""
        if not self._in_thread:
            return await self._attempt_on_loop(partial(self._attempt_each, slot), slot)
        policy = self._policy
        with slot.watch.telling(lambda: policy.tell_hung(slot), lambda: self._give_up_hung(slot)):
            error, call = await in_thread(lambda: self._attempt_in_thread(slot))
        if call is None:
            return error
        return await self._attempt_on_loop(partial(self._completed, call, slot), slot)

    async def _attempt_on_loop(
        self, call: Callable[[Stoppable], Awaitable[Exception | None]], slot: Slot
    ) -> Exception | None:
        attempt = Stoppable()
        ends: list[Exception | None] = []
        with slot.watch.stopping(attempt, lambda: self._give_up_hung(slot)):
            ends.append(await call(attempt))
        return ends[0] if ends else self._policy.hung()  # it was stopped

    async def _attempt_each(self, slot: Slot, attempt: Stoppable) -> Exception | None:
        while self._begin(slot):
            error = await self._completed(self._call(slot.parcels[0]), slot, attempt)
            if error is not None:
                return error
            if slot.is_turn_over() or slot.worker.share.limited:  # each parcel has to wait for room
                break
        return None

    def _give_up_hung(self, slot: Slot) -> Future[None] | None:
        return None if self._manual else self._policy.give_up_hung(slot)

    async def _call(self, parcel: Parcel) -> object:
        return await self._handler(self._argument(parcel))

    async def _completed(self, call: Awaitable[object], slot: Slot, attempt: Stoppable) -> Exception | None:
        """Awaits the handler's call; removes its parcel, or returns what it raised."""
        try:
            refuse_result(await slot.worker.tenure.work.call(call))
            if attempt.scope.cancel_called:  # whatever the handler made of that
                return self._policy.hung()
            if slot.watch.is_overdue:
                self._policy.report_blocked(slot.parcels[0])
        except Exception as error:  # noqa: BLE001 -- whatever a handler raises is a failure of its message
            return CobalanceError(str(error)) if is_escape(error) else error  # which is worth another try
        self._finished(slot)
        return None

    def _attempt_in_thread(self, slot: Slot) -> Outcome:
        """Runs in a thread. An awaitable result is returned as well, to be awaited on the event loop."""
        while self._begin(slot):
            try:
                result = copy_context().run(self._handler, self._argument(slot.parcels[0]))
                if inspect.isawaitable(result):
                    return None, result
                refuse_result(result)
            except asyncio.CancelledError as error:
                return _cancelled_inside(error), None
            except Exception as error:  # noqa: BLE001 -- whatever a handler raises is a failure of its message
                return error, None
            self._finished(slot)
            if slot.worker.share.limited:  # each parcel has to wait for room
                break
        slot.watch.idle()  # now, as the event loop may be blocked
        return None, None

    def _begin(self, slot: Slot) -> bool:
        """Whether there is a parcel that may be begun, other than those that the program has settled meanwhile."""
        while slot.refill():
            parcel = slot.parcels[0]
            if parcel.flaw is not None:
                return False
            if not slot.worker.has_settled(parcel):
                return slot.begin()
            slot.pop()
        return False

    def _argument(self, parcel: Parcel) -> Delivery | list[Delivery]:
        return parcel.deliveries[0] if self.batch is None else list(parcel.deliveries)

    def _finished(self, slot: Slot) -> None:
        parcel = slot.pop()
        if parcel.settle() and not self._manual:
            for delivery in parcel.deliveries:
                slot.worker.done(delivery)


def _cancelled_inside(error: asyncio.CancelledError) -> Exception:
    return RuntimeError(f"the handler awaited something that was cancelled ({error})")
