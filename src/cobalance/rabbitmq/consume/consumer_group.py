"""Consumes the partitions of a topic as a member of a group: each partition by exactly one process, in order."""

from __future__ import annotations

import logging
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, get_args, overload

from cobalance.coordinator.in_flight import written
from cobalance.errors import CobalanceError, UsageError
from cobalance.faces import hides
from cobalance.group.clock import monotonic_ms
from cobalance.group.group import GroupOptions
from cobalance.limits import check_kind
from cobalance.member.events import ResourcesDeclared
from cobalance.rabbitmq.consume.by_key import ByKey
from cobalance.rabbitmq.consume.channel_loss import GRANTED_UNCONNECTED, STILL_UNCONNECTED
from cobalance.rabbitmq.consume.consumer_options import Ack, ConsumerOptions, check_known
from cobalance.rabbitmq.consume.crash_detection import CrashDetection, is_possible
from cobalance.rabbitmq.consume.dead_letter_sender import DeadLetterSender
from cobalance.rabbitmq.consume.discovery import Discovery
from cobalance.rabbitmq.consume.failure_policy import FailurePolicy, OnError
from cobalance.rabbitmq.consume.fencing import Fence, Fencing
from cobalance.rabbitmq.consume.handlers import check_handler
from cobalance.rabbitmq.consume.handling import Handling
from cobalance.rabbitmq.consume.key_settings import KeySettings
from cobalance.rabbitmq.consume.known_queues import KnownQueues, QueueRules
from cobalance.rabbitmq.consume.last_tries import SentAhead
from cobalance.rabbitmq.consume.metering import Metering
from cobalance.rabbitmq.consume.partition_worker import PartitionWorker
from cobalance.rabbitmq.consume.queue_warnings import warn_of_loss
from cobalance.rabbitmq.consume.refused_replies import follow_refusal
from cobalance.rabbitmq.consume.stream_worker import StreamWorker
from cobalance.rabbitmq.consume.streaming import Streaming
from cobalance.rabbitmq.consume.subscription import Subscription
from cobalance.rabbitmq.consume.unknown_queue import UnknownQueueWorker
from cobalance.rabbitmq.consume.workers import Workers
from cobalance.rabbitmq.model.queues import Queue
from cobalance.rabbitmq.model.retries import Retries
from cobalance.rabbitmq.model.stream_settings import StreamSettings
from cobalance.rabbitmq.options import check_options, checked_source
from cobalance.rabbitmq.partition.delivery import Delivery
from cobalance.rabbitmq.partition.in_flight import Share
from cobalance.rabbitmq.partition.partition import PartitionConsumer
from cobalance.rabbitmq.partition.replies import Replies, Reply
from cobalance.rabbitmq.topics.other_groups import LOOK_EVERY, OtherGroups
from cobalance.rabbitmq.wire.address import DEFAULT_AMQP_URL, virtual_host
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.presence import is_there
from cobalance.rabbitmq.wire.reconnection import Reconnection
from cobalance.threads.room import Room
from cobalance.threads.worker_threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from cobalance.group.assignment import Assignment
    from cobalance.group.tenure import Tenure
    from cobalance.group.worker import Worker
    from cobalance.member.events import Event
    from cobalance.rabbitmq.consume.consumer_options import ConsumerSource
    from cobalance.rabbitmq.consume.failure_reports import OnFailure
    from cobalance.rabbitmq.consume.handlers import BatchHandler, Handler
    from cobalance.rabbitmq.consume.key_settings import KeyOf, Order
    from cobalance.rabbitmq.consume.metering import Meter, Send, Step
    from cobalance.rabbitmq.consume.slot import Slot
    from cobalance.rabbitmq.model.batches import Batch
    from cobalance.rabbitmq.partition.partition import PartitionEvent

log = logging.getLogger("cobalance.rabbitmq")

T = TypeVar("T")


