"""A member's last will: a message that RabbitMQ delivers to another member once this one's connection is gone.

```text
last-will UUID              one a connection: the will, unacknowledged at its member
      │ dead-lettered, as its time to live is 0: the connection was closed, and the will is nobody's
      ▼
last-wills.PREFIX GROUP     one a group, of which each member is a consumer: whichever gets the will looks after it
```

So nobody has to be elected, a watcher that dies hands its wills to the next one, and a member costs two consumers,
however many there are. Measured, a will arrives 3.6 ms after a SIGKILL (8.3 ms at most, of 25).

The will's queue is classic, and both queues are durable, as RabbitMQ 4 discourages others; wills are not, so a restart
of RabbitMQ delivers none. A new connection has a new queue, as the old one's node may be down; RabbitMQ deletes it when
it was without a consumer for a while.

A connection that has published is blocked when RabbitMQ runs short of memory, and its acknowledgements with it. So the
will is published over another connection, which is closed again at once. It is renewed long before RabbitMQ's
``consumer_timeout`` closes the channel over it.
"""

from __future__ import annotations

import logging
import threading
import uuid
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import attrs
from pika import exceptions as pika_errors
from pika.spec import BasicProperties

from cobalance.errors import CobalanceError, Unreachable, sentence
from cobalance.rabbitmq.consume import process_identity
from cobalance.rabbitmq.model.queues import Argument, Queue, own_name
from cobalance.rabbitmq.topics.admin import connected
from cobalance.rabbitmq.wire.failures import channel_lost, loss_reason, no_room_for_queues
from cobalance.rabbitmq.wire.pika_internals import bare_close
from cobalance.threads.log_lines import ServiceThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from pika.channel import Channel

    from cobalance.rabbitmq.topics.admin import Admin
    from cobalance.rabbitmq.wire.connection import BrokerConnection

log = logging.getLogger("cobalance.rabbitmq")

ENOUGH_CHANNELS = 100
"""Where fewer are allowed, all of them are left to the queues."""

UNUSED_MS, GROUP_UNUSED_MS = 60_000, 3_600_000
"""How long a will's queue, and the group's, exist without a consumer."""

RENEWED_MS = 600_000
"""RabbitMQ's ``consumer_timeout`` is half an hour. And after a will that was refused."""

AGAIN_MS = 5_000
"""After a channel that was lost alone, and what the system refused."""

PATIENCE_S = 10.0
"""How long RabbitMQ may take to make a channel and two consumers."""

PERMIT = "Permit it (configure, write and read on queues last-will.*, write on exchange amq.default)"
MORE_QUEUES = "Raise the limit of queues (max-queues)"


def wills_queue(scope: str) -> Queue:
    """Where the wills of a group's dead members go. No name of a user's queue has a blank.

    Args:
        scope: the group's, :attr:`cobalance.coordinator.client.Coordinator.scope`.
    """
    return Queue(own_name("last-wills.", scope), {"x-queue-type": "classic", "x-expires": GROUP_UNUSED_MS})


def _will_queue(wills: Queue) -> Queue:
    arguments: dict[str, Argument] = {"x-queue-type": "classic", "x-expires": UNUSED_MS, "x-message-ttl": 0}
    target = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": wills.name}
    return Queue(f"last-will {uuid.uuid4().hex}", {**arguments, **target})


@attrs.frozen
class Will:
    """What the message says: whose it is, which of its connections is gone once it is delivered, and which process
    (``process_identity.py``) that was.
    """

    member: str
    connection: str
    process: str = ""

    def encode(self) -> bytes:
        return f"{self.member} {self.connection} {self.process}".encode()

    @classmethod
    def decode(cls, body: bytes) -> Self | None:
        """None of what is no will."""
        words = body.decode(errors="replace").split(" ", 2)
        return cls(*words) if len(words) == len(attrs.fields(cls)) and all(words[:2]) else None


