"""A lock that RabbitMQ itself keeps: an exclusive queue, which belongs to the connection that declared it and dies with it.

Streams have no guard of their own. Whoever must hold this queue to consume one is alone in doing so, and a process that froze
frees it when RabbitMQ misses its heartbeats, as it would a classic queue's exclusive consumer.
"""

from collections.abc import Callable

from pika import exceptions as pika_errors
from pika.channel import Channel

from cobalance.errors import CobalanceError
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.failures import channel_failure
from cobalance.rabbitmq.wire.pika_internals import bare_close

DECLARATION = {"x-queue-type": "classic"}

RESOURCE_LOCKED = 405

AGAIN_MS = 10
"""Where all channels that RabbitMQ allows are taken for the moment."""


class LockQueue:
    """One attempt at a time to hold ``lock.<stream>``. All methods run on the I/O thread; losing the connection is losing the lock."""

    def __init__(self, connection: BrokerConnection, stream: str) -> None:
        self.name = f"lock.{stream}"
        self.held = False
        self._connection = connection

    def acquire(
        self,
        granted: Callable[[], None],
        taken: Callable[[CobalanceError], None],
        failed: Callable[[CobalanceError], None],
    ) -> None:
        """Asks for the lock once: it is ours, another connection has it, or it cannot be had at all."""

        def ask(channel: Channel) -> None:
            channel.queue_declare(self.name, exclusive=True, arguments=DECLARATION, callback=lambda _: hold(channel))

        def hold(channel: Channel) -> None:
            self.held = True
            bare_close(channel)
            granted()

        def closed(_: Channel, reason: Exception) -> None:
            error = channel_failure(reason, self.name)  # None when we closed it ourselves
            if error is not None:
                (taken if _is_taken(reason) else failed)(error)

        self._connection.open_channel(ask).add_on_close_callback(closed)

    def release(self, released: Callable[[], None]) -> None:
        """Lets go of it. It is gone, one way or the other, when `released` is called."""
        self.held = False

        def ask(channel: Channel) -> None:
            channel.queue_delete(self.name, callback=lambda _: bare_close(channel))

        try:
            channel = self._connection.open_channel(ask)
        except pika_errors.NoFreeChannels:
            self._connection.call_later(AGAIN_MS, lambda: self.release(released))
        except pika_errors.AMQPError:  # the connection is ending, and takes the lock with it
            released()
        else:
            channel.add_on_close_callback(lambda *_: released())


def _is_taken(reason: Exception) -> bool:
    return isinstance(reason, pika_errors.ChannelClosedByBroker) and reason.reply_code == RESOURCE_LOCKED
