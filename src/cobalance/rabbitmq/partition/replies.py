"""Replies to requests: kept until the request is processed, and confirmed before its ack."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import attrs
from pika.spec import BasicProperties

from cobalance.backoff import Backoff
from cobalance.errors import CobalanceError, PublishFailed, UsageError
from cobalance.rabbitmq.model.encoding import Body, Encoded, encode_body, encode_properties
from cobalance.rabbitmq.partition.reply_channel import MOST_UNCONFIRMED, PATIENCE_S, ReplyChannel
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.failures import loss_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from cobalance.rabbitmq.partition.delivery import Delivery

log = logging.getLogger("cobalance.rabbitmq")

DIRECT = b"amq.rabbitmq.reply-to."
"""Prefix of RabbitMQ's direct reply-to names, which are not queues: RabbitMQ returns mandatory messages to them."""

BACKOFF_S = Backoff(0.05, 5.0)

MOST_SILENT = 1_000
"""So many silent queues are remembered: whoever sends requests names them."""

CONNECT_TIMEOUT_MS = 5_000

MOST_LOSSES = 3
"""How many connections in a row may be lost before one has confirmed anything: what is sent may be the reason."""

INTERNAL_ERROR = "541 "
"""RabbitMQ 3 closes the connection with it over a direct reply-to that it cannot decode, so nobody waits there; and over
a header that a stream does not take, such as a Decimal."""


@attrs.define(eq=False)
class Reply:
    """A reply, encoded on the handler's thread, so that the handler gets the error for what AMQP cannot hold."""

    to: str | bytes
    """Bytes if it is not UTF-8, as pika has it."""
    mark: str
    properties: Encoded
    body: bytes
    sent: Future[bool] = attrs.field(factory=Future)
    """Whether there was a queue for it."""
    wanted: Callable[[], bool] = lambda: True
    """Whether its request is still here; if not, it is redelivered, and answered then."""
    is_refused: bool = attrs.field(default=False, init=False)
    """Whether RabbitMQ has refused it, or its queue is silent, so that this reply alone has failed."""
    is_unfit: bool = attrs.field(default=False, init=False)
    """Whether RabbitMQ has closed the channel or the connection over it, as it would again."""

    @classmethod
    def make(
        cls, request: BasicProperties, body: Body, headers: Mapping[str, Any] | None, content_type: str | None
    ) -> Reply:
        """Raises UsageError if the request has no ``reply_to``, and for what AMQP cannot hold."""
        if not request.reply_to:
            raise UsageError(
                "the message has no reply_to, so nobody waits for a reply to it: publish requests with reply_to=QUEUE"
            )
        mark = uuid.uuid4().hex
        properties = BasicProperties(
            message_id=mark,
            correlation_id=request.correlation_id or request.message_id,
            content_type=content_type,
            delivery_mode=2,
        )
        return cls(request.reply_to, mark, encode_properties(properties, headers), encode_body(body))

    @property
    def is_direct(self) -> bool:
        """Whether it goes to a client instead of a queue."""
        return (self.to.encode() if isinstance(self.to, str) else self.to).startswith(DIRECT)


class Drafts:
    """Replies to one consumer's unsettled requests, by delivery tag.

    `takes` says whether a reply can still be sent; it is called under the lock under which the consumer settles.
    `check` raises UsageError for a reply that RabbitMQ would not take.
    """

    def __init__(
        self,
        lock: AbstractContextManager[Any] | None = None,
        takes: Callable[[int], bool] = lambda _: True,
        check: Callable[[Reply], None] = lambda _: None,
    ) -> None:
        self._lock, self._takes, self._check = lock or threading.Lock(), takes, check
        self._replies: dict[int, tuple[Delivery, Reply]] = {}

    def put(self, request: Delivery, reply: Reply) -> None:
        """Stores a reply, replacing an earlier one. Any thread."""
        self._check(reply)
        with self._lock:
            if not self._takes(request.delivery_tag):
                raise UsageError(
                    "this reply comes too late and is not sent: its request was acknowledged, which happens when the handler returns or "
                    "its offset is committed, or given up or taken away. Reply before that; or give ack='manual', and where the work is done, reply and then ack()"
                )
            self._replies[request.delivery_tag] = request, reply

    def take(self, tag: int) -> Reply | None:
        """Removes and returns the reply to send."""
        found = self._replies.pop(tag, None)
        return None if found is None else found[1]

    def take_up_to(self, tag: int) -> list[tuple[Delivery, Reply]]:
        """Removes and returns the replies to this message and to older ones, with their requests."""
        return [self._replies.pop(it) for it in sorted(self._replies) if it <= tag]

    @property
    def tags(self) -> set[int]:
        """The requests that have a reply."""
        return set(self._replies)


