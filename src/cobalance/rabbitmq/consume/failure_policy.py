"""What follows when a handler fails: the log, ``on_failure``, retries, and ``on_error`` after the last one."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Literal

from cobalance.backoff import Backoff
from cobalance.coordinator.advice import command
from cobalance.errors import CobalanceError, HandlerHung, UnexpectedResult, UsageError
from cobalance.group.clock import monotonic_ms
from cobalance.member.events import Abandoned
from cobalance.rabbitmq.consume.dead_letter_sender import Reason
from cobalance.rabbitmq.consume.dead_letter_target import required_target
from cobalance.rabbitmq.consume.dead_letters import words_of
from cobalance.rabbitmq.consume.failure_reports import FailureReports
from cobalance.rabbitmq.consume.parcels import Parcel
from cobalance.threads.log_lines import exc_info
from cobalance.threads.wakeup import result_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from cobalance.group.stopping import OnUnstopped
    from cobalance.rabbitmq.consume.failure_reports import InThread, OnFailure
    from cobalance.rabbitmq.consume.partition_worker import PartitionWorker
    from cobalance.rabbitmq.consume.slot import Slot
    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.model.retries import Retries
    from cobalance.rabbitmq.partition.delivery import Delivery

    SendDeadLetter = Callable[[Queue, Delivery, Reason], Future[None]]

log = logging.getLogger("cobalance.rabbitmq")

MOST_KIND = 100
"""Characters kept of the name of an exception's type."""

OnError = Literal["pause", "raise", "dead_letter", "halt", "park"]

