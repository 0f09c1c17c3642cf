"""An administrator deletes a group: only without members, or as a loss of data from which they recover."""

from __future__ import annotations

import pytest
from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, names

from cobalance.coordinator.keys import EVERYBODY, hint_channel
from cobalance.errors import GroupActive, UnknownGroup

SESSION_MS = SETTINGS.session_timeout_ms


def test_nothing_of_a_group_is_left(group: Group) -> None:
    """Neither offsets nor journal."""
    a = group.join("a")
    group.set_resources(a, names(2))
    a.hear()
    a.commit("r000", 10)
    group.until_left(a)
    group.coordinator.delete()
    assert group.backend.dump() == ()
    with pytest.raises(UnknownGroup):
        group.coordinator.delete()


def test_another_of_the_name_is_new(group: Group) -> None:
    """It starts without the offsets of the old one, and above its tokens."""
    a = group.join("a")
    group.set_resources(a, names(1))
    a.hear()
    token = a.holds["r000"].token
    a.commit("r000", 10)
    group.until_left(a)
    group.coordinator.delete()
    group.backend.now_ms += 1
    group.coordinator.create(SETTINGS)
    b = group.join("b")
    group.set_resources(b, names(1))
    b.hear()
    assert b.holds["r000"].committed is None
    assert b.holds["r000"].token > token


def test_a_group_with_members_is_left_alone(group: Group) -> None:
    """Until the last of them has left, or its session is over and another call was made meanwhile."""
    a = group.join("a")
    group.set_resources(a, names(1))
    a.hear()
    with pytest.raises(GroupActive, match="has members"):
        group.coordinator.delete()
    for _ in range(6):
        group.backend.now_ms += SETTINGS.heartbeat_interval_ms
        group.tick()
    group.coordinator.delete()
    assert group.backend.dump() == ()


def test_a_member_kept_for_its_return_counts_too(group: Group) -> None:
    """Its instance id will return to what it held."""
    a = group.join("a", instance_id="pod-0")
    group.set_resources(a, names(1))
    a.hear()
    assert a.leave(remain=True) == "LEFT"
    with pytest.raises(GroupActive):
        group.coordinator.delete()


def test_who_listens_may_yet_join(group: Group) -> None:
    """A process between two sessions is not a member, but not gone either."""
    group.backend.watch(hint_channel("g", EVERYBODY))
    with pytest.raises(GroupActive, match="still listen"):
        group.coordinator.delete()


def test_a_group_that_is_recovering_is_left_alone(backend: Backend) -> None:
    """Members may be about to claim what they hold."""
    group = Group(backend, create=False)
    group.until_left(group.join("a"))
    with pytest.raises(GroupActive, match="finding out"):
        group.coordinator.delete()


def test_by_force_members_join_again_with_what_they_hold(group: Group) -> None:
    """They are called at once and continue with what they hold; a new member gets none of it before they had their
    time.
    """
    a, b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    a.commit(min(a.holds), 10)
    held = sorted(a.holds)
    group.backend.watch(hint_channel("g", EVERYBODY))
    group.coordinator.delete(force=True)
    group.forget_tokens()
    group.backend.now_ms += 10
    assert (hint_channel("g", EVERYBODY), -1) in group.backend.hints()
    newcomer = group.join("n")
    assert group.set_resources(newcomer, names(4)) == "RECOVERING"
    a.heartbeat()
    assert a.last.status == "REJOIN"
    a2 = a.rejoin("a2")
    assert a2.last.results == ("KEPT",) * 2
    for _ in range(3):
        group.run(SESSION_MS // 3 - 100, newcomer, a2)
        assert not newcomer.holds
        assert [name for name in held if a2.works_on(name)] == held
    b.silent = True
    group.run(2 * SESSION_MS, newcomer, a2)
    assert group.set_resources(newcomer, names(4), version=2) in {"DONE", "CURRENT"}
    group.run(2 * SESSION_MS, newcomer, a2)
    holders = group.holders()
    assert sorted(holders.values(), key=str) == ["a2", "a2", "n", "n"]
    assert not [name for name in names(4) if b.works_on(name)]


def test_by_force_an_offset_of_what_nobody_holds_is_lost(group: Group) -> None:
    """And the group says that it does not know whether there was one."""
    a = group.join("a")
    group.set_resources(a, names(1))
    a.hear()
    group.coordinator.delete(force=True)
    a.heartbeat()
    group.forget_tokens()
    a.rejoin("a2")
    assert group.coordinator.state()["offsets_known"] == "0"
