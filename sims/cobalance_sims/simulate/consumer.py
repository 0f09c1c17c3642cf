"""A process's work where resources are partitions: the production core of a partition, in virtual time.

What a partition may do when is decided by the core, as in production. Here is what is around it: how long a handler and
the network take, and the few decisions of a worker: what is under way when a partition is asked back is finished, and
what has arrived by then too, while half of the time to the deadline lasts. A revocation that is cancelled once the
drain has begun costs the channel: another one is opened under the same token.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from cobalance.coordinator.requests import Effort
from cobalance.errors import ChannelLost
from cobalance.member import events as ev
from cobalance.rabbitmq.partition.acks import Progress
from cobalance.rabbitmq.partition.half_time import HalfTime
from cobalance_sims.simulate.broker import Delivery, SimulatedBroker, Taken, whole
from cobalance_sims.simulate.channel import SimulatedChannel
from cobalance_sims.simulate.habits import draw
from cobalance_sims.simulate.witnesses import AGAIN_MS
from cobalance_sims.simulate.work import SimulatedTenure

if TYPE_CHECKING:
    from cobalance.member.actions import AbortReason
    from cobalance.rabbitmq.partition.actions import End
    from cobalance_sims.simulate.process import Process

LOST = ChannelLost("the connection is gone")


class SimulatedPartition(SimulatedTenure):
    """One partition of one process, and its handler."""

    def __init__(self, process: Process, broker: SimulatedBroker, resource: str, token: int, from_ms: int = 0) -> None:
        super().__init__(resource, token, since=process.world.clock.story)
        self.process, self.broker = process, broker
        self.cut = False
        """The broker closed the connection; the process may not know yet."""
        self.is_active = self.was_active = False
        self.closed = False
        """Nothing more comes of it, whether or not its channel is closed by now."""
        self.handling: Delivery | None = None
        self._handling_since = self._finished = self._busy_ms = 0
        self._burst: deque[Delivery] = deque()  # taken and not begun
        self._half_time = HalfTime()
        self._reported_busy = False
        self._progress = Progress(0, 0)
        self._is_void = False
        """Its channel is gone; there is another once the handler has ended, and the connection is back."""
        self._back_at = 0
        wait_ms = max(0, from_ms - process.world.now)
        self.channel = SimulatedChannel(self, self.time(broker.ways.tell_ms) + wait_ms)

    def time(self, ms: Taken) -> int:
        """How long it takes this time."""
        return whole(ms, self.process.world.random)

    def set_active(self, *, active: bool) -> None:
        """Sets whether a handler may run."""
        if active != self.is_active:
            self.is_active = active
            world = self.process.world
            (world.became_active if active else world.became_idle)(self.process, self)

    def subscribed(self) -> None:
        """The broker has admitted it."""
        self.set_active(active=True)
        self.process.deliver(ev.GuardChanged(self.resource, self.token, proven=True))
        self.dispatch()

    # -- the handler ---------------------------------------------------------------------------------------------------

    def dispatch(self) -> None:
        """Starts the next message, if there is one that may be begun."""
        if self.handling is not None or self.closed:
            return
        if self._is_out_of_time:
            self._give_back()
            return
        if not self._burst:
            self._finish_up()
            self._burst.extend(self.channel.take())
        if self._burst:
            self._begin(self._burst.popleft())

    def _begin(self, delivery: Delivery) -> None:
        process = self.process
        self.handling, self._handling_since = delivery, process.world.now
        if delivery.redelivered:
            process.world.reached.count("redelivery")
        process.world.watch.handled(process, self.resource, self.token, delivery.seq)
        ms = delivery.handle_ms
        if ms is None:
            ms = draw(process.habits.handle_ms, process.world.random)
        process.later(ms, self._handled, delivery)

    def sample(self, now: int, hung_ms: int) -> ev.Sample | None:
        """A sample of its handler's progress, if it is new to the session."""
        since = None if self.handling is None else self._handling_since
        is_hung = since is not None and now - since >= hung_ms
        if self.closed or ((since is not None) == self._reported_busy and not is_hung):
            return None
        self._reported_busy = since is not None
        return ev.Sample(self.resource, self.token, None if since is None else since + self.process.offset_ms)

    def _handled(self, delivery: Delivery) -> None:
        if self.handling is not delivery:
            return
        self.handling = None
        self._finished += 1
        self._busy_ms += self.process.world.now - self._handling_since
        if self._is_void:
            self._reconnect()
            return
        if not self.closed:
            self.channel.done(delivery)
        self.dispatch()

    # -- the end -------------------------------------------------------------------------------------------------------

    @property
    def _is_out_of_time(self) -> bool:
        """Whether nothing more is begun, as half of the time to the deadline is over."""
        return self.state == "draining" and self._half_time.is_over(self.process.world.now)

    def drain(self, within_ms: int = 0) -> None:
        """Finishes what is under way, and what has arrived by then."""
        self.state = "draining"
        self._half_time = HalfTime()
        self.hasten(within_ms)
        if self.handling is None:
            self.process.later(self.time(self.broker.ways.ask_ms), self._go_on, None)

    def hasten(self, within_ms: int) -> None:
        """Hears of its deadline."""
        now = self.process.world.now
        self._half_time.hear(now, now + within_ms)

    def _go_on(self, _: object) -> None:
        if self.state == "draining":
            self.dispatch()

    def _give_back(self) -> None:
        rest = len(self._burst)
        self._burst.clear()
        channel = self.channel
        if rest:
            channel.do(channel.core.give_back(rest))
        channel.do(channel.core.drain())

    def _finish_up(self) -> None:
        """All that was taken is finished. If it is asked back, what arrives from here on goes back."""
        if self.state == "draining" and not self.channel.core.is_spent:
            self.channel.do(self.channel.core.drain(finish_buffer=True))

    def drained(self) -> None:
        """Everything that was begun is finished: let go of it, unless it is kept after all."""
        if self.state == "draining":
            self.state = "closing"
            self.set_active(active=False)
            self.process.deliver(ev.DrainBegun(self.resource, self.token))
        self.channel.do(self.channel.core.release())

    def ended(self, end: End) -> None:
        """The channel is closed, or was lost."""
        self._progress = end.progress
        if self.state == "closing":
            self._report_drained()
        elif self.state in ("working", "draining") and end.asked:
            self.channel = SimulatedChannel(self, 0)

    def _report_drained(self) -> None:
        if self.forget():
            self.closed = True
            self.process.world.watch.drained(self.process, self)
            delivered, committed = self._progress.delivered, self._progress.committed
            self.process.report(ev.Drained(self.resource, self.token, delivered, committed, effort=self._effort()))

    def _effort(self) -> Effort:
        return Effort(self._finished, self._busy_ms)

    def resume(self) -> None:
        """The revocation was cancelled in time."""
        if self.state == "draining":
            self.state = "working"
            if self.channel.core.may_go_on:
                self.channel.do(self.channel.core.go_on())
            self.dispatch()

    def abort(self, reason: AbortReason) -> None:
        """Cancels the handler, which may never end; the channel is closed in any case."""
        self.process.world.watch.ended(self.process, self, reason)
        self.state, self.abandoned = "stopping", reason
        self.closed = True
        self._burst.clear()
        self.channel.do(self.channel.core.abort())
        self.set_active(active=False)
        span = self.process.habits.stop_ms
        if reason == "lost":
            self.forget()
        elif self.handling is None or span is not None:
            self.handling = None
            ms = 0 if span is None else draw(span, self.process.world.random)
            self.process.later(max(ms, 2 * self.broker.ways.way_ms), self._stopped, None)

    def _stopped(self, _: object) -> None:
        if self.forget():
            self.process.report(ev.Abandoned(self.resource, self.token, self.abandoned, self._effort()))

    def lose_channel(self) -> None:
        """The socket is found closed."""
        self.closed, self.handling = True, None
        self.process.world.watch.ended(self.process, self, "connection")
        self.channel.do(self.channel.core.connection_ended(LOST))
        if self.state != "stopping" and self.forget():
            self.process.report(ev.Abandoned(self.resource, self.token, "connection", self._effort()))

    def lose_connection(self, back_at: int) -> None:
        """The broker lets others have it. Its tenure goes on with the next connection, after its handler has ended."""
        self.broker.close(self.channel)
        if self.process.paused:  # it finds the socket closed once it goes on
            self.cut = True
        if self.cut or self.closed or self._is_void:
            return
        self.set_active(active=False)
        if self.state != "working":
            self.lose_channel()
            return
        self._burst.clear()
        self.process.world.watch.ended(self.process, self, "connection")
        self.process.deliver(ev.GuardChanged(self.resource, self.token, proven=False))
        self._is_void, self._back_at = True, back_at
        self.channel.do(self.channel.core.connection_ended(LOST))
        if self.handling is None:
            self._reconnect()

    def _reconnect(self) -> None:
        if self.closed:
            return
        self._is_void = False
        if self.state == "working":
            self.channel = SimulatedChannel(self, max(0, self._back_at - self.process.world.now))
        else:
            self.lose_channel()

    def hurry(self) -> None:
        """Lets its handler return at last."""
        if self.state == "stopping":
            self.process.later(1, self._stopped, None)
        elif self.handling is not None:
            self.process.later(1, self._handled, self.handling)

    def forget(self) -> bool:
        """Forgets the partition; returns whether it was still there."""
        tenures = self.process.work.tenures
        self.set_active(active=False)
        if tenures.get(self.resource) is not self:
            return False
        del tenures[self.resource]
        return True


