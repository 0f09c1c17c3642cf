"""A group whose members run: production sessions in virtual time, called by their timers and by hints."""

from __future__ import annotations

import heapq
from collections import deque
from math import ceil, floor
from typing import TYPE_CHECKING

import attrs

from cobalance.coordinator.keys import EVERYBODY, hint_channel
from cobalance.coordinator.replies import decode
from cobalance.coordinator.requests import Heartbeat, Request
from cobalance.coordinator.scripts import load
from cobalance.member import actions as act
from cobalance.member import events as ev
from cobalance.member.session import Phase, Session
from cobalance.settings import GroupSettings, MemberSettings
from proof.bench.measured_group import BenchGroup
from proof.bench.server import CallTimes, Server

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cobalance.coordinator.transport import Script

SETTINGS = GroupSettings(gather_ms=0)
"""The defaults, but that changes are not gathered: each is made for itself."""

FOUNDER = "m00000"
"""Declares the resources, and stays to the end."""

_START_MS = 1_800_000_000_000
_CLOCK = "clock"
_CHANNELS = hint_channel("bench", "*").replace("{", r"\{").replace("}", r"\}")
_OWN = hint_channel("bench", "")


@attrs.define
class Cost:
    """What a change took."""

    tally: CallTimes = attrs.Factory(CallTimes)
    beats: CallTimes = attrs.Factory(CallTimes)
    """Heartbeats at their time that brought nothing: they are made at rest, too."""
    bytes_sent: int = 0
    """Answers and hints, as members receive them."""
    ms: int = 0
    """Virtual time from the change to its last call."""
    moves: int = 0
    """How often somebody began to work a resource."""