class Replies:
    """Sends the replies of one member, on a connection of its own, which is opened when there is something to send.

    While RabbitMQ is short of memory or disk space, it reads nothing more from a connection that has published: on the
    one that consumes, acks and the closing of channels would wait, too. Public methods may be called from any thread.

    Replies wait while RabbitMQ takes none. What is unconfirmed when the connection is lost is sent again on the next
    one, unless its request is on its way to another holder by then; and one by one, since one of them may be the reason.

    A queue may confirm nothing, such as a quorum queue without a majority, and RabbitMQ may then handle nothing else on
    the channel. So what has waited for too long is sent again one by one on a channel apart, where what a queue leaves
    unconfirmed counts as refused, and replies to such a queue are sent there until it has confirmed one.
    """

    def __init__(self, group: str, url: str, name: str, *, heartbeat_s: int) -> None:
        self._group = group
        self._connection = BrokerConnection(
            url, name, heartbeat_s=heartbeat_s, on_lost=self._connection_lost, on_blocked=self._tell_blocked
        )
        self._lock = threading.Lock()  # guards the fields below
        self._waiting: deque[Reply] = deque()
        self._connecting = False
        self._closed = threading.Event()
        # The rest belongs to the I/O thread.
        self._main, self._apart = self._way(MOST_UNCONFIRMED), self._way(1)
        self._set_apart: deque[Reply] = deque()
        self._silent: dict[str | bytes, bool] = {}  # queues, and whether that was said
        self._lost_in_vain = 0
        self._suspects: deque[Reply] = deque()

    def _way(self, most: int) -> ReplyChannel:
        return ReplyChannel(
            self._connection,
            most,
            on_room=self._write,
            on_answer=self._answered,
            on_closed=self._channel_closed,
            on_silence=self._fell_silent,
        )

    def send(self, reply: Reply) -> Future[bool]:
        """The result is done when RabbitMQ has confirmed the reply; fails with PublishFailed if it may not have it.

        If it was refused, RabbitMQ does not have it, and other replies are not affected.
        """
        reply.sent.set_running_or_notify_cancel()
        with self._lock:
            is_late = self._closed.is_set()
            if not is_late:
                self._waiting.append(reply)
        if is_late:
            _fail(reply, "this member has left its group")
        elif not self._connection.submit(self._write):
            self._connect()
        return reply.sent

    def close(self) -> None:
        """Closes the connection; what is unconfirmed fails. Blocks, but not for long if RabbitMQ would not answer."""
        self._closed.set()
        self._connection.close(timeout_ms=0 if self._connection.blocked or self._silent else 5_000)
        self._fail_all([*self._take_unconfirmed(), *self._take_apart()], "this member has left its group")

    # -- a thread of its own -------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        """Starts a thread that connects, unless there is one, or nothing to send."""
        with self._lock:
            if self._connecting or self._closed.is_set() or not self._waiting:
                return
            self._connecting = True
        try:
            threading.Thread(target=self._make_connection, name="cobalance replies", daemon=True).start()
        except RuntimeError as error:  # the system gives no more threads
            self._stop_connecting(str(error))

    def _make_connection(self) -> None:
        try:
            why = self._try_to_connect()
        except Exception as error:  # noqa: BLE001 -- or what waits would wait for ever
            why = f"{type(error).__name__}: {error}"
        self._stop_connecting(why)
        if self._closed.is_set():
            self._connection.close()
        elif not self._connection.submit(self._write):
            self._connect()

    def _stop_connecting(self, why: str) -> None:
        """Fails what waits, if there is a reason to."""
        with self._lock:
            self._connecting = False
        if why:
            self._fail_all([], f"there is no connection for replies ({why})")

    def _try_to_connect(self) -> str:
        """Returns why there is no connection; "" if there is one, or none is needed any more."""
        give_up_at, failures, last = time.monotonic() + PATIENCE_S, 0, ""
        if self._lost_in_vain:
            self._closed.wait(BACKOFF_S.first)
        while not (self._closed.is_set() or self._connection.is_open):
            try:
                self._connection.connect(CONNECT_TIMEOUT_MS)
            except CobalanceError as error:
                if str(error) != last:
                    log.warning("group %s: no connection for replies: %s", self._group, error)
                failures, last = failures + 1, str(error)
                if time.monotonic() + BACKOFF_S.pause(failures) > give_up_at:
                    return last
                self._closed.wait(BACKOFF_S.pause(failures))
        return ""

    def _fail_all(self, unconfirmed: list[Reply], why: str) -> None:
        with self._lock:
            failed, self._waiting = [*unconfirmed, *self._waiting], deque()
        for reply in failed:
            _fail(reply, why)

    # -- the I/O thread ------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Sends what waits, once there is a channel, and RabbitMQ reads."""
        self._write_apart()  # first, as a suspect may be there, which all wait for
        while self._may_send(self._main, self._waiting) and (reply := self._next()):
            if reply.to in self._silent:
                self._set_apart.append(reply)
            else:
                self._publish(self._main, reply)
        self._write_apart()

    def _write_apart(self) -> None:
        while self._may_send(self._apart, self._set_apart):
            self._publish(self._apart, self._set_apart.popleft())

    def _may_send(self, way: ReplyChannel, waiting: deque[Reply]) -> bool:
        """Suspects are sent one at a time."""
        if not waiting or not self._connection.is_open or self._connection.blocked or not way.has_room():
            return False
        while self._suspects and self._suspects[0].sent.done():
            self._suspects.popleft()
        return not (self._suspects and (self._main.is_busy or self._apart.is_busy))

    def _next(self) -> Reply | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def _publish(self, way: ReplyChannel, reply: Reply) -> None:
        try:
            if reply.wanted():
                way.publish(reply, must_be_routed=not reply.is_direct)
            else:
                _fail(reply, "its request is on its way to another holder")
        except Exception as error:  # noqa: BLE001 -- it is in no list any more, so its request would wait for ever
            reply.is_refused = True
            reply.sent.set_exception(PublishFailed(f"the reply to {reply.to!r} cannot be sent: {type(error).__name__}"))

    def _answered(self, reply: Reply, *, refused: bool, routed: bool) -> None:
        self._lost_in_vain = 0
        if reply.to in self._silent:
            self._trust(reply.to)
        if refused:
            _refuse(reply, "is the queue full (x-max-length with reject-publish)?")
        else:
            reply.sent.set_result(routed)

    def _channel_closed(self, unconfirmed: list[Reply], error: Exception) -> None:
        """What was under way alone when RabbitMQ closed the channel is the reason, and is not sent again."""
        if len(unconfirmed) == 1:
            unconfirmed[0].is_unfit = True
            _refuse(unconfirmed[0], loss_reason(error))
        self._send_again(unconfirmed)
        self._connection.submit(self._write)

    def _fell_silent(self, unconfirmed: list[Reply]) -> None:
        """If more than one queue is concerned, any may be the reason."""
        queues = {it.to for it in unconfirmed}
        for queue in queues:
            self._silent.setdefault(queue, False)
        self._set_apart.extend(unconfirmed)
        if len(queues) == 1:
            self._give_up_on(*queues)
        while len(self._silent) > MOST_SILENT:
            self._silent.pop(next(iter(self._silent)))
        self._connection.submit(self._write)

    def _give_up_on(self, queue: str | bytes) -> None:
        """It has confirmed nothing, though nothing else was under way."""
        if not self._silent[queue]:
            self._silent[queue] = True
            log.warning(
                "group %s: RabbitMQ at %s has not confirmed a reply to %r within %g s, as if that queue had lost the majority of its "
                "nodes: until it does, requests that name it fail as if their replies had been refused; others are answered",
                *(self._group, self._connection.place, queue, PATIENCE_S),
            )
        for reply in self._take_apart(queue):
            reply.is_refused = True
            _fail(reply, f"it has confirmed none to that queue within {PATIENCE_S:g} s")

    def _trust(self, queue: str | bytes) -> None:
        if self._silent.pop(queue):
            log.info("group %s: replies to %r are confirmed again", self._group, queue)
        self._wait_again(self._take_apart(queue))

    def _take_apart(self, queue: str | bytes | None = None) -> list[Reply]:
        """Removes and returns what waits apart, for this queue or for any."""
        taken = [it for it in self._set_apart if queue in {None, it.to}]
        self._set_apart = deque(it for it in self._set_apart if queue not in {None, it.to})
        return taken

    def _wait_again(self, replies: list[Reply]) -> None:
        """Ahead of what waits."""
        with self._lock:
            self._waiting.extendleft(reversed(replies))

    def _connection_lost(self, reason: str) -> None:
        self._lost_in_vain += 1
        self._wait_again(self._take_apart())
        unconfirmed = self._take_unconfirmed()
        alone = unconfirmed[0] if len(unconfirmed) == 1 else None
        if alone is not None and reason.startswith(INTERNAL_ERROR):
            if alone.is_direct:
                alone.sent.set_result(False)
            else:
                alone.is_unfit = True
                _refuse(alone, f"{reason}. Is it a stream, and do the headers have a Decimal?")
        elif self._lost_in_vain >= MOST_LOSSES and len(unconfirmed) <= 1:
            self._lost_in_vain = 0
            if alone is None:
                self._fail_all([], reason)
            else:
                _fail(alone, reason)
        self._send_again(unconfirmed)
        with self._lock:
            level = logging.WARNING if self._waiting else logging.INFO
        log.log(level, "group %s: lost the connection for replies (%s)", self._group, reason)
        self._connect()

    def _send_again(self, unconfirmed: list[Reply]) -> None:
        """What is not done yet is sent ahead of what waits. If it was more than one, any may be the reason for a loss."""
        again = [it for it in unconfirmed if not it.sent.done()]
        self._suspects = deque(it for it in self._suspects if not it.sent.done()) or deque(again)
        self._wait_again(again)

    def _take_unconfirmed(self) -> list[Reply]:
        return [*self._main.reset(), *self._apart.reset()]

    def _tell_blocked(self, blocked: bool) -> None:
        if blocked:
            log.warning(
                "group %s: RabbitMQ at %s takes no replies, being short of memory or disk space: requests that are answered meanwhile "
                "stay unacknowledged until it does",
                *(self._group, self._connection.place),
            )
        else:
            log.info("group %s: RabbitMQ at %s takes replies again", self._group, self._connection.place)
            self._main.wait_anew()
            self._apart.wait_anew()
            self._write()


def _refuse(reply: Reply, why: str) -> None:
    reply.is_refused = True
    reply.sent.set_exception(PublishFailed(f"RabbitMQ has refused the reply to {reply.to!r}: {why}"))


def _fail(reply: Reply, why: str) -> None:
    reply.sent.set_exception(
        PublishFailed(f"RabbitMQ may not have the reply to {reply.to!r}: {why}", outcome="unknown")
    )
