"""Contains failures on a connection's thread: an error with one queue ends only the work on that queue.

The shared connection goes on; it would only be made again and lost over the same queue again.

An unreadable message halts its partition, as does everything that needs an operator; a bug of ours fails the member.
RabbitMQ's refusals never arrive as exceptions, so pika's own exceptions mean that the connection is ending.
"""

from __future__ import annotations

import logging
from functools import wraps
from shlex import quote
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar

from pika import exceptions as pika_errors

from cobalance.errors import CobalanceError, GroupFailed, MessageUnreadable
from cobalance.rabbitmq.wire.failures import channel_lost, loss_reason
from cobalance.redact import raised_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from pika.spec import Basic

    from cobalance.rabbitmq.wire.pika_internals import Unreadable

log = logging.getLogger("cobalance.rabbitmq")

P = ParamSpec("P")


class Contained(Protocol):
    """The work on one queue."""

    def broken(self, error: Exception) -> None:
        """A method has raised this error."""


Self = TypeVar("Self", bound=Contained)


def contained(method: Callable[Concatenate[Self, P], None]) -> Callable[Concatenate[Self, P], None]:
    """Decorates methods that are called on the connection's thread."""

    @wraps(method)
    def call(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 -- reported as the failure of this queue
            self.broken(error)

    return call


def failure_of(error: Exception, queue: str) -> CobalanceError:
    """Converts the exception; of an unexpected one only type and place, since its text may quote a message."""
    if isinstance(error, CobalanceError):
        return error
    if isinstance(error, pika_errors.AMQPError):
        return channel_lost(queue, loss_reason(error))
    failure = GroupFailed(
        f"Queue {queue!r} cannot be consumed because of a {type(error).__name__} in {raised_at(error)}. That is a bug of Cobalance's: please report it."
    )
    log.error("%s", failure)
    return failure


def unreadable(queue: str, method: Basic.Deliver, properties: Unreadable) -> MessageUnreadable:
    """Such a message cannot be processed by anyone, and whatever is behind it in the queue has to wait."""
    return MessageUnreadable(
        f"Queue {queue!r} has a message with headers that cannot be read ({type(properties.error).__name__}), such as a time in milliseconds "
        f"where AMQP has seconds. It was published to exchange {method.exchange!r} with routing key {method.routing_key!r}, and is the "
        f"oldest one left: take it out (rabbitmqadmin get queue={quote(queue)} ackmode=reject_requeue_false, which dead-letters it), or, of a stream, have the group "
        "go on behind it (cobalance group reset-offsets, which resumes it)."
    )
