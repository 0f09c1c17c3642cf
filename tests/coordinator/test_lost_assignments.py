"""What becomes of a lost member's resources: Kafka Connect's incremental cases, played on the coordinator.

Connect keeps what a departed worker had for a delay, in case it bounces; here that is the rejoin grace of a member with
an instance id. Connect computes round by round, revocations first; here in a round all members call, then let go.
"""

from __future__ import annotations

import attrs
import pytest
from tests.coordinator.backends import Backend
from tests.coordinator.claimed import claim, claimed
from tests.coordinator.driver import SETTINGS, Group, Member, names
from tests.coordinator.sharing import check_shared, fewest, moved, tokens

GRACE_MS = SETTINGS.rejoin_grace_ms
SESSION_MS = SETTINGS.session_timeout_ms


def round_of(group: Group) -> tuple[int, int]:
    """Plays one round, and returns how many were asked back and how many granted since the previous one."""
    before = len(group.journal("revoking")), len(group.journal("granted"))
    group.beat()
    asked = len(group.journal("revoking")) - before[0]
    for member in group.members.values():
        member.release_pending()
    group.beat()
    return asked, len(group.journal("granted")) - before[1]


def static_trio(group: Group) -> list[Member]:
    """Three members with instance ids that share 18."""
    members = [group.join(member, instance_id=f"pod-{member}") for member in "abc"]
    group.set_resources(members[0], names(18))
    group.drain()
    return members


def crash(group: Group, member: Member) -> None:
    """It is gone, and its session is over."""
    member.silent = True
    group.run(SESSION_MS + 1000)
    assert not group.journal("expired_member"), "it is kept for its grace"


def buried(group: Group, *staying: Member) -> None:
    """Everything is drained, and nothing is left of former members."""
    group.drain()
    check_shared(group, *staying)
    assert {row.id for row in group.coordinator.members()} == {member.id for member in staying}


# -- joins ---------------------------------------------------------------------------------------------------------------


def test_a_join_asks_back_then_hands_over_then_rests(group: Group) -> None:
    """10 at one: a second one joins, 5 are asked back, 5 are granted, and another round changes nothing."""
    a = group.join("a")
    group.set_resources(a, names(10))
    a.hear()
    granted = len(group.journal("granted"))
    b = group.join("b")
    assert len(group.journal("revoking")) == 5
    assert len(group.journal("granted")) == granted
    assert round_of(group) == (0, 5)
    check_shared(group, a, b)
    assert round_of(group) == (0, 0)


def test_more_join_after_each_round(group: Group) -> None:
    """A third one joins when the second has its share, a fourth after that: even each time, the fewest moves, then
    rest.
    """
    a = group.join("a")
    group.set_resources(a, names(10))
    a.hear()
    members = [a, group.join("b")]
    round_of(group)
    for newcomer in "cd":
        held = tokens(*members)
        members.append(group.join(newcomer))
        round_of(group)
        check_shared(group, *members)
        assert len(moved(held, tokens(*members))) == fewest(held, group, *members)
    assert sorted(len(member.holds) for member in members) == [2, 2, 3, 3]
    assert round_of(group) == (0, 0)


def test_more_join_between_the_asking_and_the_handing_over(group: Group) -> None:
    """The third and the fourth join while the second still waits: what was asked back moves once, and all is even."""
    a = group.join("a")
    group.set_resources(a, names(10))
    a.hear()
    held = tokens(a)
    members = [a]
    for newcomer in "bcd":
        members.append(group.join(newcomer))
        a.hear()
    round_of(group)
    check_shared(group, *members)
    assert sorted(len(member.holds) for member in members) == [2, 2, 3, 3]
    assert len(moved(held, tokens(*members))) == 7 == len(group.journal("granted")) - 10
    assert round_of(group) == (0, 0)


