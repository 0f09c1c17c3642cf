"""Runs a session on three threads: one owns its events, one makes its calls, and one (the transport's) receives hints.

None of them is the user's, so a handler may block the event loop for many session timeouts without harming the
membership. Nor do they wait for a log handler of the user's: what they log is written by another thread.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import socket
import threading
import time
import uuid
import weakref
from collections import deque
from contextlib import suppress
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Protocol

import attrs

from cobalance.coordinator.keys import EVERYBODY
from cobalance.coordinator.requests import GROUPS_OWN, Header, Report, Request
from cobalance.coordinator.transport import LISTENING, REPORT, RESYNC, SETTINGS
from cobalance.errors import CobalanceError
from cobalance.group.calls import Calls
from cobalance.group.clock import awake_ms, monotonic_ms
from cobalance.group.event_log import EventLog, seconds
from cobalance.group.vouching import Vouching
from cobalance.member import actions as act
from cobalance.member import events as ev
from cobalance.member.lateness import Lateness
from cobalance.member.session import Phase, Session
from cobalance.threads.log_lines import ServiceThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cobalance.coordinator.client import Coordinator
    from cobalance.settings import GroupSettings, MemberSettings

log = logging.getLogger("cobalance")

LAST_S = 1.0
"""How long a program that ends waits for members to leave."""

LOOK_MS = 200
"""How often it looks at the clock at least: the latest that a machine which wakes up finds that its lease is over."""

_leaving: weakref.WeakSet[Engine] = weakref.WeakSet()
"""Members that are leaving, and continue if the event loop that would wait for them ends."""


class Work(Protocol):
    """Carries out the session's decisions. All methods are called on the engine's thread, unless noted, and return at
    once.
    """

    def begin(self, resource: str, token: int, committed: int | None, tries: int = 0) -> None:
        """Begin to work a resource."""

    def drain(self, resource: str, token: int, abort_in_ms: int) -> None:
        """Finish: post DrainBegun, then Drained."""

    def hasten(self, resource: str, token: int, abort_in_ms: int) -> None:
        """The time to finish was cut to this."""

    def keep(self, resource: str, token: int) -> None:
        """Go on, unless DrainBegun was posted."""

    def abort(self, resource: str, token: int, reason: act.AbortReason) -> None:
        """Stop at once: post Abandoned when done, unless it is lost anyway."""

    def commit_done(self, ticket: int, outcome: ev.CommitOutcome) -> None:
        """A commit was answered."""

    def joined(self, member: str) -> None:
        """The process is a member."""

    def problem(self, problem: act.Problem) -> None:
        """Something the user should know."""

    def left(self) -> None:
        """The session is over."""

    def sample(self) -> Iterable[ev.Sample]:
        """The progress of handlers that are busy, or were at the last call."""

    def settings_read(self, settings: GroupSettings) -> None:
        """The group's settings, after each join and after every change. On the thread that calls the coordinator."""

    def in_flight(self) -> str:
        """What is in flight, for display (in_flight.py). On the thread that calls the coordinator."""

    def flush(self) -> None:
        """All actions of one event have been delivered."""


