"""One channel of one connection: methods in, answers and deliveries out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from pika.spec import Basic, BasicProperties, Channel, Confirm, Exchange, Queue

from cobalance.rabbitmq.memory.refusal import Refusal, not_implemented

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.rabbitmq.memory.broker import MemoryBroker
    from cobalance.rabbitmq.memory.connection import MemoryConnection
    from cobalance.rabbitmq.memory.queue import MemoryQueue, QueuedMessage


@attrs.define(eq=False)
class ChannelConsumer:
    """A consumer on a channel; see :class:`cobalance.rabbitmq.memory.queue.Consumer`."""

    tag: Any
    """A string, though pika's types say otherwise."""
    exclusive: bool
    channel: MemoryChannel
    prefetch: int
    without_acks: bool
    out: int = 0

    @property
    def has_room(self) -> bool:
        """Whether the prefetch allows another message."""
        return not self.prefetch or self.out < self.prefetch

    def deliver(self, queue: MemoryQueue, message: QueuedMessage) -> None:
        tag = self.channel.hand_out(queue, message, None if self.without_acks else self)
        sent = Basic.Deliver(self.tag, tag, message.redelivered, message.exchange, message.routing_key)
        self.channel.send(sent, queue.properties_of(message), message.body)

    def cancelled(self) -> None:
        """The queue was deleted."""
        self.channel.consumers.pop(self.tag, None)
        self.channel.send(Basic.Cancel(self.tag, nowait=True))


