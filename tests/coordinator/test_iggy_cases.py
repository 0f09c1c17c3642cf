"""The histories in which Apache Iggy's cooperative rebalancing ends uneven or moves too much."""

from __future__ import annotations

import pytest
from tests.coordinator.driver import Group, names


@pytest.mark.parametrize(("resources", "members"), [(12, 3), (12, 4), (16, 8), (24, 6)])
def test_joins_during_a_drain_end_even(group: Group, resources: int, members: int) -> None:
    """One owner, everything in flight, all others join before anything is committed."""
    first = group.join("m0")
    group.set_resources(first, names(resources))
    first.hear()
    for name in first.holds:
        first.busy(name)
    for number in range(1, members):
        group.join(f"m{number}")
        first.hear()
    group.drain()
    assert set(group.loads().values()) == {resources // members}
    assert len(group.journal("revoking")) == resources - resources // members


@pytest.mark.parametrize(("resources", "members"), [(12, 3), (12, 4), (16, 8), (24, 6)])
def test_the_same_with_the_last_member_dealt_in_the_middle(group: Group, resources: int, members: int) -> None:
    """Every join hits the drain caused by the previous one, when half of it is done."""
    first = group.join("m0")
    group.set_resources(first, names(resources))
    first.hear()
    for number in range(1, members):
        group.join(f"m{number}")
        group.beat()
        for member in tuple(group.members.values()):
            half = member.pending[: len(member.pending) // 2]
            if half:
                member.release(*half)
    group.drain()
    assert set(group.loads().values()) == {resources // members}


@pytest.mark.parametrize(("resources", "members"), [(12, 4), (24, 8), (64, 8), (100, 10)])
def test_a_leave_moves_no_survivors_resource(group: Group, resources: int, members: int) -> None:
    """Iggy reassigns everything; here what survivors hold stays, under the same tokens."""
    joined = [group.join(f"m{number}") for number in range(members)]
    group.set_resources(joined[0], names(resources))
    group.drain()
    leaver, *survivors = joined
    held = {member.id: dict(member.holds) for member in survivors}
    moved = len(leaver.holds)
    group.until_left(leaver)
    group.drain()
    for member in survivors:
        assert all(member.holds[name].token == tenure.token for name, tenure in held[member.id].items())
    assert sum(len(member.holds) for member in survivors) == resources
    assert len(group.journal("revoking")) == moved


def test_one_more_resource_moves_nothing(group: Group) -> None:
    """16 on 4, one added: it goes to one of them (Iggy moved 12)."""
    joined = group.joined("abcd")
    group.set_resources(joined[0], names(16))
    group.drain()
    count = len(group.journal("granted"))
    group.set_resources(joined[0], names(17))
    group.drain()
    assert not group.journal("revoking")
    assert len(group.journal("granted")) == count + 1


def test_a_late_commit_of_the_old_owner_says_nothing_about_the_new_one(group: Group) -> None:
    """Marks belong to a tenure, not to a partition: the token distinguishes A → B → A."""
    a, b = group.joined("ab")
    group.set_resources(a, names(1))
    a.hear()
    b.hear()
    first = a.holds["r000"].token
    a.release("r000", reason="hung")
    b.hear()
    b.release("r000", reason="hung")
    group.run(group.settings.session_timeout_ms)
    assert a.holds["r000"].token > first
    assert a.commit("r000", 5, first) == "FENCED"
    assert a.commit("r000", 5) == "OK"
