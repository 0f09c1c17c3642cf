"""Tells the program of failures: ``on_failure``, which has as long as a handler, and may hang as one may.

Where a failed message waits for it, it counts as work of the partition: the slot's watch cancels it, or, as a thread
cannot be cancelled, says that it goes on; if it has not ended ``drain_timeout_ms`` later, the session takes the
partition away. Elsewhere it has a limit of its own, and is left to itself. While one call hangs, its partition's further
failures are not told.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from cobalance.group.stopping import OnUnstopped, Stoppable
from cobalance.group.worker import is_async
from cobalance.rabbitmq.partition.delivery import Delivery
from cobalance.threads.log_lines import exc_info

if TYPE_CHECKING:
    from cobalance.rabbitmq.consume.parcels import Parcel
    from cobalance.rabbitmq.consume.partition_worker import PartitionWorker
    from cobalance.rabbitmq.consume.slot import Slot
    from cobalance.rabbitmq.consume.watch import GiveUp

log = logging.getLogger("cobalance.rabbitmq")

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]
OnFailure = Callable[[Delivery, Exception], Awaitable[None]] | Callable[[Delivery, Exception], None]


class FailureReports:
    """Calls one member's ``on_failure``.

    Args:
        in_thread: calls a plain function, and does not return before its thread is done, or the membership over, even
            if it is cancelled.
        forsake: has what swallows its cancellation closed once the membership is over.
        words: puts into words what it raises.
    """

    def __init__(
        self,
        group: str,
        on_failure: OnFailure | None,
        *,
        most_ms: int,
        log_exceptions: bool,
        in_thread: InThread,
        forsake: OnUnstopped,
        words: Callable[[Exception], str],
    ) -> None:
        self._group, self._most_ms, self._log_exceptions = group, most_ms, log_exceptions
        self._on_failure: Any = on_failure
        self._in_thread, self._forsake, self._words = in_thread, forsake, words
        self._hung: dict[Stoppable, str] = {}
        """Calls that have run for too long, with their partitions."""

    async def tell(self, slot: Slot, parcel: Parcel, error: Exception, give_up: GiveUp) -> None:
        """Returns when ``on_failure`` has. `give_up` deals with the message if it never does."""
        if not self._may_call(parcel):
            return
        call = Stoppable(name="on_failure")
        then = "if it has not ended drain_timeout_ms later, its partition is given up"
        slot.watch.begin(counts=False)
        try:
            with (
                slot.watch.telling(lambda: self._note_hung(call, parcel, then), give_up),
                slot.watch.stopping(call, give_up),
            ):
                await self._call_each(parcel, error, slot.worker.tenure.work)
        finally:
            slot.watch.idle()
            self._hung.pop(call, None)
        await anyio.lowlevel.checkpoint_if_cancelled()  # a thread is waited for all the same

    async def tell_beside(
        self, parcel: Parcel, error: Exception, worker: PartitionWorker, over: anyio.Event | None = None
    ) -> None:
        """The same where no slot waits for it. `over` is set when it has returned, or runs for too long."""
        call = Stoppable(name="on_failure")
        try:
            if self._may_call(parcel):
                worker.partitions.membership.start_soon(partial(self._stop_in_time, call, parcel, over))
                with call.running():
                    await self._call_each(parcel, error, call)
        finally:
            self._hung.pop(call, None)
            if over is not None:
                over.set()

    async def wait_told(self, parcel: Parcel, error: Exception, worker: PartitionWorker) -> None:
        """The same, but returns when it has returned, or runs for too long."""
        if self._on_failure is not None:
            over = anyio.Event()
            worker.partitions.membership.start_soon(lambda: self.tell_beside(parcel, error, worker, over))
            await over.wait()

    def _may_call(self, parcel: Parcel) -> bool:
        if self._on_failure is None:
            return False
        if _partition(parcel) in self._hung.values():
            log.warning("group %s: %s: on_failure is not called, since an earlier call hangs", self._group, parcel)
            return False
        return True

    async def _call_each(self, parcel: Parcel, error: Exception, runs: Stoppable) -> None:
        try:
            for delivery in parcel.deliveries:
                await self._call(delivery, error, runs)
                await anyio.lowlevel.checkpoint_if_cancelled()
        except Exception as failure:
            trace = failure if self._log_exceptions else None
            log.error("group %s: on_failure failed (%s)", self._group, self._words(failure), exc_info=exc_info(trace))

    async def _call(self, delivery: Delivery, error: Exception, runs: Stoppable) -> None:
        call = partial(self._on_failure, delivery, error)
        result = call() if is_async(self._on_failure) else await self._in_thread(call)
        if inspect.isawaitable(result):
            await runs.call(result)

    async def _stop_in_time(self, call: Stoppable, parcel: Parcel, over: anyio.Event | None) -> None:
        try:
            with anyio.move_on_after(self._most_ms / 1000):
                await call.wait_ended()
            if not call.ended:
                self._note_hung(call, parcel, "its message is dealt with as if it had returned")
                if over is not None:
                    over.set()
        finally:  # also if the tasks are cancelled
            with anyio.CancelScope(shield=True):
                await call.stop(on_unstopped=self._forsake)

    def _note_hung(self, call: Stoppable, parcel: Parcel, then: str) -> None:
        self._hung[call] = _partition(parcel)
        log.error(
            "group %s: %s: on_failure has run for longer than %d ms (max_processing_ms): it is told to stop, which a thread cannot be, and "
            "%s; meanwhile it is not called for this partition. Give what it waits for a shorter timeout",
            *(self._group, parcel, self._most_ms, then),
        )


def _partition(parcel: Parcel) -> str:
    return parcel.deliveries[0].queue