class BrokerWork:
    """All partitions of one process, on one connection."""

    def __init__(self, process: Process) -> None:
        if process.world.broker is None:
            raise ValueError("this world has no broker")
        self._process, self._broker = process, process.world.broker
        self._freezes = 0
        self.back_at = 0
        """When there is a connection again."""
        self.tenures: dict[str, SimulatedTenure] = {}
        member, settings = process.member_settings, process.world.settings
        self._hung_ms = member.max_processing_ms
        self._sample_ms = max(10, min(self._hung_ms // 4, settings.heartbeat_interval_ms))  # as the engine does
        process.later(self._sample_ms, self._sample, None)

    def _sample(self, _: object) -> None:
        """Heartbeats report which partitions are idle; a hung handler costs its partition."""
        process = self._process
        process.later(self._sample_ms, self._sample, None)
        samples = [lane.sample(process.world.now, self._hung_ms) for lane in self._lanes()]
        news = tuple(sample for sample in samples if sample is not None)
        if news:
            process.deliver(ev.Progressed(news))

    def _lanes(self) -> list[SimulatedPartition]:
        return [it for it in self.tenures.values() if isinstance(it, SimulatedPartition)]

    def _lane(self, resource: str, token: int) -> SimulatedPartition | None:
        it = self.tenures.get(resource)
        return it if isinstance(it, SimulatedPartition) and it.token == token else None

    def begin(self, resource: str, token: int, committed: int | None) -> None:
        """Consumes as soon as the broker allows it. The broker, not ``committed``, remembers what outlives a tenure."""
        del committed
        self.tenures[resource] = SimulatedPartition(self._process, self._broker, resource, token, self.back_at)

    def drain(self, resource: str, token: int, within_ms: int = 0) -> None:
        if lane := self._lane(resource, token):
            lane.drain(within_ms)

    def hasten(self, resource: str, token: int, within_ms: int) -> None:
        if lane := self._lane(resource, token):
            lane.hasten(within_ms)

    def resume(self, resource: str, token: int) -> None:
        if lane := self._lane(resource, token):
            lane.resume()

    def abort(self, resource: str, token: int, reason: AbortReason) -> None:
        if lane := self._lane(resource, token):
            lane.abort(reason)

    def hurry(self) -> None:
        for lane in self._lanes():
            lane.hurry()

    def active(self) -> list[SimulatedPartition]:
        """The partitions that are being consumed."""
        return [lane for lane in self._lanes() if lane.is_active]

    def freeze(self) -> None:
        """The broker notices only by missing heartbeats."""
        self._freezes += 1
        for lane in self.active():
            self._process.world.became_idle(self._process, lane)
            self._process.world.watch.ended(self._process, lane, "frozen")
        self._broker.frozen(self, self._freezes)

    def lanes_of_freeze(self, freeze: int) -> list[SimulatedPartition]:
        """Its channels, if it is still in that very freeze."""
        frozen = self._process.alive and self._process.paused and freeze == self._freezes
        return [lane for lane in self._lanes() if not lane.cut] if frozen else []

    def close_frozen(self, freeze: int) -> None:
        """The broker has closed its connection, if it is still in that very freeze; once it goes on, it makes another."""
        process = self._process
        if process.witness is not None and process.alive and process.paused and freeze == self._freezes:
            process.witness.disconnect()
            process.later(AGAIN_MS, process.reach_broker, None)

    def disconnect(self, back_ms: int) -> None:
        """The tenures go on with the next connection."""
        self.back_at = self._process.world.now + back_ms
        for lane in self._lanes():
            lane.lose_connection(self.back_at)

    def thaw_connection(self) -> None:
        """A socket that the broker has closed is noticed first."""
        lanes = self._lanes()
        for lane in lanes:
            lane.is_active, lane.was_active = False, lane.is_active
        for lane in lanes:
            if lane.cut:
                lane.lose_channel()

    def thaw(self) -> None:
        for lane in self._lanes():
            if lane.was_active and not lane.closed:
                lane.set_active(active=True)

    def die(self) -> None:
        """The broker sees the closed socket soon."""
        for lane in self._lanes():
            if lane.is_active and not self._process.paused:
                lane.set_active(active=False)
                self._process.world.watch.ended(self._process, lane, "died")
            lane.closed = True
            lane.handling = None
            ms = whole(self._broker.ways.noticed_ms, self._process.world.random)
            self._process.world.clock.after(ms, self._socket_closed, lane)
        self.tenures.clear()

    def _socket_closed(self, lane: SimulatedPartition) -> None:
        lane.cut = True
        self._broker.close(lane.channel)
