"""A message as a handler sees it."""

from collections.abc import Mapping
from typing import Any, Self, TypedDict, Unpack, cast

import attrs
from pika.spec import Basic, BasicProperties

from cobalance.faces import hides
from cobalance.rabbitmq.model.encoding import Body, encode_body
from cobalance.rabbitmq.model.headers import KEY, as_key, as_number, as_short, with_key
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.partition.replies import Drafts, Reply

ROUTING_KEY, EXCHANGE = "x-cobalance-routing-key", "x-cobalance-exchange"
"""Headers that keep the original routing key and exchange of dead letters and of messages sent back to their queue."""


@attrs.frozen
class QueueTenure:
    """One process's hold on one queue. It ends when the queue moves; its token is never used again."""

    queue: str
    token: int
    """The fencing token: higher than that of every earlier holder of the queue."""


class PikaProperties(TypedDict, total=False):
    """The properties of a message besides headers, as pika names them."""

    content_type: str
    content_encoding: str
    delivery_mode: int
    priority: int
    correlation_id: str
    reply_to: str
    expiration: str
    message_id: str
    timestamp: int
    type: str
    user_id: str
    app_id: str


@hides("forget_reply")
@attrs.frozen(eq=False)
class Delivery:
    """A message of one tenure."""

    tenure: QueueTenure
    method: Basic.Deliver = attrs.field(repr=False)
    """pika's own method frame, for callbacks written for pika."""
    properties: BasicProperties = attrs.field(repr=False)
    body: bytes = attrs.field(repr=lambda body: f"<{len(body)} bytes>")
    _drafts: Drafts = attrs.field(factory=Drafts, repr=False)
    """Replies, until its consumer sends them."""

    @classmethod
    def fake(
        cls,
        body: Body = b"",
        *,
        key: bytes | str = "",
        headers: Mapping[str, Any] | None = None,
        topic: Topic | None = None,
        token: int = 1,
        redelivered: bool = False,
        **properties: Unpack[PikaProperties],
    ) -> Self:
        """Builds a delivery for tests of handlers, without a server.

        It looks as if published with this key to a topic, which has one partition unless `topic` is given. Other
        properties are pika's, such as ``message_id``.
        """
        topic = topic or Topic("fake", 1)
        partition = topic.partition_of(key)
        method = Basic.Deliver("fake", 1, redelivered, topic.name, topic.routing_key(partition))
        made = BasicProperties(headers=with_key(headers, key) or None, **properties)
        return cls(QueueTenure(topic.queue_names[partition], token), method, made, encode_body(body))

    def reply(self, body: Body, headers: Mapping[str, Any] | None = None, *, content_type: str | None = None) -> None:
        """Answers a request, in the queue named by its ``reply_to``.

        The reply has the request's ``correlation_id``, or its message id, if it has none.

        The reply is sent when the handler returns, or the message is acknowledged manually, or, in a stream, before its
        offset is committed; the request is acknowledged once RabbitMQ has confirmed the reply. So a redelivered request
        may be answered again, but none goes unanswered. A handler that fails sends nothing; of several replies only the
        last is sent. If the queue is gone, no one waits for the answer: that is logged, and the request is
        acknowledged. If RabbitMQ refuses the reply, the message has failed, and what is tried again is the reply.

        To answer later from another thread or task, use ``ack="manual"``: reply there first, then acknowledge.

        Raises:
            UsageError: the message has no ``reply_to``, AMQP cannot hold the reply, its headers do not fit into a frame,
                or it is too late: the handler has returned, or the message was acknowledged, committed or taken away.
        """
        self._drafts.put(self, Reply.make(self.properties, body, headers, content_type))

    def forget_reply(self) -> None:
        """Drops the reply of a handler that has failed."""
        self._drafts.take(self.delivery_tag)

    @property
    def queue(self) -> str:
        """The partition queue that it came from."""
        return self.tenure.queue

    @property
    def token(self) -> int:
        """The fencing token. Store it with every side effect, so that a late holder's writes can be recognized."""
        return self.tenure.token

    @property
    def delivery_tag(self) -> int:
        """1, 2, 3 … within the tenure."""
        return cast("int", self.method.delivery_tag)

    @property
    def redelivered(self) -> bool:
        """Whether the broker has delivered it before; a handler may or may not have seen it then."""
        return bool(self.method.redelivered)

    @property
    def earlier_tries(self) -> int | None:
        """How often a quorum queue has delivered it without success; None for queues that do not count. Before RabbitMQ
        has set the header ``x-delivery-count``, a publisher's own is read.
        """
        return as_number(self.headers.get("x-delivery-count"))

    @property
    def key(self) -> str | bytes | None:
        """The key that it was published with, as text if it is UTF-8; None if it has none, or its publisher sends none."""
        return as_key(self.headers.get(KEY))

    @property
    def routing_key(self) -> str:
        """As published: for a topic, the number of the partition. What is not UTF-8 is bytes, as with pika."""
        return cast("str", as_short(self.headers.get(ROUTING_KEY)) or self.method.routing_key or "")

    @property
    def exchange(self) -> str:
        """As published: for a topic, its name. What is not UTF-8 is bytes, as with pika."""
        exchange = as_short(self.headers.get(EXCHANGE))
        return cast("str", (self.method.exchange or "") if exchange is None else exchange)

    @property
    def offset(self) -> int | None:
        """The message's offset in its stream. Offsets rise, but may have gaps. None in a queue, where RabbitMQ does not
        set the header ``x-stream-offset``, unless a publisher has.
        """
        return as_number(self.headers.get("x-stream-offset"))

    @property
    def headers(self) -> Mapping[str, Any]:
        """The message's headers; empty if it has none."""
        return self.properties.headers or {}
