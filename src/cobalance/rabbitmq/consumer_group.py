"""Consumes the partitions of a topic as a member of a group: each partition by exactly one process, in order."""

from __future__ import annotations

import inspect
import logging
import threading
from typing import TYPE_CHECKING, Any, Literal

import anyio
import anyio.to_thread

from cobalance.errors import CobalanceError, UsageError
from cobalance.group import Group
from cobalance.names import validate_name
from cobalance.rabbitmq.broker import learn_queue, read_topic, verify_topic
from cobalance.rabbitmq.connection import BrokerConnection
from cobalance.rabbitmq.failures import unguarded
from cobalance.rabbitmq.partition import PartitionConsumer
from cobalance.rabbitmq.partition_worker import PartitionWorker
from cobalance.rabbitmq.queues import Guard, Queue
from cobalance.rabbitmq.topic import Topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from cobalance.events import Event
    from cobalance.rabbitmq.delivery import Delivery
    from cobalance.rabbitmq.partition import Event as ConsumerEvent
    from cobalance.tenure import Tenure

    Handler = Callable[[Delivery], Awaitable[None]] | Callable[[Delivery], None]

log = logging.getLogger("cobalance.rabbitmq")

FIRST_RECONNECT_MS, LAST_RECONNECT_MS = 50, 5_000


