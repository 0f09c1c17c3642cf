"""One member with many resources: the cost of an event does not grow with their number. Python steps are counted, not
time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from cobalance.coordinator.replies import Change, CoordinatorReply, Status
from cobalance.coordinator.requests import Commit, Heartbeat, Join, Leave, Payload, Release, Request
from cobalance.member import actions as act
from cobalance.member import events as ev
from cobalance.member.session import Phase, Session
from cobalance.settings import GroupSettings, MemberSettings

FEW, MANY = 50, 200
"""Enough to detect a quadratic cost: four times as many steps per event."""

PAGE = 50
SETTINGS = GroupSettings(session_timeout_ms=3_000, heartbeat_interval_ms=1_000, revocation_timeout_ms=5_000)
NEVER_MS = 10**12


class Member:
    """A session whose coordinator grants and confirms every request. Counts its own steps."""

    def __init__(self, count: int, **own: Any) -> None:
        self.names = [f"r{number:06}" for number in range(count)]
        self.now = self.steps = self.events = 0
        self.requests: list[Request] = []
        self.session = Session("p", "host/1", SETTINGS, MemberSettings(max_processing_ms=60_000, **own))
        self.handle(ev.Started())
        self.answer()
        for start in range(0, count, PAGE):
            self.handle(ev.Hinted(-1))
            self.answer(*[Change("hold", name, self.token(name)) for name in self.names[start : start + PAGE]])
        assert len(self.session.holdings.snapshot()) == count
        self.steps = self.events = 0

    @staticmethod
    def token(name: str) -> int:
        """The token of a resource's only tenure."""
        return int(name[1:]) + 1

    def handle(self, event: ev.Event) -> None:
        """Handles one event, counting its steps."""
        self.events += 1
        previous = sys.gettrace()
        sys.settrace(self._trace)
        try:
            actions = self.session.handle(event, self.now)
        finally:
            sys.settrace(previous)
        self.requests += [it.request for it in actions if isinstance(it, act.Call)]

    def _trace(self, frame: FrameType, kind: str, _: object) -> Callable[..., Any]:
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if kind == "opcode":
            self.steps += 1
        return self._trace

    def answer(self, *changes: Change, status: Status = "OK") -> Payload:
        request = self.requests.pop()
        assert self.requests == []
        reply = CoordinatorReply(
            status=status, now_ms=0, incarnation=1, version=1, cursor=1, session_timeout_ms=3_000,
            heartbeat_interval_ms=1_000, due_ms=NEVER_MS, changes=changes, results=tuple(self._results(request.payload)),
        )  # fmt: skip
        self.handle(ev.Replied(request, reply, self.now))
        return request.payload

    def _results(self, payload: Payload) -> list[str]:
        match payload:
            case Join():
                return ["KEPT"] * len(payload.claims)
            case Release() | Commit():
                return ["OK"] * len(payload.items)
            case Leave():
                return ["LEFT"] if payload.remain or not self.session.holdings.any_known() else ["LEAVING"]
            case _:
                return []

    def sample(self, busy_since: int | None) -> None:
        self.handle(ev.Progressed(tuple(ev.Sample(name, self.token(name), busy_since) for name in self.names)))

    def drain(self, names: list[str], *, offset: int | None = None) -> None:
        """The work on these ends in order, one after the other."""
        for name in names:
            self.handle(ev.DrainBegun(name, self.token(name)))
            self.handle(ev.Drained(name, self.token(name), offset=offset))

    def answer_all(self) -> None:
        """Answers until there are no more requests."""
        while self.requests:
            self.answer()


Story = Callable[[Member], None]


