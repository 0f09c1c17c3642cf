"""RabbitMQ as measured: ordered queues, prefetch, requeue at the head in order, exclusive consumers, and a connection
that outlives a frozen client by two to three heartbeats.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from random import Random

    from cobalance_sims.simulate.channel import SimulatedChannel
    from cobalance_sims.simulate.consumer import BrokerWork
    from cobalance_sims.simulate.world import World

BREATHS = (2, 3)
"""Heartbeats that a client may miss before the broker closes its connection: it checks once a heartbeat, and closes at
the second check without a new byte.
"""

Taken = float | tuple[float, ...]
"""A duration in ms: constant, or drawn from these samples."""


@attrs.frozen(kw_only=True)
class Ways:
    """Latencies between a client and the broker, ms. Fractions are kept on average, since time passes in whole ms."""

    way_ms: int = 1
    """One way. Constant, because TCP keeps the order of what it carries."""
    open_ms: Taken = 2
    """From a grant to the subscription: channel, guard, consumer."""
    close_ms: Taken = 3
    """From the end of the last handler until CloseOk is received."""
    ask_ms: Taken = 0
    """From the answer that asks for an idle partition until its event loop has stopped work on it."""
    tell_ms: Taken = 0
    """From the answer that grants a partition until user code is notified."""
    noticed_ms: Taken = 4
    """Until the broker sees the closed socket of a killed process (measured: median 3.9)."""


def whole(ms: Taken, random: Random) -> int:
    """Rounds to whole milliseconds, up as often as the fraction says; of samples, picks one at random."""
    if isinstance(ms, tuple):
        ms = random.choice(ms)
    down = int(ms)
    return down + (ms > down and random.random() < ms - down)


@attrs.frozen
class Delivery:
    """One message on its way to a consumer. ``redelivered`` means that a consumer may have seen it before."""

    seq: int
    redelivered: bool
    handle_ms: int | None = None
    """How long its handler takes, if the message says so; else the handler's habits decide."""


@attrs.define(eq=False)
class SimulatedQueue:
    """Messages are numbered in the order of publication."""

    name: str
    ready: deque[Delivery] = attrs.Factory(deque)
    unacked: deque[Delivery] = attrs.Factory(deque)
    consumer: SimulatedChannel | None = None
    published: int = 0
    acked: int = 0
    """All messages up to this one are acknowledged."""


class SimulatedBroker:
    """The queues and their consumers."""

    def __init__(self, world: World, ways: Ways | None = None) -> None:
        self._world = world
        self.ways = ways or Ways()
        self.heartbeat_ms = 1_000 * max(1, round(world.settings.session_timeout_ms / 3_000))
        """The value a ConsumerGroup asks for."""
        self.queues: dict[str, SimulatedQueue] = {}

    def queue(self, name: str) -> SimulatedQueue:
        """Returns the durable queue, which is created on first use."""
        if name not in self.queues:
            self.queues[name] = SimulatedQueue(name)
        return self.queues[name]

    def publish(self, name: str, handle_ms: int | None = None) -> None:
        """Publishes one more message."""
        queue = self.queue(name)
        queue.published += 1
        queue.ready.append(Delivery(queue.published, redelivered=False, handle_ms=handle_ms))
        self._push(queue)

    def consume(self, channel: SimulatedChannel) -> bool:
        """Adds an exclusive consumer. False if there is one already: 403, and the channel is closed."""
        queue = self.queue(channel.lane.resource)
        if queue.consumer is not None:
            self._world.reached.count("refused by the broker")
            return False
        queue.consumer = channel
        self._push(queue)
        return True

    def ack(self, channel: SimulatedChannel, seq: int) -> None:
        """Acknowledges up to this message (``multiple=True``). Tags mean nothing once their channel is closed."""
        queue = self.queue(channel.lane.resource)
        if queue.consumer is not channel:
            return
        while queue.unacked and queue.unacked[0].seq <= seq:
            queue.acked = max(queue.acked, queue.unacked.popleft().seq)
        self._world.watch.acked(queue.name, seq)
        self._push(queue)

    def close(self, channel: SimulatedChannel) -> None:
        """Handles a bare Channel.Close or the end of the connection: unacked messages return to the head, in order."""
        queue = self.queue(channel.lane.resource)
        if queue.consumer is not channel:
            return
        queue.consumer = None
        while queue.unacked:
            queue.ready.appendleft(attrs.evolve(queue.unacked.pop(), redelivered=True))

    def _push(self, queue: SimulatedQueue) -> None:
        channel = queue.consumer
        while channel is not None and queue.ready and len(queue.unacked) < channel.prefetch:
            delivery = queue.ready.popleft()
            queue.unacked.append(delivery)
            self._world.clock.after(self.ways.way_ms, channel.delivered, delivery)

    # -- connections: one a process ----------------------------------------------------------------------------------------

    def frozen(self, work: BrokerWork, freeze: int) -> None:
        """A client stopped answering: its connection ends in two to three heartbeats unless it resumes before."""
        breaths = self._world.random.uniform(*BREATHS)
        self._world.clock.after(round(breaths * self.heartbeat_ms), self._give_up, (work, freeze))

    def _give_up(self, what: tuple[BrokerWork, int]) -> None:
        work, freeze = what
        lanes = work.lanes_of_freeze(freeze)
        if lanes:
            self._world.reached.count("connection lost to a freeze")
        for lane in lanes:
            self._world.log(lane.process, f"loses {lane.resource} at the broker: frozen for too many heartbeats")
            lane.cut = True
            self.close(lane.channel)
        work.close_frozen(freeze)

    @property
    def waiting(self) -> int:
        """Number of messages not yet acknowledged."""
        return sum(queue.published - queue.acked for queue in self.queues.values())