class ConsumerGroup(Group):
    """Membership in a consumer group, for the length of an ``async with``.

    The handler gets one :class:`Delivery` after another, in order within a partition, concurrently across partitions. An
    ``async def`` runs on the event loop, a plain function in a thread of its own per partition. When it returns, the
    message is acknowledged (in batches); with ``ack="manual"`` the handler, or whoever it passes the delivery to, calls
    :meth:`ack` or :meth:`reject`.

    An exception in the handler is retried in place, so that order holds; after ``retries`` of them it ends the
    ``async with`` (``on_error="raise"``), or the message goes to the queue's dead-letter target (``on_error="dead_letter"``).

    Args:
        name: of the group.
        source: a :class:`Topic`, a topic's name, or queues that exist (names, or :class:`Queue` declarations).
        handler: what to do with a message. Delivery is at least once: after a crash or a forced move, messages that were not
            acknowledged come again, with a higher token.
        amqp_url: ``amqp://user:password@host:port/vhost``, or ``amqps://``.
        prefetch: how many unacknowledged messages RabbitMQ sends ahead, per partition.
        ack_every, ack_interval_ms: acks leave when so many messages are finished, or so much later.
        require_guard: refuse queues on which RabbitMQ would serve two consumers at a time.
        group_options: see :class:`Group`.

    Raises:
        CobalanceError: on entering, when a server cannot be used or a queue is not as expected.
    """

    def __init__(
        self,
        name: str,
        source: Topic | str | Iterable[str | Queue],
        handler: Handler,
        *,
        amqp_url: str = "amqp://guest:guest@127.0.0.1:5672/%2F",
        prefetch: int = 100,
        ack: Literal["auto", "manual"] = "auto",
        ack_every: int = 50,
        ack_interval_ms: float = 50.0,
        retries: int = 3,
        on_error: Literal["raise", "dead_letter"] = "raise",
        require_guard: bool = True,
        **group_options: Any,
    ) -> None:
        super().__init__(name, **group_options)
        self._source, self._handler, self._amqp_url = source, handler, amqp_url
        self._prefetch, self._ack_every, self._ack_interval_ms = prefetch, ack_every, ack_interval_ms
        self._manual = _checked("ack", ack, ("auto", "manual")) == "manual"
        self._retries = retries
        self._dead_letter = _checked("on_error", on_error, ("raise", "dead_letter")) == "dead_letter"
        self._require_guard = require_guard
        self._handles_in_thread = not _is_async(handler)
        self._limiter: anyio.CapacityLimiter
        self._queues: dict[str, Queue] = {}
        self._workers: dict[str, PartitionWorker] = {}
        self.connection: BrokerConnection

    # -- the user's side -----------------------------------------------------------------------------------------------

    def ack(self, delivery: Delivery) -> None:
        """The message was processed (``ack="manual"``); from any thread, in any order within a partition."""
        self._worker_of(delivery).done(delivery)

    def reject(self, delivery: Delivery) -> None:
        """The message is given up (``ack="manual"``): the queue's dead-letter target gets it."""
        self._worker_of(delivery).reject(delivery)

    def _worker_of(self, delivery: Delivery) -> PartitionWorker:
        return self._workers[delivery.queue]

    # -- opening and closing -------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        queues = await anyio.to_thread.run_sync(self._find_queues)
        self._queues = {queue.name: queue for queue in queues}
        self._check_queues()
        self._limiter = anyio.CapacityLimiter(max(1, len(queues)))
        self._connected = anyio.Event()
        self.connection = BrokerConnection(
            self._amqp_url,
            f"{self.name}/{self._engine.session.name}",
            heartbeat_s=max(1, self.settings.session_timeout_ms // 3_000),
            on_lost=self._connection_lost,
        )
        await anyio.to_thread.run_sync(self.connection.connect)
        self._connected.set()
        self._resources = tuple(self._queues)

    def _find_queues(self) -> list[Queue]:
        source = self._source
        if isinstance(source, str):
            source = read_topic(self._amqp_url, source)
        if isinstance(source, Topic):
            verify_topic(self._amqp_url, source)
            return list(source.queues)
        return [it if isinstance(it, Queue) else learn_queue(self._amqp_url, it) for it in source]

    def _check_queues(self) -> None:
        if not self._queues:
            raise UsageError(f"group {self.name!r} was given no queues: name a topic, or at least one queue")
        for queue in self._queues.values():
            validate_name("queue", queue.name)
            if self._require_guard and queue.guard is Guard.NONE:
                raise unguarded(queue)
            if self._dead_letter and "x-dead-letter-exchange" not in queue.arguments:
                raise UsageError(
                    f"queue {queue.name!r} has no dead-letter target, so messages given up would be lost: "
                    f"declare one, or use on_error='raise'"
                )

    async def _release_servers(self) -> None:
        await anyio.to_thread.run_sync(self.connection.close)

    # -- the connection ------------------------------------------------------------------------------------------------

    def _connection_lost(self, reason: str) -> None:  # on the I/O thread
        log.warning("group %s: lost RabbitMQ at %s (%s); connecting again", self.name, self.connection.place, reason)
        self._commands.append(self._start_reconnecting)
        self._wakeup.notify()

    def _start_reconnecting(self) -> None:
        self._connected = anyio.Event()
        self._tasks.start_soon(self._reconnect)

    async def _reconnect(self) -> None:
        with self._service_scope():
            delay_ms = FIRST_RECONNECT_MS
            while True:
                await anyio.sleep(delay_ms / 1000)
                try:
                    await anyio.to_thread.run_sync(self.connection.connect)
                except CobalanceError as error:
                    log.warning("group %s: %s; trying again", self.name, error)
                    delay_ms = min(2 * delay_ms, LAST_RECONNECT_MS)
                else:
                    self._connected.set()
                    return

    async def wait_connected(self) -> None:
        """Returns once there is a connection to RabbitMQ."""
        await self._connected.wait()

    # -- working -------------------------------------------------------------------------------------------------------

    def _make_worker(self, tenure: Tenure) -> PartitionWorker:
        worker = self._workers[tenure.resource] = PartitionWorker(tenure, self._queues[tenure.resource], self)
        return worker

    def consumer(
        self,
        queue: Queue,
        token: int,
        on_ready: Callable[[], None],
        on_event: Callable[[ConsumerEvent], None],
    ) -> PartitionConsumer:
        """A consumer for one tenure, on the present connection."""
        return PartitionConsumer(
            self.connection,
            queue,
            token=token,
            on_ready=on_ready,
            on_event=on_event,
            prefetch=self._prefetch,
            ack_every=self._ack_every,
            ack_interval_ms=self._ack_interval_ms,
            require_guard=self._require_guard,
        )

    def post(self, event: Event) -> None:
        """To the session."""
        self._engine.post(event)

    async def handle(self, deliveries: Sequence[Delivery], worker: PartitionWorker) -> int:
        """Has them handled in order, as far as the worker goes on; returns how many were begun."""
        if self._handles_in_thread:
            return await anyio.to_thread.run_sync(
                self._handle_in_thread, deliveries, worker, abandon_on_cancel=True, limiter=self._limiter
            )
        for begun, delivery in enumerate(deliveries):
            if not worker.begin():
                return begun
            await self._handle_one(delivery, worker)
        return len(deliveries)

    async def _handle_one(self, delivery: Delivery, worker: PartitionWorker) -> None:
        failures = 0
        while True:
            try:
                await self._handler(delivery)  # type: ignore[misc]
            except Exception as error:  # noqa: BLE001 -- whatever a handler raises is a failure of its message
                failures += 1
                if not self._may_retry(delivery, failures, error):
                    worker.reject(delivery)
                    return
                await anyio.sleep(_retry_delay_s(failures))
            else:
                if not self._manual:
                    worker.done(delivery)
                return

    def _handle_in_thread(self, deliveries: Sequence[Delivery], worker: PartitionWorker) -> int:
        for begun, delivery in enumerate(deliveries):
            if not worker.begin():
                return begun
            self._handle_one_in_thread(delivery, worker)
        return len(deliveries)

    def _handle_one_in_thread(self, delivery: Delivery, worker: PartitionWorker) -> None:
        failures = 0
        while True:
            try:
                self._handler(delivery)
            except Exception as error:  # noqa: BLE001 -- whatever a handler raises is a failure of its message
                failures += 1
                if not self._may_retry(delivery, failures, error):
                    worker.reject(delivery)
                    return
                threading.Event().wait(_retry_delay_s(failures))
            else:
                if not self._manual:
                    worker.done(delivery)
                return

    def _may_retry(self, delivery: Delivery, failures: int, error: Exception) -> bool:
        """True to try again, False to give the message up.

        Raises:
            Exception: the handler's own, when failing is to end the membership.
        """
        if failures <= self._retries:
            log.warning(
                "group %s: a message of %s failed (%s); trying it again", self.name, delivery.queue, _kind(error)
            )
            return True
        if not self._dead_letter:
            raise error
        log.error(
            "group %s: gave up on a message of %s after %d tries (%s)",
            self.name,
            delivery.queue,
            failures,
            _kind(error),
        )
        return False


def _checked(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise UsageError(f"{name} is {value!r}: give one of {', '.join(map(repr, allowed))}")
    return value


def _is_async(handler: object) -> bool:
    """A coroutine function, or an object that is called like one."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


def _kind(error: Exception) -> str:
    """Errors of handlers may quote messages, so the log names their type only."""
    return type(error).__name__


def _retry_delay_s(failures: int) -> float:
    return min(0.1 * 2.0 ** (failures - 1), 5.0)
