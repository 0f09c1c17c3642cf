"""A queue as it was declared, and the guard at the broker that follows from the declaration."""

import enum
import hashlib
from collections.abc import Mapping

import attrs

Argument = str | int | bool

MOST_BYTES = 255
"""Of a queue's name."""


def own_name(beginning: str, rest: str) -> str:
    """The name of a queue of ours, with a hash for the rest where that is too long for RabbitMQ."""
    name = beginning + rest
    return name if len(name.encode()) <= MOST_BYTES else beginning + hashlib.sha256(name.encode()).hexdigest()


class Guard(enum.Enum):
    """What prevents two processes from consuming one queue at the same time if everything else fails."""

    EXCLUSIVE = "exclusive"
    """The consumer is exclusive: RabbitMQ refuses any other. Classic queues only; others silently ignore the flag."""
    SINGLE_ACTIVE = "single active consumer"
    """The queue serves one consumer at a time and keeps the others waiting; it must have been declared that way."""
    NONE = "none"
    """Two consumers would share the messages."""


def _copy(arguments: Mapping[str, Argument]) -> dict[str, Argument]:
    return dict(arguments)


@attrs.frozen
class Queue:
    """A queue's name and declaration. A guard only counts as proven once RabbitMQ accepts the declaration."""

    name: str
    arguments: Mapping[str, Argument] = attrs.field(factory=dict, converter=_copy)
    """The x-arguments; without an x-queue-type, the queue is taken to be classic."""
    durable: bool = True
    auto_delete: bool = False

    @property
    def kind(self) -> str:
        """``"classic"``, ``"quorum"`` or ``"stream"``."""
        return str(self.arguments.get("x-queue-type", "classic"))

    @property
    def guard(self) -> Guard:
        """The guard that a consumer of this queue has, provided that the declaration is correct."""
        if self.arguments.get("x-single-active-consumer") is True:
            return Guard.SINGLE_ACTIVE
        return Guard.EXCLUSIVE if self.kind == "classic" else Guard.NONE

    @property
    def declaration(self) -> dict[str, Argument]:
        """The x-arguments to declare with; the type is explicit, since a virtual host may set another default."""
        return {"x-queue-type": self.kind, **self.arguments}
