"""Exchanges and queues, and the operations on them. Everything runs on the broker's thread."""

from __future__ import annotations

from copy import copy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.rabbitmq.memory.queue import MemoryQueue, QueuedMessage
from cobalance.rabbitmq.memory.refusal import Refusal, inequivalent, missing, not_implemented

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pika.spec import BasicProperties

    from cobalance.rabbitmq.memory.queue import Consumer

ARGUMENTS = frozenset(
    {
        "x-queue-type",
        "x-single-active-consumer",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-delivery-limit",
    }
)
"""The supported queue arguments; any other would change what a queue does."""

KINDS = frozenset({"classic", "quorum"})


@attrs.define(eq=False)
class Exchange:
    """A direct exchange."""

    arguments: dict[str, Any]
    bindings: set[tuple[str, str]] = attrs.field(factory=set)
    """Pairs of routing key and queue."""


class MemoryBroker:
    """The state of one ``memory://NAME``."""

    def __init__(self) -> None:
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, MemoryQueue] = {}
        self.shut_out: set[str] = set()
        """Names of connections that are refused, as if their machine were gone."""

    # -- exchanges -----------------------------------------------------------------------------------------------------

    def declare_exchange(self, name: str, kind: str, arguments: Mapping[str, Any], *, passive: bool) -> None:
        """Creates the exchange if it does not exist."""
        if name in self.exchanges:
            return
        if passive:
            raise missing("exchange", name)
        if kind != "direct":
            raise not_implemented(f"exchanges of type {kind!r}")
        for argument in sorted(it for it in arguments if not it.startswith("x-cobalance-")):
            raise not_implemented(f"exchanges with {argument}")
        self.exchanges[name] = Exchange(dict(arguments))

    def delete_exchange(self, name: str) -> None:
        """Does nothing if it does not exist."""
        self.exchanges.pop(name, None)

    def bind(self, queue: str, exchange: str, routing_key: str) -> None:
        """Does nothing if it is already bound."""
        self.find(queue, None)
        if exchange not in self.exchanges:
            raise missing("exchange", exchange)
        self.exchanges[exchange].bindings.add((routing_key, queue))

    def unbind(self, queue: str, exchange: str, routing_key: str) -> None:
        """Does nothing if it is not bound."""
        if exchange in self.exchanges:
            self.exchanges[exchange].bindings.discard((routing_key, queue))

    # -- queues --------------------------------------------------------------------------------------------------------

    def find(self, name: str, connection: object) -> MemoryQueue:
        """The queue with this name, if this connection may use it."""
        queue = self.queues.get(name)
        if queue is None:
            raise missing("queue", name)
        if connection is not None and queue.owner not in (None, connection):
            raise Refusal(
                405, f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{name}' in vhost '/'"
            )
        return queue

    def declare_queue(
        self,
        name: str,
        arguments: Mapping[str, Any],
        connection: object,
        *,
        durable: bool,
        auto_delete: bool,
        exclusive: bool,
    ) -> MemoryQueue:
        """Creates the queue if it does not exist; refuses a different declaration."""
        asked = {"x-queue-type": "classic", **arguments}
        if name in self.queues:
            queue = self.find(name, connection)
            _compare(queue, asked, durable=durable, auto_delete=auto_delete)
            return queue
        if asked["x-queue-type"] not in KINDS:
            raise not_implemented(f"queues of type {asked['x-queue-type']!r}")
        for argument in sorted(asked.keys() - ARGUMENTS):
            raise not_implemented(f"queues with {argument}")
        owner = connection if exclusive else None
        made = MemoryQueue(name, asked, durable, auto_delete, owner, self._dead_letter)
        self.queues[name] = made
        return made

    def delete_queue(self, name: str, connection: object, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Deletes the queue, if it exists; returns how many messages were ready."""
        if name not in self.queues:
            return 0
        queue = self.find(name, connection)
        if (if_unused and queue.consumers) or (if_empty and queue.ready):
            raise Refusal(406, f"PRECONDITION_FAILED - queue '{name}' in vhost '/' in use or not empty")
        del self.queues[name]
        for exchange in self.exchanges.values():
            exchange.bindings = {it for it in exchange.bindings if it[1] != name}
        for consumer in queue.consumers:
            consumer.cancelled()
        return len(queue.ready)

    def consume(self, name: str, consumer: Consumer, connection: object) -> MemoryQueue:
        queue = self.find(name, connection)
        if queue.consumers and (consumer.exclusive or any(it.exclusive for it in queue.consumers)):
            raise Refusal(403, f"ACCESS_REFUSED - queue '{name}' in vhost '/' in exclusive use")
        queue.consumers.append(consumer)
        return queue

    def stop_consuming(self, queue: MemoryQueue, consumer: Consumer) -> None:
        if consumer in queue.consumers:
            queue.consumers.remove(consumer)
        if queue.auto_delete and not queue.consumers:
            self.queues.pop(queue.name, None)

    def connection_ended(self, connection: object) -> None:
        """Deletes the connection's exclusive queues."""
        for queue in [it for it in self.queues.values() if it.owner is connection]:
            self.delete_queue(queue.name, connection)

    # -- messages ------------------------------------------------------------------------------------------------------

    def publish(self, exchange: str, routing_key: str, properties: BasicProperties, body: bytes) -> bool:
        """Routes a message; returns whether a queue took it."""
        if exchange and exchange not in self.exchanges:
            raise missing("exchange", exchange)
        names = (
            [queue for key, queue in self.exchanges[exchange].bindings if key == routing_key]
            if exchange
            else [routing_key]
        )
        queues = [self.queues[name] for name in names if name in self.queues]
        for queue in queues:
            queue.push(exchange, routing_key, properties, body)
        return bool(queues)

    def _dead_letter(self, queue: MemoryQueue, message: QueuedMessage, reason: str) -> None:
        exchange = queue.arguments.get("x-dead-letter-exchange")
        if exchange is None or (exchange and exchange not in self.exchanges):
            return
        death = {
            "count": 1,
            "reason": reason,
            "queue": queue.name,
            "time": datetime.now(UTC).replace(microsecond=0, tzinfo=None),
            "exchange": message.exchange,
            "routing-keys": [message.routing_key],
        }
        properties = copy(message.properties)
        headers: Mapping[str, Any] = properties.headers or {}
        earlier = headers.get("x-death")
        properties.headers = {**headers, "x-death": [death, *(earlier if isinstance(earlier, list) else ())]}
        routing_key = queue.arguments.get("x-dead-letter-routing-key", message.routing_key)
        self.publish(exchange, routing_key, properties, message.body)

    def reject(self, queue: MemoryQueue, message: QueuedMessage) -> None:
        """Dead-letters a rejected message."""
        self._dead_letter(queue, message, "rejected")


def _compare(queue: MemoryQueue, asked: Mapping[str, Any], *, durable: bool, auto_delete: bool) -> None:
    for name, received, current in (
        ("durable", durable, queue.durable),
        ("auto_delete", auto_delete, queue.auto_delete),
    ):
        if received != current:
            raise Refusal(
                406,
                f"PRECONDITION_FAILED - inequivalent arg '{name}' for queue '{queue.name}' in vhost '/': received "
                f"'{str(received).lower()}' but current is '{str(current).lower()}'",
            )
    for argument in sorted({*asked, *queue.arguments}, key=lambda it: (it != "x-queue-type", it)):
        if asked.get(argument) != queue.arguments.get(argument):
            raise inequivalent(argument, queue.name, asked.get(argument), queue.arguments.get(argument))
