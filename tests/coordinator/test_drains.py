"""Drains, message by message: nothing is handed out twice, and no member waits longer than necessary.

The histories are those of Apache Iggy's revocation tests (2, 3, 15, 18 to 24, 26 and 27), with what they leave open
decided: redelivery is counted, forced moves are fenced, and targets that leave are gone for good.
"""

from __future__ import annotations

import pytest
from tests.coordinator.driver import SETTINGS, Group, Member, names
from tests.coordinator.messages import Messages
from tests.coordinator.sharing import check_shared, moved, tokens


def owner_at_work(group: Group, resources: int) -> tuple[Messages, Member]:
    """One member with an uncommitted message of every resource."""
    owner = group.join("a")
    group.set_resources(owner, names(resources))
    owner.hear()
    messages = Messages(group)
    messages.publish(names(resources), 3)
    messages.poll(owner)
    return messages, owner


def test_a_newcomer_leaves_the_owner_of_a_single_one_alone(group: Group) -> None:
    """2 and 1, a third joins: the owner of one hears nothing, none is left with nothing, one moves."""
    a, b = group.joined("ab")
    group.set_resources(a, names(3))
    group.drain()
    one, two = sorted((a, b), key=lambda member: len(member.holds))
    held, heard = tokens(a, b), len(one.heard)
    c = group.join("c")
    group.drain()
    check_shared(group, a, b, c)
    assert {len(member.holds) for member in (a, b, c)} == {1}
    assert len(one.heard) == heard
    assert moved(held, tokens(a, b, c)) == [name for name, owner in group.holders().items() if owner == "c"]
    assert len(two.heard) > heard


def test_what_is_asked_back_hands_out_nothing_more(group: Group) -> None:
    """The owner polls what it keeps and only that; the new member polls nothing until something is released."""
    messages, owner = owner_at_work(group, 6)
    newcomer = group.join("b")
    owner.hear()
    keeps = sorted(set(owner.holds) - set(owner.pending))
    assert len(keeps) == 3
    assert messages.poll(owner) == keeps
    newcomer.hear()
    assert messages.poll(newcomer) == []
    messages.drain()
    assert sorted(messages.poll(newcomer)) == sorted(set(names(6)) - set(keeps))
    messages.poll_all()
    messages.check_each_once()


def test_an_unfinished_drain_ends_at_the_deadline_and_not_before(group: Group) -> None:
    """A millisecond earlier the new member has nothing; then it has its share and can poll; the late owner cannot
    commit.
    """
    messages, owner = owner_at_work(group, 4)
    newcomer = group.join("b")
    owner.hear()
    late = {name: owner.holds[name].token for name in owner.pending}
    others = {name: it for name, it in tokens(owner).items() if name not in late}
    group.run(SETTINGS.revocation_timeout_ms - 1)
    assert newcomer.holds == {}
    group.run(1)
    newcomer.hear()
    assert sorted(newcomer.holds) == sorted(late)
    assert messages.poll(newcomer) == sorted(late)
    for name, token in late.items():
        assert owner.commit(name, 1, token) == "FENCED"
    owner.hear()
    assert sorted(change.resource for change in owner.lost) == sorted(late)
    assert tokens(owner) == others
    check_shared(group, owner, newcomer)
    messages.poll_all()
    assert messages.again == [(name, 0) for name in sorted(late)], "what nobody had committed, and nothing else"
    assert messages.missing == []


def test_a_message_in_hand_is_never_handed_to_the_newcomer(group: Group) -> None:
    """However often both poll: the new member gets the resource after the commit, and continues after the message."""
    messages, owner = owner_at_work(group, 2)
    newcomer = group.join("b")
    for _ in range(3):
        group.beat()
        assert messages.poll(newcomer) == []
    (asked,) = owner.pending
    messages.release(owner)
    newcomer.hear()
    check_shared(group, owner, newcomer)
    assert messages.position(newcomer, asked) == 1
    messages.poll_all()
    messages.check_each_once()


