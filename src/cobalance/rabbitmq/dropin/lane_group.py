"""A consumer group on a thread of its own, for programs without an event loop."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast

import anyio

from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.rabbitmq.dropin.lanes import LaneWorker
from cobalance.threads.wakeup import result_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cobalance.group.tenure import Tenure
    from cobalance.rabbitmq.consume.partition_worker import PartitionWorker
    from cobalance.rabbitmq.dropin.lanes import Lanes
    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.partition.delivery import Delivery


class LaneGroup(ConsumerGroup):
    """Hands messages to the program's thread instead of calling a handler.

    `queues` have a prefetch each, unless `options` have one for all.
    """

    def __init__(
        self, name: str, queues: Mapping[str, int], lanes: Lanes, on_left: Callable[[], None], **options: Any
    ) -> None:
        super().__init__(name, list(queues), _never_called, ack="manual", **options)
        self._lanes, self._on_left = lanes, on_left
        self._prefetches = {} if "prefetch" in options else queues

    def prefetch_of(self, queue: Queue) -> int:
        return self._prefetches.get(queue.name, self._prefetch)

    async def handle(self, deliveries: Sequence[Delivery], worker: PartitionWorker) -> int:
        return await self._lanes.work(cast("LaneWorker", worker), deliveries)

    def left(self) -> None:
        """The session is over, whether that was requested or not."""
        super().left()
        self._on_left()

    def _worker_for(self, tenure: Tenure, queue: Queue) -> PartitionWorker:
        worker = self._workers[tenure.resource] = LaneWorker(tenure, queue, self, self._lanes, self._service_scope)
        return worker

    def _reads_as_stream(self, queue: Queue) -> bool:
        del queue
        return False  # programs for pika acknowledge messages of queues; none of them commits offsets


async def _never_called(_: Delivery) -> None: ...


class BackgroundMembership:
    """One membership of one process: begun by `start`, ended by `ask_stop` or by a failure.

    `wake` is called on the membership's thread when `over` is done.
    """

    def __init__(
        self, name: str, queues: Mapping[str, int], lanes: Lanes, wake: Callable[[], None], **options: Any
    ) -> None:
        self.entered: Future[None] = Future()
        """Done when the servers are reached, or with the error that prevents it."""
        self.over: Future[None] = Future()
        """Done when everything was handed over, or with the failure that ended the membership."""
        self._stop: Future[None] = Future()
        self._stop_lock = threading.Lock()
        self._group = LaneGroup(name, queues, lanes, self.ask_stop, **options)
        self._wake = wake
        self._thread = threading.Thread(target=self._run, name=f"cobalance-{name}-member", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_stop(self) -> None:
        """Begins to leave; from any thread, any number of times."""
        with self._stop_lock:
            if not self._stop.done():
                self._stop.set_result(None)

    def _run(self) -> None:
        failure = None
        try:
            anyio.run(self._be_a_member)
        except BaseException as error:  # noqa: BLE001 -- raised again on the program's thread
            failure = bare(error)
        for future in (self.entered, self.over):
            if failure is None and not future.done():
                future.set_result(None)
            elif not future.done():
                future.set_exception(failure)
        self._wake()

    async def _be_a_member(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._interrupt_entering, tasks.cancel_scope)
            async with self._group:
                self.entered.set_result(None)
                await result_of(self._stop)
            tasks.cancel_scope.cancel()

    async def _interrupt_entering(self, scope: anyio.CancelScope) -> None:
        await result_of(self._stop)
        if not self.entered.done():
            scope.cancel()


def bare(error: BaseException) -> BaseException:
    """Unwraps an exception from groups that hold only it."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error
