"""From a partition's messages to the user's handler: in order, retried in place or parked, and given up as configured.

Messages travel in parcels: one message each, or a batch. A plain function handles as many parcels as it can in one
visit to a thread; every decision and every wait happens on the event loop.

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

from cobalance.errors import UsageError
from cobalance.group.engine import monotonic_ms
from cobalance.group.stopping import Stoppable
from cobalance.group.worker import is_async, is_cancelled
from cobalance.rabbitmq.consume.handlers import check_handler, refuse_result
from cobalance.rabbitmq.consume.parcels import Parcel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from concurrent.futures import Future

    from cobalance.rabbitmq.consume.failure_policy import FailurePolicy
    from cobalance.rabbitmq.consume.handlers import BatchHandler, Handler
    from cobalance.rabbitmq.consume.partition_worker import PartitionWorker
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

    async def work(self, deliveries: Sequence[Delivery], worker: PartitionWorker, in_thread: InThread) -> int:
        """Works messages in order, as long as the worker goes on; returns how many are done with.

        The others are to be redelivered.

        `in_thread` calls a plain function in a thread, and does not return before that thread is done.
        """
        parcels = deque(self._pack(deliveries))
        goes_on = await self._retry_parked(worker, in_thread)
        while parcels and goes_on:
            error = self._name_key(parcels[0]) if worker.parked else None
            if error is None and worker.parked.queue(parcels[0]):
                parcels.popleft()
            else:
                goes_on = await self._work_first(parcels, worker, in_thread, error)
            goes_on = goes_on and await self._retry_parked(worker, in_thread)
        return parcels[0].deliveries[0].delivery_tag - deliveries[0].delivery_tag if parcels else len(deliveries)

    async def _work_first(
        self, parcels: deque[Parcel], worker: PartitionWorker, in_thread: InThread, error: Exception | None = None
    ) -> bool:
        """Works the first parcel, unless it has an error, and those behind it. Returns whether to go on."""
        front = parcels[0]
        if self._manual and not front.drop(worker.is_settled):  # since it failed, or was put off
            parcels.popleft()
            return worker.goes_on
        if not await worker.enter(len(front.deliveries)):
            return False
        error = error or await self._attempt(parcels, worker, in_thread)
        if error is not None:
            return await self._policy.follow(parcels, error, worker)
        if parcels and not worker.goes_on:
            if parcels[0] is front:  # it was not begun after all
                worker.put_down(len(front.deliveries))
            return False
        return True

    async def _retry_parked(self, worker: PartitionWorker, in_thread: InThread) -> bool:
        """Works parked parcels that are due. Returns whether to go on."""
        while (parcel := worker.parked.due(monotonic_ms())) is not None:
            parcels = deque([parcel])
            goes_on = await self._work_first(parcels, worker, in_thread)
            if parcel.is_settled and not parcels:  # otherwise it could not be dead-lettered
                worker.parked.leave(parcel, monotonic_ms())
            if not goes_on:
                return False
        return True

    def _name_key(self, parcel: Parcel) -> UsageError | None:
        try:
            parcel.key = self._policy.key_of(parcel.deliveries[0])
        except UsageError as error:
            return error
        return None

    def _pack(self, deliveries: Sequence[Delivery]) -> Iterable[Parcel]:
        size = 1 if self.batch is None else self.batch.most
        return (Parcel(tuple(deliveries[start : start + size])) for start in range(0, len(deliveries), size))

    # -- calling the handler -------------------------------------------------------------------------------------------

    async def _attempt(self, parcels: deque[Parcel], worker: PartitionWorker, in_thread: InThread) -> Exception | None:
        """Removes the parcels that the handler has finished; returns what it raised over the next one."""
        # If room is limited or something is parked, each parcel has to be checked before it is begun.
        most = 1 if worker.share.limited or worker.parked else len(parcels)
        if not self._in_thread:
            return await self._attempt_on_loop(parcels, partial(self._attempt_each, parcels, most, worker), worker)
        policy = self._policy
        with worker.watch.telling(lambda: policy.tell_hung(parcels), lambda: self._give_up_hung(parcels, worker)):
            error, call = await in_thread(lambda: self._attempt_in_thread(parcels, most, worker))
        if call is None:
            return error
        return await self._attempt_on_loop(parcels, partial(self._completed, call, parcels, worker), worker)

    async def _attempt_on_loop(
        self,
        parcels: deque[Parcel],
        call: Callable[[Stoppable], Awaitable[Exception | None]],
        worker: PartitionWorker,
    ) -> Exception | None:
        attempt = Stoppable()
        ends: list[Exception | None] = []
        with worker.watch.stopping(attempt, lambda: self._give_up_hung(parcels, worker)):
            ends.append(await call(attempt))
        return ends[0] if ends else self._policy.hung()  # it was stopped

    async def _attempt_each(
        self, parcels: deque[Parcel], most: int, worker: PartitionWorker, attempt: Stoppable
    ) -> Exception | None:
        for _ in range(most):
            if not self._begin(parcels, worker):
                break
            error = await self._completed(self._call(parcels[0]), parcels, worker, attempt)
            if error is not None:
                return error
        return None

    def _give_up_hung(self, parcels: deque[Parcel], worker: PartitionWorker) -> Future[None] | None:
        return None if self._manual else self._policy.give_up_hung(parcels, worker)

    async def _call(self, parcel: Parcel) -> object:
        return await self._handler(self._argument(parcel))

    async def _completed(
        self, call: Awaitable[object], parcels: deque[Parcel], worker: PartitionWorker, attempt: Stoppable
    ) -> Exception | None:
        """Awaits the handler's call; removes its parcel, or returns what it raised."""
        try:
            refuse_result(await worker.tenure.work.call(call))
            if attempt.scope.cancel_called:  # whatever the handler made of that
                return self._policy.hung()
            if worker.watch.is_overdue:
                self._policy.report_blocked(parcels[0])
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            return _cancelled_inside(error)
        except Exception as error:  # noqa: BLE001 -- whatever a handler raises is a failure of its message
            return error
        self._finished(parcels, worker)
        return None

    def _attempt_in_thread(self, parcels: deque[Parcel], most: int, worker: PartitionWorker) -> Outcome:
        """Runs in a thread. An awaitable result is returned as well, to be awaited on the event loop."""
        for _ in range(most):
            if not self._begin(parcels, worker):
                break
            try:
                result = copy_context().run(self._handler, self._argument(parcels[0]))
                if inspect.isawaitable(result):
                    return None, result
                refuse_result(result)
            except asyncio.CancelledError as error:
                return _cancelled_inside(error), None
            except Exception as error:  # noqa: BLE001 -- whatever a handler raises is a failure of its message
                return error, None
            self._finished(parcels, worker)
        worker.watch.idle()  # now, as the event loop may be blocked
        return None, None

    def _begin(self, parcels: deque[Parcel], worker: PartitionWorker) -> bool:
        """Whether the first parcel may be begun. Not if the program has settled it while one before it was worked."""
        if self._manual and not parcels[0].drop(worker.is_settled):
            parcels.popleft()
            return False
        return worker.begin()

    def _argument(self, parcel: Parcel) -> Delivery | list[Delivery]:
        return parcel.deliveries[0] if self.batch is None else list(parcel.deliveries)

    def _finished(self, parcels: deque[Parcel], worker: PartitionWorker) -> None:
        parcel = parcels.popleft()
        if parcel.settle() and not self._manual:
            for delivery in parcel.deliveries:
                worker.done(delivery)


def _cancelled_inside(error: asyncio.CancelledError) -> Exception:
    return RuntimeError(f"the handler awaited something that was cancelled ({error})")
