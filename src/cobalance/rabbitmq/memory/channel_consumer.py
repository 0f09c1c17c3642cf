"""A consumer on a channel: what it was given, and whether it has room for more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
from pika.spec import Basic

from cobalance.rabbitmq.memory.queue import PRIORITY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cobalance.rabbitmq.memory.channel import MemoryChannel
    from cobalance.rabbitmq.memory.message import Message
    from cobalance.rabbitmq.memory.queue import MemoryQueue


@attrs.define(eq=False)
class ChannelConsumer:
    """A consumer on a channel; see :class:`cobalance.rabbitmq.memory.queue.Consumer`."""

    tag: Any
    """A string, though pika's types say otherwise."""
    exclusive: bool
    channel: MemoryChannel
    prefetch: int
    without_acks: bool
    arguments: Mapping[str, Any]
    out: int = 0

    @property
    def priority(self) -> int:
        """Of those with room, the highest is served first."""
        return int(self.arguments.get(PRIORITY, 0))

    @property
    def has_room(self) -> bool:
        """Whether the prefetch allows another message."""
        return self.without_acks or not self.prefetch or self.out < self.prefetch

    def deliver(self, queue: MemoryQueue, message: Message) -> None:
        tag = self.channel.hand_out(queue, message, self, without_acks=self.without_acks)
        sent = Basic.Deliver(self.tag, tag, message.redelivered, message.exchange, message.routing_key)
        self.channel.send(sent, queue.properties_of(message), message.body)

    def cancelled(self) -> None:
        """The queue was deleted."""
        self.channel.consumers.pop(self.tag, None)
        self.channel.send(Basic.Cancel(self.tag, nowait=True))