class LastWill:
    """Keeps this member's will with RabbitMQ, and receives those of others. Any thread, unless noted.

    Args:
        connection: the one on which the member consumes, so that the will tells of its end.
        on_heard: called with a will that was delivered, and with what to call once that was looked after; on the I/O
            thread.
        on_kept: called with the connection that RabbitMQ keeps this member's will for, and with None once it does not, as
            when it has closed the channel alone; on the I/O thread.
    """

    def __init__(
        self,
        wills: Queue,
        connection: BrokerConnection,
        amqp_url: str,
        on_heard: Callable[[Will, Callable[[], object]], None],
        on_kept: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        self._wills, self._connection, self._url = wills, connection, amqp_url
        self._on_heard, self._on_kept = on_heard, on_kept
        self._lock = threading.Lock()
        self._wanted = self._running = self._is_over = False
        self._member = self._of = ""
        self._channel: Channel | None = None
        self._queue = ""
        self._held: int | None = None
        self._written: tuple[Channel, Will] | None = None
        """What was published last, to be received on which channel."""
        self._turn = 0
        self._refused: type[Exception] | None = None

    def keep(self, member: str = "", connection: str = "") -> None:
        """Has RabbitMQ keep the will of this member for this connection, or of the same as before; without a member, only
        receives those of others. Returns at once; without RabbitMQ there is no will until this is called again.
        """
        with self._lock:
            self._member, self._of = member or self._member, connection or self._of
            self._wanted = not self._is_over
            first, self._running = not self._running, True
        if first:
            try:
                ServiceThread(self._run, f"{self._connection.name} last will").start()
            except RuntimeError:  # the system gives no more threads
                self._running = False
                self._keep_later()

    def withdraw(self) -> None:
        """This member leaves: its will is deleted."""
        with self._lock:
            self._is_over, self._wanted = True, False
        self._connection.submit(self._delete)

    def _run(self) -> None:
        while self._take():
            try:
                self._write()
            except (CobalanceError, pika_errors.AMQPError) as error:
                self._report(error)
                if isinstance(error, Unreachable):  # or the system gives no descriptor
                    self._keep_later()
                else:  # it may be permitted by then
                    self._connection.submit(self._renew_later)
            except Exception:  # a dead thread would go unnoticed, and no other will be kept
                log.exception("%s: its last will has failed: please report this", self._connection.name)

    def _keep_later(self) -> None:
        """Unless the connection is gone by then: the next one has its own will."""
        self._connection.submit(lambda: self._connection.call_later(AGAIN_MS, self.keep))

    def _take(self) -> bool:
        with self._lock:
            self._running, self._wanted = self._wanted, False
        return self._running

    def _report(self, error: Exception) -> None:
        """Once for each kind of reason until a will is kept; that RabbitMQ is away is reported by the connection."""
        if not isinstance(error, Unreachable) and type(error) is not self._refused:
            self._refused = type(error)
            log.warning(
                "%s: a process that dies is noticed only when its session ends, as no last will can be kept: %s %s, or give crash_detection=False",
                *(self._connection.name, sentence(error), MORE_QUEUES if no_room_for_queues(str(error)) else PERMIT),
            )

    def _write(self) -> None:
        allowed = self._connection.channels_allowed
        if not self._connection.is_open or (allowed is not None and allowed < ENOUGH_CHANNELS):
            return
        with connected(self._url) as admin:
            if self._channel is None:
                queue = _will_queue(self._wills)
                admin.declare(self._wills)
                admin.declare(queue)
                self._consume(queue.name)
            self._publish(admin)

    def _publish(self, admin: Admin) -> None:
        channel, will = self._channel, Will(self._member, self._of, process_identity.own_process())
        if channel is None or not self._member or self._is_over or self._written == (channel, will):
            return
        admin.call(self._queue, lambda it: _publish(it, self._queue, will))
        self._written = channel, will

    def _consume(self, queue: str) -> None:
        """Returns once RabbitMQ has both consumers.

        Raises:
            CobalanceError: why it has not.
        """
        ready: Future[None] = Future()
        if not self._connection.submit(partial(self._open, queue, ready)):
            raise Unreachable("the connection was lost")
        try:
            ready.result(PATIENCE_S)
        except (
            pika_errors.AMQPConnectionError,
            TimeoutError,
        ) as error:  # not of this channel alone, or the link is busy
            raise Unreachable(loss_reason(error)) from None
        except pika_errors.AMQPError as error:
            raise channel_lost(queue, loss_reason(error)) from None

    # Everything below runs on the I/O thread.

    def _open(self, queue: str, ready: Future[None]) -> None:
        def consume(channel: Channel) -> None:
            channel.basic_consume(queue, self._hold)
            channel.basic_consume(self._wills.name, self._hear, callback=lambda _: consumed(channel))

        def consumed(channel: Channel) -> None:
            self._channel, self._queue, self._held = channel, queue, None
            if not ready.done():
                ready.set_result(None)
            self._renew_later()

        def closed(channel: Channel, reason: Exception) -> None:
            self._connection.remove_end_listener(ended)
            self._closed(channel)
            if not ready.done():
                ready.set_exception(reason)

        def ended(_: str) -> None:
            self._closed(channel)

        try:
            channel = self._connection.open_channel(consume)
        except pika_errors.AMQPError as error:
            ready.set_exception(error)
            return
        channel.add_on_close_callback(closed)
        channel.add_on_cancel_callback(lambda _: bare_close(channel))  # the queue, or its node, is gone
        self._connection.add_end_listener(ended)

    def _hold(self, channel: Channel, method: Any, properties: object, body: bytes) -> None:
        """The new will takes the place of the one before."""
        del properties
        will = Will.decode(body)
        if will is None or _process(will.member) != _process(self._member):
            channel.basic_ack(method.delivery_tag)
            log.debug("%s: a message in its queue is no will of its own", self._connection.name)
            return
        if self._held is not None:
            channel.basic_ack(self._held)
        self._held, self._refused = method.delivery_tag, None
        self._on_kept(will.connection)
        log.debug("%s: RabbitMQ keeps the last will of member %s", self._connection.name, will.member)

    def _hear(self, channel: Channel, method: Any, properties: object, body: bytes) -> None:
        del properties

        def acknowledge() -> None:
            if channel.is_open:
                channel.basic_ack(method.delivery_tag)

        will = Will.decode(body)
        if will is None or _process(will.member) == _process(self._member):  # ours, of the connection before
            acknowledge()
        else:
            self._on_heard(will, lambda: self._connection.submit(acknowledge))

    def _renew_later(self) -> None:
        self._turn += 1
        self._connection.call_later(RENEWED_MS, partial(self._renew, self._turn))

    def _renew(self, turn: int) -> None:
        if turn == self._turn and not self._is_over:
            self._renew_later()
            self._written = None
            self.keep()

    def _closed(self, channel: Channel) -> None:
        if self._channel is channel:
            self._channel = self._held = None
            self._on_kept(None)
            if (
                not self._is_over
            ):  # the old will may be heard late, and is of a connection that nobody vouches for any more
                self._connection.call_later(AGAIN_MS, partial(self.keep, connection=uuid.uuid4().hex))

    def _delete(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None and channel.is_open:
            channel.queue_delete(self._queue)


def _process(member: str) -> str:
    """A member's id is its process's name and a count."""
    return member.rpartition(".")[0]


def _publish(channel: Any, queue: str, will: Will) -> None:
    """Not persistent, so that RabbitMQ's restart delivers no will."""
    channel.confirm_delivery()
    channel.basic_publish("", queue, will.encode(), BasicProperties(delivery_mode=1))
