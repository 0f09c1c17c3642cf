"""One reader of a partition: the production core, what it has asked for, and what it has to do with messages.

What RabbitMQ sends arrives in its order, at any later moment; a turn and a timer come at any moment. Here is as much of
a worker as the core takes for granted: it takes what there is, and begins a message when nothing keeps it from it.
"""

from __future__ import annotations

from typing import Any

import attrs

from cobalance.errors import ChannelLost
from cobalance.rabbitmq.partition.actions import Timer
from cobalance.rabbitmq.partition.core import PartitionCore
from cobalance.rabbitmq.partition.key_order import KeyOrder
from cobalance.rabbitmq.streams.continuity import Continuity
from proof.partitions.broker import OneQueue
from proof.partitions.scope import HandoverScope

LOST, IN_USE = ChannelLost("lost"), ChannelLost("in use")

TIMERS = frozenset({Timer.RETRY, Timer.TICK, Timer.UNSETTLED})
"""Those of the core. A stream's gate has others, for what a slow RabbitMQ leaves open; here it answers in time."""


@attrs.frozen
class Item:
    """A message, as far as order by key is concerned."""

    tag: int
    key: str


@attrs.define
class Reader:
    """One channel's time with one partition."""

    member: str
    core: PartitionCore
    order: KeyOrder[Item] | None = None
    log: OneQueue | None = None
    """A stream's messages, as they are served to this reader."""
    arriving: list[Any] = attrs.Factory(list)
    """What RabbitMQ has sent and has not arrived yet: words, and messages by number."""
    timers: list[Timer] = attrs.Factory(list)
    turn: bool = False
    taken: dict[int, int] = attrs.Factory(dict)
    """Tag → message, of those that are not finished."""
    burst: list[int] = attrs.Factory(list)
    """Tags taken and not begun, where order is kept by partition."""
    running: list[int] = attrs.Factory(list)
    """Tags whose handlers run."""
    held: list[int] = attrs.Factory(list)
    """Tags whose handlers have returned, and that the program has yet to settle."""
    has_channel: bool = False
    """Whether it has a channel, as far as it knows."""
    served: bool = False
    """Whether RabbitMQ sends it messages."""
    waits: bool = False
    """Whether it is subscribed behind a single active consumer."""
    has_lock: bool = False
    is_cut: bool = False
    """Whether RabbitMQ has closed its channel, which it may not know yet."""
    asked: bool = False
    """Whether its member is asked for the partition."""
    kept: bool = False
    """Whether it is asked no more, of which its worker has yet to hear."""
    given_up: bool = False
    """Whether its worker gives it up, though nobody has asked."""
    again: bool = False
    """Whether it closes its channel only to go on with another one."""
    fenced: bool = False
    """Whether the partition was moved by force, which its member may not know yet."""
    stopping: bool = False
    """Whether nothing more is begun."""
    drained: bool = False
    released: bool = False
    aborted: bool = False
    end: str = ""
    """``closed`` or ``lost`` once its tenure at RabbitMQ has ended."""

    @classmethod
    def of(cls, scope: HandoverScope, member: str, messages: int, after: int = -1) -> Reader:
        """A reader that has not started. A stream's begins behind an offset."""
        core = PartitionCore(
            "q",
            prefetch=scope.prefetch,
            ack_every=scope.ack_every,
            acks_ahead=scope.by_key,
            acks_ahead_at_close=True,
            locks=scope.guard == "lock",
            gate=Continuity("q", after, int) if scope.is_stream else None,
        )
        log = OneQueue(scope.prefetch, stream=True) if scope.is_stream else None
        if log is not None:
            log.ready.extend(range(max(after, 0), messages))
        order: KeyOrder[Item] | None = KeyOrder() if scope.by_key else None
        return cls(member, core, order, log)

    @property
    def position(self) -> int:
        """The offset of the last message of a stream that was processed with no gap before it."""
        gate = self.core._gate  # noqa: SLF001  # the adapter made it, and knows it
        return gate.position.at(self.core.acks.settled) if isinstance(gate, Continuity) else -1

    @property
    def is_over(self) -> bool:
        """Whether nothing can come of it any more."""
        return bool(self.end) and not (self.running or self.turn or self.timers or self.arriving)

    def may_begin(self) -> bool:
        """Whether there is a message that the worker would begin now."""
        if self.stopping or self.end:
            return False
        if self.order is not None:
            return self.order.is_ready(0)
        return bool(self.burst) and not self.running

    def begin(self) -> int:
        """Begins the next message; returns its tag."""
        if self.order is None:
            tag = self.burst.pop(0)
        elif (item := self.order.take(0)) is not None:
            tag = item.tag
        else:
            raise LookupError("nothing may be begun")
        self.running.append(tag)
        return tag
