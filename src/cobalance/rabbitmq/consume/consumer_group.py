"""Consumes the partitions of a topic as a member of a group: each partition by exactly one process, in order."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar, Unpack, get_args, overload

from cobalance.errors import UsageError
from cobalance.faces import hides
from cobalance.group.group import Group, GroupOptions
from cobalance.limits import check_kind
from cobalance.member.events import ResourcesDeclared
from cobalance.rabbitmq.consume.consumer_options import Ack, ConsumerOptions, check_known
from cobalance.rabbitmq.consume.dead_letter_sender import DeadLetterSender
from cobalance.rabbitmq.consume.discovery import Discovery
from cobalance.rabbitmq.consume.failure_policy import FailurePolicy, OnError
from cobalance.rabbitmq.consume.fencing import Fence, Fencing
from cobalance.rabbitmq.consume.handlers import check_handler
from cobalance.rabbitmq.consume.handling import Handling
from cobalance.rabbitmq.consume.key_settings import KeySettings
from cobalance.rabbitmq.consume.known_queues import QueueRules
from cobalance.rabbitmq.consume.metering import Metering
from cobalance.rabbitmq.consume.one_broker import OneBroker
from cobalance.rabbitmq.consume.partition_worker import PartitionWorker
from cobalance.rabbitmq.consume.partitions import Consuming, Partitions
from cobalance.rabbitmq.consume.subscription import Subscription
from cobalance.rabbitmq.consume.workers import Workers
from cobalance.rabbitmq.model.retries import Retries
from cobalance.rabbitmq.model.stream_settings import StreamSettings
from cobalance.rabbitmq.options import check_options, checked_source
from cobalance.rabbitmq.partition.delivery import Delivery
from cobalance.rabbitmq.topics.other_groups import LOOK_EVERY, OtherGroups
from cobalance.rabbitmq.wire.address import DEFAULT_AMQP_URL
from cobalance.rabbitmq.wire.presence import is_there
from cobalance.threads.worker_threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cobalance.rabbitmq.consume.consumer_options import ConsumerSource
    from cobalance.rabbitmq.consume.failure_reports import OnFailure
    from cobalance.rabbitmq.consume.handlers import BatchHandler, Handler
    from cobalance.rabbitmq.consume.key_settings import KeyOf, Order
    from cobalance.rabbitmq.consume.metering import Meter, Send
    from cobalance.rabbitmq.model.batches import Batch
    from cobalance.rabbitmq.model.stream_settings import Start

log = logging.getLogger("cobalance.rabbitmq")

T = TypeVar("T")


@hides("partitions")
class ConsumerGroup(Group):
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
            giving it up to a member that may be connected; for a partition granted meanwhile, a tenth of that. It goes on
            until a message was acknowledged, or a connection has lasted for two sessions (`session_timeout_ms`). The
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

    _reads_streams = True

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
            checked_source(source),
            amqp_url,
            management_url,
            lambda exchange: is_there(self.partitions.connection, exchange),
        )
        self._crash_detection = crash_detection
        manual = _checked("ack", ack, ("auto", "manual")) == "manual"
        _checked("on_error", on_error, get_args(OnError))
        consuming = Consuming(
            amqp_url=amqp_url,
            prefetch=prefetch,
            ack_every=ack_every,
            ack_interval_ms=ack_interval_ms,
            manual=manual,
            batch=batch,
            max_in_flight=max_in_flight,
            max_in_flight_per_partition=max_in_flight_per_partition,
            unconnected_ms=unconnected_ms,
            streams=streams or StreamSettings(),
        )
        retries = retries if isinstance(retries, Retries) else Retries(retries)
        workers, metering = Workers(), None
        send: Send = DeadLetterSender(amqp_url).send
        meters = [it for it in (metrics, telemetry) if it is not None]
        if meters:  # without, handler and send are left as they are
            check_handler(handler)
            metering = Metering(meters, self, workers.can_acknowledge, manual=manual)
            handler, send = metering.metered(handler), metering.counted(send)
        policy = FailurePolicy(
            self.name,
            manual=manual,
            retries=retries,
            on_error=on_error,
            on_failure=on_failure,
            log_exceptions=self.membership.tasks.log_exceptions,
            most_ms=self.membership.own.max_processing_ms,
            send=send,
            in_thread=self.membership.tasks.in_thread,
            forsake=self.membership.stopping.forsake,
        )
        keys = KeySettings.of(order, concurrency, key, retries, on_error, batched=batch is not None)
        handling = Handling(handler, manual=manual, batch=batch, policy=policy)
        _check_room(
            batch,
            prefetch=prefetch,
            max_in_flight=max_in_flight,
            max_in_flight_per_partition=max_in_flight_per_partition,
        )
        rules = QueueRules(
            require_guard=require_guard,
            parks=retries.parks,
            dead_letters=on_error == "dead_letter",
            stream_lock=consuming.streams.lock,
            reads_as_stream=lambda queue: self._reads_streams and queue.kind == "stream",
        )
        self.partitions = Partitions(
            self.membership,
            consuming,
            workers,
            rules=rules,
            describes=self._subscribed.describes,
            handling=handling,
            policy=policy,
            keys=keys,
            metering=metering,
        )

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
        worker, metering = self._worker_of(delivery), self.partitions.metering
        counts = metering is not None and self.partitions.workers.can_acknowledge(delivery)
        with _as_usage_error():
            if worker is not None:
                worker.done(delivery)
        if metering is not None and counts:
            metering.settled(delivery, "acked")

    def reject(self, delivery: Delivery) -> None:
        """Gives a message up (``ack="manual"``): it goes to the queue's dead-letter target; from any thread.

        It is acknowledged once RabbitMQ has confirmed that. If it cannot be sent there, it stays, and its partition is
        given up, as with ``on_error="pause"``. Once the partition is no longer this member's, nothing is done, as by `ack`.

        Raises:
            UsageError: its queue has no dead-letter target, or it was settled before.
        """
        worker = self._worker_of(delivery)
        with _as_usage_error():
            if worker is not None:
                self.partitions.policy.reject(delivery, worker)

    async def seek(self, stream: str, start: Start) -> None:
        """Continues reading a stream from elsewhere: ``"first"``, ``"last"``, ``"next"``, an offset or a time.

        This moves the position of the current tenure, not the committed offset, which never falls: after a seek back,
        messages are read again, and the offset is committed again once the position has passed it; a handover or a
        crash before that resumes after the committed one. To move it for good, use ``cobalance group reset-offsets``. A
        seek forward skips messages, and that is committed. Messages handed out before and not acknowledged yet
        (``ack="manual"``) are forgotten.

        Raises:
            NotHeld: this member does not hold the stream.
            UsageError: it is a queue, or the start is invalid. Where only RabbitMQ can say that it is a queue, and has
                not said so yet, this is a warning in the log instead.
        """
        self.membership.check_process()
        self.partitions.streams.seek(stream, start)

    def _worker_of(self, delivery: Delivery) -> PartitionWorker | None:
        """None if its tenure is over: the message is redelivered."""
        if not self.partitions.manual:
            raise UsageError(
                "each message is acknowledged when its handler returns: give ack='manual' to do that elsewhere"
            )
        self.membership.check_process()
        check_kind("what is acknowledged", delivery, Delivery)
        if self.membership.is_open and self.membership.over.is_set():
            raise UsageError(
                f"this member has left group {self.name!r}, so a message that was not acknowledged before comes again: acknowledge "
                f"while the group runs; a longer drain_timeout_ms gives more time to"
            )
        worker = self.partitions.workers.get(delivery.queue)
        if worker is None and delivery.queue not in self.partitions.queues:
            raise UsageError(f"a message of {delivery.queue!r} is not of this group: settle it where it was handed out")
        return worker

    # -- opening and closing -------------------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        queues, link = self.partitions.queues, self.partitions.link
        queues.enter(await self._patience.call(lambda: in_thread(self._subscribed.find)), self._subscribed, self.name)
        await link.open(self._patience, self.settings.session_timeout_ms)
        if self._crash_detection:
            link.detect_crashes(self.settings.session_timeout_ms, guarded=queues.are_guarded)
        self._one_broker = OneBroker(self.membership, link.place)
        await in_thread(self._one_broker.check)
        self._others = OtherGroups(self.membership.coordinator, link.place.written)
        await in_thread(lambda: self._others.warn(queues.among(queues.names)))
        # What changes by itself is declared by the member elected to look for it, and by who has just found it, so that a
        # group begins at once; the rest, by every member.
        self._subscription = self._subscribed.id
        self._resources = queues.names if self._subscribed.is_certain else None

    async def _enter_group(self) -> None:
        tasks, coordinator = self.membership.tasks, self.membership.coordinator
        queues, pause_ms = self.partitions.queues, LOOK_EVERY * self._refresh_ms
        tasks.start_service(self._others.watch, lambda: queues.among(self.tenures), pause_ms)
        if self._subscribed.changes:
            tasks.start_service(self._discovery().run)
        if self._management_url is not None:
            fence = Fence(coordinator, self._amqp_url, self._management_url)
            self.partitions.fencing = Fencing(fence, self.settings.session_timeout_ms)
            tasks.start_service(self.partitions.fencing.run)
        await super()._enter_group()
        tasks.start_service(self._one_broker.watch, pause_ms)
        tasks.start_service(self.partitions.link.try_again)

    def _discovery(self) -> Discovery:
        engine, coordinator = self.membership.engine, self.membership.coordinator
        return Discovery(
            self._subscribed,
            coordinator,
            refresh_ms=self._refresh_ms,
            head=lambda: engine.session.member if engine.session.is_head else None,
            is_connected=lambda: self.partitions.connection.is_open,
            declare=lambda names, version: engine.post(ResourcesDeclared(version, names)),
            step_down=lambda: coordinator.step_down(engine.session.member),
        )

    async def _release_servers(self) -> None:
        await self.partitions.link.close()


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