def call_timeout_ms(session_timeout_ms: int) -> int:
    """The timeout of one call, such that two attempts fit into a third of the session timeout."""
    return max(30, min(2_000, session_timeout_ms // 6))


def process_name() -> str:
    """A name unique to this process and session, so that member ids are never reused."""
    return uuid.uuid4().hex[:16]


def process_label() -> str:
    """Host and process id, for display."""
    host = "".join(c for c in socket.gethostname() if c.isalnum() or c in "-.")[:60] or "host"
    return f"{host}/{os.getpid()}"


class Engine:
    """Threads and sockets around one :class:`Session`.

    Args:
        on_declared: called when the group uses the declared resource list, or will once it has recovered.
        time_calls: called with another timeout (ms) for calls to the coordinator, when the session timeout was changed.
            On the thread that makes them.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        work: Work,
        settings: GroupSettings,
        member: MemberSettings,
        *,
        on_declared: Callable[[], None] = lambda: None,
        time_calls: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.label = process_label()
        self.session = Session(process_name(), self.label, settings, member)
        self._event_log = EventLog(coordinator.group, self.label, member, self.session)
        self._coordinator, self._work = coordinator, work
        self._on_declared, self._time_calls = on_declared, time_calls
        self._call_timeout_ms = call_timeout_ms(settings.session_timeout_ms)
        self._sample_ms = max(10, min(member.max_processing_ms // 4, settings.heartbeat_interval_ms))
        self._wait_until = self._sample_at = 0
        self._events: queue.SimpleQueue[ev.Event | Exception] = queue.SimpleQueue()
        self._calls = Calls(monotonic_ms)
        self._errands = {REPORT: self._report_in_flight, SETTINGS: self._read_settings}
        self._listener = coordinator.transport.listen(self._hinted)
        self.vouching = Vouching(coordinator, listens=self._listens, renew=self._listener.renew)
        self._channel = self._heard_channel = ""
        self.failing: CobalanceError | None = None
        """Why the coordinator's last call failed; None if it was answered."""
        self._failing_since = 0
        self._lateness = Lateness()
        self._unconfirmed: deque[tuple[int, Callable[[], None]]] = deque()
        self._over = threading.Event()
        self._ticked_at = awake_ms()
        self.heard_at: float | None = None
        """When the coordinator last answered, in seconds since 1970."""
        self._threads = [
            ServiceThread(self._run, f"cobalance-{coordinator.group}"),
            ServiceThread(self._run_calls, f"cobalance-{coordinator.group}-calls"),
        ]

    def start(self, subscription: str = GROUPS_OWN) -> None:
        """Starts the threads and joins the group with this subscription."""
        self._ticked_at = awake_ms()
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError:  # too many threads: nothing started, so there is nothing to wait for
            self._over.set()
            self._work.left()
            self._work.flush()
            raise
        self._listener.subscribe(self._coordinator.channel(EVERYBODY))
        self.post(ev.Started(subscription))

    def discard(self) -> None:
        """Closes an engine that was never started."""
        self._over.set()
        self._listener.close()

    def post(self, event: ev.Event) -> None:
        """Hands the session an event, from any thread."""
        if isinstance(event, ev.StopAsked):
            _leaving.add(self)
        self._events.put(event)

    def vouch(self, connection: str | None) -> None:
        """Vouches for this connection to a broker, or takes that back at once. Any thread."""
        self.vouching.connected(connection)
        self._calls.put(self.vouching.tell)

    def report(self) -> None:
        """Reports what is in flight, though nobody asked. Any thread."""
        self._calls.put(self._report_in_flight)

    def confirm(self, then: Callable[[], None]) -> None:
        """Calls `then` on the engine's thread once the coordinator has answered a request sent after this call."""
        self._unconfirmed.append((monotonic_ms(), then))
        self.post(ev.Hinted(RESYNC))

    def fail(self, message: str) -> None:
        """Leaves, and reports the reason to the user. On the engine's thread."""
        self._carry_out(act.Problem("cut_off", message, fatal=True))

    def stop(self) -> None:
        """Ends at once, without telling the coordinator."""
        self._over.set()
        self.post(ev.TimerFired())

    def wait_left(self, timeout: float | None = None) -> bool:
        """Waits until the session is over. Returns False on timeout (seconds)."""
        return self._over.wait(timeout)

    @property
    def runs(self) -> bool:
        """Whether a thread ends the session; not so in a fork of the process."""
        return self._threads[0].is_alive()

    @property
    def is_over(self) -> bool:
        """Whether the session is over, or was never begun and never will be."""
        return self._over.is_set()

    @property
    def silent_ms(self) -> int:
        """How long ago the session's thread last did something; it has to a few times in each heartbeat interval."""
        return awake_ms() - self._ticked_at

    # -- the session's thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                self._ticked_at = awake_ms()
                self._handle(self._next_event())
                self._sample_when_due()
        except Exception:
            # A bug. Without its session's thread this member can keep no promise: it stops working at once and lets its
            # session expire, so that others take over.
            log.critical("cobalance stopped group %s: please report this", self._coordinator.group, exc_info=True)
            self._stop_everything()
        finally:
            self._over.set()
            self._calls.put(None)
            self._listener.close()

    def _next_event(self) -> ev.Event:
        event = self._await_event(min(self._wait_until, self._sample_at, self._event_log.due_at or self._wait_until))
        if isinstance(event, Exception):  # it ended the calling thread, and ends this one too
            raise event
        return event

    def _await_event(self, until: int) -> ev.Event | Exception:
        """The wait itself goes by a clock that stands still while the machine sleeps."""
        while True:
            left_ms = until - monotonic_ms()
            with suppress(queue.Empty):
                return self._events.get(timeout=max(0, min(left_ms, LOOK_MS)) / 1000)
            if left_ms <= LOOK_MS:
                return ev.TimerFired()

    def _sample_when_due(self) -> None:
        """However busy the queue is: hung handlers must be found, and heartbeats report who is idle."""
        now = monotonic_ms()
        if now < self._sample_at:
            return
        self._sample_at = now + self._sample_ms
        asleep_ms = now - awake_ms()
        samples = tuple(it.ahead(asleep_ms) for it in self._work.sample())
        if samples:
            self._handle(ev.Progressed(samples))

    def _handle(self, event: ev.Event) -> None:
        now = monotonic_ms()
        if isinstance(event, ev.Replied):
            self._lateness.heard(event.sent_at, now, event.reply)
        elif isinstance(event, ev.Drained | ev.Abandoned):
            event = self._lateness.noted_in(event)
        self._event_log.hear(event, now)
        for action in self.session.handle(event, now):
            self._event_log.tell(action, now)
            self._carry_out(action)
        if self._unconfirmed and isinstance(event, ev.Replied):
            self._confirm(event)
        self._work.flush()
        self._event_log.write(now)

    def _confirm(self, event: ev.Replied) -> None:
        if self.session.phase not in (Phase.ACTIVE, Phase.LEAVING):  # it has yet to learn which of its claims are kept
            return
        while self._unconfirmed and self._unconfirmed[0][0] < event.sent_at:
            self._unconfirmed.popleft()[1]()
        if self._unconfirmed:
            self.post(ev.Hinted(RESYNC))

    def _stop_everything(self) -> None:
        """Whatever goes wrong here must not prevent the end from being reported."""
        for resource, (token, _) in self.session.holdings.snapshot().items():
            try:
                self._work.abort(resource, token, "lost")
            except Exception:
                log.exception("group %s: %s could not be stopped", self._coordinator.group, resource)
        self._work.problem(act.Problem("cut_off", "internal error: see the log", fatal=True))
        self._work.left()
        self._work.flush()

    @singledispatchmethod
    def _carry_out(self, action: object) -> None:
        raise TypeError(f"not an action: {action!r}")

    @_carry_out.register
    def _(self, action: act.Wait) -> None:
        self._wait_until = action.until

    @_carry_out.register
    def _(self, action: act.Call) -> None:
        self._calls.put(action.request)

    @_carry_out.register
    def _(self, action: act.Listen) -> None:
        if self._channel:
            self._listener.unsubscribe(self._channel)
        self._channel = self._coordinator.channel(action.member)
        self._listener.subscribe(self._channel)

    @_carry_out.register
    def _(self, action: act.Start) -> None:
        self._work.begin(action.resource, action.token, action.committed, action.tries)

    @_carry_out.register
    def _(self, action: act.Drain) -> None:
        self._work.drain(action.resource, action.token, max(0, action.abort_at - monotonic_ms()))

    @_carry_out.register
    def _(self, action: act.Hasten) -> None:
        self._work.hasten(action.resource, action.token, max(0, action.abort_at - monotonic_ms()))

    @_carry_out.register
    def _(self, action: act.Keep) -> None:
        self._work.keep(action.resource, action.token)

    @_carry_out.register
    def _(self, action: act.Abort) -> None:
        self._work.abort(action.resource, action.token, action.reason)

    @_carry_out.register
    def _(self, action: act.CommitDone) -> None:
        self._work.commit_done(action.ticket, action.outcome)

    @_carry_out.register
    def _(self, action: act.Joined) -> None:
        self._work.joined(action.member)
        self._calls.put(self._read_settings)
        self.vouching.joined(action.member)  # its listener has been connected, or will be
        self._calls.put(self.vouching.tell)

    @_carry_out.register
    def _(self, _action: act.Declared) -> None:
        self._on_declared()

    @_carry_out.register
    def _(self, action: act.Problem) -> None:
        if action.code == "cut_off" and not action.fatal:
            action = attrs.evolve(action, message=f"{action.message}. {self.failing or 'Check Redis and the network.'}")
        level = logging.ERROR if action.fatal else logging.INFO if action.expected else logging.WARNING
        log.log(level, "group %s: %s", self._coordinator.group, action.message)
        self._work.problem(action)
        if action.fatal and self.session.leaving.asked_at is None:
            self.post(ev.StopAsked())

    @_carry_out.register
    def _(self, _action: act.Left) -> None:
        self._over.set()
        self._work.left()

    # -- the caller's thread -----------------------------------------------------------------------------------------

    def _run_calls(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                if isinstance(call, Request):
                    self._execute(call)
                else:
                    self._try(call)
            except Exception as error:  # noqa: BLE001 -- a bug, raised where it ends the member
                self._events.put(error)

    def _execute(self, request: Request) -> None:
        sent_at = monotonic_ms()
        try:
            reply = self._coordinator.execute(request)
        except CobalanceError as error:
            self._report(error)
            self.post(ev.CallFailed(request, str(error)))
        else:
            self.heard_at = time.time()
            self._report_answer()
            self._keep_time(reply.session_timeout_ms)
            self.post(ev.Replied(request, reply, sent_at))
            if self.vouching.is_unheard:
                self.vouching.tell()

    def _keep_time(self, session_timeout_ms: int) -> None:
        timeout_ms = call_timeout_ms(session_timeout_ms)
        if session_timeout_ms and timeout_ms != self._call_timeout_ms:
            self._call_timeout_ms = timeout_ms
            self._time_calls(timeout_ms)

    @staticmethod
    def _try(call: Callable[[], None]) -> None:
        """Errors are ignored: problems with Redis are reported by the other calls."""
        with suppress(CobalanceError):
            call()

    def _report_in_flight(self) -> None:
        report = Report(self._work.in_flight())
        self._coordinator.execute(Request(Header(self.session.member, 0), report))

    def _read_settings(self) -> None:
        self._work.settings_read(self._coordinator.settings())

    def _report(self, error: CobalanceError) -> None:
        """Logs the same problem once, not at every retry."""
        if self._over.is_set():  # its connection is closed under its last call
            return
        self._failing_since = self._failing_since or monotonic_ms()
        last, self.failing = self.failing, error
        if str(error) != str(last):
            log.warning("group %s: %s; trying again", self._coordinator.group, error)

    def _report_answer(self) -> None:
        if self.failing is not None:
            silence = seconds(monotonic_ms() - self._failing_since)
            log.info("group %s: Redis answers again, after %s", self._coordinator.group, silence)
        self.failing, self._failing_since = None, 0

    def _listens(self) -> bool:
        return self._heard_channel == self._channel

    def _hinted(self, channel: str, version: int) -> None:
        if version in self._errands:
            self._calls.ask(self._errands[version])
        if version == LISTENING and channel == self._channel:
            self._heard_channel = channel
            self._calls.put(self.vouching.tell)
        if version in {LISTENING, SETTINGS}:  # something may have been missed; heartbeats may be due sooner
            version = RESYNC
        if version < RESYNC:  # an unknown errand is no reason to ask: the next heartbeat tells whatever matters
            return
        if channel in (self._channel, self._coordinator.channel(EVERYBODY)):
            self.post(ev.Hinted(version))


@atexit.register
def _let_leave() -> None:
    """``sys.exit()`` in a handler's task ends the event loop again while it cancels the rest, including the leave."""
    give_up_at = time.monotonic() + LAST_S
    for engine in list(_leaving):
        if engine.runs:
            engine.wait_left(max(0, give_up_at - time.monotonic()))
