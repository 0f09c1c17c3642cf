"""Runs a program written for pika's BlockingConnection, unchanged, as a member of a group.

::

    connection = GroupConnection(pika.URLParameters(url), group="orders", redis_url="redis://127.0.0.1:6379/0")

replaces ``pika.BlockingConnection(pika.URLParameters(url))``; nothing else changes. Every queue given to
``basic_consume`` becomes a resource of the group: run the program N times, and each queue is consumed by exactly one of
the processes. Callbacks run one at a time on the thread that called ``start_consuming``, as before.

What differs from pika:

- Heartbeats are sent however long a callback takes; one that runs past ``MemberSettings.max_processing_ms`` is hung and
  costs its process the queues that wait for it.
- Acknowledgements are sent in batches: a message acked before an older one of its queue is reported once that is acked,
  too, or at a handover. A program that acks late delays a handover until it has, or until the revocation timeout.
- ``basic_nack`` and ``basic_reject`` with ``requeue=True`` (pika's default) keep the order: the message is handled
  again in this process, after a pause that grows from 0.1 to 5 s, before any younger message of its queue. RabbitMQ
  itself would put it behind others.
- Without requeue, RabbitMQ dead-letters the message; while the exchange or queue that it would go to does not exist, it
  is redelivered as well.
- ``auto_ack=True``, ``consume()`` and consumer arguments are refused: unprocessed messages could be lost or reordered.
- ``tx_select`` is refused on a channel that consumes, since no transaction includes acknowledgements. Publish with
  ``confirm_delivery``, then acknowledge; a channel that does not consume has transactions, as in pika.
- A callback of ``add_on_cancel_callback`` is never called: if a queue is deleted, its partition waits for it to return.
- Tags, prefetch and consumer tags belong to a channel, as in pika; the membership is one for all channels. If one of
  them stops or is closed, the others go on under a new membership, and what they had not acknowledged is redelivered.
- A lost connection to RabbitMQ does not end ``start_consuming``: it is restored. Everything but consuming uses an
  ordinary pika connection, whose errors are pika's own.
- If an exception ends ``start_consuming`` after that ordinary connection was lost, the process leaves the group, as it
  would by closing; so a loop that connects again after an error gets its queues. A :class:`GroupConnection` that is
  dropped without closing leaves once Python has collected it; while something refers to it, it keeps its queues.
- A process killed by SIGTERM without warning is only missed after the session timeout. To leave at once, turn the
  signal into what Ctrl-C does: ``signal.signal(signal.SIGTERM, signal.default_int_handler)``.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import time
from collections import deque
from contextlib import nullcontext, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack
from urllib.parse import quote
from weakref import WeakMethod, ref

import pika
from pika import exceptions as pika_errors
from pika.connection import Parameters
from pika.spec import Basic

from cobalance.coordinator.open import DEFAULT_REDIS_URL
from cobalance.errors import Unreachable, UsageError
from cobalance.faces import hides
from cobalance.group.clock import awake_ms
from cobalance.group.health import Health
from cobalance.group.patience import with_patience
from cobalance.names import validate_name
from cobalance.rabbitmq.consume.dead_letters import words_of
from cobalance.rabbitmq.dropin.channel import BasicConsumer, GroupChannel
from cobalance.rabbitmq.dropin.lane_group import BackgroundMembership, LaneGroup
from cobalance.rabbitmq.dropin.lanes import Lanes, NextMessage
from cobalance.rabbitmq.options import check_options
from cobalance.rabbitmq.wire.address import check_amqp_url, single_urls
from cobalance.rabbitmq.wire.failures import connect_failure
from cobalance.rabbitmq.wire.parameters import connection_parameters
from cobalance.rabbitmq.wire.pika_internals import calling_back

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from cobalance.coordinator.transport import Transport
    from cobalance.group.callbacks import Listener
    from cobalance.rabbitmq.consume.metering import Meter
    from cobalance.settings import GroupSettings, MemberSettings

log = logging.getLogger("cobalance.rabbitmq")

PATIENCE_S = 1.0
"""How long to wait for something to do before checking again."""

SERVICE_S = 0.5
"""How often to service the ordinary connection between messages, for its heartbeats and timers."""


class GroupUnreachable(Unreachable, pika_errors.AMQPConnectionError):
    """A server of the group is unreachable. Also a pika error, so that programs retry on it as on pika's."""


class DropinOptions(TypedDict, total=False):
    """The options that a :class:`GroupConnection` passes on to its :class:`cobalance.ConsumerGroup`."""

    settings: GroupSettings | None
    member: MemberSettings | None
    on_assigned: Listener | None
    on_revoked: Listener | None
    on_lost: Listener | None
    transport: Transport | None
    management_url: str | None
    prefetch: int
    ack_every: int
    ack_interval_ms: float
    require_guard: bool
    unconnected_ms: int | None
    crash_detection: bool
    metrics: Meter | None
    telemetry: Meter | None
    key_prefix: str
    log_exceptions: bool
    connect_timeout_s: float


