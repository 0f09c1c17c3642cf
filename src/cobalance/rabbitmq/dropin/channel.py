"""The channel of a drop-in connection: the group does the consuming, a pika channel does everything else."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NoReturn, Self

import attrs
from pika import exceptions as pika_errors
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic, BasicProperties

from cobalance.errors import UsageError
from cobalance.rabbitmq.consume.dead_letter_target import target_of
from cobalance.rabbitmq.dropin.lanes import Lane

if TYPE_CHECKING:
    from types import TracebackType

    from cobalance.rabbitmq.dropin.connection import GroupConnection
    from cobalance.rabbitmq.partition.delivery import Delivery

log = logging.getLogger("cobalance.rabbitmq")

# Any: programs written for pika declare a BlockingChannel.
OnMessage = Callable[[Any, Basic.Deliver, BasicProperties, bytes], object]


DEFAULT_PREFETCH = 100
"""For channels that set none, or 0: without a limit, all messages of a queue would wait in one process."""


@attrs.frozen
class BasicConsumer:
    """One ``basic_consume``."""

    channel: GroupChannel
    tag: str
    callback: OnMessage
    prefetch: int


class GroupChannel:
    """Replaces pika's channel."""

    def __init__(self, connection: GroupConnection, channel: BlockingChannel) -> None:
        self.connection, self._pika = connection, channel
        self._count = self._last_tag = self._forgotten = 0
        self._prefetch = DEFAULT_PREFETCH
        self._transacts = False
        self._unsettled: dict[int, tuple[Lane, Delivery]] = {}

    def __repr__(self) -> str:
        return f"<GroupChannel {self._pika.channel_number} of {self.connection!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pika.is_open:
            self.close()

    def __getattr__(self, name: str) -> Any:
        """Everything else is pika's."""
        if name == "_pika":
            raise AttributeError(name)
        return getattr(self._pika, name)

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, global_qos: bool = False) -> None:
        """Sets how many unacknowledged messages RabbitMQ sends ahead, for each queue consumed from here on."""
        self._pika.basic_qos(prefetch_size, prefetch_count, global_qos)
        self._prefetch = prefetch_count or DEFAULT_PREFETCH

    def basic_consume(  # noqa: PLR0917 -- pika's
        self,
        queue: str,
        on_message_callback: OnMessage,
        auto_ack: bool = False,
        exclusive: bool = False,  # noqa: ARG002 -- a group gives each queue to one process anyway
        consumer_tag: str | None = None,
        arguments: dict[str, Any] | None = None,
    ) -> str:
        """Makes the queue a resource of the group; consuming begins with `start_consuming`.

        Raises:
            UsageError: `auto_ack` or `arguments` are given, the queue belongs to this connection alone, or the channel has
                begun transactions.
            pika.exceptions.ChannelClosedByBroker: there is no such queue.
            pika.exceptions.DuplicateConsumerTag: this channel has a consumer with this tag.
        """
        if auto_ack:
            raise UsageError(
                f"Queue {queue!r} cannot be consumed with auto_ack=True: a message would be lost whenever its process dies. "
                "Leave it out, and call channel.basic_ack(method.delivery_tag) when a message is processed."
            )
        if arguments:
            raise UsageError(f"Consumer arguments for queue {queue!r} are not supported in a group: leave them out.")
        if queue.startswith("amq.") or not queue:
            raise UsageError(f"Queue {queue!r} is named by the server, so that no other process could know it.")
        if self._transacts:
            _refuse_transactions()
        if consumer_tag in self.consumer_tags:
            raise pika_errors.DuplicateConsumerTag(consumer_tag)
        self._pika.queue_declare(queue, passive=True)
        self._count += 1
        tag = consumer_tag or f"cobalance.{self._pika.channel_number}.{self._count}"
        self.connection.add_consumer(queue, BasicConsumer(self, tag, on_message_callback, self._prefetch))
        return tag

    @property
    def consumer_tags(self) -> list[str]:
        """The tags of this channel's consumers."""
        return self.connection.consumer_tags(self)

    def basic_cancel(self, consumer_tag: str) -> list[Any]:
        """Removes a consumer. Before `start_consuming`, any one; later only the last one, which also ends consuming.

        Returns an empty list, as pika does.
        """
        self.connection.remove_consumer(self, consumer_tag)
        return []

    def start_consuming(self) -> None:
        """Consumes as a member of the group until `stop_consuming`; raises what a callback raises.

        Raises:
            GroupUnreachable: Redis or RabbitMQ cannot be reached; also a pika.exceptions.AMQPConnectionError.
            CobalanceError: the servers cannot be used as they are, or the group refuses this process; the message says
                why.
        """
        self.connection.consume(self)

    def stop_consuming(self, consumer_tag: str | None = None) -> None:
        """Begins to leave the group.

        A queue moves to the next member once its begun messages are acknowledged, at the latest when the connection is
        closed or consumes again, as another channel with consumers may. Does nothing on a channel without any.
        """
        if consumer_tag is not None:
            self.connection.remove_consumer(self, consumer_tag)
        elif self.consumer_tags:
            self.connection.stop(self)

    def basic_ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """Acknowledges a message of this channel, or all up to it."""
        self._settle(delivery_tag, multiple, Lane.done)

    def basic_nack(self, delivery_tag: int = 0, multiple: bool = False, requeue: bool = True) -> None:
        """Has the message redelivered, in its place; without `requeue` it is dead-lettered.

        While its dead-letter target does not exist, it is redelivered, too.
        """
        self._settle(delivery_tag, multiple, Lane.again if requeue else self._reject)

    def basic_reject(self, delivery_tag: int = 0, requeue: bool = True) -> None:
        """The same for one message."""
        self._settle(delivery_tag, False, Lane.again if requeue else self._reject)

    def _settle(self, tag: int, multiple: bool, settle: Callable[[Lane, Delivery], None]) -> None:
        """Settles one message, or all up to it (tag 0: all). Has no effect if their queue is not held any more."""
        tags = [tag] if tag in self._unsettled else []
        if multiple:
            tags = list(takewhile(lambda it: it <= tag or tag == 0, self._unsettled))
        is_void = (multiple and tag == 0) or (0 < tag <= self._forgotten and self._pika.is_open)
        if not tags and not is_void:
            raise UsageError(f"Delivery tag {tag} is unknown: it was settled before, or is not of this channel.")
        for it in tags:
            settle(*self._unsettled[it])  # if it fails, the program may try again
            del self._unsettled[it]

    def _reject(self, lane: Lane, delivery: Delivery) -> None:
        """Uses RabbitMQ's reject, since programs rely on its headers, after checking that the target exists."""
        queue = lane.worker.queue
        target = target_of(queue, delivery.method.routing_key or "")
        if target is None or target.is_there(self._pika.connection):
            lane.reject(delivery)
            return
        log.error(
            "group %s: a rejected message of %s comes again, since RabbitMQ would drop it: there is no %s",
            *(self.connection.group, queue.name, target),
        )
        lane.again(delivery)

    def basic_get(self, queue: str, auto_ack: bool = False) -> Any:
        """Gets a single message of a queue that is not the group's, acknowledged on delivery."""
        if not auto_ack:
            _refuse("basic_get without auto_ack", "its delivery tags would be taken for the group's")
        return self._pika.basic_get(queue, auto_ack)

    def basic_recover(self, requeue: bool = False) -> NoReturn:  # noqa: ARG002 -- pika's
        """Not possible in a group; raises UsageError."""
        _refuse("basic_recover", "use basic_nack")

    def tx_select(self) -> Any:
        """Begins transactions, as in pika; on a channel that consumes, raises UsageError."""
        if self.consumer_tags or self._unsettled:
            _refuse_transactions()
        answer = self._pika.tx_select()
        self._transacts = True
        return answer

    def consume(self, *_: Any, **__: Any) -> NoReturn:
        """Not possible in a group; raises UsageError."""
        _refuse("consume()", "use basic_consume and start_consuming")

    def close(self, reply_code: int = 0, reply_text: str = "Normal shutdown") -> None:
        """Closes the channel; leaves the group if this channel consumes."""
        if not self.connection.inherited:
            self.connection.close_channel(self)
            self._pika.close(reply_code, reply_text)

    # -- for the connection --------------------------------------------------------------------------------------------

    def hand_out(self, lane: Lane, delivery: Delivery) -> int:
        """Returns the tag by which the program is to settle a message."""
        self._last_tag += 1
        self._unsettled[self._last_tag] = lane, delivery
        return self._last_tag

    def forget(self) -> None:
        """The membership is over: what is unsettled has returned to its queue, and comes again under another tag."""
        self._unsettled.clear()
        self._forgotten = self._last_tag


def _refuse_transactions() -> NoReturn:
    """A message would be lost if the transaction is rolled back, or the process dies before it commits."""
    instead = (
        "its acknowledgements are no part of the transaction. Call confirm_delivery() instead, and acknowledge a message once what "
        "follows from it is published; or publish in transactions on a channel of its own"
    )
    _refuse("tx_select on a channel that consumes", instead)


def _refuse(what: str, instead: str) -> NoReturn:
    raise UsageError(f"{what} is not possible in a group: {instead}.")
