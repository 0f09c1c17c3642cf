"""A queue as it was declared, and the broker-side guard that this gives it."""

import enum
from collections.abc import Mapping

import attrs

Argument = str | int | bool


class Guard(enum.Enum):
    """What keeps two processes from consuming one queue at a time, should all else fail."""

    EXCLUSIVE = "exclusive"
    """The consumer is exclusive: RabbitMQ refuses every other one. Classic queues only; others ignore the wish in silence."""
    SINGLE_ACTIVE = "single active consumer"
    """The queue serves one consumer at a time and keeps the others waiting; it must have been declared so."""
    NONE = "none"
    """Two consumers would share the messages."""


def _copy(arguments: Mapping[str, Argument]) -> dict[str, Argument]:
    return dict(arguments)


@attrs.frozen
class Queue:
    """A queue's name and the declaration that RabbitMQ must find equivalent to its own before a guard counts as proven."""

    name: str
    arguments: Mapping[str, Argument] = attrs.field(factory=dict, converter=_copy)
    """x-arguments; without an x-queue-type the queue is taken to be a classic one."""
    durable: bool = True
    auto_delete: bool = False

    @property
    def kind(self) -> str:
        """classic, quorum or stream."""
        return str(self.arguments.get("x-queue-type", "classic"))

    @property
    def guard(self) -> Guard:
        """The guard that a consumer of this queue has, given that the declaration is true."""
        if self.arguments.get("x-single-active-consumer") is True:
            return Guard.SINGLE_ACTIVE
        return Guard.EXCLUSIVE if self.kind == "classic" else Guard.NONE

    @property
    def declaration(self) -> dict[str, Argument]:
        """The x-arguments to declare with: the type is always spelled out, since a virtual host may have a default of its own."""
        return {"x-queue-type": self.kind, **self.arguments}
