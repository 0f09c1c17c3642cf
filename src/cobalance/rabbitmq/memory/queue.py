"""A queue: its messages in order, the unacknowledged ones, and which consumer is served next."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, Any, Protocol

import attrs
from pika.spec import BasicProperties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@attrs.define(eq=False)
class QueuedMessage:
    """A message in a queue."""

    place: int
    """Its place in the queue, which it keeps when it is returned."""
    exchange: str
    routing_key: str
    properties: BasicProperties
    body: bytes
    redelivered: bool = False
    returns: int = 0


class Consumer(Protocol):
    """A consumer of a queue."""

    tag: str
    exclusive: bool

    @property
    def has_room(self) -> bool:
        """Whether the prefetch allows another message."""

    def deliver(self, queue: MemoryQueue, message: QueuedMessage) -> None:
        """Delivers a message."""

    def cancelled(self) -> None:
        """The queue was deleted."""


@attrs.define(eq=False)
class MemoryQueue:
    """A queue. Called on the broker's thread only."""

    name: str
    arguments: dict[str, Any]
    durable: bool
    auto_delete: bool
    owner: object
    """The connection that declared it exclusive, or None."""
    dead_letter: Callable[[MemoryQueue, QueuedMessage, str], None]
    ready: list[QueuedMessage] = attrs.field(factory=list)
    consumers: list[Consumer] = attrs.field(factory=list)
    out: int = 0
    """The number of unacknowledged messages."""
    _places: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is no message, unacknowledged ones included."""
        return not self.ready and not self.out

    @property
    def is_quorum(self) -> bool:
        """Whether it is a quorum queue, which counts how often a message was returned."""
        return self.arguments.get("x-queue-type") == "quorum"

    def push(self, exchange: str, routing_key: str, properties: BasicProperties, body: bytes) -> None:
        self._places += 1
        self.ready.append(QueuedMessage(self._places, exchange, routing_key, properties, body))
        self.serve()

    def give_back(self, messages: Iterable[QueuedMessage], *, then_serve: bool = True) -> None:
        """Returns messages to their places."""
        for message in messages:
            message.redelivered = True
            message.returns += 1
            limit = self.arguments.get("x-delivery-limit")
            if self.is_quorum and limit is not None and 0 <= limit < message.returns:
                self.dead_letter(self, message, "delivery_limit")
            else:
                insort(self.ready, message, key=lambda it: it.place)
        if then_serve:
            self.serve()

    def serve(self) -> None:
        """Delivers ready messages to consumers with room."""
        while self.ready:
            consumer = self._next()
            if consumer is None:
                return
            consumer.deliver(self, self.ready.pop(0))

    def _next(self) -> Consumer | None:
        if self.arguments.get("x-single-active-consumer"):
            return next((it for it in self.consumers[:1] if it.has_room), None)
        free = next((it for it in self.consumers if it.has_room), None)
        if free is not None:  # in turn
            self.consumers.remove(free)
            self.consumers.append(free)
        return free

    def properties_of(self, message: QueuedMessage) -> BasicProperties:
        """The properties as delivered: quorum queues add how often the message was returned."""
        if not self.is_quorum or not message.returns:
            return message.properties
        counted = BasicProperties()
        vars(counted).update(vars(message.properties))
        counted.headers = {**(message.properties.headers or {}), "x-delivery-count": message.returns}
        return counted
