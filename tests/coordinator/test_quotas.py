"""How many resources each member gets: even, in proportion, with the fewest moves, limited per call."""

from __future__ import annotations

from itertools import pairwise

import attrs
import pytest
from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, names
from tests.coordinator.sharing import tokens


def revoked(group: Group) -> int:
    """The number of revocations so far."""
    return len(group.journal("revoking"))


@pytest.mark.parametrize(("resources", "members"), [(10, 4), (12, 5), (3, 7), (1, 3), (0, 2), (16, 16)])
def test_shares_are_equal_within_one(group: Group, resources: int, members: int) -> None:
    """No member has two more than any other."""
    joined = [group.join(f"m{number:02}") for number in range(members)]
    group.set_resources(joined[0], names(resources))
    group.drain()
    loads = group.loads().values()
    assert sum(loads) == resources
    assert max(loads) - min(loads) <= 1


def test_shares_follow_capacity(group: Group) -> None:
    """Twice the capacity is twice the resources, each share rounded down or up."""
    a, _, _ = group.join("a", capacity=1), group.join("b", capacity=2), group.join("c", capacity=3)
    group.set_resources(a, names(12))
    assert group.loads() == {"a": 2, "b": 4, "c": 6}
    group.set_resources(a, names(13))
    group.drain()
    loads = group.loads()
    assert loads["a"] in (2, 3)
    assert loads["b"] in (4, 5)
    assert loads["c"] in (6, 7)
    assert sum(loads.values()) == 13


def test_capacity_zero_is_a_standby(group: Group) -> None:
    """A standby is assigned nothing, even if it is the only member."""
    standby = group.join("s", capacity=0)
    group.set_resources(standby, names(3))
    assert group.holders() == dict.fromkeys(names(3))
    group.join("a")
    assert group.loads() == {"a": 3, "s": 0}


def test_free_resources_go_to_the_most_under_quota(group: Group) -> None:
    """A new member without resources comes first."""
    (a,) = group.joined("a")
    group.set_resources(a, names(4))
    a.hear()
    group.join("b")
    a.hear()
    a.release(*a.pending)
    group.set_resources(a, names(7))
    assert sorted(group.loads().values()) == [3, 4]


def test_ceilings_stay_with_whoever_has_them(group: Group) -> None:
    """Of two new and three old members, the old ones with a ceiling lose nothing for another's ceiling."""
    a, _, _ = group.joined("abc")
    group.set_resources(a, names(11))
    group.drain()
    before = group.records().resources
    group.set_resources(a, names(10))
    group.drain()
    after = group.records().resources
    assert sorted(group.loads().values()) == [3, 3, 4]
    assert all(after[name].token == before[name].token for name in after)


def test_ceilings_go_next_to_who_can_keep_one_by_a_cancellation(group: Group) -> None:
    """A resource that becomes spare while one is being revoked is first used to cancel that revocation."""
    a, b = group.joined("ab")
    group.set_resources(a, names(6))
    group.drain()
    c = group.join("c")
    group.beat()
    group.set_resources(c, names(8))
    assert len(group.journal("cancelled")) >= 1
    group.drain()
    assert sorted(group.loads().values()) == [2, 3, 3]
    assert {a.holds.keys() & b.holds.keys() == set()}


def test_resources_being_removed_do_not_count(group: Group) -> None:
    """Quotas apply to what remains, though its holder still has what is being removed."""
    a, b = group.joined("ab")
    group.set_resources(a, names(8))
    group.drain()
    gone = sorted(a.holds)[:2]
    group.set_resources(a, tuple(sorted(set(names(8)) - set(gone))))
    assert group.records().number("total") == 6
    group.drain()
    assert group.loads() == {"a": 3, "b": 3}
    assert len(b.heard) > 0


@pytest.mark.parametrize("moves", [1, 3])
def test_no_call_moves_more_than_it_may(backend: Backend, moves: int) -> None:
    """However much is due, a call does a bounded part of it and says that there is more."""
    group = Group(backend, attrs.evolve(SETTINGS, moves_per_call=moves))
    a = group.join("a")
    group.set_resources(a, names(20))
    seen = [len(group.journal("granted", "revoking"))]
    replies = []
    for ask in [a.heartbeat] * 30 + [lambda: group.join("b").last, *[a.heartbeat] * 20]:
        replies.append(ask())
        seen.append(len(group.journal("granted", "revoking")))
    assert max(later - earlier for earlier, later in pairwise(seen)) <= moves
    assert len(a.pending) == 10
    assert any(reply.more for reply in replies)
    assert not replies[-1].more


def test_when_more_is_due_anybody_may_do_it(backend: Backend) -> None:
    """The next caller continues the work: there is no process whose death stops the group."""
    group = Group(backend, attrs.evolve(SETTINGS, moves_per_call=2))
    a, b, c = group.joined("abc")
    group.set_resources(a, names(12))
    a.silent = b.silent = True
    group.run(SETTINGS.session_timeout_ms + 1000, c)
    assert group.loads() == {"c": 12}


def test_nothing_moves_when_nothing_has_changed(group: Group) -> None:
    """A settled group is a fixed point."""
    a, b, c = group.joined("abc")
    group.set_resources(a, names(11))
    group.drain()
    held, moves, heard = tokens(a, b, c), revoked(group), [len(member.heard) for member in (a, b, c)]
    group.run(60_000)
    group.set_resources(a, names(11))
    group.beat()
    assert revoked(group) == moves
    assert tokens(a, b, c) == held
    assert [len(member.heard) for member in (a, b, c)] == heard


def test_one_resource_and_many_members_is_active_and_standby(group: Group) -> None:
    """The next one takes over when the holder dies, and the others never get it."""
    a, b, c = group.joined("abc")
    group.set_resources(a, ("only",))
    assert group.holders() == {"only": "a"}
    group.run(SETTINGS.session_timeout_ms + 1000, b, c)
    assert group.holders()["only"] in ("b", "c")
    assert len(group.journal("granted")) == 2
