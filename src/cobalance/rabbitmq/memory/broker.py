"""Exchanges and queues, and the operations on them. Everything runs on the broker's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.rabbitmq.memory.exchanges import ALTERNATE, MATCHES, Exchange
from cobalance.rabbitmq.memory.message import Message
from cobalance.rabbitmq.memory.refusal import access_refused, locked, missing, only_in_rabbitmq, precondition_failed
from cobalance.rabbitmq.memory.stream import Stream
from cobalance.rabbitmq.memory.work_queues import ClassicQueue, QuorumQueue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pika.spec import BasicProperties

    from cobalance.rabbitmq.memory.clock import Clock
    from cobalance.rabbitmq.memory.queue import Consumer, Declaration, MemoryQueue

KINDS: dict[str, type[MemoryQueue]] = {"classic": ClassicQueue, "quorum": QuorumQueue, "stream": Stream}

RESERVED = "amq."

USER = "guest"
"""Whoever connects."""

REPLY_TO = "amq.rabbitmq.reply-to"
"""Who consumes from this name gets the replies to what is published on the same channel."""


class MemoryBroker:
    """The state of one ``memory://NAME``."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.exchanges = {
            it: Exchange(it, it.removeprefix(RESERVED)) for it in (f"{RESERVED}{kind}" for kind in MATCHES)
        }
        self.queues: dict[str, MemoryQueue] = {}
        self.consumer_timeout_ms = 1_800_000
        """How long a consumer may keep a message without acknowledging it."""
        self.shut_out: set[str] = set()
        """Names of connections that are refused, as if their machine were gone."""

    # -- exchanges -----------------------------------------------------------------------------------------------------

    def find_exchange(self, name: str) -> Exchange:
        if not name:
            raise access_refused("operation not permitted on the default exchange")
        if name not in self.exchanges:
            raise missing("exchange", name)
        return self.exchanges[name]

    def declare_exchange(self, asked: Exchange) -> None:
        """Creates the exchange if it does not exist; refuses a different declaration."""
        if asked.name in self.exchanges or not asked.name:
            self.find_exchange(asked.name).check(asked)
            return
        if asked.name.startswith(RESERVED):
            raise access_refused(f"exchange name '{asked.name}' contains reserved prefix 'amq.*'")
        if asked.kind not in MATCHES:
            raise only_in_rabbitmq(f"exchanges of type {asked.kind!r}")
        for argument in sorted(it for it in asked.arguments if not it.startswith("x-cobalance-") and it != ALTERNATE):
            raise only_in_rabbitmq(f"exchanges with {argument}")
        self.exchanges[asked.name] = asked

    def delete_exchange(self, name: str, *, if_unused: bool = False) -> None:
        """Does nothing if it does not exist."""
        if name and name not in self.exchanges:
            return
        exchange = self.find_exchange(name)
        if (exchange.bindings or exchange.onward) and if_unused:
            raise precondition_failed(f"exchange '{name}' in vhost '/' in use")
        del self.exchanges[name]
        for source in list(self.exchanges.values()):
            self._remove(source, [], [it for it in source.onward if it[1] == name])

    def bind(self, queue: str, exchange: str, routing_key: str, connection: object) -> None:
        """Does nothing if it is already bound."""
        if exchange:
            self.find(queue, connection)
        bindings = self.find_exchange(exchange).bindings
        if (routing_key, queue) not in bindings:
            bindings.append((routing_key, queue))

    def unbind(self, queue: str, exchange: str, routing_key: str) -> None:
        """Does nothing if it is not bound."""
        if exchange in self.exchanges:
            self._remove(self.exchanges[exchange], [(routing_key, queue)])

    def bind_exchange(self, destination: str, source: str, routing_key: str) -> None:
        """Does nothing if it is already bound."""
        onward = self.find_exchange(source).onward
        self.find_exchange(destination)
        if (routing_key, destination) not in onward:
            onward.append((routing_key, destination))

    def unbind_exchange(self, destination: str, source: str, routing_key: str) -> None:
        """Does nothing if it is not bound."""
        if source in self.exchanges:
            self._remove(self.exchanges[source], [], [(routing_key, destination)])

    def _remove(
        self, exchange: Exchange, bindings: Sequence[tuple[str, str]], onward: Sequence[tuple[str, str]] = ()
    ) -> None:
        before = len(exchange.bindings) + len(exchange.onward)
        exchange.bindings = [it for it in exchange.bindings if it not in bindings]
        exchange.onward = [it for it in exchange.onward if it not in onward]
        left = len(exchange.bindings) + len(exchange.onward)
        if exchange.auto_delete and before and not left:
            self.delete_exchange(exchange.name)

    # -- queues --------------------------------------------------------------------------------------------------------

    def find(self, name: str, connection: object) -> MemoryQueue:
        """The queue with this name, if this connection may use it."""
        queue = self.queues.get(name)
        if queue is None:
            raise missing("queue", name)
        if connection is not None and queue.declaration.owner not in (None, connection):
            raise locked(name)
        return queue

    def declare_queue(self, asked: Declaration) -> MemoryQueue:
        """Creates the queue if it does not exist; refuses a different declaration."""
        name = asked.name
        if name in self.queues:
            self.queues[name].check_again(asked)
            self.queues[name].used()
            return self.queues[name]
        if name.startswith(RESERVED):
            raise access_refused(f"queue name '{name}' contains reserved prefix 'amq.*'")
        if asked.kind not in KINDS:
            where = f"invalid arg 'x-queue-type' for queue '{name}' in vhost '/'"
            raise precondition_failed(f"{where}: \"unsupported queue type '{asked.kind}'\"")
        return self.add_queue(asked)

    def add_queue(self, asked: Declaration) -> MemoryQueue:
        kind = KINDS[asked.kind]
        kind.check_new(asked)
        self.queues[asked.name] = kind(asked, self)
        return self.queues[asked.name]

    def delete_queue(self, name: str, connection: object, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Deletes the queue, if it exists; returns how many messages were ready."""
        if name not in self.queues:
            return 0
        queue = self.find(name, connection)
        queue.check_deletion(if_unused=if_unused, if_empty=if_empty)
        return self._drop(queue)

    def _drop(self, queue: MemoryQueue) -> int:
        ready = len(queue.contents)
        del self.queues[queue.name]
        for exchange in list(self.exchanges.values()):
            self._remove(exchange, [it for it in exchange.bindings if it[1] == queue.name])
        for consumer in queue.consumers.copy():
            consumer.cancelled()
        queue.consumers.clear()
        return ready

    def expire_queue(self, queue: MemoryQueue) -> None:
        """Deletes a queue that nobody has used for long."""
        if self.queues.get(queue.name) is queue:
            self._drop(queue)

    def stop_consuming(self, queue: MemoryQueue, consumer: Consumer) -> None:
        queue.detach(consumer)
        if queue.declaration.auto_delete and not queue.consumers and queue.name in self.queues:
            self._drop(queue)

    def connection_ended(self, connection: object) -> None:
        """Deletes the connection's exclusive queues."""
        for queue in [it for it in self.queues.values() if it.declaration.owner is connection]:
            self._drop(queue)

    # -- messages ------------------------------------------------------------------------------------------------------

    def publish(self, exchange: str, routing_key: str, properties: BasicProperties, body: bytes) -> bool:
        """Routes a client's message; returns whether a queue took it. RabbitMQ does not count a reply's."""
        if exchange and self.find_exchange(exchange).internal:
            raise access_refused(f"cannot publish to internal exchange '{exchange}' in vhost '/'")
        Message(exchange, routing_key, properties, body).check(USER)
        queues = self._route(exchange, routing_key)
        for queue in queues:
            queue.push(Message(exchange, routing_key, properties, body))
        return any(not it.name.startswith(REPLY_TO) for it in queues)

    def _route(self, exchange: str, routing_key: str) -> list[MemoryQueue]:
        if not exchange:
            return [self.queues[routing_key]] if routing_key in self.queues else []
        found: dict[str, None] = {}
        tried, ahead = set[str](), [exchange]
        while ahead:
            name = ahead.pop(0)
            if name in tried or name not in self.exchanges:
                continue
            tried.add(name)
            it = self.exchanges[name]
            queues, onward = list(it.queues_for(routing_key)), list(it.exchanges_for(routing_key))
            found |= dict.fromkeys(queues)
            ahead += onward if queues or onward else [it.arguments.get(ALTERNATE, "")]
        return [self.queues[name] for name in found]

    def dead_letter(self, queue: MemoryQueue, message: Message, reason: str) -> None:
        """Publishes the message where the queue's dead letters go, if anywhere."""
        exchange = queue.arguments.get("x-dead-letter-exchange")
        if exchange is None or self.queues.get(queue.name) is not queue:
            return
        routing_key = queue.arguments.get("x-dead-letter-routing-key", message.routing_key)
        properties = message.dead(queue.name, reason, self.clock.time_s)
        for target in self._route(exchange, routing_key):
            letter = Message(exchange, routing_key, properties, message.body)
            if not letter.would_circle(target.name):
                target.push(letter)