@hides("add_consumer", "close_channel", "consumer_tags", "inherited", "leave_regardless", "remove_consumer", "stop")
class GroupConnection:
    """Replaces :class:`pika.BlockingConnection`; its channels replace pika's.

    Args:
        parameters: an AMQP URL, or pika's parameters. pika's TLS options cannot be converted: give an ``amqps://`` URL
            instead.
        group: the group's name; all processes that share the work use the same.
        redis_url: see :class:`cobalance.Group`.
        options: further arguments of :class:`cobalance.ConsumerGroup`, such as ``settings`` and ``member``.
            ``connect_timeout_s`` applies to this connection, and to the membership when it begins.

    Raises:
        pika.exceptions.AMQPConnectionError: as pika does.
        UsageError: the parameters cannot be used for a group.
    """

    def __init__(
        self,
        parameters: str | Parameters,
        *,
        group: str,
        redis_url: str = DEFAULT_REDIS_URL,
        **options: Unpack[DropinOptions],
    ) -> None:
        check_options({**options, "redis_url": redis_url})
        self.group = validate_name("group", group)
        self._options = {**options, "redis_url": redis_url, "amqp_url": url_of(parameters)}
        LaneGroup(group, {}, Lanes(_nothing), _nothing, **self._options)  # raises if the options are invalid
        self._membership: BackgroundMembership | None = None
        self._process = 0
        self._lanes = Lanes(_nothing)
        self._at_exit = partial(_leave_at_exit, ref(self))
        self._consumers: dict[str, BasicConsumer] = {}
        self._cancelled: set[str] = set()  # queues whose consumers go when the membership is over
        self._stopping = False
        self._calls: deque[Callable[[], object]] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()  # of at most about one
        self._served_at = 0.0
        places = (
            [connection_parameters(url, f"{group}/program", 60, 10_000) for url in single_urls(parameters)]
            if isinstance(parameters, str)
            else parameters
        )
        self._pika = with_patience(
            lambda: pika.BlockingConnection(places), options.get("connect_timeout_s", 0), _may_come_up
        )

    def __repr__(self) -> str:
        return f"<GroupConnection, group {self.group!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        """Everything else is pika's."""
        if name == "_pika":  # not connected: __init__ failed
            raise AttributeError(name)
        return getattr(self._pika, name)

    @property
    def health(self) -> Health:
        """Whether this process is alive and ready, which it is while it consumes; any thread. See
        :attr:`cobalance.Group.health`.
        """
        membership = self._membership
        if membership is None:
            why = ("it consumes nothing",)
            return Health(group=self.group, state="new", live=True, ready=False, reasons=why)
        return membership.health

    # -- pika's names --------------------------------------------------------------------------------------------------

    def channel(self, channel_number: int | None = None) -> GroupChannel:
        """Opens a channel: the group does its consuming, a pika channel everything else."""
        return GroupChannel(self, self._pika.channel(channel_number))

    def add_callback_threadsafe(self, callback: Callable[[], object]) -> None:
        """Runs a function on the program's thread soon; other threads use it to acknowledge."""
        self._calls.append(callback)
        self._wake()

    def process_data_events(self, time_limit: float | None = 0) -> None:
        """Consumes for `time_limit` seconds (None: for a while) or until stopped, for programs with their own loop.

        In a callback, where pika would not begin another one either, it only services the connection.
        """
        wait_s = PATIENCE_S if time_limit is None else time_limit
        if self._in_callback:
            self._look_after(wait_s)
        else:
            self._work(time.monotonic() + wait_s)

    def sleep(self, duration: float) -> None:
        """Consumes for all of this time."""
        until = time.monotonic() + duration
        self.process_data_events(duration)
        while (left := until - time.monotonic()) > 0:
            self.process_data_events(left)

    def close(self, reply_code: int = 200, reply_text: str = "Normal shutdown") -> None:
        """Leaves the group and closes the connection. Unacknowledged messages return to their queues, in order."""
        self._cancelled.update(self._consumers)
        try:
            self.leave()
        finally:
            if self._pika.is_open and not self.inherited:
                self._pika.close(reply_code, reply_text)

    # -- for the channels ----------------------------------------------------------------------------------------------

    @property
    def inherited(self) -> bool:
        """Whether this is a fork of the member's process: the membership and the connections stay there."""
        return self._membership is not None and self._process != os.getpid()

    def add_consumer(self, queue: str, consumer: BasicConsumer) -> None:
        """Adds a queue to be shared with the group."""
        if self._stopping:
            self.leave()
        if self._membership is not None:
            raise UsageError(f"Queue {queue!r} cannot be added while consuming: a group's list of queues is fixed.")
        if queue in self._consumers:
            raise UsageError(f"Queue {queue!r} has a consumer on this connection: a group gives each queue only one.")
        self._consumers[queue] = consumer

    def remove_consumer(self, channel: GroupChannel, tag: str) -> None:
        """Removes a channel's consumer with this tag; with the last one of all, the membership ends."""
        queues = [queue for queue in self._queues_of(channel) if self._consumers[queue].tag == tag]
        if queues and self._membership is not None and len(self._consumers) > 1:
            raise UsageError("One of several queues cannot be cancelled while consuming: use stop_consuming().")
        self._cancel(queues)

    def consumer_tags(self, channel: GroupChannel) -> list[str]:
        """The tags of this channel's consumers."""
        return [self._consumers[queue].tag for queue in self._queues_of(channel)]

    def close_channel(self, channel: GroupChannel) -> None:
        """Prepares to close a channel. If it consumes, the membership ends, since a group's queues are fixed."""
        if any(it.channel is channel for it in self._consumers.values()):
            self.stop(channel)
            self.leave()

    def consume(self, channel: GroupChannel) -> None:
        """Consumes while this channel has consumers; raises what a callback raises or ends the membership."""
        if self._in_callback:
            raise pika_errors.ReentrancyError("start_consuming cannot be called in a callback: return from that first.")
        while self._queues_of(channel):
            if self._stopping:
                self.leave()
            self._work(None)

    def stop(self, channel: GroupChannel | None = None) -> None:
        """Cancels the consumers of a channel, or all. Begins to leave, and returns.

        A queue moves to the next member once its begun messages are acknowledged.
        """
        self._cancel(list(self._consumers) if channel is None else self._queues_of(channel))

    def _queues_of(self, channel: GroupChannel) -> list[str]:
        return [it for it in self._consumers if self._consumers[it].channel is channel and it not in self._cancelled]

    def _cancel(self, queues: list[str]) -> None:
        self._cancelled.update(queues)
        if self._membership is None:
            self._remove_cancelled()
        elif queues:
            self._begin_to_leave(self._membership)

    def _begin_to_leave(self, membership: BackgroundMembership) -> None:
        self._stopping = True
        self._lanes.stop()
        membership.ask_stop()

    def leave(self) -> None:
        """Returns once the process is not a member any more. Unacknowledged messages return to their queues."""
        membership = self._membership
        if membership is None or self.inherited:
            return
        self._begin_to_leave(membership)
        try:
            self._run_calls()
        finally:
            self._give_up(membership)

    def leave_regardless(self) -> None:
        """Leaves; what fails in that is only logged."""
        try:
            self.leave()
        except Exception as error:  # noqa: BLE001 -- there is no caller to raise it to, or it has another exception
            log.warning("group %s: leaving failed (%s)", self.group, words_of(error))

    def _give_up(self, membership: BackgroundMembership) -> None:
        self._lanes.give_up()
        try:
            membership.over.result()
        finally:
            self._forget()

    # -- the program's thread ------------------------------------------------------------------------------------------

    @property
    def _in_callback(self) -> bool:
        """Whether one of the program's functions is running, called by us or by pika: then no other may begin."""
        with calling_back(self._pika) as outermost:
            return not outermost

    def _work(self, until: float | None) -> None:
        if self._consumers and self._membership is None:
            self._join()
        self._lanes.busy_since = None
        try:
            self._serve(until)
            while self._goes_on(until):
                self._serve(until)
        except BaseException:
            if not self._pika.is_open:  # The program connects again, mostly without closing this connection.
                self.leave_regardless()
            raise
        finally:  # Until the program comes back, its partitions count as kept waiting.
            self._lanes.busy_since = awake_ms()

    def _serve(self, until: float | None) -> None:
        self._run_calls()
        self._check()
        if self._stopping:
            self._look_after(self._patience(until))
        elif message := self._lanes.take():
            self._deliver(message)
        else:
            self._look_after(self._lanes.seconds_to_next(self._patience(until)))

    def _goes_on(self, until: float | None) -> bool:
        """Whether to go on: while there is time or, without a limit, while this is a member."""
        in_time = self._membership is not None if until is None else time.monotonic() < until
        return in_time and not self._stopping

    def _patience(self, until: float | None) -> float:
        if until is None:
            return PATIENCE_S if self._goes_on(None) else 0
        return min(PATIENCE_S, max(0.0, until - time.monotonic()))

    def _deliver(self, message: NextMessage) -> None:
        delivery, consumer = message.delivery, self._consumers[message.delivery.queue]
        method = Basic.Deliver(
            consumer.tag,
            consumer.channel.hand_out(message.lane, delivery),
            message.redelivered,
            delivery.method.exchange,
            delivery.method.routing_key,
        )
        self._lanes.busy_since = awake_ms()
        metering = message.lane.worker.metering
        try:
            with calling_back(self._pika), nullcontext() if metering is None else metering.calling(delivery):
                consumer.callback(consumer.channel, method, delivery.properties, delivery.body)
        finally:  # The program may go on after an exception, and so do the messages behind this one.
            message.lane.worker.returned()
            self._lanes.busy_since = None
            message.lane.close_batch()
        if time.monotonic() - self._served_at > SERVICE_S:
            self._look_after(0)

    def _look_after(self, wait_s: float) -> None:
        """Waits in pika, so that its timers, heartbeats and returned messages are handled as usual."""
        self._served_at = time.monotonic()
        if self._pika.is_open:
            try:
                self._pika.process_data_events(wait_s)  # type: ignore[arg-type]  # it takes fractions
            except pika_errors.AMQPError as error:
                log.warning("group %s: the program's own connection is lost (%s)", self.group, type(error).__name__)
        else:
            with suppress(Empty):
                self._bell.get(timeout=wait_s)

    def _run_calls(self) -> None:
        with calling_back(self._pika):
            for _ in range(len(self._calls)):  # not those that they add
                self._calls.popleft()()

    def _check(self) -> None:
        if self._membership is not None and self._membership.over.done():
            failure = self._membership.over.exception()
            if not self._stopping:  # nobody asked it to end
                self._cancelled.update(self._consumers)
            self._forget()
            _raise(failure)

    def _wake(self) -> None:
        if self._bell.empty():
            self._bell.put(None)
        with suppress(pika_errors.AMQPError, AttributeError, OSError):  # not open: then no one waits in it
            self._pika.add_callback_threadsafe(_nothing)

    # -- membership ----------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        if BackgroundMembership.running:
            gc.collect()  # A connection and its channels refer to each other: one that was dropped may hold our queues.
        wake = partial(_wake, WeakMethod(self._wake))
        self._stopping, self._lanes = False, Lanes(wake)
        queues = {queue: it.prefetch for queue, it in self._consumers.items()}
        self._membership = BackgroundMembership(self.group, queues, self._lanes, wake, ref(self), **self._options)
        self._process = os.getpid()
        atexit.register(self._at_exit)
        self._membership.start()
        failure = self._membership.entered.exception()
        if failure is not None:
            self._cancelled.update(self._consumers)
            self._forget()
            _raise(failure)

    def _forget(self) -> None:
        for consumer in self._consumers.values():
            consumer.channel.forget()
        self._remove_cancelled()
        self._membership = None  # last: what interrupts this is made up for by the next call that leaves
        atexit.unregister(self._at_exit)

    def _remove_cancelled(self) -> None:
        self._consumers = {queue: it for queue, it in self._consumers.items() if queue not in self._cancelled}
        self._cancelled = set()


