"""One channel of one connection: methods in, answers and deliveries out."""

from __future__ import annotations

import secrets
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import attrs
from pika.spec import Basic, BasicProperties, Channel, Confirm

from cobalance.rabbitmq.memory.broker import REPLY_TO
from cobalance.rabbitmq.memory.channel_consumer import ChannelConsumer
from cobalance.rabbitmq.memory.declarations import Declarations
from cobalance.rabbitmq.memory.queue import Declaration
from cobalance.rabbitmq.memory.refusal import Refusal, not_supported, only_in_rabbitmq, precondition_failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cobalance.rabbitmq.memory.broker import MemoryBroker
    from cobalance.rabbitmq.memory.connection import MemoryConnection
    from cobalance.rabbitmq.memory.message import Message
    from cobalance.rabbitmq.memory.queue import MemoryQueue


@attrs.frozen
class HandedOut:
    """A message that is to be acknowledged."""

    queue: MemoryQueue
    message: Message
    consumer: ChannelConsumer | None
    """None if it was fetched by basic.get."""
    at_ms: float


class MemoryChannel:
    """Open until it is closed, its connection ends, or a request is refused."""

    def __init__(self, broker: MemoryBroker, connection: MemoryConnection, number: int) -> None:
        self._broker, self._connection, self._number = broker, connection, number
        self._prefetch = self._tags = self._published = 0
        self._confirms = self._watching = self.closing = False
        self._reply_to = ""  # where replies to this channel go
        self.consumers: dict[str, tuple[MemoryQueue, ChannelConsumer]] = {}
        self._out: dict[int, HandedOut] = {}
        self._methods: dict[type, Callable[[Any], object]] = {
            Basic.Qos: self._qos,
            Basic.Consume: self._consume,
            Basic.Cancel: self._cancel,
            Basic.Get: self._get,
            Basic.Ack: self._ack,
            Basic.Nack: self._nack,
            Basic.Reject: self._reject,
            Confirm.Select: self._select,
            Channel.Flow: self._flow,
            **Declarations(broker, connection).methods,
        }

    def send(self, method: Any, properties: BasicProperties | None = None, body: bytes = b"") -> None:
        self._connection.send(self._number, method, properties, body)

    def handle(self, method: Any) -> None:
        """Handles a client's method, and answers it unless it was sent with nowait."""
        handler = self._methods.get(type(method))
        if handler is None:
            raise only_in_rabbitmq(method.NAME)
        answer = handler(method)
        if answer is not None and not getattr(method, "nowait", False):
            self.send(answer)
        for queue, _ in list(self.consumers.values()):
            queue.serve()

    def publish(self, method: Basic.Publish, properties: BasicProperties, body: bytes) -> None:
        """Publishes a complete message."""
        if method.immediate:
            raise not_supported("immediate=true")
        for name in {"CC", "BCC"}.intersection(properties.headers or {}):
            raise only_in_rabbitmq(f"copies by the header {name}")
        if properties.reply_to == REPLY_TO:
            if not self._reply_to:
                raise precondition_failed("fast reply consumer does not exist")
            properties.reply_to = self._reply_to
        exchange, routing_key = method.exchange or "", method.routing_key or ""
        is_routed = self._broker.publish(exchange, routing_key, properties, body)
        if method.mandatory and not is_routed:
            self.send(Basic.Return(312, "NO_ROUTE", exchange, routing_key), properties, body)
        if self._confirms:
            self._published += 1
            self.send(Basic.Ack(self._published, False))

    def refuse(self, refusal: Refusal, method: Any) -> None:
        """Closes the channel with an error."""
        self.end()
        self.closing = True
        self.send(Channel.Close(refusal.code, refusal.text, *divmod(method.INDEX, 1 << 16)))

    def end(self) -> None:
        """Ends the channel; its unacknowledged messages return to their queues."""
        consumed, self.consumers = list(self.consumers.values()), {}
        for queue, consumer in consumed:
            self._broker.stop_consuming(queue, consumer)
        out, self._out = list(self._out.values()), {}
        by_queue = _by_queue(out)
        for queue, messages in by_queue.items():
            queue.abandon(messages)
        for queue in {queue: None for queue, _ in consumed} | dict.fromkeys(by_queue):
            queue.serve()

    def hand_out(
        self, queue: MemoryQueue, message: Message, consumer: ChannelConsumer | None, *, without_acks: bool
    ) -> int:
        """Returns the delivery tag by which the message is settled."""
        self._tags += 1
        if not without_acks:
            now_ms = self._broker.clock.now_ms
            self._watch(now_ms)
            self._out[self._tags] = HandedOut(queue, message, consumer, now_ms)
            if consumer is not None:
                consumer.out += 1
        return self._tags

    def _watch(self, since_ms: float) -> None:
        if not self._watching:
            self._watching = True
            self._broker.clock.call_at(since_ms + self._broker.consumer_timeout_ms, self._look_for_timeout)

    def _look_for_timeout(self) -> None:
        """Closes the channel if a message was not acknowledged for too long."""
        self._watching = False
        oldest, timeout_ms = next(iter(self._out.values()), None), self._broker.consumer_timeout_ms
        if oldest is None:
            return
        if oldest.at_ms + timeout_ms > self._broker.clock.now_ms:
            self._watch(oldest.at_ms)
            return
        words = (
            f"delivery acknowledgement on channel {self._number} timed out. Timeout value used: {timeout_ms} ms. This timeout value can "
            "be configured, see consumers doc guide to learn more"
        )
        self.refuse(precondition_failed(words), Basic.Ack)

    # -- consuming -----------------------------------------------------------------------------------------------------

    def _qos(self, method: Basic.Qos) -> object:
        if method.global_qos or method.prefetch_size:
            raise only_in_rabbitmq("prefetch by channel, or by size")
        self._prefetch = method.prefetch_count or 0
        return Basic.QosOk()

    def _flow(self, method: Channel.Flow) -> object:
        if not method.active:
            raise not_supported("active=false")
        return Channel.FlowOk(True)

    def _consume(self, method: Any) -> object:
        if method.no_local:
            raise only_in_rabbitmq("consumers with no_local")
        queue = self._queue_of_replies(method) if method.queue == REPLY_TO else self._queue(method.queue)
        tag: Any = method.consumer_tag or f"amq.ctag-{self._number}.{self._tags}.{len(self.consumers) + 1}"
        if tag in self.consumers:
            raise Refusal(530, f"NOT_ALLOWED - attempt to reuse consumer tag '{tag}'", whole_connection=True)
        flags = bool(method.exclusive), self, self._prefetch, bool(method.no_ack)
        consumer = ChannelConsumer(tag, *flags, method.arguments or {})
        queue.attach(consumer)
        self.consumers[tag] = (queue, consumer)
        return Basic.ConsumeOk(tag)

    def _queue(self, name: str | None) -> MemoryQueue:
        return self._broker.find(name or "", self._connection)

    def _queue_of_replies(self, method: Basic.Consume) -> MemoryQueue:
        """RabbitMQ has no queue there, but it behaves like one that goes with its consumer."""
        if self._reply_to:
            raise precondition_failed("reply consumer already set")
        if not method.no_ack:
            raise precondition_failed("reply consumer cannot acknowledge")
        self._reply_to = f"{REPLY_TO}.{secrets.token_hex(16)}"
        return self._broker.add_queue(Declaration(self._reply_to, {}, auto_delete=True, owner=self._connection))

    def _cancel(self, method: Any) -> object:
        if method.consumer_tag in self.consumers:
            queue, consumer = self.consumers.pop(method.consumer_tag)
            self._broker.stop_consuming(queue, consumer)
            queue.serve()  # the next one may be waiting
        return Basic.CancelOk(method.consumer_tag)

    def _get(self, method: Basic.Get) -> object:
        queue, without_acks = self._queue(method.queue), bool(method.no_ack)
        message = queue.take(without_acks=without_acks)
        if message is None:
            return Basic.GetEmpty()
        tag = self.hand_out(queue, message, None, without_acks=without_acks)
        answer = Basic.GetOk(tag, message.redelivered, message.exchange, message.routing_key, len(queue.contents))
        self.send(answer, queue.properties_of(message), message.body)
        return None

    # -- acknowledging -------------------------------------------------------------------------------------------------

    def _ack(self, method: Basic.Ack) -> None:
        for it in self._settled(method):
            it.queue.acked()
            it.queue.serve()

    def _nack(self, method: Basic.Nack | Basic.Reject) -> None:
        settled = self._settled(method)
        for queue, messages in _by_queue(settled).items():
            if method.requeue:
                queue.requeue(messages)
            else:
                for message in messages:
                    queue.reject(message)
            queue.serve()

    def _reject(self, method: Basic.Reject) -> None:
        self._nack(method)

    def _settled(self, method: Any) -> list[HandedOut]:
        """The messages up to the tag if it says multiple, and all for tag 0; otherwise the tag's alone."""
        tag, multiple = method.delivery_tag or 0, bool(getattr(method, "multiple", False))
        if tag not in self._out and not (multiple and not tag):
            raise precondition_failed(f"unknown delivery tag {tag}")
        tags = [it for it in self._out if it == tag or (multiple and (it < tag or not tag))]
        settled = [self._out.pop(it) for it in tags]
        for it in settled:
            if it.consumer is not None:
                it.consumer.out -= 1
        return settled

    def _select(self, _: Confirm.Select) -> object:
        self._confirms = True
        return Confirm.SelectOk()


def _by_queue(handed_out: Iterable[HandedOut]) -> dict[MemoryQueue, list[Message]]:
    found = defaultdict[Any, list[Any]](list)
    for it in handed_out:
        found[it.queue].append(it.message)
    return found
