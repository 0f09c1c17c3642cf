"""Replies to requests: kept until the request is processed, sent on its connection, confirmed before its ack."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import attrs
from pika.spec import Basic, BasicProperties

from cobalance.errors import PublishFailed, UsageError
from cobalance.rabbitmq.model.encoding import Body, Encoded, encode_body, encode_properties
from cobalance.rabbitmq.wire.failures import loss_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from pika.channel import Channel
    from pika.frame import Method

    from cobalance.rabbitmq.wire.connection import BrokerConnection

DIRECT = "amq.rabbitmq.reply-to."
"""Prefix of RabbitMQ's direct reply-to names, which are not queues: RabbitMQ returns mandatory messages to them."""


@attrs.frozen(eq=False)
class Reply:
    """A reply, encoded on the handler's thread, so that the handler gets the error for what AMQP cannot hold."""

    to: str
    mark: str
    properties: Encoded
    body: bytes
    sent: Future[bool] = attrs.field(factory=Future)
    """Whether there was a queue for it."""

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


class Drafts:
    """Replies to one consumer's unsettled requests, by delivery tag.

    `takes` says whether a reply can still be sent; it is called under the lock under which the consumer settles.
    """

    def __init__(
        self, lock: AbstractContextManager[Any] | None = None, takes: Callable[[int], bool] = lambda _: True
    ) -> None:
        self._lock, self._takes = lock or threading.Lock(), takes
        self._replies: dict[int, Reply] = {}

    def put(self, tag: int, reply: Reply) -> None:
        """Stores a reply, replacing an earlier one. Any thread."""
        with self._lock:
            if not self._takes(tag):
                raise UsageError(
                    "this reply comes too late and is not sent: its request was acknowledged, which happens when the handler returns, or "
                    "given up or taken away. Reply before that; or give ack='manual', and where the work is done, reply and then ack()"
                )
            self._replies[tag] = reply

    def take(self, tag: int) -> Reply | None:
        """Removes and returns the reply to send."""
        return self._replies.pop(tag, None)


class Replies:
    """Sends the replies of one member. Only `send` may be called from any thread."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self._channel: Channel | None = None
        self._waiting: deque[Reply] = deque()  # until the channel is open
        self._number = 0
        self._unconfirmed: dict[int, Reply] = {}
        self._returned: set[str] = set()

    def send(self, reply: Reply) -> Future[bool]:
        """The result is done when RabbitMQ has confirmed the reply; fails with PublishFailed if it may not have it."""
        reply.sent.set_running_or_notify_cancel()
        if not self._connection.submit(lambda: self._send(reply)):
            _fail(reply, "the connection is gone")
        return reply.sent

    # Everything below runs on the I/O thread.

    def _send(self, reply: Reply) -> None:
        if not self._connection.is_open:
            _fail(reply, "the connection is gone")
        elif self._channel is not None and self._channel.is_open:
            self._publish(self._channel, reply)
        else:
            self._waiting.append(reply)
            if len(self._waiting) == 1:
                self._open()

    def _open(self) -> None:
        def ready(_: object) -> None:
            self._channel, self._number = channel, 0
            waiting, self._waiting = self._waiting, deque()
            for reply in waiting:
                self._publish(channel, reply)

        def confirm(channel: Channel) -> None:
            channel.add_on_return_callback(self._was_returned)
            channel.confirm_delivery(self._confirmed, ready)

        self._connection.add_end_listener(self._lost)
        channel = self._connection.open_channel(confirm)
        channel.add_on_close_callback(lambda _, error: self._lost(loss_reason(error)))

    def _publish(self, channel: Channel, reply: Reply) -> None:
        self._number += 1
        self._unconfirmed[self._number] = reply
        must_be_routed = not reply.to.startswith(DIRECT)
        channel.basic_publish("", reply.to, reply.body, reply.properties, mandatory=must_be_routed)

    def _was_returned(self, _: Channel, __: Basic.Return, properties: BasicProperties, ___: bytes) -> None:
        self._returned.add(properties.message_id or "")

    def _confirmed(self, frame: Method[Basic.Ack | Basic.Nack]) -> None:
        tag, refused = frame.method.delivery_tag, isinstance(frame.method, Basic.Nack)
        numbers = [it for it in self._unconfirmed if it <= tag] if frame.method.multiple else [tag]
        for number in numbers:
            reply = self._unconfirmed.pop(number)
            if refused:
                _fail(reply, "it refused the message")
                continue
            routed = reply.mark not in self._returned
            self._returned.discard(reply.mark)
            reply.sent.set_result(routed)

    def _lost(self, reason: str) -> None:
        """The connection, or only the channel, was lost."""
        self._connection.remove_end_listener(self._lost)
        self._channel = None
        failed = [*self._unconfirmed.values(), *self._waiting]
        self._unconfirmed, self._waiting = {}, deque()
        for reply in failed:
            _fail(reply, reason)


def _fail(reply: Reply, why: str) -> None:
    reply.sent.set_exception(
        PublishFailed(f"RabbitMQ may not have the reply to {reply.to!r}: {why}", outcome="unknown")
    )