def test_committing_is_letting_go_at_once(group: Group) -> None:
    """An owner with nothing unfinished hands over within its own call: no time passes, and the new member has its
    share.
    """
    messages, owner = owner_at_work(group, 2)
    messages.commit(owner)
    newcomer = group.join("b")
    at = group.backend.now_ms
    owner.hear()
    messages.release(owner)
    newcomer.hear()
    assert group.backend.now_ms == at
    check_shared(group, owner, newcomer)
    assert [entry["drain_ms"] for entry in group.journal("released")] == ["0"]


def test_a_stored_offset_does_not_end_a_drain_while_work_goes_on(group: Group) -> None:
    """An offset committed in advance proves nothing: the owner itself reports when it has finished."""
    messages, owner = owner_at_work(group, 2)
    newcomer = group.join("b")
    owner.hear()
    (asked,) = owner.pending
    messages.commit(owner, asked)
    for _ in range(3):
        group.run(SETTINGS.heartbeat_interval_ms)
        assert group.holders()[asked] == "a"
        assert newcomer.holds == {}
    assert messages.release(owner) == ("OK",)
    newcomer.hear()
    assert list(newcomer.holds) == [asked]


def test_what_nobody_has_begun_moves_within_the_join(group: Group) -> None:
    """Granted, but never carried in a reply: two joins take their shares from it at once, with nothing to drain."""
    standby = group.join("s", capacity=0)
    a = group.join("a")
    group.set_resources(standby, names(3))
    assert group.loads()["a"] == 3
    b, c = group.join("b"), group.join("c")
    assert group.loads() == {"a": 1, "b": 1, "c": 1, "s": 0}
    assert not group.journal("revoking")
    group.beat()
    check_shared(group, a, b, c)


def test_what_is_held_idle_moves_without_any_time_passing(group: Group) -> None:
    """Known and idle: the owner answers at once, and at the same instant all have one."""
    a = group.join("a")
    group.set_resources(a, names(3))
    a.hear()
    at = group.backend.now_ms
    b, c = group.joined("bc")
    group.drain()
    assert group.backend.now_ms == at
    check_shared(group, a, b, c)


@pytest.mark.parametrize("end", ["leave", "crash"])
def test_when_the_owner_goes_in_its_drain_the_target_has_all(group: Group, end: str) -> None:
    """The new member gets what was asked back for it and the rest, and polls everything after the committed offsets."""
    messages, owner = owner_at_work(group, 4)
    newcomer = group.join("b")
    owner.hear()
    assert len(owner.pending) == 2
    if end == "leave":
        assert owner.leave() == "DRAINING"
        owner.hear()
        messages.release(owner)
        assert owner.leave() == "LEFT"
    else:
        owner.silent = True
        group.run(SETTINGS.session_timeout_ms + 1000, newcomer)
    newcomer.hear()
    check_shared(group, newcomer)
    assert messages.poll(newcomer) == list(names(4))
    messages.poll_all()
    assert messages.missing == []
    assert messages.again == ([] if end == "leave" else [(name, 0) for name in names(4)])


def test_joins_one_after_the_other_hand_out_fifteen_messages(group: Group) -> None:
    """Five resources with three messages each, polled while two more members join: 15 different deliveries."""
    messages, owner = owner_at_work(group, 5)
    members = [owner]
    for newcomer in "bc":
        members.append(group.join(newcomer))
        messages.poll()
        messages.drain()
        messages.poll()
        for member in members:
            messages.commit(member)
    messages.poll_all()
    check_shared(group, *members)
    messages.check_each_once()
    assert sum(len(members) for members in messages.handed.values()) == 15


def test_each_one_waits_for_its_own_commit(group: Group) -> None:
    """Three are asked back and committed one by one: each moves with its commit, the others stay."""
    messages, owner = owner_at_work(group, 6)
    newcomer = group.join("b")
    owner.hear()
    for done, name in enumerate(owner.pending):
        assert len(newcomer.holds) == done
        assert owner.release(name, delivered=1, committed=0) == ("UNCOMMITTED",)
        newcomer.hear()
        assert len(newcomer.holds) == done
        messages.release(owner, name)
        newcomer.hear()
        assert newcomer.holds[name].committed == 1
    check_shared(group, owner, newcomer)
    messages.poll_all()
    messages.check_each_once()


