"""What follows when a handler fails: the log, ``on_failure``, retries, and ``on_error`` after the last one."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import anyio

from cobalance.errors import CobalanceError, HandlerHung, UnexpectedResult, UsageError
from cobalance.group.engine import monotonic_ms
from cobalance.group.worker import is_async, outcome
from cobalance.member.events import Abandoned
from cobalance.rabbitmq.consume.dead_letter_sender import Reason
from cobalance.rabbitmq.consume.dead_letter_target import required_target
from cobalance.rabbitmq.consume.dead_letters import words_of
from cobalance.rabbitmq.consume.parcels import Parcel
from cobalance.rabbitmq.partition.delivery import Delivery
from cobalance.threads.wakeup import result_of
from cobalance.threads.worker_threads import in_thread

if TYPE_CHECKING:
    from collections import deque
    from concurrent.futures import Future

    from cobalance.rabbitmq.consume.partition_worker import PartitionWorker
    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.model.retries import Retries

    SendDeadLetter = Callable[[Queue, Delivery, Reason], Future[None]]

log = logging.getLogger("cobalance.rabbitmq")

OnFailure = Callable[[Delivery, Exception], Awaitable[None]] | Callable[[Delivery, Exception], None]
OnError = Literal["pause", "raise", "dead_letter", "halt"]


class FailurePolicy:
    """The failure policy of one member."""

    def __init__(
        self,
        group: str,
        *,
        manual: bool,
        retries: Retries,
        on_error: OnError,
        on_failure: OnFailure | None,
        log_exceptions: bool,
        most_ms: int,
        send: SendDeadLetter,
    ) -> None:
        self._group, self._manual, self._retries, self._on_error = group, manual, retries, on_error
        self.key_of = retries.key_of
        self._on_failure: Any = on_failure
        self._log_exceptions, self._most_ms, self._send = log_exceptions, most_ms, send
        self._explained = ""  # the last unexpected result that was explained

    def hung(self) -> HandlerHung:
        """The error of a handler that was stopped."""
        return HandlerHung(
            f"the handler ran for longer than {self._most_ms} ms: a longer max_processing_ms lets slower work finish"
        )

    # -- when a handler has failed -------------------------------------------------------------------------------------

    async def follow(self, parcels: deque[Parcel], error: Exception, worker: PartitionWorker) -> bool:
        """Decides about the first parcel; returns whether to go on.

        Raises:
            Exception: the handler's own, if failures end the membership.
        """
        parcel = parcels[0]
        if parcel.is_settled:  # given up while its handler was still running
            parcels.popleft()
            return worker.goes_on
        parcel.failures += 1
        worker.watch.idle()
        if self._manual:
            parcel.drop(worker.is_settled)
        for delivery in parcel.deliveries:
            delivery.forget_reply()
        await self._call_on_failure(parcel, error, worker)
        if self._manual and not parcel.drop(worker.is_settled):
            parcels.popleft()
            self._log(logging.WARNING, parcel, error, "it is settled, so it is not tried again")
            return worker.goes_on
        if not isinstance(error, UsageError) and parcel.failures <= self._retries.most:
            worker.put_down(len(parcel.deliveries))
            return await self._try_again(parcels, error, worker)
        if len(parcel.deliveries) > 1:
            if isinstance(error, UnexpectedResult):
                return await self._give_up_each(parcels, error, worker)
            worker.put_down(len(parcel.deliveries))
            self._log(logging.WARNING, parcel, error, "trying one by one")
            parcels.popleft()
            parcels.extendleft(Parcel((it,), self._retries.most) for it in reversed(parcel.deliveries))
            return worker.goes_on
        return await self._give_up(parcels, error, worker)

    async def _try_again(self, parcels: deque[Parcel], error: Exception, worker: PartitionWorker) -> bool:
        parcel = parcels[0]
        delay_ms = self._retries.delay_ms(parcel.failures)
        if not self._retries.parks:
            self._log(logging.WARNING, parcel, error, "trying again")
            return await worker.rest(delay_ms)
        try:
            parcel.key = self.key_of(parcel.deliveries[0])
        except UsageError as unknown:
            return await self._give_up(parcels, unknown, worker)
        self._log(logging.WARNING, parcel, error, f"trying again in {delay_ms:.0f} ms, while others go on")
        worker.parked.park(parcels.popleft(), monotonic_ms() + delay_ms)
        return worker.goes_on

    async def _give_up_each(self, parcels: deque[Parcel], error: Exception, worker: PartitionWorker) -> bool:
        """Gives up the messages of a batch one after another, without retries."""
        whole = parcels.popleft()
        parcels.extendleft(Parcel((it,), whole.failures) for it in reversed(whole.deliveries))
        for behind in reversed(range(len(whole.deliveries))):
            if not await self._give_up(parcels, error, worker):
                worker.put_down(behind)
                return False
        return worker.goes_on

    async def _give_up(self, parcels: deque[Parcel], error: Exception, worker: PartitionWorker) -> bool:
        parcel = parcels[0]
        if self._on_error == "raise":
            self._log(
                logging.WARNING, parcel, error, "this member leaves the group, and the message stays in its queue"
            )
            raise error
        if self._on_error == "dead_letter":
            self._log(logging.ERROR, parcel, error, "it is given up, to the dead-letter target of its queue")
            hindrance = await self._dead_letter(parcel, error, worker)
            if hindrance is None:
                parcels.popleft()
                return worker.goes_on
            self._say_kept(parcel, hindrance)
            error = hindrance
        worker.put_down(1)
        # The handler returned something, and would do its work again, elsewhere or later, only to return it again.
        if self._on_error == "halt" or isinstance(error, UnexpectedResult):
            worker.give_up(f"halted:{_kind(error)}")
            resume = f"cobalance group resume {self._group} {worker.queue.name}"
            self._log(logging.ERROR, parcel, error, f"its partition is halted. Once the cause is removed: {resume}")
        else:
            worker.give_up(f"failed:{_kind(error)}")
            if self._on_error == "pause":
                self._log(
                    logging.ERROR, parcel, error, "its partition is given up for a while, with that message first in it"
                )
        return False

    async def _dead_letter(self, parcel: Parcel, error: Exception, worker: PartitionWorker) -> CobalanceError | None:
        """Sends it to the dead letters; returns what prevented that, if anything did."""
        if not parcel.settle():
            return None
        delivery, reason = parcel.deliveries[0], Reason(self._group, words_of(error), parcel.failures)
        try:
            worker.leave(delivery)
        except ValueError:  # the program has settled it in another thread
            return None
        try:
            await result_of(self._send(worker.queue, delivery, reason))
        except CobalanceError as failure:
            worker.stay(delivery)
            return failure
        worker.left(delivery)
        return None

    def _say_kept(self, parcel: Parcel, hindrance: CobalanceError) -> None:
        log.error(
            "group %s: %s cannot be dead-lettered, and RabbitMQ might drop it: its partition is given up for a while, with that "
            "message first in it. %s",
            *(self._group, parcel, hindrance),
        )

    async def _call_on_failure(self, parcel: Parcel, error: Exception, worker: PartitionWorker) -> None:
        """Calls ``on_failure``, which has as much time as a handler."""
        if self._on_failure is None:
            return
        try:
            with anyio.move_on_after(self._most_ms / 1000):
                for delivery in parcel.deliveries:
                    await outcome(self._call(delivery, error, worker))
        except Exception as failure:
            trace = failure if self._log_exceptions else None
            log.error("group %s: on_failure failed (%s)", self._group, self._what(failure), exc_info=trace)

    async def _call(self, delivery: Delivery, error: Exception, worker: PartitionWorker) -> None:
        call = partial(self._on_failure, delivery, error)
        result = call() if is_async(self._on_failure) else await in_thread(call)
        if inspect.isawaitable(result):
            await worker.tenure.work.call(result)

    # -- when it does not end ------------------------------------------------------------------------------------------

    def report_blocked(self, parcel: Parcel) -> None:
        """Logs a handler that has finished late because it could not be cancelled in time."""
        log.warning(
            "group %s: %s: the handler blocked the event loop for longer than %d ms (max_processing_ms), so that it could not be cancelled: "
            "make it a plain function, which runs in a thread, or have it call what blocks in one",
            *(self._group, parcel, self._most_ms),
        )

    def tell_hung(self, parcels: deque[Parcel]) -> None:
        """Logs a thread that goes on and cannot be stopped."""
        for parcel in list(parcels)[:1]:
            log.error("group %s: %s: %s; its thread cannot be stopped", self._group, parcel, self.hung())

    def give_up_hung(self, parcels: deque[Parcel], worker: PartitionWorker) -> Future[None] | None:
        """Applies ``on_error`` at once: a retry would run next to the hung handler. Called on the engine's thread.

        The result is done when the message may return to its queue, or has arrived where it goes.
        """
        parcel = next(iter(list(parcels)), None)
        if parcel is None or not parcel.settle():
            return None
        error = self.hung()
        log.error("group %s: %s: %s, and it does not end", self._group, parcel, error)
        worker.partitions.start_soon(lambda: self._call_on_failure(parcel, error, worker))
        if self._on_error == "raise":
            worker.partitions.end_soon(error)
        elif self._on_error == "halt":  # an aborted partition is released as halted
            worker.partitions.post(
                Abandoned(worker.tenure.resource, worker.tenure.token, f"halted:{_kind(error)}", worker.tenure.effort)
            )
        elif self._on_error == "dead_letter" and len(parcel.deliveries) == 1:
            return self._send_hung(parcel, error, worker)
        return None

    def _send_hung(self, parcel: Parcel, error: Exception, worker: PartitionWorker) -> Future[None]:
        (delivery,) = parcel.deliveries
        delivery.forget_reply()

        def follow(sent: Future[None]) -> None:
            if (hindrance := sent.exception()) is None:
                worker.done(delivery)
            elif isinstance(hindrance, CobalanceError):
                self._say_kept(parcel, hindrance)

        sent = self._send(worker.queue, delivery, Reason(self._group, words_of(error), parcel.failures + 1))
        sent.add_done_callback(follow)
        return sent

    # -- when a program gives a message up by itself -------------------------------------------------------------------

    def reject(self, delivery: Delivery, worker: PartitionWorker) -> None:
        """Sends a message to the dead letters. Any thread.

        Raises:
            UsageError: there is no target to send it to.
            ValueError: it was settled before.
        """
        required_target(worker.queue, delivery.routing_key)
        if worker.leave(delivery):
            sent = self._send(worker.queue, delivery, Reason(self._group, "rejected"))
            sent.add_done_callback(lambda it: self._left(it, delivery, worker))

    def _left(self, sent: Future[None], delivery: Delivery, worker: PartitionWorker) -> None:
        hindrance = sent.exception()
        if not isinstance(hindrance, CobalanceError):
            worker.left(delivery)
            return
        parcel = Parcel((delivery,))
        self._say_kept(parcel, hindrance)
        worker.left(delivery, kept=f"failed:{_kind(hindrance)}")
        worker.partitions.start_soon(lambda: self._call_on_failure(parcel, hindrance, worker))

    # -- log messages --------------------------------------------------------------------------------------------------

    def _log(self, level: int, parcel: Parcel, error: Exception, what_follows: str) -> None:
        times = "" if parcel.failures == 1 else f" {parcel.failures} times"
        log.log(
            level,
            "group %s: %s failed%s (%s): %s",
            *(self._group, parcel, times, self._once(error), what_follows),
            exc_info=error if self._log_exceptions and not isinstance(error, CobalanceError) else None,
        )

    def _once(self, error: Exception) -> str:
        """Explains an error of the handler itself, which affects every message, only once."""
        words = self._what(error)
        if isinstance(error, UnexpectedResult):
            if words == self._explained:
                return f"{_kind(error)}, as above"
            self._explained = words
        return words

    def _what(self, error: Exception) -> str:
        """Our own errors do not quote messages; those of handlers may."""
        if self._log_exceptions or isinstance(error, CobalanceError):
            return words_of(error)
        return _kind(error)


def _kind(error: Exception) -> str:
    return type(error).__name__
