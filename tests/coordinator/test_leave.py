"""Leaving: gracefully, for good, or kept for a return under the same instance id."""

from __future__ import annotations

import attrs
import pytest
from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, Member, names

from cobalance.coordinator.keys import group_keys
from cobalance.coordinator.requests import Header
from cobalance.coordinator.scripts import load

GRACE_MS = SETTINGS.rejoin_grace_ms


def test_a_leaver_drains_everything_then_goes(group: Group) -> None:
    """Everything becomes pending, is released, and goes to the others; the second request ends the membership."""
    a, b = group.joined("ab")
    group.set_resources(a, names(6))
    group.drain()
    assert a.leave() == "DRAINING"
    a.hear()
    assert len(a.pending) == 3
    assert a.leave() == "DRAINING"
    a.release_pending()
    assert a.leave() == "LEFT"
    b.hear()
    assert len(b.holds) == 6


def test_a_leave_moves_only_the_leavers(group: Group) -> None:
    """What the survivors hold stays where it is."""
    a, b, c = group.joined("abc")
    group.set_resources(a, names(12))
    group.drain()
    kept = {**b.holds, **c.holds}
    a.leave()
    group.drain()
    a.leave()
    now = {**b.holds, **c.holds}
    assert all(now[name].token == tenure.token for name, tenure in kept.items())
    assert len(now) == 12


def test_the_repeat_of_a_lost_last_reply_says_left(group: Group) -> None:
    """The member has ended; repeating the request does not turn that into an error."""
    a, _ = group.joined("ab")
    assert a.leave() == "LEFT"
    assert a.repeat().results == ("LEFT",)
    assert len(group.journal("left")) == 1


def test_the_repeat_of_a_leave_settles_nothing(group: Group) -> None:
    """The server may be another one by now, which has older data: what is due there is for those who know more."""
    a, b, c = group.joined("abc")
    group.set_resources(a, names(6), version=1)
    group.drain()
    for _ in range(2):
        group.members[group.holders()["r000"] or ""].release("r000", reason="handler")
        group.beat()
    assert group.holders()["r000"] is None  # it is paused
    a.leave()
    a.hear()
    a.release(*sorted(a.holds))
    assert a.is_over or a.leave() == "LEFT"
    older = group.backend.dump()
    group.run(4_000, b, c)
    holder = group.members[group.holders()["r000"] or ""]
    assert holder.commit("r000", 500) == "OK"
    group.restore(older)
    group.forget_tokens()
    group.backend.identity = "replica"
    assert a.repeat().results == ("LEFT",)
    for it in (b, c):
        it.heartbeat()
    assert holder.rejoin(f"{holder.id}2").holds["r000"].committed == 500


def test_a_leave_in_another_protocol_is_refused(group: Group) -> None:
    """Also the repeat of one."""
    a, _ = group.joined("ab")
    assert a.leave() == "LEFT"
    reply = group.backend.call(load("leave"), group_keys("g"), ["9", *Header("a", a.number).args()[1:], "-"])
    assert isinstance(reply, list)
    assert reply[0] == b"PROTOCOL"


def test_a_leaver_may_commit_to_the_last(group: Group) -> None:
    """Draining means finishing and committing."""
    (a,) = group.joined("a")
    group.set_resources(a, names(1))
    a.hear()
    a.leave()
    assert a.commit("r000", 4) == "OK"
    assert a.release("r000", offset=5) == ("OK",)
    assert group.records().offsets == {"r000": 5}


def test_a_leaver_is_given_nothing(group: Group) -> None:
    """Not even if it is the only one left."""
    (a,) = group.joined("a")
    group.set_resources(a, names(2))
    a.hear()
    a.leave()
    a.hear()
    a.release("r000")
    assert group.holders()["r000"] is None
    group.run(1000)
    assert group.holders()["r000"] is None


def test_a_leaver_that_crashes_is_emptied(group: Group) -> None:
    """Its session ends like any other."""
    a, b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    a.leave()
    group.run(SETTINGS.session_timeout_ms + 1000, b)
    assert len(b.holds) == 4


def test_without_an_instance_id_there_is_nothing_to_remain(group: Group) -> None:
    """`remain` without a name to return under is a normal leave."""
    a, _ = group.joined("ab")
    group.set_resources(a, names(2))
    a.hear()
    assert a.leave(remain=True) == "DRAINING"


