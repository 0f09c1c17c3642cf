"""A queue: its messages in order, those that are out with consumers, and who is served next."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, Any, Protocol

import attrs
from pika.spec import BasicProperties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@attrs.define(eq=False)
class Message:
    """One in a queue."""

    place: int
    """Its place in the queue, which it keeps when it is returned."""
    exchange: str
    routing_key: str
    properties: BasicProperties
    body: bytes
    redelivered: bool = False
    returns: int = 0


class Consumer(Protocol):
    """Somebody who takes messages."""

    tag: str
    exclusive: bool

    @property
    def has_room(self) -> bool:
        """Whether it may be given another one."""

    def deliver(self, queue: MemoryQueue, message: Message) -> None:
        """One more."""

    def cancelled(self) -> None:
        """The queue is gone."""


@attrs.define(eq=False)
class MemoryQueue:
    """Called on the broker's thread only."""

    name: str
    arguments: dict[str, Any]
    durable: bool
    auto_delete: bool
    owner: object
    """The connection that has it for itself, or None."""
    dead_letter: Callable[[MemoryQueue, Message, str], None]
    ready: list[Message] = attrs.field(factory=list)
    consumers: list[Consumer] = attrs.field(factory=list)
    out: int = 0
    """Those that a consumer has and has not settled."""
    _places: int = 0

    @property
    def is_empty(self) -> bool:
        """Nothing lies in it, and nothing is out."""
        return not self.ready and not self.out

    @property
    def is_quorum(self) -> bool:
        """They count how often a message was returned."""
        return self.arguments.get("x-queue-type") == "quorum"

    def push(self, exchange: str, routing_key: str, properties: BasicProperties, body: bytes) -> None:
        """One more, behind the others."""
        self._places += 1
        self.ready.append(Message(self._places, exchange, routing_key, properties, body))
        self.serve()

    def give_back(self, messages: Iterable[Message], *, then_serve: bool = True) -> None:
        """To where they were."""
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
        """Gives what is ready to whoever has room."""
        while self.ready:
            consumer = self._next()
            if consumer is None:
                return
            consumer.deliver(self, self.ready.pop(0))

    def _next(self) -> Consumer | None:
        if self.arguments.get("x-single-active-consumer"):
            return next((it for it in self.consumers[:1] if it.has_room), None)
        free = next((it for it in self.consumers if it.has_room), None)
        if free is not None:  # each in turn
            self.consumers.remove(free)
            self.consumers.append(free)
        return free

    def properties_of(self, message: Message) -> BasicProperties:
        """As it is delivered: quorum queues say how often it was returned."""
        if not self.is_quorum or not message.returns:
            return message.properties
        counted = BasicProperties()
        vars(counted).update(vars(message.properties))
        counted.headers = {**(message.properties.headers or {}), "x-delivery-count": message.returns}
        return counted
