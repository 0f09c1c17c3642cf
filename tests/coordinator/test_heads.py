"""The head of a subscription, which looks for what is on its list: who it is when it cannot look."""

from __future__ import annotations

from tests.coordinator.backends import Backend
from tests.coordinator.driver import Group

from cobalance.coordinator.requests import Header, Request, StepDown


def step_down(group: Group, member: str) -> str:
    return group.execute(Request(Header(member, 0), StepDown())).status


def test_a_head_that_steps_down_is_followed_by_whoever_calls_next(group: Group) -> None:
    """Who is no head changes nothing, nor does a copy of the request that comes late."""
    a, b = (group.join(it, subscription="~queues") for it in "ab")
    assert (a.heartbeat().head, b.heartbeat().head) == (True, False)
    assert step_down(group, "b") == "OK"
    assert (b.heartbeat().head, a.heartbeat().head) == (False, True)
    assert step_down(group, "a") == "OK"
    assert (b.heartbeat().head, a.heartbeat().head) == (True, False)
    step_down(group, "a")
    assert (a.heartbeat().head, b.heartbeat().head) == (False, True)


def test_a_head_that_is_alone_stays_head(group: Group) -> None:
    """It may be able to look later."""
    a = group.join("a", subscription="~queues")
    step_down(group, "a")
    assert a.heartbeat().head


def test_other_subscriptions_keep_their_heads(group: Group) -> None:
    """Each has its own."""
    a, b = group.join("a", subscription="~these"), group.join("b", subscription="~those")
    step_down(group, "a")
    assert (b.heartbeat().head, a.heartbeat().head) == (True, True)


def test_nobody_steps_down_in_a_group_that_is_not_there(backend: Backend) -> None:
    """Nothing is written."""
    group = Group(backend, create=False)
    assert step_down(group, "a") == "UNKNOWN"
    assert backend.dump() == ()