# -- static members ----------------------------------------------------------------------------------------------------


def static_group(group: Group, count: int = 12) -> list[Member]:
    """Three members with instance ids that share everything."""
    members = [group.join(member, instance_id=f"pod-{member}") for member in "abc"]
    group.set_resources(members[0], names(count))
    group.drain()
    return members


@pytest.mark.parametrize("count", [12, 10, 2])
@pytest.mark.parametrize("how", ["remain", "crash"])
def test_a_rolling_restart_moves_nothing(group: Group, count: int, how: str) -> None:
    """One after the other stops and returns; each finds what it had, and the others notice nothing."""
    static_group(group, count)
    before = group.holders()
    for name in "abc":
        member = group.members[name]
        others = {
            other.id: {it: tenure.token for it, tenure in other.holds.items()} for other in group.members.values()
        }
        if how == "remain":
            assert member.leave(remain=True) == "LEFT"
        else:
            member.silent = True
            group.run(SETTINGS.session_timeout_ms + 1000)
        group.run(5000)
        del group.members[name]
        back = group.join(f"{name}2", instance_id=f"pod-{name}")
        group.drain()
        assert sorted(back.holds) == sorted(it for it, owner in before.items() if owner == name)
        for other in group.members.values():
            if other is not back:
                assert {it: tenure.token for it, tenure in other.holds.items()} == others[other.id]
    assert not group.journal("revoking")


def test_what_comes_back_has_a_new_token(group: Group) -> None:
    """It is another tenure: whatever the former process still sends is fenced."""
    a, _, _ = static_group(group)
    tokens = {name: tenure.token for name, tenure in a.holds.items()}
    a.leave(remain=True)
    back = group.join("a2", instance_id="pod-a")
    back.hear()
    assert all(back.holds[name].token > token for name, token in tokens.items())


def test_a_rolling_restart_with_bounded_calls(backend: Backend) -> None:
    """An inheritance that takes several calls is complete in the end, and moves nothing on the way."""
    group = Group(backend, attrs.evolve(SETTINGS, moves_per_call=1))
    a, _, _ = static_group(group)
    held = sorted(a.holds)
    a.leave(remain=True)
    del group.members["a"]
    back = group.join("a2", instance_id="pod-a")
    back.repeat()  # its first reply was lost: repeating the request must not end the inheritance
    group.drain()
    assert sorted(back.holds) == held
    assert not group.journal("revoking")


def test_the_grace_ends(group: Group) -> None:
    """A member that does not return in time loses everything to the others."""
    a, b, c = static_group(group)
    a.leave(remain=True)
    group.run(GRACE_MS - 1000)
    assert len(b.holds) + len(c.holds) == 8
    group.run(2000)
    group.drain()
    assert len(b.holds) + len(c.holds) == 12


def test_leaving_for_good_keeps_nothing(group: Group) -> None:
    """Scaling in: an instance id keeps nothing then."""
    a, b, c = static_group(group)
    assert a.leave() == "DRAINING"
    group.drain()
    assert a.leave() == "LEFT"
    group.drain()
    assert len(b.holds) + len(c.holds) == 12


def test_pending_ones_are_freed_when_their_holder_parks(group: Group) -> None:
    """Nothing is left to drain them."""
    a, _, _ = static_group(group)
    group.join("d")
    a.hear()
    assert len(a.pending) == 1
    a.leave(remain=True)
    group.drain()
    assert group.loads() == {"a": 3, "b": 3, "c": 3, "d": 3}


def test_a_graced_member_keeps_at_most_its_quota(group: Group) -> None:
    """Members that join meanwhile get their share of what it keeps, and it is assigned nothing."""
    a, _, _ = static_group(group)
    a.leave(remain=True)
    group.join("d")
    group.drain()
    assert group.loads() == {"a": 3, "b": 3, "c": 3, "d": 3}
    group.set_resources(group.members["b"], names(20))
    group.drain()
    assert group.loads()["a"] == 3


