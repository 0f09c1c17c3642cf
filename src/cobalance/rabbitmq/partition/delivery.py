"""One message as a handler sees it."""

from collections.abc import Mapping
from typing import Any, Self, cast

import attrs
from pika.spec import Basic, BasicProperties

from cobalance.rabbitmq.model.encoding import Body, encode_body
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.partition.replies import Drafts, Reply

ROUTING_KEY, EXCHANGE = "x-cobalance-routing-key", "x-cobalance-exchange"
"""What a message was published with; headers of dead letters, and of those that were sent back to their queue."""


@attrs.frozen
class Tenure:
    """One process's hold on one queue: it ends when the queue moves on, and its token never comes back."""

    queue: str
    token: int
    """The fencing token: higher than that of every earlier holder of the queue."""


@attrs.frozen(eq=False)
class Delivery:
    """A message of one tenure."""

    tenure: Tenure
    method: Basic.Deliver = attrs.field(repr=False)
    """pika's own view of the delivery, for callbacks written for pika."""
    properties: BasicProperties = attrs.field(repr=False)
    body: bytes = attrs.field(repr=lambda body: f"<{len(body)} bytes>")
    _drafts: Drafts = attrs.field(factory=Drafts, repr=False)
    """Replies of its consumer, until they are sent."""

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
        **properties: Any,
    ) -> Self:
        """One for tests of handlers, without a server: as it would come out of a topic (one partition, unless it is given) into which it was
        published with this key. The other properties are pika's, such as ``message_id``.
        """
        topic = topic or Topic("fake", 1)
        partition = topic.partition_of(key)
        method = Basic.Deliver("fake", 1, redelivered, topic.name, topic.routing_key(partition))
        made = BasicProperties(headers=None if headers is None else dict(headers), **properties)
        return cls(Tenure(topic.queue_names[partition], token), method, made, encode_body(body))

    def reply(self, body: Body, headers: Mapping[str, Any] | None = None, *, content_type: str | None = None) -> None:
        """Answers a request: to the queue that its ``reply_to`` names, with its ``correlation_id`` (or message id, if it has none).

        The reply is sent when the handler is through, or the message is acknowledged by hand; the request is acknowledged once RabbitMQ
        has confirmed the reply. So a request that comes again may be answered again, but none goes unanswered. A handler that fails sends
        nothing, and of several replies the last one is sent. If the queue is gone, nobody waits any more: that is logged, and the request
        is acknowledged.

        What another thread or task is to answer later takes ``ack="manual"``: there it replies first, and acknowledges then.

        Raises:
            UsageError: the message has no ``reply_to``, or the reply is nothing that AMQP can hold; or it comes too late, since the
                handler has returned, or the message was acknowledged or taken away.
        """
        self._drafts.put(self.delivery_tag, Reply.make(self.properties, body, headers, content_type))

    def forget_reply(self) -> None:
        """Its handler has failed."""
        self._drafts.take(self.delivery_tag)

    @property
    def queue(self) -> str:
        """The partition queue that it came from."""
        return self.tenure.queue

    @property
    def token(self) -> int:
        """The fencing token to write next to every side effect, so that a late holder's writes can be told."""
        return self.tenure.token

    @property
    def delivery_tag(self) -> int:
        """1, 2, 3 … within the tenure."""
        return cast("int", self.method.delivery_tag)

    @property
    def redelivered(self) -> bool:
        """The broker has handed it out before; whether a handler saw it then is unknown."""
        return bool(self.method.redelivered)

    @property
    def earlier_tries(self) -> int | None:
        """How often a quorum queue has delivered it in vain before; None on queues that do not count."""
        return cast("int | None", self.headers.get("x-delivery-count"))

    @property
    def routing_key(self) -> str:
        """As published: for a topic, the number of the partition."""
        return str(self.headers.get(ROUTING_KEY) or self.method.routing_key or "")

    @property
    def exchange(self) -> str:
        """As published: for a topic, its name."""
        return str(self.headers.get(EXCHANGE, self.method.exchange or ""))

    @property
    def offset(self) -> int | None:
        """The message's place in its stream; None in a queue. Offsets rise, though not every number is that of a message."""
        offset = self.headers.get("x-stream-offset")
        return None if offset is None else int(offset)

    @property
    def headers(self) -> Mapping[str, Any]:
        """The message's headers; empty when it has none."""
        return self.properties.headers or {}
