"""A lock kept by RabbitMQ: an exclusive queue, which belongs to its connection and is deleted with it.

Streams have no guard of their own. If whoever reads a stream for a group must hold this queue, only one does at a time; a
frozen process loses it when RabbitMQ misses its heartbeats, as it would lose an exclusive consumer on a classic queue.

An operator, or a policy with ``expires``, may delete the queue before that, and the next one to ask gets it. So its
holder consumes it: RabbitMQ takes no queue that has a consumer for unused, and reports when it is deleted otherwise.
"""

import logging
from collections.abc import Callable

from pika import exceptions as pika_errors
from pika.channel import Channel

from cobalance.backoff import Backoff
from cobalance.coordinator.keys import DEFAULT_PREFIX
from cobalance.errors import CobalanceError, PermissionMissing, QueueMissing
from cobalance.rabbitmq.model.queues import own_name
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.failures import channel_failure, channel_lost, loss_reason
from cobalance.rabbitmq.wire.pika_internals import bare_close

log = logging.getLogger("cobalance.rabbitmq")

DECLARATION = {"x-queue-type": "classic"}

RESOURCE_LOCKED = 405

CONSUMER_TAG = "cobalance.lock"

AGAIN_MS = 10
"""The pause when all channels that RabbitMQ allows are in use."""

BACKOFF_MS = Backoff(10.0, 1_000.0)
"""The pauses before a release that RabbitMQ refused is tried again."""


def lock_name(scope: str, stream: str) -> str:
    """The queue that guards a stream within a group of this scope (:attr:`Coordinator.scope`); others read it, too. The
    default prefix is left out.
    """
    return own_name("lock.", f"{scope.removeprefix(f'{DEFAULT_PREFIX} ')} {stream}")


class LockQueue:
    """One attempt at a time to hold this queue, or only to see that nobody else holds it.

    The latter is for a member that has no lock itself, beside others that have, as during a rolling update: who holds it
    believes to be guarded. Losing the connection loses the lock. I/O thread only.
    """

    def __init__(self, connection: BrokerConnection, name: str, *, holds: bool = True) -> None:
        self.name = name
        self.held = False
        self._connection, self._holds = connection, holds

    def acquire(
        self,
        granted: Callable[[], None],
        taken: Callable[[CobalanceError], None],
        failed: Callable[[CobalanceError], None],
    ) -> None:
        """Asks for the lock once; reports that we got it, another connection has it, or it cannot be had at all.

        A member without the lock looks for it, which needs no permission: it may go on unless another connection has it.

        A connection may declare its exclusive queue again, and the release of an earlier tenure's would delete it: as long
        as this connection has the lock, it counts as taken.
        """
        locks = self._connection.locks
        if self._holds and self.name in locks:
            error = channel_lost(self.name, "an earlier tenure of this process still has the lock")
            self._connection.call_later(0, lambda: taken(error))
            return
        if self._holds:
            locks.add(self.name)

        def go_on(channel: Channel) -> None:
            self.held = self._holds
            bare_close(channel)
            granted()

        def closed(_: Channel, reason: Exception) -> None:
            error = channel_failure(reason, self.name)  # None if we closed it ourselves
            if isinstance(error, QueueMissing) and not self._holds:
                granted()
            elif error is not None:
                locks.discard(self.name)
                (taken if _is_taken(reason) else failed)(error)

        def unopened(error: Exception) -> None:
            locks.discard(self.name)
            failed(channel_lost(self.name, loss_reason(error)))

        self._connection.lend_channel(lambda it: self._ask(it, lambda _: go_on(it)), closed, unopened)

    def _ask(self, channel: Channel, answered: Callable[[object], None]) -> None:
        if self._holds:
            channel.queue_declare(self.name, exclusive=True, arguments=DECLARATION, callback=answered)
        else:
            channel.queue_declare(self.name, passive=True, callback=answered)

    def keep(self, channel: Channel, lost: Callable[..., None]) -> None:
        """Consumes the queue, if it is held. What RabbitMQ then answers on this channel proves the lock: the queue is
        declared again, as it may have been deleted, and RabbitMQ closes the channel if another connection has it.

        RabbitMQ cancels this consumer once the queue is deleted. `lost` is called if a message comes, which would be taken
        for one of those that are consumed on this channel.
        """
        if self.held:
            channel.queue_declare(self.name, exclusive=True, arguments=DECLARATION)
            channel.basic_consume(self.name, lost, auto_ack=True, consumer_tag=CONSUMER_TAG)

    def failure(self, reason: Exception, stream: str) -> CobalanceError | None:
        """What it means that such a channel was closed, over the lock or over the stream; None if we closed it ourselves."""
        error = channel_failure(reason, stream)
        if f"'{self.name}'" not in str(error):
            return error
        error = channel_failure(reason, self.name)
        return error if isinstance(error, PermissionMissing) else self.loss(stream)

    def loss(self, stream: str) -> CobalanceError:
        """The lock is gone, or its consumer of no use."""
        return channel_lost(stream, f"its lock, queue {self.name!r}, was deleted, or a message was published to it")

    def release(self, released: Callable[[], None]) -> None:
        """Releases the lock. It is gone, one way or the other, when `released` is called: unless RabbitMQ refuses for want
        of a permission. Then others wait, and it is tried again until it is gone, or the connection.
        """
        self.held = False
        if self._holds:
            self._delete(released)
        else:
            released()

    def _delete(self, deleted: Callable[[], None], refusals: int = 0) -> None:
        locks = self._connection.locks
        locks.add(self.name)  # a tenure of this process that asks meanwhile would be given what is about to go

        def ask(channel: Channel) -> None:
            channel.queue_delete(self.name, callback=lambda _: bare_close(channel))

        def failed(error: Exception) -> None:
            if isinstance(error, pika_errors.NoFreeChannels):
                self._connection.call_later(AGAIN_MS, lambda: self._delete(deleted, refusals))
            else:  # the connection is ending, and the lock with it
                closed(None, error)

        def closed(_: object, reason: Exception) -> None:
            locks.discard(self.name)
            if isinstance(reason, pika_errors.ChannelClosedByBroker) and not _is_taken(reason):
                self._delete_later(refusals + 1, reason)
            deleted()

        self._connection.lend_channel(ask, closed, failed)

    def _delete_later(self, refusals: int, reason: pika_errors.ChannelClosedByBroker) -> None:
        if refusals == 1:
            log.warning(
                "%s: RabbitMQ does not let go of '%s', which is the lock of a stream (%d %s). Until it may be deleted, or this connection "
                "ends, the stream can be read nowhere else",
                *(self._connection.name, self.name, reason.reply_code, reason.reply_text),
            )

        def again() -> None:
            if self.name in self._connection.locks:  # a later tenure of this process has it, or asks for it
                self._connection.call_later(BACKOFF_MS.longest, again)
            else:
                self._delete(lambda: None, refusals)

        self._connection.call_later(BACKOFF_MS.pause(refusals), again)


def _is_taken(reason: Exception) -> bool:
    return isinstance(reason, pika_errors.ChannelClosedByBroker) and reason.reply_code == RESOURCE_LOCKED