PARKED_MS = Backoff(5_000, 300_000)
"""Pauses between further tries of a message that has used up its retries, where only its key waits (``park``)."""


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
        in_thread: InThread,
        forsake: OnUnstopped,
    ) -> None:
        self._group, self._manual, self._retries, self._on_error = group, manual, retries, on_error
        self._log_exceptions, self._most_ms, self._send = log_exceptions, most_ms, send
        self._reports = FailureReports(
            group,
            on_failure,
            most_ms=most_ms,
            log_exceptions=log_exceptions,
            in_thread=in_thread,
            forsake=forsake,
            words=self._what,
        )
        self._explained = ""  # the last unexpected result that was explained

    def hung(self) -> HandlerHung:
        """The error of a handler that was stopped."""
        return HandlerHung(
            f"the handler ran for longer than {self._most_ms} ms: a longer max_processing_ms lets slower work finish"
        )

    # -- when a handler has failed -------------------------------------------------------------------------------------

    async def follow(self, slot: Slot, error: Exception) -> bool:
        """Decides about the slot's first parcel; returns whether to go on.

        Raises:
            Exception: the handler's own, if failures end the membership.
        """
        parcel, worker = slot.parcels[0], slot.worker
        if parcel.is_settled:  # given up while its handler was still running
            slot.pop()
            return worker.goes_on
        parcel.failures += 1
        slot.watch.idle()
        for delivery in parcel.deliveries:
            delivery.forget_reply()
        worker.has_settled(parcel)
        await self._reports.tell(slot, parcel, error, lambda: self._give_up_untold(slot, parcel, error))
        if self._is_over(slot, error):
            return worker.goes_on and not worker.tenure.lost
        if self._has_tries(parcel, error):
            slot.put_down(len(parcel.deliveries))
            return await self._try_again(slot, error)
        if len(parcel.deliveries) > 1:
            if isinstance(error, UnexpectedResult):
                return await self._give_up_each(slot, error)
            slot.put_down(len(parcel.deliveries))
            self._log(logging.WARNING, parcel, error, "trying one by one")
            slot.split([Parcel((it,), self._last_try, parcel.key) for it in parcel.deliveries])
            return worker.goes_on
        return await self._give_up(slot, error)

    def _is_over(self, slot: Slot, error: Exception) -> bool:
        """Whether the slot's first parcel is settled after all, by the program or by whoever gave it up, and so removed; or
        its tenure is over, and it goes back to its queue.
        """
        parcel = slot.parcels[0]
        is_settled = slot.worker.has_settled(parcel)
        is_over = is_settled or parcel.is_settled
        if is_over:
            slot.pop()
        if is_settled:
            self._log(logging.WARNING, parcel, error, "it is settled, so it is not tried again")
        return is_over or slot.worker.tenure.lost

    def _has_tries(self, parcel: Parcel, error: Exception) -> bool:
        return not isinstance(error, UsageError) and parcel.failures <= self._retries.most

    def is_last_try(self, failures: int) -> bool:
        """Whether what has failed so often has its last try, each message alone."""
        return failures >= self._last_try

    @property
    def _last_try(self) -> int:
        return max(1, self._retries.most)

    async def _try_again(self, slot: Slot, error: Exception) -> bool:
        parcel = slot.parcels[0]
        delay_ms = self._retries.delay_ms(parcel.failures)
        if slot.keys is None:
            self._log(logging.WARNING, parcel, error, "trying again")
            return await slot.worker.rest(delay_ms)
        self._log(logging.WARNING, parcel, error, f"trying again in {delay_ms:.0f} ms, while others go on")
        slot.put_back(monotonic_ms() + delay_ms)
        return slot.worker.goes_on

    async def _give_up_each(self, slot: Slot, error: Exception) -> bool:
        """Gives up the messages of a batch one after another, without retries."""
        whole = slot.parcels[0]
        slot.split([Parcel((it,), whole.failures, whole.key) for it in whole.deliveries])
        for behind in reversed(range(len(whole.deliveries))):
            if not await self._give_up(slot, error):
                slot.put_down(behind)
                return False
        return slot.worker.goes_on

    async def _give_up(self, slot: Slot, error: Exception) -> bool:
        parcel, worker = slot.parcels[0], slot.worker
        if self._on_error == "raise":
            self._say_leaving(parcel, error)
            raise error
        if self._on_error == "dead_letter":
            hindrance = await self._dead_letter(parcel, error, worker)
            if hindrance is not None:
                slot.put_down(1)
            if hindrance is None or worker.has_settled(parcel):
                slot.pop()
                return worker.goes_on
            worker.give_up(self._kept_for(parcel, hindrance))
            return False
        slot.put_down(1)
        if self._on_error == "park" and not isinstance(error, UnexpectedResult):
            return self._park(slot, error)
        worker.give_up(self._given_up_for(parcel, error, worker))
        return False

    def _park(self, slot: Slot, error: Exception) -> bool:
        pause_ms = PARKED_MS.pause(max(1, slot.parcels[0].failures - self._retries.most))
        words = f"it is tried again in {pause_ms / 1000:.0f} s; what has its key waits behind it, the others go on"
        self._log(logging.ERROR, slot.parcels[0], error, words)
        slot.put_back(monotonic_ms() + pause_ms)
        return slot.worker.goes_on

    async def _dead_letter(self, parcel: Parcel, error: Exception, worker: PartitionWorker) -> CobalanceError | None:
        """Sends it to the dead letters; returns what prevented that, if anything did."""
        self._say_dead_lettered(parcel, error)
        if not parcel.settle():
            return None
        (delivery,) = parcel.deliveries
        try:
            worker.leave(delivery)
        except ValueError:  # the program has settled it in another thread
            return None
        hindrance = await self._send_left(parcel, error, worker)
        if hindrance is None:
            worker.left(delivery)
        else:
            worker.stay(delivery)
        return hindrance

    async def _send_left(self, parcel: Parcel, error: Exception, worker: PartitionWorker) -> CobalanceError | None:
        (delivery,) = parcel.deliveries
        try:
            await result_of(self._send(worker.queue, delivery, Reason(self._group, words_of(error), parcel.failures)))
        except CobalanceError as hindrance:
            return hindrance
        return None

    # -- when RabbitMQ has refused the reply to a message --------------------------------------------------------------

    async def pause_before(
        self, parcel: Parcel, error: Exception, worker: PartitionWorker, *, lasts: bool
    ) -> float | None:
        """The pause in ms before its reply is sent again; None if that was tried often enough, or would not help."""
        parcel.failures += 1
        await self._reports.wait_told(parcel, error, worker)
        if not lasts and parcel.failures <= self._retries.most:
            self._log(logging.WARNING, parcel, error, "its reply is sent again")
            return self._retries.delay_ms(parcel.failures)
        if self._on_error != "park":
            return None
        pause_ms = PARKED_MS.pause(parcel.failures - self._retries.most)
        self._log(logging.ERROR, parcel, error, f"its reply is sent again in {pause_ms / 1000:.0f} s")
        return pause_ms

    async def give_up_left(self, parcel: Parcel, error: Exception, worker: PartitionWorker) -> None:
        """Applies ``on_error`` to a message that its handler has left to be settled here."""
        (delivery,) = parcel.deliveries
        if self._on_error == "raise":
            self._say_leaving(parcel, error)
            worker.keep(delivery)
            worker.partitions.membership.end_soon(error)
        elif self._on_error == "dead_letter":
            self._say_dead_lettered(parcel, error)
            hindrance = await self._send_left(parcel, error, worker)
            worker.left(delivery, kept=None if hindrance is None else self._kept_for(parcel, hindrance))
        else:
            worker.left(delivery, kept=self._given_up_for(parcel, error, worker))

    # -- what becomes of a partition, in the log and as the reason -----------------------------------------------------

    def _given_up_for(self, parcel: Parcel, error: Exception, worker: PartitionWorker) -> str:
        """An unexpected result halts it, too: the handler would do its work again, only to return it again."""
        if self._on_error == "halt" or isinstance(error, UnexpectedResult):
            resume = command("group resume", self._group, worker.queue.name, key_prefix=worker.partitions.key_prefix)
            self._log(logging.ERROR, parcel, error, f"its partition is halted. Once the cause is removed: {resume}")
            return f"halted:{_kind(error)}"
        self._log(logging.ERROR, parcel, error, "its partition is given up for a while, with that message first in it")
        return f"failed:{_kind(error)}"

    def _kept_for(self, parcel: Parcel, hindrance: CobalanceError) -> str:
        log.error(
            "group %s: %s cannot be dead-lettered, and RabbitMQ might drop it: its partition is given up for a while, with that "
            "message first in it. %s",
            *(self._group, parcel, hindrance),
        )
        return f"failed:{_kind(hindrance)}"

    def _say_leaving(self, parcel: Parcel, error: Exception) -> None:
        words = "this member leaves the group, and the message stays in its queue"
        self._log(logging.WARNING, parcel, error, words)

    def _say_dead_lettered(self, parcel: Parcel, error: Exception) -> None:
        self._log(logging.ERROR, parcel, error, "it is given up, to the dead-letter target of its queue")

    # -- when it does not end ------------------------------------------------------------------------------------------

    def report_blocked(self, parcel: Parcel) -> None:
        """Logs a handler that has finished late because it could not be cancelled in time."""
        log.warning(
            "group %s: %s: the handler blocked the event loop for longer than %d ms (max_processing_ms), so that it could not be cancelled: "
            "make it a plain function, which runs in a thread, or have it call what blocks in one",
            *(self._group, parcel, self._most_ms),
        )

    def tell_hung(self, slot: Slot) -> None:
        """Logs a thread that goes on and cannot be stopped."""
        for parcel in list(slot.parcels)[:1]:
            log.error("group %s: %s: %s; its thread cannot be stopped", self._group, parcel, self.hung())

    def give_up_hung(self, slot: Slot) -> Future[None] | None:
        """Applies ``on_error`` at once: a retry would run next to the hung handler. Called on the engine's thread.

        The result is done when the message may return to its queue, or has arrived where it goes.
        """
        parcel, worker = next(iter(list(slot.parcels)), None), slot.worker
        if parcel is None or worker.has_settled(parcel) or not parcel.settle():
            return None
        error = self.hung()
        log.error("group %s: %s: %s, and it does not end", self._group, parcel, error)
        worker.partitions.membership.start_soon(lambda: self._reports.tell_beside(parcel, error, worker))
        return self._apply_at_once(parcel, error, worker, parcel.failures + 1)

    def _give_up_untold(self, slot: Slot, parcel: Parcel, error: Exception) -> Future[None] | None:
        """The same where ``on_failure`` does not end. What has tries left returns to its queue for them."""
        if self._manual or self._has_tries(parcel, error) or slot.worker.has_settled(parcel) or not parcel.settle():
            return None
        return self._apply_at_once(parcel, error, slot.worker, parcel.failures)

    def _apply_at_once(
        self, parcel: Parcel, error: Exception, worker: PartitionWorker, failures: int
    ) -> Future[None] | None:
        if self._on_error == "raise":
            worker.partitions.membership.end_soon(error)
        elif self._on_error == "dead_letter":
            if len(parcel.deliveries) == 1:
                return self._send_at_once(parcel, error, worker, failures)
        elif self._on_error == "halt" or isinstance(error, UnexpectedResult):
            # an aborted partition is released as halted
            worker.partitions.membership.engine.post(
                Abandoned(worker.tenure.resource, worker.tenure.token, f"halted:{_kind(error)}", worker.tenure.effort)
            )
        return None

    def _send_at_once(self, parcel: Parcel, error: Exception, worker: PartitionWorker, failures: int) -> Future[None]:
        (delivery,) = parcel.deliveries
        delivery.forget_reply()

        def follow(sent: Future[None]) -> None:
            if (hindrance := sent.exception()) is None:
                worker.done(delivery)
            elif isinstance(hindrance, CobalanceError):
                self._kept_for(parcel, hindrance)

        sent = self._send(worker.queue, delivery, Reason(self._group, words_of(error), failures))
        sent.add_done_callback(follow)
        return sent

    # -- when a program gives a message up by itself -------------------------------------------------------------------

    def reject(self, delivery: Delivery, worker: PartitionWorker) -> None:
        """Sends a message to the dead letters. Any thread.

        Raises:
            UsageError: there is no target to send it to.
            ValueError: it was settled before.
        """
        required_target(worker.queue, delivery)
        if worker.leave(delivery):
            sent = self._send(worker.queue, delivery, Reason(self._group, "rejected"))
            sent.add_done_callback(lambda it: self._left(it, delivery, worker))

    def _left(self, sent: Future[None], delivery: Delivery, worker: PartitionWorker) -> None:
        hindrance = sent.exception()
        if not isinstance(hindrance, CobalanceError):
            worker.left(delivery)
            return
        parcel = Parcel((delivery,))
        worker.left(delivery, kept=self._kept_for(parcel, hindrance))
        worker.partitions.membership.start_soon(lambda: self._reports.tell_beside(parcel, hindrance, worker))

    # -- log messages --------------------------------------------------------------------------------------------------

    def _log(self, level: int, parcel: Parcel, error: Exception, what_follows: str) -> None:
        times = "" if parcel.failures == 1 else f" {parcel.failures} times"
        log.log(
            level,
            "group %s: %s failed%s (%s): %s",
            *(self._group, parcel, times, self._once(error), what_follows),
            exc_info=exc_info(error) if self._log_exceptions and not isinstance(error, CobalanceError) else None,
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
    """The name of its type as a word, as the coordinator wants it: a program may have made one of any characters."""
    return re.sub(r"[^\w.]+", "_", type(error).__name__)[:MOST_KIND] or "Exception"
