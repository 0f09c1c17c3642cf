"""RabbitMQ as measured (facts/rabbitmq.md): ordered queues, prefetch, requeue at the head in order, exclusive consumers, and
a connection that a frozen client keeps for three heartbeats.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from cobalance_sims.consumer import BrokerWork, Lane
    from cobalance_sims.world import World

HEARTBEAT_MS = 2_000
BREATHS = 3
"""Heartbeats that a client may miss before the broker gives its connection up."""
WAY_MS = 1
"""One way between a client and the broker. TCP keeps the order of what travels, so it is constant."""
CRASH_NOTICED_MS = 4
"""Until the broker sees the closed socket of a killed process (measured: median 3.9)."""


@attrs.frozen
class Delivery:
    """One message on its way to a consumer. ``redelivered`` says that somebody may have seen it before."""

    seq: int
    redelivered: bool


@attrs.define(eq=False)
class Queue:
    """Messages are numbered in the order in which they were published."""

    name: str
    ready: deque[Delivery] = attrs.Factory(deque)
    unacked: deque[Delivery] = attrs.Factory(deque)
    consumer: Lane | None = None
    published: int = 0
    acked: int = 0
    """All messages up to this one are done with."""


class Broker:
    """The queues, and who consumes them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.queues: dict[str, Queue] = {}

    def queue(self, name: str) -> Queue:
        """It is made when first named, and durable."""
        if name not in self.queues:
            self.queues[name] = Queue(name)
        return self.queues[name]

    def publish(self, name: str) -> None:
        """One more message."""
        queue = self.queue(name)
        queue.published += 1
        queue.ready.append(Delivery(queue.published, redelivered=False))
        self._push(queue)

    def consume(self, lane: Lane) -> bool:
        """An exclusive consumer. False when another one is there: 403, the channel is dead."""
        queue = self.queue(lane.resource)
        if queue.consumer is not None:
            self._world.reached.count("refused by the broker")
            return False
        queue.consumer = lane
        self._push(queue)
        return True

    def ack(self, lane: Lane, seq: int) -> None:
        """Up to this message, ``multiple=True``. Tags belong to a channel: from a closed one they mean nothing."""
        queue = self.queue(lane.resource)
        if queue.consumer is not lane:
            return
        while queue.unacked and queue.unacked[0].seq <= seq:
            queue.acked = max(queue.acked, queue.unacked.popleft().seq)
        self._world.watch.acked(queue.name, seq)
        self._push(queue)

    def close(self, lane: Lane) -> None:
        """A bare Channel.Close, or the end of its connection: what is unacked goes back to the head, in order."""
        queue = self.queue(lane.resource)
        if queue.consumer is not lane:
            return
        queue.consumer = None
        while queue.unacked:
            queue.ready.appendleft(Delivery(queue.unacked.pop().seq, redelivered=True))

    def _push(self, queue: Queue) -> None:
        lane = queue.consumer
        while lane is not None and queue.ready and len(queue.unacked) < lane.prefetch:
            delivery = queue.ready.popleft()
            queue.unacked.append(delivery)
            self._world.clock.after(WAY_MS, lane.delivered, delivery)

    # -- connections: one a process ----------------------------------------------------------------------------------------

    def frozen(self, work: BrokerWork, freeze: int) -> None:
        """A client stopped answering: its connection ends in three heartbeats, unless it goes on before."""
        self._world.clock.after(BREATHS * HEARTBEAT_MS, self._give_up, (work, freeze))

    def _give_up(self, what: tuple[BrokerWork, int]) -> None:
        work, freeze = what
        lanes = work.lanes_of_freeze(freeze)
        if lanes:
            self._world.reached.count("connection lost to a freeze")
        for lane in lanes:
            self._world.log(lane.process, f"loses {lane.resource} at the broker: frozen for three heartbeats")
            lane.cut = True
            self.close(lane)

    @property
    def waiting(self) -> int:
        """Messages not done with."""
        return sum(queue.published - queue.acked for queue in self.queues.values())
