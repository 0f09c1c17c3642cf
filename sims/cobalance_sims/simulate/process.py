"""One process of the world: a production session, its connection to Redis, its clock, and its work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cobalance.coordinator.keys import EVERYBODY, hint_channel
from cobalance.coordinator.requests import GROUPS_OWN, Request
from cobalance.coordinator.transport import RESYNC
from cobalance.errors import ScriptFailed
from cobalance.group.engine import call_timeout_ms
from cobalance.member import actions as act
from cobalance.member import events as ev
from cobalance.member.declaration import digest
from cobalance.member.lateness import Lateness
from cobalance.member.session import Session
from cobalance.rabbitmq.consume.crash_watch import WITHIN_MS
from cobalance_sims.simulate.network import Fate, Network
from cobalance_sims.simulate.server import GROUP
from cobalance_sims.simulate.witnesses import AGAIN_MS, Witness
from cobalance_sims.simulate.work import SimulatedWork

if TYPE_CHECKING:
    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.settings import GroupSettings, MemberSettings
    from cobalance_sims.simulate.world import World

HINT_LATE_MS = 1_000
NEVER = 1 << 62
SLOW_MS = 10
"""Packets that take longer are trouble."""
_EVERYBODY = hint_channel(GROUP, EVERYBODY)


class Process:
    """The world calls what happens to it; what it does comes out of its session, as in the engine."""

    def __init__(
        self,
        world: World,
        name: str,
        member: MemberSettings,
        settings: GroupSettings,
        work: Callable[[Process], SimulatedWork],
        *,
        wants: tuple[str, ...] | None = None,
    ) -> None:
        self.world, self.name, self.member_settings, self.habits = world, name, member, world.habits
        self.wants = wants
        """The list of its own that its code names; None means the group's own list."""
        self.session = Session(name, f"host/{name}", settings, member)
        self.offset_ms = world.random.randrange(1_000_000)
        self.network: Network = world.network
        self.reaches_redis = True
        self.alive, self.paused, self.left = True, False, False
        self.silent_since: int | None = None
        """When it died, froze, or stopped because it was cut off; ``None`` while it works."""
        self._lateness = Lateness()
        self.tickets: dict[int, tuple[str, int, int]] = {}
        self._timeout_ms = call_timeout_ms(settings.session_timeout_ms)
        self._clock = world.clock
        self._inbox: deque[ev.Event] = deque()
        self._deferred: list[tuple[Callable[[Any], None], Any]] = []
        self._waiting: deque[Request | Callable[[], None]] = deque()
        self._attempt = 0
        self._in_flight = False
        self._ends_by = -1  # the attempt under way has ended by then, one way or the other
        self._wake_at = self._timer_at = -1
        self._channel = ""
        self.listens = False
        """Whether Redis finds somebody on its channel."""
        self.heard_at = self.troubled_at = 0
        """When Redis last ran a request of it, or it had listened for long enough to be found; when one of its calls was
        last lost, or slow.
        """
        self._listens_since = 0
        self._tickets = 0
        self.work = work(self)
        self.witness = None if world.wills is None else Witness(self, world.wills)

    @property
    def now(self) -> int:
        """Its own clock, which shares nothing with any other's but the rate."""
        return self._clock.now + self.offset_ms

    @property
    def running(self) -> bool:
        """Whether it executes anything."""
        return self.alive and not self.paused

    @property
    def names(self) -> tuple[str, ...]:
        """The resources it declares."""
        return self.world.resources if self.wants is None else self.wants

    @property
    def subscription(self) -> str:
        """A key shared by processes that declare the same list."""
        return GROUPS_OWN if self.wants is None else digest(self.wants)

    @property
    def leaving(self) -> bool:
        """Whether it was asked to leave."""
        return self.session.phase.value in ("leaving", "left")

    # -- what happens to it --------------------------------------------------------------------------------------------

    def deliver(self, event: ev.Event) -> None:
        """Passes an event to its session, or keeps it while the process is frozen."""
        if self.paused:
            self._inbox.append(event)
        elif self.alive:
            for action in self.session.handle(event, self._clock.now + self.offset_ms):
                if isinstance(action, act.Wait):
                    self._wait(action.until - self.offset_ms)
                elif isinstance(action, act.Call):
                    self._call(action.request)
                else:
                    self._carry_out(action)

    def later(self, ms: int, do: Callable[[Any], None], argument: Any) -> None:
        """Schedules its own code: a frozen process runs it when it resumes, a dead one never."""
        self._clock.after(ms, self._due, (do, argument))

    def _due(self, what: tuple[Callable[[Any], None], Any]) -> None:
        self.run_code(*what)

    def run_code(self, do: Callable[[Any], None], argument: Any) -> None:
        """Runs its own code now, under the same rule."""
        if self.paused:
            self._deferred.append((do, argument))
        elif self.alive:
            do(argument)

    def kill(self, *, silently: bool = False) -> None:
        """SIGKILL. Packets it has sent are on their way all the same. `silently`: its machine is gone, and nobody closes its
        connections.
        """
        self.world.log(self, "is killed")
        self.world.died(self)
        self.work.die()
        self.silent_since = self._clock.now if self.silent_since is None else self.silent_since
        self.alive = self.paused = False
        if self.witness is None or self.world.wills is None:
            self._unsubscribe()
        elif not silently:
            self.witness.disconnect()
            self._clock.after(self.world.wills.between(self.world.wills.ways.deaf_ms), self._unsubscribe, None)

    def pause(self) -> None:
        """SIGSTOP."""
        self.world.log(self, "is frozen")
        self.work.freeze()
        self.world.watch.frozen(self)
        self.paused, self.silent_since = True, self._clock.now

    def resume(self) -> None:
        """SIGCONT: its own clock is checked first, then the backlog is handled."""
        if not (self.alive and self.paused):
            return
        self.world.log(self, "goes on")
        self.world.watch.thawed(self)
        self.paused, self.silent_since = False, None
        self.work.thaw_connection()
        self.deliver(ev.TimerFired())
        self.work.thaw()
        inbox, self._inbox = self._inbox, deque()
        for event in inbox:
            self.deliver(event)
        deferred, self._deferred = self._deferred, []
        for what in deferred:
            self._due(what)

    def stop(self, *, remain: bool = False) -> None:
        """SIGTERM: asks it to leave gracefully."""
        self.world.log(self, "is asked to leave" + (" and come back" if remain else ""))
        self.world.watch.asked_to_leave(self)
        self.deliver(ev.StopAsked(remain))

    def commit(self, resource: str, offset: int) -> int:
        """Commits; the ticket returned is that of the answer to come."""
        tenure = self.work.tenures[resource]
        tenure.done = max(tenure.done, offset)
        ticket = self._tickets = self._tickets + 1
        self.tickets[ticket] = (resource, tenure.token, offset)
        self.deliver(ev.CommitAsked(ticket, resource, tenure.token, offset))
        return ticket

    def report(self, event: ev.Drained | ev.Abandoned) -> None:
        """Reports the end of a tenure, with what the engine adds to it."""
        self.deliver(self._lateness.noted_in(event))

    # -- what its session wants ------------------------------------------------------------------------------------------

    def _carry_out(self, action: act.Action) -> None:
        world, work = self.world, self.work
        match action:
            case act.Start(resource, token, committed):
                world.started(self, action)
                work.begin(resource, token, committed)
            case act.Drain(resource, token, abort_at):
                world.asked_back(self, action)
                work.drain(resource, token, abort_at - self.offset_ms - self._clock.now)
            case act.Hasten(resource, token, abort_at):
                world.hastened(self, action)
                work.hasten(resource, token, abort_at - self.offset_ms - self._clock.now)
            case act.Keep(resource, token):
                world.kept(self, action)
                work.resume(resource, token)
            case act.Abort(resource, token, reason):
                world.aborted(self, action)
                work.abort(resource, token, reason)
            case act.CommitDone(ticket, outcome):
                self._commit_done(ticket, outcome)
            case _:
                self._notice(action)

    def _notice(self, action: act.Action) -> None:
        match action:
            case act.Listen(member):
                self._listen(member)
            case act.Joined(member):
                self.world.joined(self, member)
                if self.witness is not None:
                    self.witness.joined(member)
            case act.Problem(code, _, fatal):
                self.world.problem(self, code)
                if fatal:
                    self._clock.after(0, self.deliver, ev.StopAsked())
            case act.Left():
                self._leave()
            case _:
                pass  # Declared: nothing to do

    def _leave(self) -> None:
        self.world.left(self)
        self.work.die()
        self.silent_since = self._clock.now
        self.left, self.alive = True, False
        self._unsubscribe()
        if self.witness is not None:
            self.witness.leave()

    def _commit_done(self, ticket: int, outcome: ev.CommitOutcome) -> None:
        asked = self.tickets.pop(ticket, None)
        if asked is not None:
            self.world.committed(self, *asked, outcome)

    # -- its timer -----------------------------------------------------------------------------------------------------

    def _wait(self, until: int) -> None:
        """Keeps one queue entry at a time, and none if the end of an attempt comes first: that brings another Wait."""
        self._wake_at = until
        if self._in_flight and self._ends_by <= until:
            return
        if self._timer_at < self._clock.now or until < self._timer_at:
            self._timer_at = until
            self._clock.at(until, self._wake, until)

    def _wake(self, at: int) -> None:
        if at != self._timer_at or not self.alive:
            return
        self._timer_at = -1
        if self._wake_at > self._clock.now:
            self._wait(self._wake_at)
        else:
            self.deliver(ev.TimerFired())

    # -- its connection to Redis: one attempt at a time, each given up after the engine's own timeout ------------------

    def fate(self, request: Request) -> Fate:
        """Decides what becomes of the next attempt. Replace this method to script it."""
        del request
        return self.network.fate(self.world.random)

    def ask(self, errand: Callable[[], None]) -> None:
        """Has something else asked of Redis, in turn with the session's calls."""
        if self._in_flight:
            self._waiting.append(errand)
        else:
            self._attempt_errand(errand)

    def _attempt_errand(self, errand: Callable[[], None]) -> None:
        self._in_flight, self._ends_by = True, NEVER  # no event of the session follows
        self._attempt += 1
        self._clock.after(self._way(), self._run_errand, (self._attempt, errand))

    def _call(self, request: Request) -> None:
        if self._in_flight:
            self._waiting.append(request)
        else:
            self._attempt_call(request)

    def _run_errand(self, sent: tuple[int, Callable[[], None]]) -> None:
        """Without Redis, the answer is given up after its time."""
        is_answered = self.reaches_redis and self.world.redis.up and self.world.redis.thaws_at <= self._clock.now
        sent[1]()
        self._clock.after(self._way() if is_answered else self._time_lost(), self._answer, (sent[0], None))

    def _way(self) -> int:
        """The latency of a packet."""
        ms = self.network.latency(self.world.random)
        if ms > SLOW_MS:
            self.troubled_at = max(self.troubled_at, self._clock.now + ms)
        return ms

    def _time_lost(self) -> int:
        """What a call that is not answered takes."""
        self.troubled_at = max(self.troubled_at, self._clock.now + self._timeout_ms)
        return self._timeout_ms

    def _attempt_call(self, request: Request) -> None:
        world = self.world
        now = self._clock.now
        self._in_flight, self._ends_by = True, now + self._timeout_ms
        self._attempt += 1
        sent = (self._attempt, request, now + self.offset_ms)
        fate = self.fate(request)
        if fate != "ok":
            world.log(self, f"calls {request.payload.verb}: {fate.replace('_', ' ')}")
        if fate == "ok":
            self._clock.after(self._way(), self._arrive, sent)
            return
        self._clock.after(self._time_lost(), self._time_out, sent)
        if fate != "lost":
            late = 2 * self._timeout_ms if fate == "late" else 0
            self._clock.after(self._way() + late, self._arrive_unanswered, sent)

    def _arrive(self, sent: tuple[int, Request, int]) -> None:
        """Answers what arrives, or finds the connection dead."""
        thaws_at = self.world.redis.thaws_at
        if thaws_at > self._clock.now:
            self.troubled_at = thaws_at
            self._clock.at(thaws_at, self._arrive, sent)
            self._clock.at(sent[2] - self.offset_ms + self._timeout_ms, self._time_out, sent)
            return
        reply = self._execute(sent)
        if reply is None:
            self._time_lost()
            self._clock.at(sent[2] - self.offset_ms + self._timeout_ms, self._time_out, sent)
            return
        answer = (sent[0], ev.Replied(sent[1], reply, sent[2]))
        self._clock.after(self._way(), self._answer, answer)

    def _arrive_unanswered(self, sent: tuple[int, Request, int]) -> None:
        thaws_at = self.world.redis.thaws_at
        if thaws_at > self._clock.now:
            self._clock.at(thaws_at, self._arrive_unanswered, sent)
        else:
            self._execute(sent)

    def _execute(self, sent: tuple[int, Request, int]) -> CoordinatorReply | None:
        if not (self.world.redis.up and self.reaches_redis):
            return None
        if sent[0] != self._attempt or not self._in_flight:
            self.world.reached.count("late execution")
        try:
            reply = self.world.redis.execute(sent[1])
        except ScriptFailed:
            self.world.log(self, f"calls {sent[1].payload.verb}: the script dies")
            return None
        self.heard_at = self._clock.now
        self.world.executed(self, sent[1], reply)
        return reply

    def _answer(self, answer: tuple[int, ev.Event | None]) -> None:
        attempt, event = answer
        if attempt != self._attempt or not self._in_flight:
            return
        self._in_flight = False
        if isinstance(event, ev.Replied):
            self._lateness.heard(event.sent_at, self._clock.now + self.offset_ms, event.reply)
            if self.witness is not None:
                self.witness.answered()
        if event is not None:
            self.deliver(event)
        if self._waiting and not self._in_flight:
            what = self._waiting.popleft()
            if isinstance(what, Request):
                self._attempt_call(what)
            else:
                self._attempt_errand(what)

    def _time_out(self, sent: tuple[int, Request, int]) -> None:
        self._answer((sent[0], ev.CallFailed(sent[1], "no answer")))

    # -- hints ---------------------------------------------------------------------------------------------------------

    def _listen(self, member: str) -> None:
        self._unsubscribe()
        self._channel = hint_channel(GROUP, member)
        self._subscribe()

    def _subscribe(self) -> None:
        for channel in (self._channel, _EVERYBODY):
            self.world.redis.store.subscribe(channel, self._hinted)
        self.listens, self._listens_since = True, self._clock.now
        self._clock.after(1, self.deliver, ev.Hinted(RESYNC))
        if self.witness is not None:
            self.later(1, lambda it: it.tell(), self.witness)

    def _unsubscribe(self, _: object = None) -> None:
        if self.listens:
            for channel in (self._channel, _EVERYBODY):
                self.world.redis.store.unsubscribe(channel, self._hinted)
            if self._clock.now - self._listens_since >= WITHIN_MS:
                self.heard_at = self._clock.now
        self.listens = False

    def lose_listener(self, back_ms: int) -> None:
        """Its subscriptions end with their connection; another one is there after a while."""
        self._unsubscribe()
        self._clock.after(back_ms, self._listen_again, self._channel)

    def _listen_again(self, channel: str) -> None:
        """Not while it is frozen, or cut off; if it has another channel by now, it listens there."""
        if not self.alive or self.listens or channel != self._channel:
            return
        if self.paused or not self.reaches_redis:
            self._clock.after(AGAIN_MS, self._listen_again, channel)
        else:
            self._subscribe()

    def lose_broker(self, back_ms: int) -> None:
        """The connection to the broker is reset; another one is there after a while."""
        if self.alive and self.witness is not None and self.witness.connection:
            self.work.disconnect(back_ms)
            self.witness.disconnect()
            self._clock.after(back_ms, self.reach_broker, None)

    def reach_broker(self, _: object = None) -> None:
        """It has a connection to the broker again, unless it is frozen: then it has one once it goes on."""
        if self.witness is not None and not self.witness.connection:
            self.run_code(lambda it: it.connect(), self.witness)

    def _hinted(self, channel: str, message: bytes) -> None:
        world, network = self.world, self.network
        if channel not in (self._channel, _EVERYBODY) or not (world.redis.up and self.reaches_redis):
            return
        if int(message) < RESYNC:  # an errand, which does not concern the session
            return
        roll = world.random.random()
        if roll < network.hint_lost:
            return
        late = HINT_LATE_MS if roll < network.hint_lost + network.hint_late else 0
        self._clock.after(network.hint_latency(world.random) + late, self.deliver, ev.Hinted(int(message)))