class SessionGroup(BenchGroup):
    """What a member asks for is asked at once, hints arrive when all that is under way was answered, and nobody needs any time
    to finish its work.
    """

    def __init__(self, server: Server) -> None:
        self.now, self._told_ms = _START_MS, 0
        super().__init__(server, SETTINGS)
        self.sessions: dict[str, Session] = {}
        self.capacities: dict[str, int] = {}
        self.cost = Cost()
        self.resources: tuple[str, ...] = ()
        self._names: dict[str, str] = {}  # by member id
        self._wakes: dict[str, int] = {}
        self._timers: list[tuple[int, str]] = []
        self._calls: deque[tuple[str, Request, bool]] = deque()
        self._began = self.now
        self._output = 0
        self._hinted: dict[str, int] = {}
        self._hints = server.client.pubsub()  # type: ignore[no-untyped-call]
        self._hints.psubscribe(_CHANNELS)
        self._hints.get_message(timeout=5)

    def close(self) -> None:
        """Stops listening."""
        self._hints.close()

    def source(self, script: Script) -> str:
        """Scripts read their clock from a key. Nothing else about them differs."""
        return script.source.replace("call('TIME')", f"call('LRANGE', '{_CLOCK}', '0', '-1')")

    def call(self, script: Script, keys: Sequence[str], args: Sequence[str]) -> object:
        """Makes a call at the present moment."""
        self._tell_time()
        return super().call(script, keys, args)

    # -- what happens --------------------------------------------------------------------------------------------------

    def start(self, name: str, capacity: int) -> None:
        """A process joins."""
        own = MemberSettings(capacity=capacity)
        self.sessions[name], self.capacities[name] = Session(name, f"host/{name}", self.settings, own), capacity
        self._deliver(name, ev.Started())

    def declare(self, resources: tuple[str, ...]) -> None:
        """The founder says what there is to work; the others leave that to it."""
        self.resources = resources
        self._deliver(FOUNDER, ev.ResourcesDeclared(1, resources))

    def stop(self, name: str) -> None:
        """A process leaves."""
        self._deliver(name, ev.StopAsked())

    def kill(self, names: Iterable[str]) -> None:
        """Processes die without a word."""
        for name in names:
            self._forget(name)

    def lose_data(self) -> None:
        """Redis is emptied."""
        self.server.command("FLUSHALL")
        self.forget_clock()

    def measured(self) -> Cost:
        """What was asked for since this was called last."""
        output = int(self.server.info("stats")["total_net_output_bytes"])
        cost, self.cost = self.cost, Cost()
        cost.bytes_sent += output - self._output
        self._began, self._output = self.now, int(self.server.info("stats")["total_net_output_bytes"])
        return cost

    def run(self) -> None:
        """Everybody does what there is to do at this moment."""
        while self._calls or self._hinted or self._fire():
            if self._calls:
                self._make(*self._calls.popleft())
            else:
                self._take_hints()

    def rest(self, ms: int) -> None:
        """Time passes, and everybody does what there is to do."""
        until = self.now + ms
        self.run()
        while self._timers and self._timers[0][0] <= until:
            self.now = max(self._timers[0][0], self.now)
            self.run()
        self.now = until

    def until_even(self, *, at_least_ms: int = 0) -> None:
        """Time passes until nothing has happened for two heartbeats."""
        self.rest(at_least_ms)
        calls = -1
        while calls != self.cost.tally.calls:
            calls = self.cost.tally.calls
            self.rest(2 * self.settings.heartbeat_interval_ms)

    def check(self) -> None:
        """Everything is held, and everybody has the floor or the ceil of its share."""
        weight = sum(self.capacities[name] for name in self.sessions)
        held = 0
        for name, session in self.sessions.items():
            own = len(session.holdings.snapshot())
            share = len(self.resources) * self.capacities[name] / weight
            if session.phase is not Phase.ACTIVE or not floor(share) <= own <= ceil(share):
                raise RuntimeError(f"{name} is {session.phase.value} and has {own} of {share:.2f} resources")
            held += own
        if held != len(self.resources):
            raise RuntimeError(f"{held} of {len(self.resources)} resources are held")

    def memory(self) -> int:
        """Bytes that Redis uses for the group; not for its journal, which keeps as many entries as its setting says."""
        keys = [key for key in self.keys if not key.endswith(":journal")]
        return sum(int(self.server.command("MEMORY", "USAGE", key, "SAMPLES", 0) or 0) for key in keys)  # type: ignore[call-overload]

    def forget_clock(self) -> None:
        """Leaves no key behind."""
        self.server.command("DEL", _CLOCK)
        self._told_ms = 0

    # -- sessions ------------------------------------------------------------------------------------------------------

    def _deliver(self, name: str, event: ev.Event) -> None:
        events = deque([event])
        while events and name in self.sessions:
            is_timer = isinstance(events[0], ev.TimerFired)
            for action in self.sessions[name].handle(events.popleft(), self.now):
                match action:
                    case act.Call(request):
                        self._calls.append((name, request, is_timer))
                    case act.Wait(until):
                        self._wait(name, until)
                    case _:
                        events += self._carried_out(name, action)

    def _carried_out(self, name: str, action: act.Action) -> list[ev.Event]:
        """What follows at once."""
        match action:
            case act.Drain(resource, token, _):
                return [ev.Drained(resource, token)]
            case act.Abort(resource, token, reason) if reason != "lost":
                return [ev.Abandoned(resource, token, reason)]
            case act.Listen(member):
                self._names[member] = name
                return [ev.Hinted(-1)]  # as after every subscription
            case act.Start():
                self.cost.moves += 1
            case act.Left():
                self._forget(name)
            case act.Problem(_, message, True):
                raise RuntimeError(message)
        return []

    def _forget(self, name: str) -> None:
        self._names.pop(self.sessions.pop(name).member, None)
        self._wakes.pop(name, None)

    def _wait(self, name: str, until: int) -> None:
        if self._wakes.get(name) != until:
            self._wakes[name] = until
            heapq.heappush(self._timers, (until, name))

    def _fire(self) -> bool:
        """The next timer that is due, if there is one."""
        while self._timers and self._timers[0][0] <= self.now:
            until, name = heapq.heappop(self._timers)
            if self._wakes.get(name) == until:
                del self._wakes[name]
                self._deliver(name, ev.TimerFired())
                return True
        return False

    def _make(self, name: str, request: Request, is_timer: bool) -> None:
        session = self.sessions.get(name)
        if session is None or session.line.outstanding is not request:
            return
        verb, args = request.payload.verb, request.args()
        self._tell_time()
        before = self.server.spent_us()
        raw = self.call(load(verb), self.keys, args)
        spent = self.server.spent_us() - before
        reply = decode(raw)  # type: ignore[arg-type]
        if is_timer and isinstance(request.payload, Heartbeat) and not reply.changes and reply.status == "OK":
            self.cost.beats.add(verb, spent)
        else:
            self.cost.tally.add(verb, spent)
            self.cost.ms = self.now - self._began
        self._deliver(name, ev.Replied(request, reply, self.now))
        self._hear()

    def _hear(self) -> None:
        while (message := self._hints.get_message(timeout=0)) is not None:
            channel, version = message["channel"].decode(), message["data"].decode()
            to = channel.removeprefix(_OWN)
            names = list(self.sessions) if to == EVERYBODY else [self._names[to]] if to in self._names else []
            # One listener to a pattern here, who stands for all who would listen to the channel.
            heard = _size("pmessage", _CHANNELS, channel, version)
            self.cost.bytes_sent += len(names) * _size("message", channel, version) - heard
            for name in names:
                if self._hinted.get(name) != -1:  # "ask" is not to be forgotten
                    self._hinted[name] = int(version)

    def _take_hints(self) -> None:
        hinted, self._hinted = self._hinted, {}
        for name, version in hinted.items():
            if name in self.sessions:
                self._deliver(name, ev.Hinted(version))

    def _tell_time(self) -> None:
        if self._told_ms != self.now:
            self._told_ms = self.now
            self.server.command("DEL", _CLOCK)
            self.server.command("RPUSH", _CLOCK, self.now // 1000, self.now % 1000 * 1000)


def _size(*words: str) -> int:
    """Bytes of an array of words on the wire."""
    return len(f"*{len(words)}\r\n") + sum(len(f"${len(word)}\r\n") + len(word) + 2 for word in words)
