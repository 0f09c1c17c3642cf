"""Tells meters what handlers do, and what becomes of messages and partitions. Without a meter nothing of this runs."""

from __future__ import annotations

import asyncio
import inspect
import time
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

from cobalance.errors import HandlerHung
from cobalance.group.worker import is_async
from cobalance.rabbitmq.consume.watch import ATTEMPT
from cobalance.rabbitmq.model.meters import log_meter_failure
from cobalance.threads.cancellation import is_cancellation, is_cancelled, is_failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from concurrent.futures import Future
    from types import TracebackType

    from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
    from cobalance.rabbitmq.consume.dead_letter_sender import Reason
    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.partition.delivery import Delivery

    Send = Callable[[Queue, Delivery, Reason], Future[None]]

Status = Literal["acked", "rejected", "error"]
"""What became of a message. An error may be tried again, and be acked or rejected then."""

Step = Literal["granted", "consuming", "asked_back", "kept", "ended"]
"""Of a tenure: it begins; RabbitMQ has its subscription, for the first time; it is to end; it may go on after all; it has
ended, in whatever way.
"""


class Scope(Protocol):
    """What a meter has around a handler: it is entered where the handler begins to run, and wherever it goes on."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...


class Meter(Protocol):
    """Counts, or traces; see :class:`cobalance.operate.ProcessMetrics` and :class:`cobalance.operate.Telemetry`. Any
    thread.
    """

    def attach(self, group: ConsumerGroup) -> Meter | None:
        """The group that is measured, and what is told of it in place of this, if anything."""

    def begun(self, call: Call) -> Scope | None:
        """A handler is about to be called; what is returned is around it, and passed to `ended`."""

    def ended(self, call: Call, scope: Any) -> None:
        """It has returned, or raised."""

    def settled(self, group: str, delivery: Delivery, status: Status) -> None:
        """What became of a message by other ways than its handler's return."""

    def moved(self, group: str, queue: str, token: int, step: Step) -> None:
        """What becomes of a tenure."""


