"""Revocations that are no longer useful, when members can work different things."""

from __future__ import annotations

import attrs
import pytest
from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, Member, names
from tests.coordinator.test_subscriptions import member

MEMBERS = 30
ORDERS = names(2 * MEMBERS, "orders-")


@pytest.fixture
def crowd(group: Group) -> list[Member]:
    """Thirty members with two resources each, one of which can work something else, too."""
    it = [member(group, f"m{number:02}", ORDERS) for number in range(MEMBERS - 1)]
    it.append(member(group, "other", [*ORDERS, "other"]))
    group.drain()
    return it


def tokens(members: list[Member]) -> dict[str, int]:
    """The tokens of what they hold."""
    return {name: tenure.token for it in members for name, tenure in it.holds.items()}


def test_all_revocations_of_no_more_use_are_cancelled(group: Group, crowd: list[Member]) -> None:
    """However many members have one: a large member joins, and leaves at once."""
    before = tokens(crowd)
    big = member(group, "big", ORDERS, capacity=MEMBERS)
    group.beat()
    assert sum(bool(it.pending) for it in crowd) > 20
    assert big.leave() == "LEFT"
    group.tick()
    group.beat()
    assert not any(it.pending for it in crowd)
    assert tokens(crowd) == before


def test_a_revocation_for_somebody_who_got_other_work_is_cancelled(group: Group) -> None:
    """Half of one member's resources was to go to a new member, which then gets what a third one leaves behind: both
    end with as much, and nothing that was asked back is returned to its giver.
    """
    mine, others = names(20, "a-"), names(8, "b-")
    a, b = member(group, "a", mine), member(group, "b", others)
    group.drain()
    before = tokens([a])
    c = member(group, "c", [*mine, *others])
    group.beat()
    assert len(a.pending) == 10
    b.silent = True
    group.run(4000, a, c)
    assert len(c.holds) == 8
    group.drain(a, c)
    assert len(a.holds) == len(c.holds) == 14
    assert all(before[name] == tenure.token for name, tenure in a.holds.items())


def test_a_group_that_moves_one_a_call_comes_to_rest(backend: Backend) -> None:
    """What is left to check must not use up each call."""
    group = Group(backend, attrs.evolve(SETTINGS, moves_per_call=1))
    wanted = names(10, "orders-")
    members = [member(group, "a", wanted), member(group, "b", [*wanted, "other"])]
    group.drain()
    before = tokens(members)
    big = member(group, "big", wanted, capacity=10)
    group.beat()
    group.until_left(big)
    group.tick()
    group.drain()
    assert tokens(members).keys() == before.keys()


def test_one_change_of_many_calls_is_not_gathered(backend: Backend) -> None:
    """A new member's share moves as fast as it is released, and not one call's worth per window."""
    group = Group(backend, attrs.evolve(SETTINGS, gather_ms=500, moves_per_call=5))
    a = member(group, "a", names(60))
    group.drain()
    b = member(group, "b", [*names(60), "other"])
    group.drain()
    assert len(b.holds) >= 30
    assert abs(len(a.holds) - len(b.holds)) <= 1
