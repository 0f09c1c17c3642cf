"""From a partition's messages to the user's handler: in order, retried in place, and given up as the user chose.

Messages travel in parcels: one message each, or a batch. A handler that is a plain function runs through as many parcels as it can
in one visit to a thread; whatever has to be decided or waited for is decided and waited for on the event loop.

    parcel ──handler──▶ returned: acknowledged, unless acks are manual
              │  ▲
        failed│  │after a pause, which the end of the tenure cuts short: then the parcel goes back to the queue
              ▼  │
            retries left? ──no──▶ a batch is opened, and its messages tried one at a time; a single message is given up:
                                  its partition rests for a while (pause), it is dead-lettered, the partition is halted, or
                                  the membership ends (raise)
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Literal

import attrs

from cobalance.errors import HandlerHung, UsageError
from cobalance.rabbitmq.handlers import check_handler, is_async, refuse_result
from cobalance.stopping import Stoppable
from cobalance.worker import is_cancelled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from cobalance.rabbitmq.batches import Batch
    from cobalance.rabbitmq.delivery import Delivery
    from cobalance.rabbitmq.handlers import BatchHandler, Handler
    from cobalance.rabbitmq.partition_worker import PartitionWorker
    from cobalance.rabbitmq.retries import Retries

    Outcome = tuple[Exception | None, Awaitable[object] | None]
    InThread = Callable[[Callable[[], Outcome]], Awaitable[Outcome]]

log = logging.getLogger("cobalance.rabbitmq")

OnError = Literal["pause", "raise", "dead_letter", "halt"]


@attrs.define(eq=False)
class Parcel:
    """What the handler is given at a time."""

    deliveries: tuple[Delivery, ...]
    failures: int = 0
    _unsettled: list[None] = attrs.field(factory=lambda: [None], init=False)

    @property
    def is_settled(self) -> bool:
        """Somebody has asked to settle it."""
        return not self._unsettled

    def settle(self) -> bool:
        """True for the first who asks: a handler that ends after all, or whoever gave it up for that it would not. Any thread."""
        try:
            self._unsettled.pop()
        except IndexError:
            return False
        return True


class Handling:
    """Works the messages of all partitions of one member."""

    def __init__(
        self,
        group: str,
        handler: Handler | BatchHandler,
        *,
        manual: bool,
        retries: Retries,
        on_error: OnError,
        batch: Batch | None,
        most_ms: int,
    ) -> None:
        check_handler(handler)
        self._group = group
        self._handler: Any = handler
        self._manual, self._retries, self._on_error, self.batch = manual, retries, on_error, batch
        self._most_ms = most_ms
        self._in_thread = not is_async(handler)

    async def work(self, deliveries: Sequence[Delivery], worker: PartitionWorker, in_thread: InThread) -> int:
        """Works messages in order, as far as the worker goes on; returns how many are done with. The others are to come again.

        `in_thread` calls a plain function in a thread, and ends no sooner than that does.
        """
        parcels = deque(self._pack(deliveries))
        while parcels and await worker.enter(len(parcels[0].deliveries)):
            front = parcels[0]
            error = await self._attempt(parcels, worker, in_thread)
            if error is not None and not await self._after_failure(parcels, error, worker):
                break
            if error is None and parcels and not worker.goes_on:
                if parcels[0] is front:  # it was not begun after all
                    worker.put_down(len(front.deliveries))
                break
        return len(deliveries) - sum(len(parcel.deliveries) for parcel in parcels)

    def _pack(self, deliveries: Sequence[Delivery]) -> Iterable[Parcel]:
        size = 1 if self.batch is None else self.batch.most
        return (Parcel(tuple(deliveries[start : start + size])) for start in range(0, len(deliveries), size))

    # -- calling the handler ---------------------------------------------------------------------------------------------

    async def _attempt(self, parcels: deque[Parcel], worker: PartitionWorker, in_thread: InThread) -> Exception | None:
        """Takes off the front what the handler has finished; returns what it raised over the one that is then in front."""
        most = 1 if worker.share.limited else len(parcels)  # where room is limited, each parcel asks for its own
        if not self._in_thread:
            return await self._attempt_on_loop(parcels, lambda: self._call(parcels[0]), most, worker)
        with worker.watch.telling(lambda: self._tell_hung(parcels), lambda: self._give_up_hung(parcels, worker)):
            error, call = await in_thread(lambda: self._attempt_in_thread(parcels, most, worker))
        return error if call is None else await self._attempt_on_loop(parcels, lambda: call, 1, worker)

    async def _attempt_on_loop(
        self, parcels: deque[Parcel], make: Callable[[], Awaitable[object]], most: int, worker: PartitionWorker
    ) -> Exception | None:
        attempt = Stoppable()
        outcome: list[Exception | None] = []
        with worker.watch.stopping(attempt, lambda: self._give_up_hung(parcels, worker)):
            outcome.append(await self._attempt_each(parcels, make, most, worker, attempt))
        return outcome[0] if outcome else self._hung()  # it was told to stop

    async def _attempt_each(
        self,
        parcels: deque[Parcel],
        make: Callable[[], Awaitable[object]],
        most: int,
        worker: PartitionWorker,
        attempt: Stoppable,
    ) -> Exception | None:
        for _ in range(most):
            if not worker.begin():
                break
            error = await self._completed(make(), parcels, worker, attempt)
            if error is not None:
                return error
        return None

    def _hung(self) -> HandlerHung:
        return HandlerHung(
            f"the handler ran for longer than {self._most_ms} ms: a longer max_processing_ms lets slower work finish"
        )

    async def _call(self, parcel: Parcel) -> object:
        return await self._handler(self._argument(parcel))

    async def _completed(
        self, call: Awaitable[object], parcels: deque[Parcel], worker: PartitionWorker, attempt: Stoppable
    ) -> Exception | None:
        """Waits for the end of the handler's call; takes its parcel off, or returns what it raised."""
        try:
            refuse_result(await call)
            if attempt.scope.cancel_called:  # whatever it made of that
                return self._hung()
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            return _cancelled_inside(error)
        except Exception as error:  # noqa: BLE001 -- whatever a handler raises is a failure of its message
            return error
        self._finished(parcels, worker)
        return None

    def _attempt_in_thread(self, parcels: deque[Parcel], most: int, worker: PartitionWorker) -> Outcome:
        """The same in a thread. What turns out to be awaitable is returned besides, to be awaited on the event loop."""
        for _ in range(most):
            if not worker.begin():
                break
            try:
                result = self._handler(self._argument(parcels[0]))
                if inspect.isawaitable(result):
                    return None, result
                refuse_result(result)
            except asyncio.CancelledError as error:
                return _cancelled_inside(error), None
            except Exception as error:  # noqa: BLE001 -- whatever a handler raises is a failure of its message
                return error, None
            self._finished(parcels, worker)
        return None, None

    def _argument(self, parcel: Parcel) -> Delivery | list[Delivery]:
        return parcel.deliveries[0] if self.batch is None else list(parcel.deliveries)

    def _finished(self, parcels: deque[Parcel], worker: PartitionWorker) -> None:
        parcel = parcels.popleft()
        if parcel.settle() and not self._manual:
            for delivery in parcel.deliveries:
                worker.done(delivery)

    # -- when it has failed ------------------------------------------------------------------------------------------------

    async def _after_failure(self, parcels: deque[Parcel], error: Exception, worker: PartitionWorker) -> bool:
        """Whether to go on with what is in front.

        Raises:
            Exception: the handler's own, when failing is to end the membership.
        """
        parcel = parcels[0]
        if parcel.is_settled:  # it was given up while its handler went on
            parcels.popleft()
            return worker.goes_on
        parcel.failures += 1
        if isinstance(error, UsageError):
            log.error("group %s: %s: %s", self._group, _words(parcel), error)
        elif parcel.failures <= self._retries.most:
            worker.put_down(len(parcel.deliveries))
            log.warning("group %s: %s failed (%s); trying again", self._group, _words(parcel), _kind(error))
            return await worker.rest(self._retries.delay_ms(parcel.failures))
        if len(parcel.deliveries) > 1:
            log.warning("group %s: %s failed (%s); trying one by one", self._group, _words(parcel), _kind(error))
            worker.put_down(len(parcel.deliveries))
            parcels.popleft()
            parcels.extendleft(Parcel((it,), self._retries.most) for it in reversed(parcel.deliveries))
            return worker.goes_on
        return self._give_up(parcels, error, worker)

    def _give_up(self, parcels: deque[Parcel], error: Exception, worker: PartitionWorker) -> bool:
        parcel = parcels[0]
        if self._on_error == "raise":
            raise error
        words, kind = f"{_words(parcel)} failed {parcel.failures} times ({_kind(error)})", _kind(error)
        if self._on_error == "halt":
            worker.put_down(1)
            worker.halt(kind)
            log.error(
                "group %s: %s; its partition is halted. Once the cause is removed: %s",
                *self._how_to_resume(parcel, words),
            )
            return False
        if self._on_error == "pause":
            worker.put_down(1)
            worker.give_up(f"failed:{kind}")
            log.error(
                "group %s: %s; its partition is given up, to another member or until a pause is over, and begins with that message",
                *(self._group, words),
            )
            return False
        log.error("group %s: %s; it is given up, to the dead-letter target of its queue", self._group, words)
        parcels.popleft()
        if parcel.settle():
            worker.reject(parcel.deliveries[0])
        return worker.goes_on

    # -- when it does not end ----------------------------------------------------------------------------------------------

    def _tell_hung(self, parcels: deque[Parcel]) -> None:
        for parcel in list(parcels)[:1]:
            log.error("group %s: %s: %s; its thread cannot be stopped", self._group, _words(parcel), self._hung())

    def _give_up_hung(self, parcels: deque[Parcel], worker: PartitionWorker) -> None:
        """It could only be tried again beside itself, so what `on_error` says follows at once. On the engine's thread."""
        parcel = next(iter(list(parcels)), None)
        if parcel is None or self._manual or not parcel.settle():
            return
        error = self._hung()
        log.error("group %s: %s: %s, and it does not end", self._group, _words(parcel), error)
        if self._on_error == "raise":
            worker.end_membership(error)
        elif self._on_error == "halt":
            worker.leave_halted(_kind(error))
        elif self._on_error == "dead_letter" and len(parcel.deliveries) == 1:
            worker.reject(parcel.deliveries[0])

    def _how_to_resume(self, parcel: Parcel, words: str) -> tuple[str, str, str]:
        return self._group, words, f"cobalance group resume {self._group} {parcel.deliveries[0].queue}"


def _cancelled_inside(error: asyncio.CancelledError) -> Exception:
    return RuntimeError(f"the handler awaited something that was cancelled ({error})")


def _kind(error: Exception) -> str:
    """Errors of handlers may quote messages, so only their type is passed on."""
    return type(error).__name__


def _words(parcel: Parcel) -> str:
    first = parcel.deliveries[0]
    if len(parcel.deliveries) > 1:
        return f"a batch of {len(parcel.deliveries)} messages of {first.queue}"
    return f"message {first.properties.message_id or f'number {first.delivery_tag} of the tenure'} of {first.queue}"