class Call:
    """One call of a handler, and the ``with`` around it."""

    __slots__ = (
        *("_metering", "_since", "_told", "deliveries", "error", "goes_on", "group", "is_batch", "seconds", "settled"),
        *("status", "tenure"),
    )  # there is one for each message, and none of them has a dictionary

    def __init__(self, metering: Metering, argument: Delivery | list[Delivery]) -> None:
        self._metering, self.group = metering, metering.group
        self.is_batch = isinstance(argument, list)
        """Whether the handler is given lists."""
        self.deliveries: Sequence[Delivery] = argument if isinstance(argument, list) else (argument,)
        self.tenure = self.deliveries[0].tenure
        self._told: Sequence[tuple[Meter, Any]] = ()
        """Those that know of it, with what each has around the handler."""
        self.seconds = 0.0
        """How long it took."""
        self.error: str | None = None
        """The type of what it raised, or of what it is given up for."""
        self.status: Status | None = None
        """What became of its messages; None if that is known later."""
        self.settled = 0
        """Of how many: a message whose channel is lost is not acknowledged, and comes again."""
        self.goes_on = False
        """The handler's work is to be awaited elsewhere, in another ``with``."""

    def __enter__(self) -> Self:
        if self.goes_on:
            self.goes_on = False
        else:
            self._since = time.perf_counter()
            self._told = told = []
            for meter in self._metering.meters:
                try:
                    told.append((meter, meter.begun(self)))
                except Exception as error:  # noqa: BLE001 -- what fails is logged, and is none of the handler's
                    self._metering.log_failure(error)
        for _, scope in self._told:
            if scope is not None:
                try:
                    scope.__enter__()
                except Exception as error:  # noqa: BLE001
                    self._metering.log_failure(error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, scope in self._told:
            if scope is not None:
                try:
                    scope.__exit__(kind, error, trace)
                except Exception as failure:  # noqa: BLE001
                    self._metering.log_failure(failure)
        if error is not None:
            self._failed(error)
        if not self.goes_on:
            self.seconds = time.perf_counter() - self._since
            for meter, scope in self._told:
                try:
                    meter.ended(self, scope)
                except Exception as failure:  # noqa: BLE001
                    self._metering.log_failure(failure)

    def _failed(self, error: BaseException) -> None:
        self.goes_on, self.error = False, _kind(error)
        if self.error is not None and is_failure(error):
            self.status, self.settled = "error", len(self.deliveries)

    def returned(self, result: object) -> None:
        """The handler has returned this."""
        if result is not None:
            self.status, self.settled, self.error = "error", len(self.deliveries), "UnexpectedResult"
        elif _is_hung():  # its message fails, whatever the handler made of the cancellation
            self.status, self.settled, self.error = "error", len(self.deliveries), HandlerHung.__qualname__
        elif not self._metering.manual:
            can = self._metering.can_acknowledge
            self.status = "acked"
            self.settled = sum(map(can, self.deliveries)) if self.is_batch else int(can(self.deliveries[0]))


class Metering:
    """Measures the handlers of one group.

    Args:
        meters: those that are told.
        group: whose handlers they are.
        can_acknowledge: whether a message can be acknowledged now; otherwise it comes again.
        manual: whether the program acknowledges messages itself.
    """

    def __init__(
        self,
        meters: Sequence[Meter],
        group: ConsumerGroup,
        can_acknowledge: Callable[[Delivery], bool],
        *,
        manual: bool,
    ) -> None:
        self.meters, self.group, self.manual = tuple(it.attach(group) or it for it in meters), group.name, manual
        self.can_acknowledge = can_acknowledge

    def calling(self, argument: Delivery | list[Delivery]) -> Call:
        """A call of the handler with this argument, to be entered around it."""
        return Call(self, argument)

    def metered(self, handler: Any) -> Any:
        """The handler, measured; async if it is."""
        if is_async(handler):

            @wraps(handler)
            async def call(argument: Any) -> object:
                with Call(self, argument) as it:
                    result = await handler(argument)
                    it.returned(result)
                return result

            return call

        @wraps(handler)
        def call_plain(argument: Any) -> object:
            with Call(self, argument) as it:
                result = handler(argument)
                it.goes_on = inspect.isawaitable(result)
                if not it.goes_on:
                    it.returned(result)
                    return result
            return _awaited(result, it)

        return call_plain

    def counted(self, send: Send) -> Send:
        """Sends dead letters, and counts those that have arrived."""

        def call(queue: Queue, delivery: Delivery, reason: Reason) -> Future[None]:
            sent = send(queue, delivery, reason)
            sent.add_done_callback(partial(self._rejected, delivery))
            return sent

        return call

    def settled(self, delivery: Delivery, status: Status) -> None:
        """The program has settled it."""
        for it in self.meters:
            try:
                it.settled(self.group, delivery, status)
            except Exception as error:  # noqa: BLE001
                self.log_failure(error)

    def moved(self, queue: str, token: int, step: Step) -> None:
        """What becomes of a tenure."""
        for it in self.meters:
            try:
                it.moved(self.group, queue, token, step)
            except Exception as error:  # noqa: BLE001 -- the caller's thread keeps the member, or its connection, going
                self.log_failure(error)

    def log_failure(self, error: Exception) -> None:
        """Logs what a meter has raised; nothing else depends on it."""
        log_meter_failure(f"group {self.group}", error)

    def _rejected(self, delivery: Delivery, sent: Future[None]) -> None:
        if not sent.cancelled() and sent.exception() is None:
            self.settled(delivery, "rejected")


async def _awaited(result: Awaitable[object], call: Call) -> object:
    with call:
        ended = await result
        call.returned(ended)
    return ended


def _kind(error: BaseException) -> str | None:
    """The type of a handler's error. None if the handler was only cancelled because its partition or member goes."""
    if is_cancellation(error) and ATTEMPT.get() is not None:  # nobody cancels a function in a thread
        if _is_hung():
            return HandlerHung.__qualname__
        if not isinstance(error, asyncio.CancelledError) or is_cancelled():
            return None
    return type(error).__qualname__


def _is_hung() -> bool:
    attempt = ATTEMPT.get()
    return attempt is not None and attempt.scope.cancel_called