@pytest.mark.parametrize("end", ["leave", "crash"])
def test_when_the_target_goes_the_owner_keeps_all(group: Group, end: str) -> None:
    """Nothing was released yet: the revocations are cancelled, and the same tenures continue."""
    messages, owner = owner_at_work(group, 4)
    held = tokens(owner)
    newcomer = group.join("b")
    owner.hear()
    assert len(owner.pending) == 2
    if end == "leave":
        assert newcomer.leave() == "LEFT"
    else:
        newcomer.silent = True
        group.run(SETTINGS.session_timeout_ms + 1000, owner)
    owner.hear()
    assert tokens(owner) == held
    check_shared(group, owner)
    group.run(2 * SETTINGS.revocation_timeout_ms, owner)
    assert tokens(owner) == held
    assert messages.poll(owner) == list(names(4))
    messages.poll_all()
    messages.check_each_once()


def test_a_target_that_left_is_replaced_and_never_confused(group: Group) -> None:
    """B leaves during the drain and d joins: what stays asked back keeps its deadline and goes to live members; b's id
    is spent.
    """
    messages, owner = owner_at_work(group, 12)
    b, c = group.joined("bc")
    owner.hear()
    deadlines = {name: owner.holds[name].deadline_ms for name in owner.pending}
    group.backend.now_ms += 500
    assert b.leave() == "LEFT"
    owner.hear()
    still = {name: owner.holds[name].deadline_ms for name in owner.pending}
    assert len(still) == 6
    assert still.items() <= deadlines.items()
    d = group.join("d", label="where-b-was")
    messages.drain(owner, c, d)
    check_shared(group, owner, c, d)
    assert {entry["member"] for entry in group.journal("granted")} == {"a", "c", "d"}
    ghost = Member(group, "b")
    assert ghost.join().status == "ENDED"
    assert b.heartbeat().status == "ENDED"
    messages.poll_all()
    messages.check_each_once()


def test_a_leave_finishes_nobody_elses_drain(group: Group) -> None:
    """Two owners drain for a new member while a fourth member leaves: their drains end when they say so, and nothing is
    redelivered.
    """
    a, b, d = group.joined("abd")
    group.set_resources(a, names(12))
    group.drain()
    messages = Messages(group)
    messages.publish(names(12), 3)
    messages.poll()
    group.joined("ce")
    group.beat()
    asked = {name: member.id for member in (a, b) for name in member.pending}
    assert len({*asked.values()}) == 2
    assert d.leave() == "DRAINING"
    d.hear()
    messages.release(d)
    assert d.leave() == "LEFT"
    group.beat(a, b)
    still = {name: member.id for member in (a, b) for name in member.pending}
    assert still
    assert still.items() <= asked.items()
    assert all(group.holders()[name] == owner for name, owner in asked.items())
    messages.drain()
    check_shared(group, *(group.members[it] for it in "abce"))
    messages.poll_all()
    messages.check_each_once()


def test_whoever_comes_back_again_and_again_has_no_longer_for_its_drain(group: Group) -> None:
    """Its claims continue what it was asked for, until the same deadline."""
    a = group.join("a")
    group.set_resources(a, names(2))
    a.hear()
    b = group.join("b")
    a.hear()
    (name,) = a.pending
    deadline = a.holds[name].deadline_ms
    assert deadline == group.backend.now_ms + SETTINGS.revocation_timeout_ms
    for number in range(4):
        group.backend.now_ms += 1_000
        group.beat(b)
        a = a.rejoin(f"a{number}")
        a.hear()
        assert (a.pending, a.holds[name].deadline_ms) == ([name], deadline)
    group.backend.now_ms = deadline
    group.beat()
    assert group.holders()[name] == "b"
    assert len(group.journal("forced")) == 1


def test_who_comes_back_without_a_surplus_may_keep_what_it_claims(group: Group) -> None:
    """As if it had never been away: what is no longer surplus is not asked for any more."""
    a = group.join("a")
    group.set_resources(a, names(2))
    a.hear()
    b = group.join("b")
    a.hear()
    held = {name: it.token for name, it in a.holds.items()}
    b.leave()
    a = a.rejoin("a2")
    a.hear()
    assert {name: it.token for name, it in a.holds.items()} == held
    assert a.pending == []