@hides(
    "by_key",
    "consumer",
    "end_soon",
    "follow_refusal",
    "handle",
    "is_stream",
    "is_sure",
    "moved",
    "offsets_known",
    "post",
    "prefetch_of",
    "read_again",
    "reply",
    "share",
    "start_soon",
    "stream_consumer",
)  # used by workers
@hides("batch", "commit_tenure", "connection", "key_prefix", "manual", "own", "unconnected_ms", "wait_connected")
class ConsumerGroup(Streaming):
    """Membership in a consumer group, for the length of an ``async with``.

    The handler gets one :class:`Delivery` after another, in order within a partition, concurrently across partitions.
    An ``async def`` runs on the event loop; a plain function runs in a thread of its own per partition, and if its
    result is awaitable, it is awaited. When the handler has ended and returned None, the message is acknowledged (in
    batches). Any other result is an :class:`UnexpectedResult`, a failure of that message that is not retried in place.
    With ``ack="manual"``, the handler, or whatever it passes the delivery to, calls :meth:`ack` or :meth:`reject`. What
    is settled stays so, even if the handler then fails: that is logged, and only what is not settled is tried again.

    A message fails if its handler raises, or runs for longer than ``max_processing_ms``. It is retried in place, so
    that order holds. After ``retries`` more failures, ``on_error`` decides:

    - ``"pause"``, the default: the partition is given up, with the message first in it. Another member tries it; if
      that fails, too, the partition is assigned to no one, for pauses that double up to five minutes, and is then
      retried automatically. An :class:`UnexpectedResult` halts the partition, since a retry would not help.
    - ``"dead_letter"``: the message goes to the queue's dead-letter target, and the next one is begun.
    - ``"halt"``: no member works the partition before ``cobalance group resume``.
    - ``"raise"``: the exception ends the ``async with``.

    Why ``"pause"``: a failure is mostly one bad message, or a database that is down. Pausing loses nothing and keeps
    order; one bad message stops one partition and no process; and when the database is back, work resumes without
    intervention. With ``"raise"`` one message ends every process in turn, with ``"halt"`` a short outage waits for an
    operator, and with ``"dead_letter"`` a long one moves everything to the dead letters.

    Args:
        name: the group's name.
        source: a :class:`Topic`, or a topic's name; or a list of any mix of topics and existing queues: names,
            :class:`Queue` declarations, or :class:`BoundQueues` or :class:`MatchingQueues`, which are looked for as
            long as the group lives. Members of one group may be given different sources, such as during a rolling
            update: each works only what it was given, and everything is worked by a member that was given it, as evenly
            as that allows.
        handler: processes a message. Delivery is at least once: after a crash or a forced move, unacknowledged messages
            are redelivered, with a higher token.
        amqp_url: ``amqp://user:password@host:port/vhost``, or ``amqps://``.
        management_url: RabbitMQ's management API (``http://user:password@host:15672``), needed for :class:`BoundQueues`
            and :class:`MatchingQueues`; by default on the AMQP URL's hosts, with its user and password. If it is given,
            a member that is granted something also has the connections of members with an expired session closed, so
            that no one waits for a frozen process.
        refresh_ms: how often one of the members with the same source looks for queues, and checks whether the topic was
            grown.
        prefetch: how many unacknowledged messages RabbitMQ sends ahead, per partition; no more than half of a quorum
            queue's delivery limit.
        batch: call the handler with lists of messages; see :class:`Batch`.
        retries: a number, or :class:`Retries`: how often and how soon, and whether the partition waits or only the
            message.
        on_error: what to do once the retries are used up; see above. A dead letter's headers say why it is one:
            ``x-cobalance-error`` (type and text), ``x-cobalance-queue``, ``x-cobalance-group`` and
            ``x-cobalance-failures``. ``cobalance deadletters TOPIC`` shows and replays them.
        on_failure: ``on_failure(delivery, error)`` is called after each failure, a plain function in a thread; for a
            batch, with each of its messages. What it raises is logged. It has as long as a handler, and costs its partition
            if it does not end.
        order: ``"partition"``, or ``"key"``: then messages with different keys are handled side by side, within and across
            partitions, and those of one key one after another. A failed message holds up its own key only; the others
            go on. When a partition is asked back, only what was begun is waited for. In a stream, the offset of the last
            message is committed before which all are finished; what was finished beyond it is repeated by the next
            holder, if the stream moves before it is reached. A plain function runs in several threads.
        concurrency: with ``order="key"``, how many handlers run side by side in this process; 64 by default.
        key: with ``order="key"``, ``key(delivery)`` returns what order is kept by. By default it is the key that the
            message was published with (:attr:`Delivery.key`); messages without one share their routing key, which is
            the whole partition in a :class:`Topic`.
        max_in_flight: the most messages in this process that a handler has begun and that are not finished; others wait
            their turn.
        max_in_flight_per_partition: the same within a partition; it matters with ``ack="manual"``.
        ack_every, ack_interval_ms: send acks after this many finished messages, or after this time.
        require_guard: refuse queues on which RabbitMQ would serve two consumers at a time. Streams are read by offset
            under fencing tokens instead; they have a guard with ``streams=StreamSettings(lock=True)``.
        unconnected_ms: how long a member that has lost RabbitMQ, but not Redis, keeps a partition unworked before
            giving it up to a member that may be connected; for a partition granted meanwhile, a tenth of that. The
            default is longer than RabbitMQ takes to restart, for which all members wait alike, so that nothing moves.
            None: forever.
        crash_detection: notice a killed process within milliseconds, and give its partitions to others at once, if RabbitMQ
            guards all of them. Otherwise, or without, that takes until its session ends.
        streams: where streams start, and when their offsets are committed; see :class:`StreamSettings`.
        metrics: counts what the handler does; see :class:`cobalance.operate.ProcessMetrics`.
        telemetry: traces what the handler does; see :class:`cobalance.operate.Telemetry`.
        group_options: see :class:`Group`.

    Raises:
        CobalanceError: on entering, if a server cannot be used or a queue is not as expected.
    """

    _metering: Metering | None = None

    @overload
    def __init__(
        self,
        name: str,
        source: ConsumerSource,
        handler: Handler,
        *,
        batch: None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self,
        name: str,
        source: ConsumerSource,
        handler: BatchHandler,
        *,
        batch: Batch,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    def __init__(
        self,
        name: str,
        source: ConsumerSource,
        handler: Handler | BatchHandler,
        *,
        amqp_url: str = DEFAULT_AMQP_URL,
        management_url: str | None = None,
        refresh_ms: int = 5_000,
        prefetch: int = 100,
        ack: Ack = "auto",
        ack_every: int = 50,
        ack_interval_ms: float = 50.0,
        batch: Batch | None = None,
        retries: int | Retries = 3,
        on_error: OnError = "pause",
        on_failure: OnFailure | None = None,
        order: Order = "partition",
        concurrency: int | None = None,
        key: KeyOf | None = None,
        max_in_flight: int | None = None,
        max_in_flight_per_partition: int | None = None,
        require_guard: bool = True,
        unconnected_ms: int | None = 300_000,
        crash_detection: bool = True,
        streams: StreamSettings | None = None,
        metrics: Meter | None = None,
        telemetry: Meter | None = None,
        **group_options: Unpack[GroupOptions],
    ) -> None:
        check_known(group_options)
        check_options({name: value for name, value in locals().items() if name != "name"})
        super().__init__(name, **group_options)
        self._amqp_url, self._management_url, self._refresh_ms = amqp_url, management_url, refresh_ms
        self._subscribed = Subscription(
            checked_source(source), amqp_url, management_url, lambda exchange: is_there(self.connection, exchange)
        )
        self._fencing: Fencing | None = None
        self._crashes: CrashDetection | None = None
        self._prefetch, self._sent_ahead = prefetch, SentAhead(name)
        self._ack_every, self._ack_interval_ms = ack_every, ack_interval_ms
        self.manual = _checked("ack", ack, ("auto", "manual")) == "manual"
        dead_letters = _checked("on_error", on_error, get_args(OnError)) == "dead_letter"
        self._crash_detection = crash_detection
        self.unconnected_ms = unconnected_ms
        self._streams = streams or StreamSettings()
        self.batch = batch
        self._retries = retries if isinstance(retries, Retries) else Retries(retries)
        handler, send = self._metered((metrics, telemetry), handler, DeadLetterSender(amqp_url).send)
        self._policy = FailurePolicy(
            self.name,
            manual=self.manual,
            retries=self._retries,
            on_error=on_error,
            on_failure=on_failure,
            log_exceptions=self.membership.tasks.log_exceptions,
            most_ms=self.membership.own.max_processing_ms,
            send=send,
            in_thread=self.membership.tasks.in_thread,
            forsake=self.membership.stopping.forsake,
        )
        self._keys = KeySettings.of(order, concurrency, key, self._retries, on_error, batched=batch is not None)
        self._places = Room(self._keys.concurrency)
        self._handling = Handling(handler, manual=self.manual, batch=batch, policy=self._policy)
        _check_room(
            batch,
            prefetch=prefetch,
            max_in_flight=max_in_flight,
            max_in_flight_per_partition=max_in_flight_per_partition,
        )
        self._per_partition = max_in_flight_per_partition
        self._room = None if max_in_flight is None else Room(max_in_flight)
        rules = QueueRules(
            require_guard=require_guard,
            parks=self._retries.parks,
            dead_letters=dead_letters,
            stream_lock=self._streams.lock,
            reads_as_stream=self._reads_as_stream,
        )
        self._queues = KnownQueues(amqp_url, rules, self._queue_read)
        self._workers = Workers()
        """Of tenures that are not over: a worker holds whatever its channel and its handlers left behind."""
        self.connection: BrokerConnection
        self._hook()

    def _hook(self) -> None:
        self.own, self.key_prefix = self.membership.own, self._key_prefix
        hooks = self.membership.hooks
        hooks.make_worker, hooks.concluded, hooks.moved = self._make_worker, self._concluded, self.moved
        hooks.in_flight, hooks.commit = self._in_flight, self.commit_tenure

    # -- the user's side -----------------------------------------------------------------------------------------------

    def ack(self, delivery: Delivery) -> None:
        """Acknowledges a processed message (``ack="manual"``); from any thread, in any order within a partition.

        RabbitMQ is told once everything before it in its partition is settled, or when the partition is released. So
        the next holder gets exactly the unacknowledged messages, in order; after a crash or a lost connection, also
        those behind the first of them. In a stream, one offset is committed: everything from the first unacknowledged
        message on is read again. Once the partition is no longer this member's, nothing is done: the message comes again.

        Raises:
            UsageError: it was settled before, or this member has left.
        """
        self._check_manual()
        worker, counts = self._worker_of(delivery), self._metering is not None and self._can_acknowledge(delivery)
        with _as_usage_error():
            if worker is not None:
                worker.done(delivery)
        if self._metering is not None and counts:
            self._metering.settled(delivery, "acked")

    def reject(self, delivery: Delivery) -> None:
        """Gives a message up (``ack="manual"``): it goes to the queue's dead-letter target; from any thread.

        It is acknowledged once RabbitMQ has confirmed that. If it cannot be sent there, it stays, and its partition is
        given up, as with ``on_error="pause"``. Once the partition is no longer this member's, nothing is done, as by `ack`.

        Raises:
            UsageError: its queue has no dead-letter target, or it was settled before.
        """
        self._check_manual()
        worker = self._worker_of(delivery)
        with _as_usage_error():
            if worker is not None:
                self._policy.reject(delivery, worker)

    def _metered(self, given: Iterable[Meter | None], handler: Any, send: Send) -> tuple[Any, Send]:
        """Both are left as they are without a meter."""
        meters = [it for it in given if it is not None]
        if not meters:
            return handler, send
        check_handler(handler)
        self._metering = Metering(meters, self, self._can_acknowledge, manual=self.manual)
        return self._metering.metered(handler), self._metering.counted(send)

    def _can_acknowledge(self, delivery: Delivery) -> bool:
        worker = self._workers.get(delivery.queue)
        return worker is not None and worker.can_acknowledge(delivery)

    def _check_manual(self) -> None:
        if not self.manual:
            raise UsageError(
                "each message is acknowledged when its handler returns: give ack='manual' to do that elsewhere"
            )

    def _worker_of(self, delivery: Delivery) -> PartitionWorker | None:
        """None if its tenure is over: the message is redelivered."""
        self.membership.check_process()
        check_kind("what is acknowledged", delivery, Delivery)
        if self.membership.is_open and self.membership.has_left:
            raise UsageError(
                f"this member has left group {self.name!r}, so a message that was not acknowledged before comes again: acknowledge "
                f"while the group runs; a longer drain_timeout_ms gives more time to"
            )
        worker = self._workers.get(delivery.queue)
        if worker is None and delivery.queue not in self._queues:
            raise UsageError(f"a message of {delivery.queue!r} is not of this group: settle it where it was handed out")
        return worker

    # -- opening and closing -------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        queues = await self._patience.call(lambda: in_thread(self._subscribed.find))
        self._queues.enter(queues, self._subscribed, self.name)
        name = f"{self.name}/{self.membership.engine.session.name}"
        heartbeat_s = max(1, round(self.settings.session_timeout_ms / 3_000))
        self.connection = BrokerConnection(
            self._amqp_url,
            name,
            heartbeat_s=heartbeat_s,
            on_lost=self._connection_lost,
            on_proven=self._connection_proven,
        )
        self._replies = Replies(self.name, self._amqp_url, name, heartbeat_s=heartbeat_s)
        self._reconnection = Reconnection(self.name, self.connection, self.membership.confirm_held)
        await self._patience.call(self._reconnection.open)
        if self._crash_detection and is_possible(self.membership.coordinator):
            self._crashes = CrashDetection(
                self.membership.coordinator,
                self.membership.engine,
                self.connection,
                self._amqp_url,
                guarded=self._queues.are_guarded,
                session_timeout_ms=self.settings.session_timeout_ms,
            )
            self._crashes.connected()
            self.membership.hooks.joined.append(self._crashes.joined)
        self._others = OtherGroups(
            self.membership.coordinator, f"{self.connection.cluster}/{virtual_host(self._amqp_url)}"
        )
        await in_thread(lambda: self._others.warn(self._queues.among(self._queues.names)))
        # What changes by itself is declared by the member elected to look for it, and by who has just found it, so that a
        # group begins at once; the rest, by every member.
        self._subscription = self._subscribed.id
        self._resources = self._queues.names if self._subscribed.is_certain else None

    async def _enter_group(self) -> None:
        pause_ms = LOOK_EVERY * self._refresh_ms
        self.membership.tasks.start(
            self.membership.tasks.run_service, self._others.watch, lambda: self._queues.among(self.tenures), pause_ms
        )
        if self._subscribed.changes:
            self.membership.tasks.start(self.membership.tasks.run_service, self._discovery().run)
        if self._management_url is not None:
            fence = Fence(self.membership.coordinator, self._amqp_url, self._management_url)
            self._fencing = Fencing(fence, self.settings.session_timeout_ms)
            self.membership.tasks.start(self.membership.tasks.run_service, self._fencing.run)
        await super()._enter_group()
        self.membership.tasks.start(self.membership.tasks.run_service, self._try_again)

    def _discovery(self) -> Discovery:
        return Discovery(
            self._subscribed,
            self.membership.coordinator,
            refresh_ms=self._refresh_ms,
            head=lambda: self.membership.engine.session.member if self.membership.engine.session.is_head else None,
            is_connected=lambda: self.connection.is_open,
            declare=lambda names, version: self.post(ResourcesDeclared(version, names)),
            step_down=lambda: self.membership.coordinator.step_down(self.membership.engine.session.member),
        )

    async def _release_servers(self) -> None:
        if self._crashes is not None:
            self._crashes.end()
        if hasattr(self, "_reconnection"):
            await self._reconnection.wait_idle()
            await in_thread(self._replies.close)
            await in_thread(self.connection.close)

    # -- the connection ------------------------------------------------------------------------------------------------

    def _connection_lost(self, reason: str) -> None:  # on the I/O thread
        log.warning("group %s: lost RabbitMQ at %s (%s); connecting again", self.name, self.connection.place, reason)
        if self._crashes is not None:
            self._crashes.lost()
        self.membership.soon(self._start_reconnecting)

    def _connection_proven(self, proven: bool) -> None:  # on the I/O thread
        for worker in list(self._workers.values()):
            worker.prove(proven=proven)

    def _start_reconnecting(self) -> None:
        self._reconnection.lost()
        self.membership.tasks.start(self._reconnect)

    async def _reconnect(self) -> None:
        await self.membership.tasks.run_service(self._reconnection.run)
        if self._crashes is not None:
            self._crashes.connected()
        if self.unconnected_ms and self._reconnection.away_ms >= self.unconnected_ms // GRANTED_UNCONNECTED:
            await self.membership.tasks.run_service(self._try_again)

    async def _try_again(self) -> None:
        """What rests because nobody had RabbitMQ may be worked now: this member has."""
        await in_thread(self._resume_unconnected)

    def _resume_unconnected(self) -> None:
        with suppress(CobalanceError):  # it is tried again by itself
            resting = [it.name for it in self.membership.coordinator.resources() if it.paused_for == STILL_UNCONNECTED]
            if resting:
                self.membership.coordinator.resume(*resting)

    async def wait_connected(self) -> None:
        """Returns once RabbitMQ is connected and the coordinator has confirmed, after the last loss, what is held."""
        await self._reconnection.wait_ready()

    # -- working -------------------------------------------------------------------------------------------------------

    def _make_worker(self, tenure: Tenure) -> Worker:
        if self._fencing is not None:
            self._fencing.look()
        queue = self._queues.current(tenure.resource)
        if queue is not None:
            warn_of_loss(self.name, queue)
            return self._worker_for(tenure, queue)
        return UnknownQueueWorker(tenure, self, lambda: self._learn(tenure))

    def _learn(self, tenure: Tenure) -> Callable[[], Worker]:
        queue = self._queues.learn(tenure.resource)
        warn_of_loss(self.name, queue)
        return lambda: self._worker_for(tenure, queue)

    def _queue_read(self, queue: Queue) -> None:
        if self._crashes is not None:
            self._crashes.check_guard(guarded=self._queues.rules.is_guarded(queue))

    async def read_again(self, queue: Queue) -> Queue | None:
        """The queue as it is declared now, if it can be consumed so; None if the program describes it itself, too."""
        if self._subscribed.describes(queue.name):
            return None
        found = await in_thread(lambda: self._queues.read_again(queue))
        if found is not None:
            log.warning("group %s: queue %s was declared anew, and is consumed as it is now", self.name, queue.name)
        return found

    def _worker_for(self, tenure: Tenure, queue: Queue) -> PartitionWorker:
        worker = (
            StreamWorker(tenure, queue, self, self._streams)
            if self._reads_as_stream(queue)
            else PartitionWorker(tenure, queue, self)
        )
        self._workers[tenure.resource] = worker
        return worker

    def moved(self, resource: str, token: int, step: Step) -> None:
        """Tells meters what becomes of a tenure. Any thread."""
        if self._metering is not None:
            self._metering.moved(resource, token, step)

    def _concluded(self, it: Assignment) -> None:
        self.moved(it.resource, it.token, "ended")
        worker = self._workers.get(it.resource)
        if worker is not None and worker.tenure is it.tenure:
            del self._workers[it.resource]
            self._queues.note_end(it.resource)

    def _reads_as_stream(self, queue: Queue) -> bool:
        return queue.kind == "stream"

    def _in_flight(self) -> str:
        """Of each partition, for the engine. Unknown where its worker is yet to come."""
        workers = self._workers
        held = [it for it in self.membership.roster.everything() if it.held]
        found = [(it.resource, workers.get(it.resource), it.token) for it in held]
        named = ((name, it.in_flight if it and it.tenure.token == token else None) for name, it, token in found)
        counts = [workers.acknowledged]
        if not self.manual:  # otherwise what follows a handler's end is unknown
            counts.append(workers.occupied_ms(self._places_of(max(1, len(workers)))))
        return written(named, *counts, last_ack_ago_ms=workers.last_ack_ago_ms)

    def _places_of(self, partitions: int) -> int:
        """How many handlers can run side by side."""
        each = 1 if self.batch is None else self.batch.most
        most = [self._keys.concurrency if self._keys.shared else partitions]
        if self._room is not None:
            most.append(self._room.most // each)
        if self._per_partition is not None:
            most.append(partitions * (self._per_partition // each))
        return max(1, min(most))

    def prefetch_of(self, queue: Queue) -> int:
        """How many unacknowledged messages RabbitMQ sends ahead."""
        del queue
        return self._prefetch

    def consumer(
        self,
        queue: Queue,
        token: int,
        on_ready: Callable[[], None],
        on_event: Callable[[PartitionEvent], None],
    ) -> PartitionConsumer:
        """A consumer for one tenure, on the current connection."""
        return PartitionConsumer(
            self.connection,
            queue,
            token=token,
            on_ready=on_ready,
            on_event=on_event,
            prefetch=self._sent_ahead.bounded(queue, self.prefetch_of(queue), rabbitmq=self.connection.server_version),
            ack_every=self._ack_every,
            ack_interval_ms=self._ack_interval_ms,
            require_guard=self._queues.rules.require_guard,
            acks_ahead=self._keys.key_of is not None,
            acks_ahead_at_close=True,  # out of order: by hand, or behind a request whose reply was refused
        )

    def reply(self, reply: Reply) -> Future[bool]:
        """Sends a reply; the result is whether there was a queue for it, once confirmed. Any thread."""
        return self._replies.send(reply)

    async def follow_refusal(
        self, request: Delivery, reply: Reply, error: CobalanceError, worker: PartitionWorker
    ) -> None:
        """RabbitMQ has refused a reply: its request has failed."""
        await follow_refusal(request, reply, error, worker, policy=self._policy, send=self.reply)

    def post(self, event: Event) -> None:
        """Passes an event to the session."""
        self.membership.engine.post(event)

    def end_soon(self, error: Exception) -> None:
        """Ends the membership with this error, even if handlers are still running. Any thread."""
        self.membership.end_soon(error)

    def start_soon(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Starts a task of the program's code on the event loop. Any thread."""
        self.membership.start_soon(call)

    def by_key(self, worker: PartitionWorker) -> ByKey | None:
        """What works a partition's messages side by side; None if they are worked in order."""
        if self._keys.key_of is None:
            return None
        places = self._places if self._keys.shared else Room(1)
        most = 1 if self.batch is None else self.batch.most
        return ByKey(worker, self._serve, key_of=self._keys.key_of, places=places, most=most)

    async def _serve(self, slot: Slot) -> None:
        with self.membership.tasks.contain(), self.membership.tasks.own_code.inner_task():
            await self._handling.serve(slot, self.membership.tasks.in_thread_to_end)

    def share(self) -> Share:
        """Room for the unfinished messages of one tenure."""
        return Share(self._per_partition, self._room)

    def is_sure(self, *, guarded: bool) -> bool:
        """Whether, by our own clock, no one else can have been admitted yet.

        That is so while the session cannot have expired, or RabbitMQ guards the queue.
        """
        until = self.membership.engine.session.lease.until
        return (until is not None and monotonic_ms() < until) or (guarded and self.connection.is_proven)

    async def handle(self, deliveries: Sequence[Delivery], worker: PartitionWorker) -> int:
        """Has the messages handled in order, as long as the worker goes on; returns how many are done with."""
        with self.membership.tasks.contain():
            return await self._handling.work(deliveries, worker.slot, self.membership.tasks.in_thread_to_end)


@contextmanager
def _as_usage_error() -> Iterator[None]:
    """Converts an impossible acknowledgement to an error of the call."""
    try:
        yield
    except ValueError as error:
        raise UsageError(f"{error}: acknowledge or reject each message once") from None


def _check_room(batch: Batch | None, **limits: int | None) -> None:
    least = 1 if batch is None else batch.most
    for limit, value in limits.items():
        if value is not None and value < least:
            raise UsageError(f"{limit} is {value}, but the handler is given {least} messages at a time: raise it")


def _checked(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise UsageError(f"{name} is {value!r}: give one of {', '.join(map(repr, allowed))}")
    return value
