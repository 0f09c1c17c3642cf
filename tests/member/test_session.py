"""The session as a whole: its phases, and what may not happen."""

import re
from itertools import pairwise

import pytest
from tests.harness import SETTINGS, World, names

from cobalance.coordinator.replies import CoordinatorReply
from cobalance.coordinator.requests import Header, Heartbeat, Join, Request
from cobalance.errors import IllegalTransition
from cobalance.member import events as ev
from cobalance.member import session
from cobalance.member.actions import Call, Left, Listen, Wait
from cobalance.member.session import TRANSITIONS, Phase, Session
from cobalance.settings import MemberSettings

ILLEGAL = [(before, after) for before in Phase for after in Phase if after not in TRANSITIONS[before]]


def new_session() -> Session:
    return Session("p", "host/1", SETTINGS, MemberSettings())


@pytest.mark.parametrize(("before", "after"), ILLEGAL)
def test_an_illegal_change_of_phase_raises_and_changes_nothing(before: Phase, after: Phase) -> None:
    """The table of phases is complete."""
    it = new_session()
    it.phase = before
    with pytest.raises(IllegalTransition, match=f"{before.value} cannot become {after.value}"):
        it._to(after)
    assert it.phase is before


def test_the_diagram_shows_edges_of_the_table() -> None:
    """Each arrow between two boxes of the docstring's picture is in the table."""
    assert session.__doc__ is not None
    row = next(line for line in session.__doc__.splitlines() if line.strip().startswith("NEW ─"))
    boxes = [Phase[name] for name in re.findall(r"[A-Z]{3,}", row)]
    assert boxes == [Phase.NEW, Phase.JOINING, Phase.ACTIVE, Phase.LEAVING, Phase.LEFT]
    arrows = [*pairwise(boxes)]
    arrows += [(Phase.ACTIVE, Phase.JOINING), (Phase.ACTIVE, Phase.CUT), (Phase.CUT, Phase.ACTIVE)]
    arrows += [(Phase.CUT, Phase.JOINING), (Phase.LEAVING, Phase.JOINING)]
    for before, after in arrows:
        assert after in TRANSITIONS[before]


def test_every_phase_but_the_last_has_a_way_to_the_end() -> None:
    """No session is stuck."""
    ending = {Phase.LEFT}
    for _ in Phase:
        ending |= {phase for phase in Phase if TRANSITIONS[phase] & ending}
    assert ending == set(Phase)


def test_starting_listens_joins_and_waits() -> None:
    """The first actions, in the order in which they are carried out."""
    listen, call, wait = new_session().handle(ev.Started(), 1_000)
    assert listen == Listen("p.1")
    assert isinstance(call, Call)
    assert isinstance(call.request.payload, Join)
    assert isinstance(wait, Wait)


def test_starting_twice_is_illegal() -> None:
    it = new_session()
    it.handle(ev.Started(), 0)
    with pytest.raises(IllegalTransition):
        it.handle(ev.Started(), 1)
    assert it.phase is Phase.JOINING


def test_an_answer_to_a_question_never_asked_is_illegal() -> None:
    """An unexpected reply is a bug."""
    it = new_session()
    request = Request(Header("p.1", 1), Heartbeat())
    with pytest.raises(IllegalTransition, match="never sent"):
        it.handle(ev.Replied(request, CoordinatorReply(status="OK"), 0), 0)
    it.handle(ev.Started(), 0)
    with pytest.raises(IllegalTransition, match="never sent"):
        it.handle(ev.CallFailed(Request(Header("p.1", 2), Heartbeat()), "no"), 0)


@pytest.mark.parametrize(
    "event",
    [
        ev.DrainBegun("r0", 99),
        ev.Drained("r0", 99),
        ev.Abandoned("r0", 99, "hung"),
        ev.Progressed((ev.Sample("r0", 99, None),)),
        ev.GuardChanged("r0", 99, True),
        ev.CommitAsked(1, "r0", 99, 5),
    ],
)
def test_news_of_a_tenure_that_never_was_is_illegal(event: ev.Event) -> None:
    """Work can only report on what it was given."""
    it = new_session()
    it.handle(ev.Started(), 0)
    with pytest.raises(IllegalTransition, match="there was no tenure"):
        it.handle(event, 1)
    assert it.phase is Phase.JOINING


def test_what_is_no_event_is_illegal() -> None:
    """Events are the classes in events.py."""
    with pytest.raises(IllegalTransition, match="not an event"):
        new_session().handle("boo", 0)  # type: ignore[arg-type]


def test_finishing_once_more_changes_nothing() -> None:
    """Later reports do not change what has ended."""
    world = World()
    a = world.start("A", names(1))
    world.settle()
    world.redis.up = False
    token = a.work.tenures["r0"].token
    a.deliver(ev.Drained("r0", token))
    before = repr(a.session.holdings._by_name)
    for event in (ev.DrainBegun("r0", token), ev.Drained("r0", token, 2, 2, 9), ev.Abandoned("r0", token, "failed")):
        a.session.handle(event, a.now)
    assert repr(a.session.holdings._by_name) == before
    assert a.session.holdings.snapshot() == {"r0": (token, "releasing")}


def test_a_session_that_was_never_started_leaves_at_once() -> None:
    """The coordinator does not know it yet."""
    it = new_session()
    assert it.handle(ev.StopAsked(), 0) == [Left()]
    assert it.phase is Phase.LEFT


def test_nothing_stirs_a_session_that_has_left() -> None:
    """Late events of its threads are ignored."""
    world = World()
    a = world.start("A", names(2))
    world.settle()
    token = a.work.tenures["r0"].token
    a.stop()
    world.run_until(lambda: a.left)
    for event in (
        ev.TimerFired(),
        ev.Hinted(7),
        ev.StopAsked(),
        ev.Abandoned("r0", token, "hung"),
        ev.Drained("r0", token),
    ):
        assert a.session.handle(event, a.now) == []
