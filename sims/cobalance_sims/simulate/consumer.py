"""A process's work where resources are partitions: one channel each, handlers, acks, and the release.

To release a partition: finish the running handler, and what was prefetched while half of the time to the deadline
lasts; flush acks, send a bare Channel.Close, await CloseOk, then report Drained.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from cobalance.coordinator.requests import Effort
from cobalance.member import events as ev
from cobalance.rabbitmq.partition.partition import BACKOFF_MS
from cobalance_sims.simulate.broker import Delivery, SimulatedBroker, Taken, whole
from cobalance_sims.simulate.habits import draw
from cobalance_sims.simulate.work import SimulatedTenure

if TYPE_CHECKING:
    from cobalance.member.actions import AbortReason
    from cobalance_sims.simulate.process import Process


class SimulatedPartition(SimulatedTenure):
    """One partition of one process: its channel, buffer and handler."""

    def __init__(self, process: Process, broker: SimulatedBroker, resource: str, token: int) -> None:
        super().__init__(resource, token, since=process.world.clock.story)
        self.process, self.broker = process, broker
        self.prefetch = process.habits.prefetch
        self.cut = False
        """The broker closed the connection; the process may not know yet."""
        self.is_active = self.was_active = self.closed = False
        self.handling: Delivery | None = None
        self._handling_since = self._taken = self._finished = self._busy_ms = 0
        self._buffer: deque[Delivery] = deque()
        self._finish_by = self._to_finish = 0
        self._told_busy = False
        self._done = self._unacked = 0
        self._ticks_from = self._tick_at = -1
        self._refusals = 0
        process.later(self._time(broker.ways.tell_ms) + self._time(broker.ways.open_ms), self._consume, None)

    def _time(self, ms: Taken) -> int:
        return whole(ms, self.process.world.random)

    def _consume(self, _: object) -> None:
        if self.closed or self.state != "working":
            return
        if not self.broker.consume(self):
            self._refusals += 1
            self.process.later(int(BACKOFF_MS.pause(self._refusals)), self._consume, None)
            return
        self.set_active(active=True)
        self.process.deliver(ev.GuardChanged(self.resource, self.token, proven=True))

    def set_active(self, *, active: bool) -> None:
        """Sets whether a handler may run."""
        if active != self.is_active:
            self.is_active = active
            world = self.process.world
            (world.became_active if active else world.became_idle)(self.process, self)

    # -- messages --------------------------------------------------------------------------------------------------------

    def delivered(self, delivery: Delivery) -> None:
        """A message has arrived at the client."""
        self.process.run_code(self._take, delivery)

    def _take(self, delivery: Delivery) -> None:
        if self.closed:
            return
        if self._tick_at < self.process.world.now and self.handling is None and not self._buffer:
            self._ticks_from = self.process.world.now
        self._buffer.append(delivery)
        self.dispatch()

    def dispatch(self) -> None:
        """Starts the next message, unless delivery has stopped."""
        if self.handling is not None or not self._buffer or self.closed:
            return
        if self.state != "working" and not self._may_finish:
            return
        self._to_finish -= 1
        process = self.process
        self.handling = self._buffer.popleft()
        self._handling_since, self._taken = process.world.now, self._taken + 1
        if self.handling.redelivered:
            process.world.reached.count("redelivery")
        process.world.watch.handled(process, self.resource, self.token, self.handling.seq)
        ms = self.handling.handle_ms
        if ms is None:
            ms = draw(process.habits.handle_ms, process.world.random)
        process.later(ms, self._handled, self.handling)

    def sample(self, now: int, hung_ms: int) -> ev.Sample | None:
        """A sample of its handler's progress, if it is new to the session."""
        since = None if self.handling is None else self._handling_since
        is_hung = since is not None and now - since >= hung_ms
        if self.closed or ((since is not None) == self._told_busy and not is_hung):
            return None
        self._told_busy = since is not None
        return ev.Sample(self.resource, self.token, None if since is None else since + self.process.offset_ms)

    def _handled(self, delivery: Delivery) -> None:
        if self.handling is not delivery:
            return
        self.handling = None
        self._finished += 1
        self._busy_ms += self.process.world.now - self._handling_since
        if not self.closed:
            self._settle(delivery.seq)
        self.dispatch()
        if self.state == "draining" and self.handling is None:
            self._close_for_good()

    # -- acks: multiple, up to a message, in ticks that go on while anything is unfinished -----------------------------

    def _settle(self, seq: int) -> None:
        self._done, self._unacked = seq, self._unacked + 1
        if self.state != "working":
            return  # the close flushes: each ack would bring a message that would only go back again
        habits, now = self.process.habits, self.process.world.now
        if self._unacked >= min(habits.ack_every, self.prefetch):
            self._flush()
        elif self._tick_at <= now:
            every = habits.ack_interval_ms
            self._tick_at = now + every - (now - self._ticks_from) % every
            self.process.later(self._tick_at - now, self._tick, None)

    def _tick(self, _: object) -> None:
        if self.state == "working" and not self.closed:
            self._flush()

    def _flush(self) -> None:
        if self._unacked:
            self._unacked = 0
            self.process.world.clock.after(self.broker.ways.way_ms, self._ack, self._done)

    def _ack(self, seq: int) -> None:
        if not self.cut:
            self.broker.ack(self, seq)

    # -- the end -----------------------------------------------------------------------------------------------------------

    @property
    def _may_finish(self) -> bool:
        """Whether prefetched messages are still worked although the partition is asked back."""
        return self.state == "draining" and self._to_finish > 0 and self.process.world.now < self._finish_by

    def drain(self, within_ms: int = 0) -> None:
        """Stops delivery, and continues when the handler and the prefetched messages are done."""
        self._flush()
        self.state = "draining"
        self._finish_by, self._to_finish = self.process.world.now + within_ms // 2, len(self._buffer)
        if self.handling is None:
            self.process.later(self._time(self.broker.ways.ask_ms), self._close_if_idle, None)

    def _close_if_idle(self, _: object) -> None:
        if self.state == "draining" and self.handling is None and not self.closed:
            self._close_for_good()

    def _close_for_good(self) -> None:
        self.state = "closing"
        self._close()
        self.process.deliver(ev.DrainBegun(self.resource, self.token))
        self.process.later(self._time(self.broker.ways.close_ms), self._drained, None)

    def _close(self) -> None:
        self._flush()
        self.closed = True
        self.set_active(active=False)
        self.process.world.clock.after(self.broker.ways.way_ms, self._close_arrives)

    def _close_arrives(self, _: object) -> None:
        self.broker.close(self)

    def _drained(self, _: object) -> None:
        if self.state == "closing" and self.forget():
            self.process.world.watch.drained(self.process, self)
            self.process.report(
                ev.Drained(self.resource, self.token, self._taken, self._finished, effort=self._effort())
            )

    def _effort(self) -> Effort:
        return Effort(self._finished, self._busy_ms)

    def resume(self) -> None:
        """The revocation was cancelled in time."""
        if self.state == "draining":
            self.state = "working"
            self._flush()
            self.dispatch()

    def abort(self, reason: AbortReason) -> None:
        """Cancels the handler, which may never end; the channel is closed in any case."""
        self.process.world.watch.ended(self.process, self, reason)
        self.state, self.abandoned = "stopping", reason
        if not self.closed:
            self._close()
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
        if self.state != "stopping" and self.forget():
            self.process.report(ev.Abandoned(self.resource, self.token, "connection", self._effort()))

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
        self.tenures[resource] = SimulatedPartition(self._process, self._broker, resource, token)

    def drain(self, resource: str, token: int, within_ms: int = 0) -> None:
        if lane := self._lane(resource, token):
            lane.drain(within_ms)

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
        self._broker.close(lane)