class MemoryChannel:
    """Open until it is closed, its connection ends, or a request is refused."""

    def __init__(self, broker: MemoryBroker, connection: MemoryConnection, number: int) -> None:
        self._broker, self._connection, self._number = broker, connection, number
        self._prefetch = self._tags = self._published = 0
        self._confirms = self.closing = False
        self.consumers: dict[str, tuple[MemoryQueue, ChannelConsumer]] = {}
        self._out: dict[int, tuple[MemoryQueue, QueuedMessage, ChannelConsumer | None]] = {}
        self._methods: dict[type, Callable[[Any], object]] = {
            Basic.Qos: self._qos,
            Basic.Consume: self._consume,
            Basic.Cancel: self._cancel,
            Basic.Get: self._get,
            Basic.Ack: self._ack,
            Basic.Nack: self._nack,
            Basic.Reject: self._reject,
            Confirm.Select: self._select,
            Exchange.Declare: self._declare_exchange,
            Exchange.Delete: self._delete_exchange,
            Queue.Declare: self._declare_queue,
            Queue.Delete: self._delete_queue,
            Queue.Purge: self._purge,
            Queue.Bind: self._bind,
            Queue.Unbind: self._unbind,
        }

    def send(self, method: Any, properties: BasicProperties | None = None, body: bytes = b"") -> None:
        self._connection.send(self._number, method, properties, body)

    def handle(self, method: Any) -> None:
        """Handles a client's method, and answers it unless it was sent with nowait."""
        handler = self._methods.get(type(method))
        if handler is None:
            raise not_implemented(method.NAME)
        answer = handler(method)
        if answer is not None and not getattr(method, "nowait", False):
            self.send(answer)
        for queue, _ in list(self.consumers.values()):
            queue.serve()

    def publish(self, method: Basic.Publish, properties: BasicProperties, body: bytes) -> None:
        """Publishes a complete message."""
        if method.immediate:
            raise not_implemented("immediate publishing")
        if properties.expiration is not None:
            raise not_implemented("messages that expire")
        for name in {"CC", "BCC"}.intersection(properties.headers or {}):
            raise not_implemented(f"copies by the header {name}")
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
        class_id, method_id = divmod(method.INDEX, 1 << 16)
        self.send(Channel.Close(refusal.code, refusal.text, class_id, method_id))

    def end(self) -> None:
        """Ends the channel; its unacknowledged messages return to their places."""
        queues = dict.fromkeys(queue for queue, _ in self.consumers.values())
        for queue, consumer in self.consumers.values():
            self._broker.stop_consuming(queue, consumer)
        self.consumers.clear()
        out, self._out = list(self._out.values()), {}
        for queue, message, _ in out:
            queue.out -= 1
            queue.give_back([message], then_serve=False)
        for queue in (*queues, *dict.fromkeys(queue for queue, _, _ in out)):
            queue.serve()

    def hand_out(
        self, queue: MemoryQueue, message: QueuedMessage, consumer: ChannelConsumer | None, *, gotten: bool = False
    ) -> int:
        """Returns the delivery tag by which the message is settled."""
        self._tags += 1
        if consumer is not None or gotten:
            self._out[self._tags] = (queue, message, consumer)
            queue.out += 1
        if consumer is not None:
            consumer.out += 1
        return self._tags

    # -- consuming -----------------------------------------------------------------------------------------------------

    def _qos(self, method: Basic.Qos) -> object:
        if method.global_qos or method.prefetch_size:
            raise not_implemented("prefetch by channel, or by size")
        self._prefetch = method.prefetch_count or 0
        return Basic.QosOk()

    def _consume(self, method: Any) -> object:
        if method.arguments or method.no_local:
            raise not_implemented("consumers with arguments")
        tag: Any = method.consumer_tag or f"ctag{self._number}.{len(self.consumers) + 1}"
        consumer = ChannelConsumer(tag, bool(method.exclusive), self, self._prefetch, bool(method.no_ack))
        queue = self._broker.consume(method.queue or "", consumer, self._connection)
        self.consumers[tag] = (queue, consumer)
        return Basic.ConsumeOk(tag)

    def _cancel(self, method: Any) -> object:
        if method.consumer_tag in self.consumers:
            self._broker.stop_consuming(*self.consumers.pop(method.consumer_tag))
        return Basic.CancelOk(method.consumer_tag)

    def _get(self, method: Basic.Get) -> object:
        queue = self._broker.find(method.queue or "", self._connection)
        if not queue.ready:
            return Basic.GetEmpty()
        message = queue.ready.pop(0)
        tag = self.hand_out(queue, message, None, gotten=not method.no_ack)
        answer = Basic.GetOk(tag, message.redelivered, message.exchange, message.routing_key, len(queue.ready))
        self.send(answer, queue.properties_of(message), message.body)
        return None

    def _settled(self, tag: int, *, multiple: bool) -> list[tuple[MemoryQueue, QueuedMessage]]:
        tags = [it for it in self._out if it == tag or (multiple and (it <= tag or not tag))]
        if not tags and not multiple:
            raise Refusal(406, f"PRECONDITION_FAILED - unknown delivery tag {tag}")
        settled = []
        for it in tags:
            queue, message, consumer = self._out.pop(it)
            queue.out -= 1
            if consumer is not None:
                consumer.out -= 1
            settled.append((queue, message))
        return settled

    def _ack(self, method: Basic.Ack) -> None:
        for queue, _ in self._settled(method.delivery_tag or 0, multiple=bool(method.multiple)):
            queue.serve()

    def _nack(self, method: Basic.Nack) -> None:
        for queue, message in self._settled(method.delivery_tag or 0, multiple=bool(method.multiple)):
            if method.requeue:
                queue.give_back([message])
            else:
                self._broker.reject(queue, message)

    def _reject(self, method: Basic.Reject) -> None:
        self._nack(Basic.Nack(method.delivery_tag or 0, False, bool(method.requeue)))

    def _select(self, _: Confirm.Select) -> object:
        self._confirms = True
        return Confirm.SelectOk()

    # -- exchanges and queues ------------------------------------------------------------------------------------------

    def _declare_exchange(self, method: Exchange.Declare) -> object:
        kind, arguments = str(method.type), method.arguments or {}
        if method.auto_delete or method.internal:
            raise not_implemented("exchanges that are internal, or delete themselves")
        self._broker.declare_exchange(method.exchange or "", kind, arguments, passive=bool(method.passive))
        return Exchange.DeclareOk()

    def _delete_exchange(self, method: Exchange.Delete) -> object:
        self._broker.delete_exchange(method.exchange or "")
        return Exchange.DeleteOk()

    def _declare_queue(self, method: Queue.Declare) -> object:
        name = method.queue or f"amq.gen-{id(self)}-{len(self._broker.queues)}"
        if method.passive:
            queue = self._broker.find(name, self._connection)
        else:
            queue = self._broker.declare_queue(
                name,
                method.arguments or {},
                self._connection,
                durable=bool(method.durable),
                auto_delete=bool(method.auto_delete),
                exclusive=bool(method.exclusive),
            )
        return Queue.DeclareOk(name, len(queue.ready), len(queue.consumers))

    def _delete_queue(self, method: Queue.Delete) -> object:
        asked = {"if_unused": bool(method.if_unused), "if_empty": bool(method.if_empty)}
        return Queue.DeleteOk(self._broker.delete_queue(method.queue or "", self._connection, **asked))

    def _purge(self, method: Queue.Purge) -> object:
        queue = self._broker.find(method.queue or "", self._connection)
        purged, queue.ready = len(queue.ready), []
        return Queue.PurgeOk(purged)

    def _bind(self, method: Queue.Bind) -> object:
        self._broker.bind(method.queue or "", method.exchange or "", method.routing_key or "")
        return Queue.BindOk()

    def _unbind(self, method: Queue.Unbind) -> object:
        self._broker.unbind(method.queue or "", method.exchange or "", method.routing_key or "")
        return Queue.UnbindOk()
