"""What a process does with a resource where there is no broker: it holds it, and takes a while to let go of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

import attrs

from cobalance.coordinator.requests import Effort
from cobalance.member import events as ev
from cobalance_sims.simulate.habits import draw

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cobalance.member.actions import AbortReason
    from cobalance_sims.simulate.process import Process


@attrs.define(eq=False)
class SimulatedTenure:
    """A resource as the process works it."""

    resource: str
    token: int
    done: int = 0
    """Progress: the offset it would commit."""
    state: Literal["working", "draining", "closing", "stopping"] = "working"
    turn: int = 0
    """Rises when everything scheduled for it becomes void."""
    abandoned: str = ""
    guarded: bool = False
    """Whether a broker lets nobody else touch it, so that another member may hear that it holds it."""
    since: int = 0
    """Story time at which it began (Clock.story)."""


class SimulatedWork(Protocol):
    """Carries out what the session decides, as a :class:`cobalance.group.engine.Work` would."""

    tenures: dict[str, SimulatedTenure]

    def begin(self, resource: str, token: int, committed: int | None) -> None: ...

    def drain(self, resource: str, token: int, within_ms: int) -> None:
        """Finish: report DrainBegun, then Drained."""

    def hasten(self, resource: str, token: int, within_ms: int) -> None:
        """The time to finish was cut to this."""

    def resume(self, resource: str, token: int) -> None:
        """Go on, unless DrainBegun was reported."""

    def abort(self, resource: str, token: int, reason: AbortReason) -> None:
        """Stop at once: report Abandoned when that is done, unless it is lost anyway."""

    def die(self) -> None:
        """The process is gone."""

    def freeze(self) -> None:
        """The process executes nothing any more."""

    def disconnect(self, back_ms: int) -> None:
        """The connection to the broker is reset, and there is another one after a while."""

    def thaw_connection(self) -> None:
        """The process resumes: its sockets are read first, before any clock is checked."""

    def thaw(self) -> None:
        """The session has checked its clocks: work it did not end continues."""

    def hurry(self) -> None:
        """The fault is over: what hangs comes to its end."""

    def active(self) -> Iterable[SimulatedTenure]:
        """The resources it may be touching."""


class PlainWork:
    """Any resource: worked from its start until it is drained or has stopped."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world
        self.tenures: dict[str, SimulatedTenure] = {}

    def begin(self, resource: str, token: int, committed: int | None) -> None:
        tenure = self.tenures[resource] = SimulatedTenure(
            resource, token, committed or 0, since=self._world.clock.story
        )
        self._world.became_active(self._process, tenure)
        span = self._process.habits.fails_ms_of.get(resource)
        if span is not None:
            self._process.later(draw(span, self._world.random), self._fail, (tenure, tenure.token))

    def _fail(self, what: tuple[SimulatedTenure, int]) -> None:
        it = self.find(what[0].resource, what[1])
        habits, resource = self._process.habits, what[0].resource
        if resource in habits.fails_ms_of and it is not None and it.state == "working":
            it.abandoned = habits.fails_as.get(resource, "unworkable")
            self._stopped(it)

    def active(self) -> list[SimulatedTenure]:
        """An aborted tenure counts as stopped: its deadline has an allowance, and an uncancellable call is exempt."""
        return [it for it in self.tenures.values() if it.state != "stopping" and not it.guarded]

    def guard(self, resource: str, *, proven: bool = True) -> None:
        """A broker is proven to admit nobody else to the resource, or not any more."""
        it = self.tenures[resource]
        if proven and not it.guarded:
            self._world.became_idle(self._process, it)
        was_guarded, it.guarded = it.guarded, proven
        self._process.deliver(ev.GuardChanged(resource, it.token, proven))
        if was_guarded and it in self.active():
            self._world.became_active(self._process, it)

    def find(self, resource: str, token: int) -> SimulatedTenure | None:
        """Returns the tenure, if it is still here."""
        it = self.tenures.get(resource)
        return it if it is not None and it.token == token else None

    def drain(self, resource: str, token: int, within_ms: int = 0) -> None:
        """Takes ``drain_ms``, then ``close_ms``."""
        del within_ms
        it = self.find(resource, token)
        if it is None:
            raise AssertionError(f"{resource} is to be drained, but is not worked here")
        it.state = "draining"
        habits = self._process.habits
        span = habits.drain_ms_of.get(resource, habits.drain_ms)
        if span is not None:
            self._later(it, draw(span, self._world.random), self._close)

    def _later(self, it: SimulatedTenure, ms: int, do: object) -> None:
        it.turn += 1
        self._process.later(ms, self._due, (it, it.turn, do))

    def _due(self, what: tuple[SimulatedTenure, int, object]) -> None:
        it, turn, do = what
        if it.turn == turn:
            do(it)  # type: ignore[operator]  # a method of ours

    def _close(self, it: SimulatedTenure) -> None:
        it.state = "closing"
        self._later(it, draw(self._process.habits.close_ms, self._world.random), self._finish)
        self._process.deliver(ev.DrainBegun(it.resource, it.token))

    def _finish(self, it: SimulatedTenure) -> None:
        self._forget(it)
        self._world.watch.drained(self._process, it)
        self._process.report(ev.Drained(it.resource, it.token, 0, 0, it.done or None, self._effort(it)))

    def _effort(self, it: SimulatedTenure) -> Effort | None:
        load = self._world.load
        return None if load is None else Effort(*load.effort(it.resource, it.since, self._world.clock.story))

    def hasten(self, resource: str, token: int, within_ms: int) -> None:
        """Its drain takes as long as it takes."""

    def resume(self, resource: str, token: int) -> None:
        """Cancels the drain, unless it has got too far."""
        it = self.find(resource, token)
        if it is not None and it.state == "draining":
            it.turn += 1
            it.state = "working"

    def abort(self, resource: str, token: int, reason: AbortReason) -> None:
        """Takes ``stop_ms``."""
        it = self.find(resource, token)
        if it is None:
            raise AssertionError(f"{resource} is to be aborted, but is not worked here")
        self._world.became_idle(self._process, it)
        self._world.watch.ended(self._process, it, reason)
        it.state, it.abandoned = "stopping", reason
        span = self._process.habits.stop_ms
        if reason == "lost":
            self._effort(it)
            self._forget(it)
        elif span is not None:
            self._later(it, draw(span, self._world.random), self._stopped)

    def _stopped(self, it: SimulatedTenure) -> None:
        self._forget(it)
        self._process.report(ev.Abandoned(it.resource, it.token, it.abandoned, self._effort(it)))

    def _forget(self, it: SimulatedTenure) -> None:
        it.turn += 1
        if it.state != "stopping":
            self._world.became_idle(self._process, it)
        if self.tenures.get(it.resource) is it:
            del self.tenures[it.resource]

    def hurry(self) -> None:
        """Drains finish, and calls that cannot be cancelled return."""
        for it in self.tenures.values():
            if it.state == "draining":
                self._later(it, 1, self._close)
            elif it.state == "stopping":
                self._later(it, 1, self._stopped)

    def freeze(self) -> None:
        """A frozen process touches nothing."""
        for it in self.active():
            self._world.became_idle(self._process, it)
            self._world.watch.ended(self._process, it, "frozen")

    def disconnect(self, back_ms: int) -> None:
        """It needs none."""

    def thaw_connection(self) -> None: ...

    def thaw(self) -> None:
        """Work that its session did not take away at once continues."""
        for it in self.active():
            self._world.became_active(self._process, it)

    def die(self) -> None:
        for it in self.active() if self._process.running else ():
            self._world.became_idle(self._process, it)
            self._world.watch.ended(self._process, it, "died")
        for it in self.tenures.values():
            it.turn += 1
            self._effort(it)
        self.tenures.clear()