@pytest.mark.parametrize("mode", ["cooperative", "eager"])
def test_a_standby_that_leaves_before_it_was_asked_back_all_that_it_inherited(backend: Backend, mode: str) -> None:
    """Nothing is left to be asked: it goes to others at once, and no barrier waits for it."""
    group = Group(backend, attrs.evolve(SETTINGS, rejoin_grace_ms=600_000, moves_per_call=2))
    a, c = group.join("a", instance_id="pod-a"), group.join("c")
    group.set_resources(a, names(24), version=1)
    group.drain()
    a.leave(remain=True)
    a.silent = True
    b = group.join("b", instance_id="pod-a", capacity=0)
    b.leave(remain=True)
    b.silent = True
    if mode == "eager":
        group.coordinator.configure(mode="eager")
        group.join("d")
    group.run(2 * SETTINGS.revocation_timeout_ms, *(it for it in group.members.values() if not it.silent))
    assert not any(it.status == "pending" for it in group.coordinator.resources())
    assert group.loads()["b"] == 0
    assert len(c.holds) == group.loads()["c"] > 0


def test_a_second_live_process_with_the_same_instance_id_is_refused(group: Group) -> None:
    """Refused as long as the first one's session lasts, then accepted."""
    a, b, c = static_group(group)
    double = Member(group, "x")
    assert double.join(instance_id="pod-a").status == "INSTANCE_IN_USE"
    group.run(1000, a, b, c)
    assert double.repeat().status == "INSTANCE_IN_USE"
    assert a.heartbeat().status == "OK"
    a.silent = True
    group.run(SETTINGS.session_timeout_ms + 1000)
    assert double.repeat().status == "OK"
    double.hear()
    assert len(double.holds) == 4


def test_a_double_hears_until_when_the_owner_s_session_runs(group: Group) -> None:
    """As long as the owner was promised, though the session timeout is shorter now. Only the owner's calls put it off."""
    owner = group.join("a", instance_id="pod-a")
    until = owner.last.now_ms + SETTINGS.session_timeout_ms
    group.coordinator.configure(session_timeout_ms=900, heartbeat_interval_ms=300)
    double = Member(group, "x")
    assert double.join(instance_id="pod-a").owner_until_ms == until
    group.backend.now_ms += 2_500
    assert double.repeat().owner_until_ms == until
    owner.heartbeat()
    reply = double.repeat()
    assert reply.status == "INSTANCE_IN_USE"
    assert reply.owner_until_ms == owner.last.now_ms + 900


def test_a_double_hears_who_the_owner_is(group: Group) -> None:
    """Whether a session that ends later than the last one was renewed, or is another's."""
    a, b, c = static_group(group)
    double = Member(group, "x")
    assert double.join(instance_id="pod-a").owner == "a"
    a.silent = True
    group.run(SETTINGS.session_timeout_ms + 1000, b, c)
    assert group.join("a2", instance_id="pod-a").last.status == "OK"
    assert double.repeat().owner == "a2"


def test_without_a_grace_an_instance_id_only_excludes(backend: Backend) -> None:
    """Grace 0 disables the keeping; the same process under its next id still replaces itself at once."""
    group = Group(backend, attrs.evolve(SETTINGS, rejoin_grace_ms=0))
    a = group.join("a", instance_id="one")
    b = group.join("b")
    group.set_resources(a, names(4))
    group.drain()
    again = a.rejoin("a2", instance_id="one")
    assert again.last.status == "OK"
    assert set(group.loads()) == {"a2", "b"}
    group.drain()
    assert len(again.holds) == len(b.holds) == 2


def test_a_leaving_process_that_rejoins_replaces_itself(group: Group) -> None:
    """Its former member does not linger until its session ends."""
    a, _b, _c = static_group(group)
    a.leave()
    again = a.rejoin("a2", instance_id="pod-a")
    assert again.last.status == "OK"
    assert set(group.loads()) == {"a2", "b", "c"}
    group.drain()
    assert sum(group.loads().values()) == 12


def test_an_heir_may_page_its_claims(group: Group) -> None:
    """The inheritance waits for the last page, and is not forgotten by then."""
    a, _, _ = static_group(group)
    a.leave(remain=True)
    del group.members["a"]
    back = group.join("a2", instance_id="pod-a", last_page=False)
    assert group.records().members["a"].status == "graced"
    back.join(instance_id="pod-a", last_page=True)
    assert not group.records().members["a"].is_counted
    group.drain()
    assert group.loads() == {"a2": 4, "b": 4, "c": 4}