def is_sampled(member: Member) -> None:
    """Every handler becomes busy, and idle again, and the coordinator hears of it."""
    for since in (5, None):
        member.sample(since)
        for _ in range(len(member.names) // 100 + 1):
            member.handle(ev.Hinted(-1))
            member.answer_all()


def is_guarded(member: Member) -> None:
    """A broker guards one after the other, while nothing is answered and the lease is over."""
    member.now = 2_900
    for name in member.names:
        member.handle(ev.GuardChanged(name, member.token(name), proven=True))


def is_guarded_and_cut_off(member: Member) -> None:
    """All are kept, since the broker guards them, and continue while nothing is answered."""
    for name in member.names:
        member.handle(ev.GuardChanged(name, member.token(name), proven=True))
    member.now = 2_900
    for _ in range(10):
        member.sample(5)
        member.handle(ev.TimerFired())


def is_asked_for_half(member: Member) -> None:
    """A page at a time, each finished before the next one is asked for."""
    for start in range(0, len(member.names) // 2, PAGE):
        page = member.names[start : start + PAGE]
        member.handle(ev.Hinted(-1))
        member.answer(*[Change("revoke", name, member.token(name), 5_000) for name in page])
        member.drain(page)
        member.answer_all()


def leaves(member: Member) -> None:
    """Everything is finished and released."""
    member.handle(ev.StopAsked())
    member.drain(member.names, offset=7)
    member.answer_all()
    member.handle(ev.TimerFired())
    assert member.session.holdings.snapshot() == {}


def leaves_in_the_reverse_order(member: Member) -> None:
    """What was granted last is finished first."""
    member.handle(ev.StopAsked())
    member.drain(member.names[::-1])
    member.answer_all()
    assert member.session.holdings.snapshot() == {}


def leaves_to_come_back(member: Member) -> None:
    """Offsets are committed, and everything is kept for the rejoin grace."""
    member.handle(ev.StopAsked(remain=True))
    member.drain(member.names, offset=7)
    member.answer_all()
    assert member.session.phase is Phase.LEFT


def is_stopped_at_the_deadline(member: Member) -> None:
    """Nothing is finished in time; aborted work ends one by one."""
    member.handle(ev.StopAsked())
    member.answer_all()
    member.now = 1_000
    member.handle(ev.TimerFired())
    for name in member.names:
        member.handle(ev.Abandoned(name, member.token(name), "deadline"))
    member.answer_all()
    assert member.session.holdings.snapshot() == {}


def commits_all(member: Member) -> None:
    for ticket, name in enumerate(member.names):
        member.handle(ev.CommitAsked(ticket + 1, name, member.token(name), 3))
    member.answer_all()


def joins_again(member: Member) -> None:
    """Everything is claimed, page by page."""
    member.handle(ev.Hinted(-1))
    member.answer(status="REJOIN")
    member.answer_all()
    assert len(member.session.holdings.snapshot()) == len(member.names)


def joins_again_and_is_cut_off(member: Member) -> None:
    """The claims are not answered; aborted work ends one by one."""
    member.handle(ev.Hinted(-1))
    member.answer(status="REJOIN")
    member.requests.clear()
    member.now = 2_900
    member.handle(ev.TimerFired())
    for name in member.names:
        member.handle(ev.Abandoned(name, member.token(name), "fenced"))


STORIES: tuple[tuple[Story, dict[str, Any]], ...] = (
    (is_sampled, {}),
    (is_guarded, {}),
    (is_guarded_and_cut_off, {"guarded_outage_ms": 60_000}),
    (is_asked_for_half, {}),
    (leaves, {}),
    (leaves_in_the_reverse_order, {}),
    (leaves_to_come_back, {"instance_id": "i"}),
    (is_stopped_at_the_deadline, {"drain_timeout_ms": 1_000}),
    (commits_all, {}),
    (joins_again, {}),
    (joins_again_and_is_cut_off, {}),
)


@pytest.mark.parametrize(("story", "own"), STORIES, ids=[story.__name__ for story, _ in STORIES])
def test_a_resource_costs_the_same_however_many_there_are(story: Story, own: dict[str, Any]) -> None:
    """The steps of a whole story grow with the number of resources, and not with its square."""
    each = []
    for count in (FEW, MANY):
        member = Member(count, **own)
        story(member)
        each.append(member.steps / count)
    assert each[1] < 1.2 * each[0], f"{each[0]:.0f} steps a resource, and with {MANY} resources {each[1]:.0f}"


def test_a_heartbeat_costs_the_same_however_many_are_held() -> None:
    """Idle tenures are not visited."""
    steps = []
    for count in (FEW, MANY):
        member = Member(count)
        member.now = 1_000
        member.handle(ev.TimerFired())
        assert isinstance(member.answer(), Heartbeat)
        steps.append(member.steps)
    assert steps[1] == steps[0]
