"""The cost of a member's own threads: CPU of the session's thread between heartbeats, by resources held."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cobalance.coordinator.replies import Change, CoordinatorReply
from cobalance.limits import MAX_RESOURCES
from cobalance.member import actions as act
from cobalance.member import events as ev
from cobalance.member.session import Session
from cobalance.settings import GroupSettings, MemberSettings
from proof.bench.figures import Figure, alone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cobalance.coordinator.requests import Request

SIZES = (1_000, 10_000, MAX_RESOURCES)
BUSY = 100
SETTINGS = GroupSettings()
BEATS = 20


def figures(sizes: tuple[int, ...] = SIZES) -> Iterator[Figure]:
    """One figure for each number of resources that a member holds, a hundred of which are busy, others each time."""
    for count in sizes:
        member = _FullSession(count)
        began = time.thread_time()
        for _ in range(BEATS):
            member.beat()
        each_ms = (time.thread_time() - began) * 1000 / BEATS
        yield alone(
            f"session of {count:,} resources: CPU a heartbeat",
            "ms",
            each_ms,
            most=5.0,
            detail=f"{BUSY} turn busy and {BUSY} idle; mean of {BEATS}",
        )


class _FullSession:
    """A session without threads that holds all resources."""

    def __init__(self, count: int) -> None:
        self._names, self._now, self._beats = [f"r{number:06}" for number in range(count)], 0, 0
        self._session = Session("bench", "bench", SETTINGS, MemberSettings())
        (join,) = self._handle(ev.Started())
        held = tuple(Change("hold", name, token) for token, name in enumerate(self._names, start=1))
        self._handle(ev.Replied(join, self._reply(held), 0))

    def _handle(self, event: ev.Event) -> list[Request]:
        return [it.request for it in self._session.handle(event, self._now) if isinstance(it, act.Call)]

    def _reply(self, changes: tuple[Change, ...] = ()) -> CoordinatorReply:
        return CoordinatorReply(
            status="OK", incarnation=1, version=1, cursor=1, session_timeout_ms=SETTINGS.session_timeout_ms,
            heartbeat_interval_ms=SETTINGS.heartbeat_interval_ms, due_ms=10**12, changes=changes,
        )  # fmt: skip

    def beat(self) -> None:
        """An interval passes: samples, and the heartbeat that reports them."""
        self._now += SETTINGS.heartbeat_interval_ms
        self._handle(ev.Progressed((*self._samples(self._beats, None), *self._samples(self._beats + 1, self._now))))
        self._beats += 1
        self._handle(ev.TimerFired())
        while (request := self._session.line.outstanding) is not None:
            self._handle(ev.Replied(request, self._reply(), self._now))

    def _samples(self, turn: int, since: int | None) -> list[ev.Sample]:
        first = turn * BUSY % len(self._names)
        return [
            ev.Sample(name, first + at, since) for at, name in enumerate(self._names[first : first + BUSY], start=1)
        ]
