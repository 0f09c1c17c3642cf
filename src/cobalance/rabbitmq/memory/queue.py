"""What classic and quorum queues and streams have in common: a declaration, consumers, and what may be asked of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import attrs

from cobalance.rabbitmq.memory.refusal import (
    described,
    inequivalent,
    locked,
    only_in_rabbitmq,
    precondition_failed,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pika.spec import BasicProperties

    from cobalance.rabbitmq.memory.clock import Clock
    from cobalance.rabbitmq.memory.message import Message

TYPE, OFFSET, PRIORITY = "x-queue-type", "x-stream-offset", "x-priority"


@attrs.frozen
class Declaration:
    """What a client declares."""

    name: str
    arguments: Mapping[str, Any]
    durable: bool = True
    auto_delete: bool = False
    owner: object = None
    """The connection that declares it exclusive, or None."""

    @property
    def kind(self) -> str:
        return str(self.arguments.get(TYPE, "classic"))


class Consumer(Protocol):
    """A consumer of a queue."""

    exclusive: bool
    without_acks: bool
    prefetch: int
    arguments: Mapping[str, Any]

    @property
    def priority(self) -> int:
        """Of those with room, the highest is served first."""

    @property
    def has_room(self) -> bool:
        """Whether the prefetch allows another message."""

    def deliver(self, queue: MemoryQueue, message: Message) -> None:
        """Delivers a message."""

    def cancelled(self) -> None:
        """The queue was deleted."""


class Surroundings(Protocol):
    """What a queue needs of its broker."""

    clock: Clock

    def dead_letter(self, queue: MemoryQueue, message: Message, reason: str) -> None:
        """Publishes the message where the queue's dead letters go, if anywhere."""

    def expire_queue(self, queue: MemoryQueue) -> None:
        """Deletes the queue."""


class MemoryQueue(ABC):
    """A queue. Called on the broker's thread only."""

    supported: ClassVar[frozenset[str]]
    """The arguments that it takes."""
    refused: ClassVar[frozenset[str]]
    """The arguments that RabbitMQ refuses for this type; any others are refused by memory:// alone."""
    takes_of_consumers: ClassVar[frozenset[str]] = frozenset()
    """The arguments that its consumers may have."""
    must_last: ClassVar[bool] = True
    """Whether it has to be durable, shared and kept."""

    def __init__(self, declaration: Declaration, surroundings: Surroundings) -> None:
        self.declaration, self._surroundings = declaration, surroundings
        self.name, self.arguments = declaration.name, declaration.arguments
        self.consumers: list[Consumer] = []

    # -- declaring -----------------------------------------------------------------------------------------------------

    @classmethod
    def check_new(cls, asked: Declaration) -> None:
        """Refuses what cannot be declared."""
        where = f"for queue '{asked.name}' in vhost '/'"
        for name in sorted(asked.arguments):
            if name in cls.refused:
                raise precondition_failed(f"invalid arg '{name}' {where} of queue type rabbit_{asked.kind}_queue")
            if name not in cls.supported:
                raise only_in_rabbitmq(f"{asked.kind} queues with {name}")
        for wrong, name in (
            (not asked.durable, "non-durable"),
            (asked.auto_delete, "auto-delete"),
            (asked.owner is not None, "exclusive-owner"),
        ):
            if wrong and cls.must_last:
                raise precondition_failed(f"invalid property '{name}' {where}")

    def check_again(self, asked: Declaration) -> None:
        """Refuses a declaration that differs."""
        mine = self.declaration
        if asked.owner is not mine.owner:
            raise locked(self.name)
        for name in ("durable", "auto_delete"):
            received, current = getattr(asked, name), getattr(mine, name)
            if received != current:
                raise self._inequivalent(name, f"'{str(received).lower()}'", f"'{str(current).lower()}'")
        if asked.kind != mine.kind:
            raise self._inequivalent(TYPE, f"'{asked.kind}'", f"'{mine.kind}'")
        for argument in sorted(self.supported - {TYPE}):
            received, current = asked.arguments.get(argument), mine.arguments.get(argument)
            if received != current:
                raise self._inequivalent(argument, described(received), described(current))

    def _inequivalent(self, argument: str, received: str, current: str) -> Exception:
        return inequivalent(argument, f"queue '{self.name}'", received, current)

    def used(self) -> None:  # noqa: B027 -- only queues that expire care
        """It was declared again."""

    def check_deletion(self, *, if_unused: bool, if_empty: bool) -> None:  # noqa: B027 -- streams take no notice
        """Refuses to delete it, on these conditions."""

    # -- consuming -----------------------------------------------------------------------------------------------------

    def attach(self, consumer: Consumer) -> None:
        """Adds a consumer, or refuses it. It gets nothing before `serve`."""
        for name in sorted(consumer.arguments.keys() - self.takes_of_consumers):
            if name in {OFFSET, PRIORITY}:
                kind = f"rabbit_{self.declaration.kind}_queue"
                raise precondition_failed(
                    f"invalid arg '{name}' for queue '{self.name}' in vhost '/' of queue type {kind}"
                )
            raise only_in_rabbitmq(f"consumers with {name}")
        self.consumers.append(consumer)

    def detach(self, consumer: Consumer) -> None:
        if consumer in self.consumers:
            self.consumers.remove(consumer)

    @abstractmethod
    def serve(self) -> None:
        """Delivers messages to consumers with room."""

    def properties_of(self, message: Message) -> BasicProperties:
        """The properties as delivered."""
        return message.properties

    # -- messages ------------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def contents(self) -> Sequence[Message]:
        """The messages for the next consumer, oldest first."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether there is no message, unacknowledged ones included."""

    @abstractmethod
    def push(self, message: Message) -> None:
        """Takes a message that nobody else has."""

    @abstractmethod
    def take(self, *, without_acks: bool) -> Message | None:
        """Removes the first message, for basic.get."""

    @abstractmethod
    def purge(self) -> int:
        """Removes the messages that are not with a consumer; returns how many."""

    @abstractmethod
    def acked(self) -> None:
        """A consumer has acknowledged a message."""

    @abstractmethod
    def requeue(self, messages: Sequence[Message]) -> None:
        """Takes back messages that a consumer has sent back, without serving them again yet."""

    @abstractmethod
    def reject(self, message: Message) -> None:
        """Drops a message that a consumer has rejected, or dead-letters it."""

    @abstractmethod
    def abandon(self, messages: Sequence[Message]) -> None:
        """Takes back messages whose channel has ended, in the order of their delivery, without serving them yet."""