def url_of(parameters: str | Parameters) -> str:
    """Converts pika's parameters to an AMQP URL. The heartbeat is dropped: no callback needs a long one any more.

    Raises:
        UsageError: there is no such URL, because of TLS options or of credentials other than name and password.
    """
    if isinstance(parameters, str):
        check_amqp_url("parameters", parameters)
        return parameters
    if not isinstance(parameters, Parameters):
        raise UsageError(
            f"parameters is an object of type {type(parameters).__name__}: give an AMQP URL, or one of pika's parameters"
        )
    login = parameters.credentials
    if parameters.ssl_options is not None or not isinstance(login, pika.PlainCredentials):
        raise UsageError("These connection parameters hold TLS options or certificates: give the amqps:// URL instead.")
    host = f"[{parameters.host}]" if ":" in parameters.host else parameters.host
    user, password, vhost = (quote(it, safe="") for it in (login.username, login.password, parameters.virtual_host))
    return f"amqp://{user}:{password}@{host}:{parameters.port}/{vhost}"


def _raise(error: BaseException | None) -> None:
    if isinstance(error, Unreachable):
        raise GroupUnreachable(str(error), outcome=error.outcome) from None
    if error is not None:
        raise error


def _may_come_up(error: Exception) -> bool:
    """Whether a retry may help: not if the server answers and refuses us."""
    return isinstance(error, pika_errors.AMQPConnectionError) and isinstance(connect_failure(error, ""), Unreachable)


def _wake(method: WeakMethod[Callable[[], None]]) -> None:
    """Wakes the program's thread, unless its connection is gone."""
    wake = method()
    if wake is not None:
        wake()


def _leave_at_exit(connection: ref[GroupConnection]) -> None:
    """Leaves when the program ends without closing, so that others need not wait for the session timeout."""
    it = connection()
    if it is not None:
        it.leave_regardless()


def _nothing() -> None: ...
