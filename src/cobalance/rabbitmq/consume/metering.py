"""Counting what handlers do. Without a meter nothing of this runs."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Literal, Protocol

from cobalance.group.worker import is_async

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from cobalance.group.group import Group
    from cobalance.rabbitmq.consume.dead_letter_sender import Reason
    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.partition.delivery import Delivery

    Send = Callable[[Queue, Delivery, Reason], Future[None]]

Status = Literal["acked", "rejected", "error"]
"""What became of a message. An error may be tried again, and be acked or rejected then."""


class Meter(Protocol):
    """Counts; see :class:`cobalance.operate.ProcessMetrics`. Any thread."""

    def attach(self, group: Group) -> None:
        """The group that is measured."""

    def begun(self, group: str, queue: str, messages: int) -> None:
        """A handler was called with these messages."""

    def ended(self, group: str, queue: str, messages: int, seconds: float) -> None:
        """It has returned, or raised."""

    def settled(self, group: str, queue: str, messages: int, status: Status) -> None:
        """What became of them."""


class Metering:
    """Measures the handlers of one group.

    Args:
        meter: what counts.
        group: whose handlers they are.
        can_acknowledge: whether a message can be acknowledged now; otherwise it comes again.
        manual: whether the program acknowledges messages itself.
    """

    def __init__(
        self, meter: Meter, group: Group, can_acknowledge: Callable[[Delivery], bool], *, manual: bool
    ) -> None:
        self._meter, self._group, self._manual = meter, group.name, manual
        self._can_acknowledge = can_acknowledge
        meter.attach(group)

    def metered(self, handler: Any) -> Any:
        """The handler, measured; async if it is."""
        if is_async(handler):

            @wraps(handler)
            async def call(argument: Any) -> object:
                with self._measured(argument):
                    return self._told(await handler(argument), argument)

            return call

        @wraps(handler)
        def call_plain(argument: Any) -> object:
            with self._measured(argument) as ended:
                result = handler(argument)
                if not inspect.isawaitable(result):
                    return self._told(result, argument)
                ended.clear()  # it goes on
            return self._awaited(result, argument)

        return call_plain

    def counted(self, send: Send) -> Send:
        """Sends dead letters, and counts those that have arrived."""

        def call(queue: Queue, delivery: Delivery, reason: Reason) -> Future[None]:
            sent = send(queue, delivery, reason)
            sent.add_done_callback(partial(self._rejected, queue.name))
            return sent

        return call

    def acked(self, delivery: Delivery) -> None:
        """The program has acknowledged it."""
        self._meter.settled(self._group, delivery.queue, 1, "acked")

    def _rejected(self, queue: str, sent: Future[None]) -> None:
        if not sent.cancelled() and sent.exception() is None:
            self._meter.settled(self._group, queue, 1, "rejected")

    async def _awaited(self, result: Awaitable[object], argument: Any) -> object:
        with self._measured(argument, begins=False):
            return self._told(await result, argument)

    def _told(self, result: object, argument: Any) -> object:
        queue, messages = _of(argument)
        if result is not None:
            self._meter.settled(self._group, queue, messages, "error")
        elif not self._manual:
            acked = sum(map(self._can_acknowledge, _deliveries(argument)))
            self._meter.settled(self._group, queue, acked, "acked")
        return result

    @contextmanager
    def _measured(self, argument: Any, *, begins: bool = True) -> Iterator[list[bool]]:
        """Yields a list that is emptied if the work goes on elsewhere."""
        queue, messages = _of(argument)
        ended, since = [True], time.perf_counter()
        if begins:
            self._meter.begun(self._group, queue, messages)
        try:
            yield ended
        except Exception:
            self._meter.settled(self._group, queue, messages, "error")
            raise
        finally:
            if ended:
                self._meter.ended(self._group, queue, messages, time.perf_counter() - since)


def _of(argument: Any) -> tuple[str, int]:
    """The queue and number of the messages that a handler is called with."""
    deliveries = _deliveries(argument)
    return deliveries[0].queue, len(deliveries)


def _deliveries(argument: Any) -> list[Delivery]:
    return argument if isinstance(argument, list) else [argument]
