"""A partition's channel in virtual time: the production core, and what it asks for over the simulated network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from cobalance.errors import ChannelLost
from cobalance.rabbitmq.partition import actions as act
from cobalance.rabbitmq.partition.acks import Flush
from cobalance.rabbitmq.partition.backlog import BURST
from cobalance.rabbitmq.partition.core import PartitionCore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cobalance.rabbitmq.partition.actions import Timer
    from cobalance_sims.simulate.broker import Delivery
    from cobalance_sims.simulate.consumer import SimulatedPartition

IN_USE = ChannelLost("in use")


class SimulatedChannel:
    """One channel of one partition: carries out what the core asks for, over the simulated network."""

    def __init__(self, lane: SimulatedPartition, wait_ms: int) -> None:
        habits = lane.process.habits
        self.lane, self.prefetch = lane, habits.prefetch
        self.core = PartitionCore(
            lane.resource,
            prefetch=habits.prefetch,
            ack_every=habits.ack_every,
            ack_interval_ms=habits.ack_interval_ms,
        )
        self._process, self._broker = lane.process, lane.broker
        self._wait_ms = wait_ms  # before it is opened
        self._seqs: list[int] = []  # of the messages handed out, by tag
        self.do(self.core.start())

    def do(self, actions: Sequence[Any]) -> None:
        """Carries out what the core has answered."""
        for action in actions:
            self._DO[type(action)](self, action)

    def take(self) -> list[Delivery]:
        """The next messages."""
        taken: list[Delivery] = self.core.take(BURST)
        self._seqs += [it.seq for it in taken]
        return taken

    def delivered(self, delivery: Delivery) -> None:
        """A message has arrived at the client."""
        self._process.run_code(self._arrived, delivery)

    def _arrived(self, delivery: Delivery) -> None:
        self.do(self.core.message(delivery, self._process.world.now))

    def done(self, delivery: Delivery) -> None:
        """Its handler has returned."""
        self.do(self.core.done(1 + self._seqs.index(delivery.seq)))

    def _turn(self, _: act.Turn) -> None:
        self.do(self.core.turn())

    def _ready(self, _: act.Ready) -> None:
        self.lane.dispatch()

    def _open(self, _: act.OpenChannel) -> None:
        wait_ms, self._wait_ms = self._wait_ms, 0
        self._process.later(wait_ms + self.lane.time(self._broker.ways.open_ms), self._opened, None)

    def _opened(self, _: object) -> None:
        self.do(self.core.opened())

    def _subscribe(self, _: act.Subscribe) -> None:
        self.do(self.core.subscribed() if self._broker.consume(self) else self.core.refused(IN_USE))

    def _subscribed(self, _: act.Subscribed) -> None:
        self.lane.subscribed()

    def _send_acks(self, flush: Flush) -> None:
        if flush.ack is not None:
            seq = self._seqs[flush.ack - 1]
            self._process.world.clock.after(self._broker.ways.way_ms, self._acks_arrive, seq)

    def _acks_arrive(self, seq: int) -> None:
        if not self.lane.cut:
            self._broker.ack(self, seq)

    def _close(self, _: act.CloseChannel) -> None:
        ways = self._broker.ways
        self.lane.set_active(active=False)
        self._process.world.clock.after(ways.way_ms, self._close_arrives)
        self._process.later(self.lane.time(ways.close_ms), self._closed, None)

    def _close_arrives(self, _: object) -> None:
        self._broker.close(self)

    def _closed(self, _: object) -> None:
        """CloseOk."""
        self.do(self.core.channel_ended(None))

    def _set_timer(self, action: act.SetTimer) -> None:
        self._process.later(int(action.ms), self._fired, action.timer)

    def _fired(self, timer: Timer) -> None:
        self.do(self.core.fired(timer, self._process.world.now))

    def _drained(self, _: act.Drained) -> None:
        self.lane.drained()

    def _ended(self, end: act.End) -> None:
        self.lane.ended(end)

    def _nothing(self, _: object) -> None: ...

    _DO: ClassVar[dict[type, Callable[[SimulatedChannel, Any], None]]] = {
        act.Turn: _turn,
        act.Ready: _ready,
        act.OpenChannel: _open,
        act.Subscribe: _subscribe,
        act.Subscribed: _subscribed,
        act.Waits: _nothing,
        Flush: _send_acks,
        act.CloseChannel: _close,
        act.SetTimer: _set_timer,
        act.Drained: _drained,
        act.End: _ended,
    }
