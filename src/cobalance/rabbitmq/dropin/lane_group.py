"""A consumer group on a thread of its own, for programs without an event loop."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

import anyio
import attrs

from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.rabbitmq.dropin.lanes import LaneWorker
from cobalance.threads.gate import Promise
from cobalance.threads.log_lines import ServiceThread
from cobalance.threads.wakeup import result_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from weakref import ref

    from cobalance.group.health import Health
    from cobalance.group.tenure import Tenure
    from cobalance.rabbitmq.dropin.lanes import Lanes
    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.partition.delivery import Delivery


log = logging.getLogger("cobalance.rabbitmq")

LOOK_S = 0.5
"""How often to check whether a membership still has an owner."""


class LaneGroup(ConsumerGroup):
    """Hands messages to the program's thread instead of calling a handler.

    `queues` have a prefetch each, unless `options` have one for all. `on_left` is called when the session is over, whether
    that was requested or not.
    """

    _reads_streams = False  # programs for pika acknowledge messages of queues; none of them commits offsets

    def __init__(
        self, name: str, queues: Mapping[str, int], lanes: Lanes, on_left: Callable[[], None], **options: Any
    ) -> None:
        super().__init__(name, list(queues), _never_called, ack="manual", **options)
        self._lanes = lanes
        self.membership.hooks.left = on_left
        self.partitions.worker_for = self._worker_for
        if "prefetch" not in options:
            self.partitions.prefetches = queues

    def _worker_for(self, tenure: Tenure, queue: Queue) -> LaneWorker:
        return LaneWorker(tenure, queue, self.partitions, self._lanes)


async def _never_called(_: Delivery) -> None: ...


class BackgroundMembership:
    """One membership of one process: begun by `start`, ended by `ask_stop`, by a failure, or with its owner.

    `wake` is called on the membership's thread when `over` is done. Nothing here refers to the owner, so that Python
    can collect it.
    """

    running: ClassVar[set[BackgroundMembership]] = set()
    """Those of this process that are not over."""

    def __init__(
        self,
        name: str,
        queues: Mapping[str, int],
        lanes: Lanes,
        wake: Callable[[], None],
        owner: ref[Any],
        **options: Any,
    ) -> None:
        self.entered: Promise[None] = Promise()
        """Done when the servers are reached, or with the error that prevents it."""
        self.over: Promise[None] = Promise()
        """Done when everything was handed over, or with the failure that ended the membership."""
        self._stop: Promise[None] = Promise()
        self._group = LaneGroup(name, queues, lanes, self.ask_stop, **options)
        self._lanes, self._wake, self._owner = lanes, wake, owner
        self._thread = ServiceThread(self._run, f"cobalance-{name}-member")

    @property
    def health(self) -> Health:
        """Whether it is alive and ready; see :attr:`cobalance.Group.health`."""
        found = self._group.health
        is_to_leave = found.ready and self._stop.done()  # of which its event loop has not heard yet
        return attrs.evolve(found, state="draining", ready=False, reasons=("it is leaving",)) if is_to_leave else found

    def start(self) -> None:
        self.running.add(self)
        try:
            self._thread.start()
        except RuntimeError as error:  # the system gives no more threads
            self._end(error)

    def ask_stop(self) -> None:
        """Begins to leave; from any thread, any number of times."""
        self._stop.set_result(None)

    def _run(self) -> None:
        failure = None
        try:
            anyio.run(self._be_a_member)
        except BaseException as error:  # noqa: BLE001 -- raised again on the program's thread
            failure = bare(error)
        self._end(failure)

    def _end(self, failure: BaseException | None) -> None:
        self.running.discard(self)
        for promise in (self.entered, self.over):
            if failure is None and not promise.done():
                promise.set_result(None)
            elif failure is not None and not promise.done():
                promise.set_exception(failure)
        self._wake()

    async def _be_a_member(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._interrupt_entering, tasks.cancel_scope)
            tasks.start_soon(self._watch_owner)
            async with self._group:
                self.entered.set_result(None)
                await result_of(self._stop)
            tasks.cancel_scope.cancel()

    async def _watch_owner(self) -> None:
        """Leaves when nobody can take messages any more."""
        while self._owner() is not None:  # noqa: ASYNC110 -- a finalizer may run anywhere, also while locks are held
            await anyio.sleep(LOOK_S)
        log.warning("group %s: its GroupConnection was dropped without closing it; leaving", self._group.name)
        self._lanes.stop()
        self._lanes.give_up()
        self.ask_stop()

    async def _interrupt_entering(self, scope: anyio.CancelScope) -> None:
        await result_of(self._stop)
        if not self.entered.done():
            scope.cancel()


def bare(error: BaseException) -> BaseException:
    """Unwraps an exception from groups that hold only it."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error