def test_without_gathering_every_join_acts_at_once(group: Group) -> None:
    """No back-off between joins at the same instant: each reply already asks back the share of the new member."""
    a = group.join("a")
    group.set_resources(a, names(12))
    a.hear()
    at = group.backend.now_ms
    for newcomer, asked in (("b", 6), ("c", 8), ("d", 9)):
        group.join(newcomer)
        assert len(group.journal("revoking")) == asked
    assert group.backend.now_ms == at


# -- what a lost member had ------------------------------------------------------------------------------------------------


def test_who_bounces_finds_what_it_had(group: Group) -> None:
    """Nothing moves while it is awaited. During the grace it returns, with the same resources, and the others notice
    nothing.
    """
    a, b, c = static_trio(group)
    held, lost = tokens(a, c), set(b.holds)
    crash(group, b)
    group.run(GRACE_MS // 2)
    assert {name for name, owner in group.holders().items() if owner == "b"} == lost
    del group.members["b"]
    back = group.join("b2", instance_id="pod-b")
    group.drain()
    check_shared(group, a, c, back)
    assert set(back.holds) == lost
    assert tokens(a, c) == held
    assert not group.journal("revoking")


def test_who_leaves_permanently_is_awaited_and_then_replaced(group: Group) -> None:
    """Kept to the last second of the grace; then the others share it, and keep what they have."""
    a, b, c = static_trio(group)
    held, lost = tokens(a, c), set(b.holds)
    crash(group, b)
    for _ in range(GRACE_MS // 1000 - 2):  # the first of which has passed with the end of its session
        group.run(1000)
        assert {name for name, owner in group.holders().items() if owner == "b"} == lost
        assert tokens(a, c) == held
    group.run(2000)
    buried(group, a, c)
    assert moved(held, tokens(a, c)) == []
    assert not group.journal("revoking")


def test_newcomers_during_the_delay_share_what_was_lost(group: Group) -> None:
    """Two join while one is awaited: it keeps no more than a share, and the rest is with live members and even."""
    a, b, c = static_trio(group)
    crash(group, b)
    d, e = group.joined("de")
    group.drain()
    kept = [name for name, owner in group.holders().items() if owner == "b"]
    assert len(kept) == 4
    assert sorted(len(member.holds) for member in (a, c, d, e)) == [3, 3, 4, 4]
    held = tokens(a, c, d, e)
    group.run(GRACE_MS)
    buried(group, a, c, d, e)
    assert moved(held, tokens(a, c, d, e)) == []


def test_a_newcomer_during_the_delay_then_the_lost_one_returns(group: Group) -> None:
    """It finds what is still its share at once, and nobody is asked for anything because of it."""
    a, b, c = static_trio(group)
    crash(group, b)
    d = group.join("d")
    group.drain()
    kept = {name for name, owner in group.holders().items() if owner == "b"}
    asked = len(group.journal("revoking"))
    del group.members["b"]
    back = group.join("b2", instance_id="pod-b")
    group.drain()
    check_shared(group, a, c, d, back)
    assert set(back.holds) >= kept
    assert len(kept) == 4
    assert len(group.journal("revoking")) == asked


@pytest.mark.parametrize("how", ["crash", "for good"])
def test_who_bounces_back_and_finally_leaves(group: Group, how: str) -> None:
    """Back during the grace, gone again: awaited again if it crashed, replaced at once if it left for good."""
    a, b, c = static_trio(group)
    held, lost = tokens(a, c), set(b.holds)
    crash(group, b)
    del group.members["b"]
    back = group.join("b2", instance_id="pod-b")
    group.drain()
    if how == "for good":
        group.until_left(back)
    else:
        crash(group, back)
        group.run(GRACE_MS - SESSION_MS - 2000)
        assert {name for name, owner in group.holders().items() if owner == "b2"} == lost
        group.run(SESSION_MS + 3000)
    buried(group, a, c)
    assert moved(held, tokens(a, c)) == []


def test_without_a_delay_what_was_lost_is_shared_at_once(backend: Backend) -> None:
    """Grace 0: when the session is over, and not a heartbeat later, the others have it."""
    group = Group(backend, attrs.evolve(SETTINGS, rejoin_grace_ms=0))
    a, b, c = static_trio(group)
    held = tokens(a, c)
    b.silent = True
    group.run(SESSION_MS + 1000)
    buried(group, a, c)
    assert moved(held, tokens(a, c)) == []


# -- the elected one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["leave", "crash"])
def test_when_the_coordinator_leaves_permanently_the_others_share(group: Group, end: str) -> None:
    """It is a member like any other: another one is elected, its resources are shared, nothing else moves."""
    a, b, c = group.joined("abc")
    group.set_resources(a, names(10))
    group.drain()
    assert a.last.coordinator
    held = tokens(b, c)
    if end == "leave":
        group.until_left(a)
    else:
        a.silent = True
        group.run(SESSION_MS + 1000)
    buried(group, b, c)
    assert moved(held, tokens(b, c)) == []
    assert b.last.coordinator != c.last.coordinator


def test_when_the_coordinator_bounces_it_comes_back_as_a_newcomer(group: Group) -> None:
    """Without an instance id its return is a join: two rounds, the surplus only, and it is not elected again."""
    a, b, c = group.joined("abc")
    group.set_resources(a, names(10))
    group.drain()
    a.silent = True
    group.run(SESSION_MS + 1000)
    group.drain(b, c)
    held = tokens(b, c)
    back = group.join("a2")
    assert round_of(group) == (0, 3)
    check_shared(group, b, c, back)
    assert len(moved(held, tokens(b, c, back))) == 3
    assert not back.last.coordinator


# -- answers that never arrive -----------------------------------------------------------------------------------------------


def test_the_first_assignment_whose_answer_is_lost_is_told_again(group: Group) -> None:
    """Nothing was handed out twice, and nothing has to be taken back."""
    a, b = group.joined("ab")
    group.set_resources(a, names(10))
    b.heartbeat(lose_reply=True)
    a.heartbeat(lose_reply=True)
    granted = len(group.journal("granted"))
    a.repeat()
    b.repeat()
    check_shared(group, a, b)
    assert len(group.journal("granted")) == granted == 10


def test_a_revocation_whose_answer_is_lost_is_told_again(group: Group) -> None:
    """The same ones with the same deadline, by the repeat and by the next request."""
    a, b = group.joined("ab")
    group.set_resources(a, names(10))
    group.drain()
    c = group.join("c")
    lost = {change.resource: change.deadline_ms for change in a.heartbeat(lose_reply=True).changes}
    group.backend.now_ms += 500
    a.repeat()
    assert {name: a.holds[name].deadline_ms for name in a.pending} == lost
    asked = len(group.journal("revoking"))
    group.drain()
    check_shared(group, a, b, c)
    assert len(group.journal("revoking")) == asked == 3


def test_an_assignment_that_the_server_loses_is_made_again(group: Group) -> None:
    """The surplus was chosen and the server replaced before any member knew: all claim, then the surplus is asked for
    again.
    """
    a, b = group.joined("ab")
    group.set_resources(a, names(10))
    group.drain()
    held = {name: token for name, (_, token) in tokens(a, b).items()}
    c = group.join("c")
    group.backend.identity = "another-server"
    again = []
    for member, id_ in ((a, "a2"), (b, "b2"), (c, "c2")):
        assert member.heartbeat().status == "REJOIN"
        again.append(member.rejoin(id_))
    group.run(SESSION_MS + 1000)
    group.set_resources(again[0], names(10), version=1)
    group.drain()
    check_shared(group, *again)
    now = {name: token for name, (_, token) in tokens(*again).items()}
    assert sum(held[name] != token for name, token in now.items()) == 3
    assert len(again[2].holds) == 3


# -- lists and loads -------------------------------------------------------------------------------------------------------


def test_when_connectors_are_deleted_only_they_go(group: Group) -> None:
    """15 on two, the last 5 deleted: 5 are asked back as removed, and otherwise only what evenness needs."""
    a, b = group.joined("ab")
    group.set_resources(a, names(15))
    group.drain()
    held = tokens(a, b)
    group.set_resources(b, names(10))
    group.drain()
    check_shared(group, a, b)
    reasons = [entry["reason"] for entry in group.journal("revoking")]
    assert reasons.count("removed") == 5
    assert len(moved(held, tokens(a, b))) == fewest(held, group, a, b) == reasons.count("rebalance")


def test_new_ones_are_spread_over_balanced_members(group: Group) -> None:
    """2 each on three, then 5 more: 3 or 4 each, and nothing that was there moved."""
    members = group.joined("abc")
    group.set_resources(members[0], names(6))
    group.drain()
    held = tokens(*members)
    group.set_resources(members[0], names(11))
    group.drain()
    check_shared(group, *members)
    assert held.items() <= tokens(*members).items()


def test_two_kinds_are_spread_over_balanced_members(group: Group) -> None:
    """Connectors and tasks in one list: even within one together, and nothing that was there moved."""
    members = group.joined("abc")
    group.set_resources(members[0], (*names(6, "connector"), *names(6, "task")))
    group.drain()
    held = tokens(*members)
    group.set_resources(members[0], (*names(11, "connector"), *names(11, "task")))
    group.drain()
    check_shared(group, *members)
    assert held.items() <= tokens(*members).items()


def test_new_ones_make_an_imbalanced_group_even(backend: Backend) -> None:
    """2, 3, 4 and nothing; 15 more: 6 each, and nothing that was there moved."""
    owned = {"a": names(2), "b": names(5)[2:], "c": names(9)[5:], "d": ()}
    group, members = claimed(backend, {id_: dict.fromkeys(held, 9) for id_, held in owned.items()}, names(24))
    group.drain()
    check_shared(group, *members)
    assert [len(member.holds) for member in members] == [6, 6, 6, 6]
    assert all(group.members[id_].holds[name].token == 9 for id_, held in owned.items() for name in held)


# -- two that claim the same -----------------------------------------------------------------------------------------------


def test_what_two_claim_stays_with_the_later_tenure(backend: Backend) -> None:
    """10 of one, 5 of them also claimed by a new member from an older tenure: the loser hears of it, works on nothing, then
    they share.
    """
    owned = {"a": dict.fromkeys(names(10), 20), "b": dict.fromkeys(names(5), 19)}
    group, (a, b) = claimed(backend, owned, names(10))
    assert [name for name in names(10) if b.works_on(name) and a.works_on(name)] == []
    group.drain()
    check_shared(group, a, b)
    assert len(a.holds) == len(b.holds) == 5
    assert all(tenure.token == 20 for tenure in a.holds.values())
    assert all(tenure.token > 20 for tenure in b.holds.values())


def test_what_two_claim_and_the_list_has_dropped_goes(backend: Backend) -> None:
    """The same, but the list has only the other five: the duplicates end at their holder, and no member gets them."""
    owned = {"a": dict.fromkeys(names(10), 20), "b": dict.fromkeys(names(5), 19)}
    group, (a, b) = claimed(backend, owned, names(10)[5:])
    assert b.holds == {} or not any(b.works_on(name) for name in names(5))
    group.drain()
    check_shared(group, a, b)
    assert sorted(group.holders()) == list(names(10)[5:])
    assert not {entry["resource"] for entry in group.journal("granted")} & set(names(5))


def test_a_duplicate_claim_after_the_recovery_is_refused(group: Group) -> None:
    """Outside a recovery the record decides, whatever token the claim has."""
    (a,) = group.joined("a")
    group.set_resources(a, names(4))
    a.hear()
    thief = claim(group, "b", dict.fromkeys(names(2), a.holds["r000"].token + 1))
    assert thief.last.results == ("LOST", "LOST")
    assert all(a.works_on(name) for name in names(4))
    group.drain()
    check_shared(group, a, thief)
