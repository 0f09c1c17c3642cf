"""The partitions of one member: how their messages are consumed and handled, and their workers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import attrs

from cobalance.coordinator.in_flight import written
from cobalance.group.clock import monotonic_ms
from cobalance.rabbitmq.consume.by_key import ByKey
from cobalance.rabbitmq.consume.known_queues import KnownQueues
from cobalance.rabbitmq.consume.last_tries import SentAhead
from cobalance.rabbitmq.consume.link import Link
from cobalance.rabbitmq.consume.partition_worker import PartitionWorker
from cobalance.rabbitmq.consume.queue_warnings import warn_of_declaration
from cobalance.rabbitmq.consume.stream_worker import StreamWorker
from cobalance.rabbitmq.consume.streaming import Streams
from cobalance.rabbitmq.consume.unknown_queue import UnknownQueueWorker
from cobalance.rabbitmq.partition.in_flight import Share
from cobalance.rabbitmq.partition.partition import PartitionConsumer
from cobalance.threads.room import Room
from cobalance.threads.worker_threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cobalance.group.assignment import Assignment
    from cobalance.group.membership import Membership
    from cobalance.group.tenure import Tenure
    from cobalance.group.worker import Worker
    from cobalance.rabbitmq.consume.failure_policy import FailurePolicy
    from cobalance.rabbitmq.consume.fencing import Fencing
    from cobalance.rabbitmq.consume.handling import Handling
    from cobalance.rabbitmq.consume.key_settings import KeySettings
    from cobalance.rabbitmq.consume.known_queues import QueueRules
    from cobalance.rabbitmq.consume.metering import Metering, Step
    from cobalance.rabbitmq.consume.slot import Slot
    from cobalance.rabbitmq.consume.workers import Workers
    from cobalance.rabbitmq.model.batches import Batch
    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.model.stream_settings import StreamSettings
    from cobalance.rabbitmq.partition.delivery import Delivery
    from cobalance.rabbitmq.partition.partition import PartitionEvent
    from cobalance.rabbitmq.wire.connection import BrokerConnection

log = logging.getLogger("cobalance.rabbitmq")


@attrs.frozen(kw_only=True)
class Consuming:
    """The options of :class:`cobalance.ConsumerGroup` that its partitions go by."""

    amqp_url: str
    prefetch: int
    ack_every: int
    ack_interval_ms: float
    manual: bool
    """Whether the program acknowledges messages itself."""
    batch: Batch | None
    max_in_flight: int | None
    max_in_flight_per_partition: int | None
    unconnected_ms: int | None
    streams: StreamSettings


class Partitions:
    """What the workers of partitions have in common.

    Args:
        describes: whether the program describes a queue itself.
    """

    fencing: Fencing | None = None

    def __init__(
        self,
        membership: Membership,
        consuming: Consuming,
        workers: Workers,
        *,
        rules: QueueRules,
        describes: Callable[[str], bool],
        handling: Handling,
        policy: FailurePolicy,
        keys: KeySettings,
        metering: Metering | None,
    ) -> None:
        self.membership, self.name, self.own = membership, membership.name, membership.own
        self.unconnected_ms, self.manual, self.batch = consuming.unconnected_ms, consuming.manual, consuming.batch
        self.workers, self.policy, self.metering = workers, policy, metering
        """Workers of tenures that are not over: each holds whatever its channel and its handlers left behind."""
        self.queues = KnownQueues(consuming.amqp_url, rules, self._queue_read)
        self.prefetches: Mapping[str, int] = {}
        """By queue, where that is not the same for all."""
        self.worker_for: Callable[[Tenure, Queue], PartitionWorker] = self._usual_worker
        """Makes the worker of a queue or stream."""
        self._consuming, self._handling, self._keys, self._describes = consuming, handling, keys, describes
        self._sent_ahead = SentAhead(self.name)
        self._places = Room(keys.concurrency)
        self._room = None if consuming.max_in_flight is None else Room(consuming.max_in_flight)
        self.link = Link(membership, consuming.amqp_url, consuming.unconnected_ms, self._connection_proven)
        self.streams = Streams(membership, self.link, consuming, workers)
        hooks = membership.hooks
        hooks.make_worker, hooks.concluded, hooks.moved = self._make_worker, self._concluded, self.moved
        hooks.in_flight, hooks.commit = self._in_flight, self.streams.commit

    @property
    def key_prefix(self) -> str:
        """Of the group's keys."""
        return self.membership.coordinator.key_prefix

    @property
    def scope(self) -> str:
        """What the group's queues and exchanges at RabbitMQ are named after."""
        return self.membership.coordinator.scope

    # -- their workers -------------------------------------------------------------------------------------------------

    def _make_worker(self, tenure: Tenure) -> Worker:
        if self.fencing is not None:
            self.fencing.look()
        queue = self.queues.current(tenure.resource)
        if queue is not None:
            warn_of_declaration(self.name, queue)
            return self._begin(tenure, queue)
        return UnknownQueueWorker(tenure, self, lambda: self._learn(tenure))

    def _learn(self, tenure: Tenure) -> Callable[[], Worker]:
        queue = self.queues.learn(tenure.resource)
        warn_of_declaration(self.name, queue)
        return lambda: self._begin(tenure, queue)

    def _queue_read(self, queue: Queue) -> None:
        if self.link.crashes is not None:
            self.link.crashes.check_guard(guarded=self.queues.rules.is_guarded(queue))

    def _begin(self, tenure: Tenure, queue: Queue) -> PartitionWorker:
        self.workers[tenure.resource] = worker = self.worker_for(tenure, queue)
        return worker

    def _usual_worker(self, tenure: Tenure, queue: Queue) -> PartitionWorker:
        if self.queues.rules.reads_as_stream(queue):
            return StreamWorker(tenure, queue, self, self.streams)
        return PartitionWorker(tenure, queue, self)

    def _concluded(self, it: Assignment) -> None:
        self.moved(it.resource, it.token, "ended")
        worker = self.workers.get(it.resource)
        if worker is not None and worker.tenure is it.tenure:
            del self.workers[it.resource]
            self.queues.note_end(it.resource)

    def _connection_proven(self, proven: bool) -> None:  # on the I/O thread
        for worker in list(self.workers.values()):
            worker.prove(proven=proven)

    def moved(self, resource: str, token: int, step: Step) -> None:
        """Tells meters what becomes of a tenure. Any thread."""
        if self.metering is not None:
            self.metering.moved(resource, token, step)

    def _in_flight(self) -> str:
        """Of each partition, for the engine. Unknown where its worker is yet to come."""
        workers = self.workers
        held = [it for it in self.membership.roster.everything() if it.held]
        found = [(it.resource, workers.get(it.resource), it.token) for it in held]
        named = ((name, it.in_flight if it and it.tenure.token == token else None) for name, it, token in found)
        counts = [workers.acknowledged]
        if not self.manual:  # otherwise what follows a handler's end is unknown
            counts.append(workers.occupied_ms(self._places_of(max(1, len(workers)))))
        return written(named, *counts, last_ack_ago_ms=workers.last_ack_ago_ms, place=self.link.place.written)

    def _places_of(self, partitions: int) -> int:
        """How many handlers can run side by side."""
        each = 1 if self.batch is None else self.batch.most
        most = [self._keys.concurrency if self._keys.shared else partitions]
        if self._room is not None:
            most.append(self._room.most // each)
        if self._consuming.max_in_flight_per_partition is not None:
            most.append(partitions * (self._consuming.max_in_flight_per_partition // each))
        return max(1, min(most))

    # -- for workers ---------------------------------------------------------------------------------------------------

    @property
    def connection(self) -> BrokerConnection:
        """To RabbitMQ; there is none before the member is entered."""
        return self.link.connection

    def consumer(
        self, queue: Queue, token: int, on_ready: Callable[[], None], on_event: Callable[[PartitionEvent], None]
    ) -> PartitionConsumer:
        """A consumer for one tenure, on the current connection."""
        prefetch = self.prefetch_of(queue)
        return PartitionConsumer(
            self.connection,
            queue,
            token=token,
            on_ready=on_ready,
            on_event=on_event,
            prefetch=self._sent_ahead.bounded(queue, prefetch, rabbitmq=self.connection.server_version),
            ack_every=self._consuming.ack_every,
            ack_interval_ms=self._consuming.ack_interval_ms,
            require_guard=self.queues.rules.require_guard,
            acks_ahead=self._keys.key_of is not None,
            acks_ahead_at_close=True,  # out of order: by hand, or behind a request whose reply was refused
        )

    def prefetch_of(self, queue: Queue) -> int:
        """How many messages RabbitMQ may send ahead."""
        return self.prefetches.get(queue.name, self._consuming.prefetch)

    async def handle(self, deliveries: Sequence[Delivery], worker: PartitionWorker) -> int:
        """Has the messages handled in order, as long as the worker goes on; returns how many are done with."""
        with self.membership.tasks.contain():
            return await self._handling.work(deliveries, worker.slot, self.membership.tasks.in_thread_to_end)

    def by_key(self, worker: PartitionWorker) -> ByKey | None:
        """What works a partition's messages side by side; None if they are worked in order."""
        if self._keys.key_of is None:
            return None
        places = self._places if self._keys.shared else Room(1)
        most = 1 if self.batch is None else self.batch.most
        return ByKey(worker, self._serve, key_of=self._keys.key_of, places=places, most=most)

    async def _serve(self, slot: Slot) -> None:
        tasks = self.membership.tasks
        with tasks.contain(), tasks.own_code.inner_task():
            await self._handling.serve(slot, tasks.in_thread_to_end)

    def share(self) -> Share:
        """Room for the unfinished messages of one tenure."""
        return Share(self._consuming.max_in_flight_per_partition, self._room)

    def is_sure(self, *, guarded: bool) -> bool:
        """Whether, by our own clock, no one else can have been admitted yet. Any thread.

        That is so while the session cannot have expired, or RabbitMQ guards the queue.
        """
        until = self.membership.engine.session.lease.until
        return (until is not None and monotonic_ms() < until) or (guarded and self.connection.is_proven)

    async def read_again(self, queue: Queue) -> Queue | None:
        """The queue as it is declared now; None if the program describes it itself, or it cannot be worked like that.

        Raises:
            CobalanceError: it is not there, or cannot be read.
        """
        if self._describes(queue.name):
            return None
        found = await in_thread(lambda: self.queues.read_again(queue))
        if found is not None:
            log.warning("group %s: queue %s was declared again, and is consumed as it is now", self.name, queue.name)
        return found
