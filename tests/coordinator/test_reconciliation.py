"""A member on its way to its share: the states and edges of Kafka's member reconciliation.

Kafka's *stable* is a member with its share and nothing asked back; *unrevoked* one that still has to let go;
*unreleased* one that waits for what others still have to let go. Here these are not stored, but follow from what is
held and asked back.
"""

from __future__ import annotations

import pytest
from tests.coordinator.driver import SETTINGS, Group, Member, names
from tests.coordinator.sharing import check_shared, tokens

HEARTBEAT_MS = SETTINGS.heartbeat_interval_ms


def all_of(group: Group, count: int) -> Member:
    """A stable member with everything."""
    a = group.join("a")
    group.set_resources(a, names(count))
    a.hear()
    return a


def waiting(group: Group, count: int) -> tuple[Member, Member]:
    """One that has to let go of half of its resources, and one that waits for them."""
    a = all_of(group, count)
    b = group.join("b")
    a.hear()
    b.hear()
    assert len(a.pending) == count // 2
    assert b.holds == {}
    return a, b


# -- from stable -------------------------------------------------------------------------------------------------------


def test_stable_stays_stable_when_others_change(group: Group) -> None:
    """Its share does not change: the version increases, its heartbeats bring nothing, its tenures continue."""
    a, b = group.joined("ab")
    group.set_resources(a, names(2))
    group.drain()
    held, version, heard = tokens(a), a.last.version, len(a.heard)
    group.join("c")
    group.join("d")
    a.hear()
    assert a.last.version > version
    assert len(a.heard) == heard
    assert tokens(a) == held
    assert not b.pending


def test_stable_is_granted_what_is_free_with_its_next_reply(group: Group) -> None:
    """New resources have no owner: they are assigned at once, and what it has stays."""
    a, b = group.joined("ab")
    group.set_resources(a, names(6))
    group.drain()
    held = tokens(a, b)
    group.set_resources(a, names(8))
    b.hear()
    check_shared(group, a, b)
    assert held.items() <= tokens(a, b).items()


def test_stable_is_asked_for_its_surplus(group: Group) -> None:
    """It keeps its share under the same tokens, and stays the recorded owner of what it is asked for."""
    a = all_of(group, 6)
    held = tokens(a)
    group.join("b")
    a.hear()
    assert len(a.pending) == 3
    assert tokens(a) == held
    assert set(group.holders().values()) == {"a"}


def test_a_newcomer_waits_for_what_is_owned_and_has_what_is_free(group: Group) -> None:
    """The free part of its share is granted, the owned part awaited."""
    a = all_of(group, 6)
    b = group.join("b")
    group.set_resources(b, names(8))
    b.hear()
    assert sorted(b.holds) == ["r006", "r007"]
    assert len([name for name, owner in group.holders().items() if owner == "a"]) == 6
    assert len([it for it in group.records().resources.values() if it.status == "pending"]) == 2
    group.drain()
    check_shared(group, a, b)


def test_what_was_given_back_unasked_is_not_asked_for(group: Group) -> None:
    """A member that gives one up is not asked for anything: it waits at once for another member's surplus instead."""
    a, b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    given, kept = sorted(a.holds)
    a.release(given, reason="hung")
    b.hear()
    a.hear()
    assert (list(a.holds), a.pending) == ([kept], [])
    assert len(b.pending) == 1
    assert given in b.holds
    group.drain()
    check_shared(group, a, b)
    assert [entry["member"] for entry in group.journal("revoking")] == ["b"]


# -- while something is asked back -----------------------------------------------------------------------------------------


def test_letting_go_of_all_makes_stable(group: Group) -> None:
    """Nothing pending, nothing awaited: heartbeats bring nothing more."""
    a, b = waiting(group, 6)
    assert a.release(*a.pending) == ("OK",) * 3
    a.hear()
    b.hear()
    check_shared(group, a, b)
    heard = len(a.heard)
    group.run(5 * HEARTBEAT_MS)
    assert len(a.heard) == heard


@pytest.mark.parametrize("done", [0, 1, 2])
def test_letting_go_of_some_leaves_the_rest_asked_back(group: Group, done: int) -> None:
    """However often it calls: the same resources, the same deadline, and the new owner has what was released."""
    a, b = waiting(group, 6)
    asked = {name: a.holds[name].deadline_ms for name in a.pending}
    released = sorted(asked)[:done]
    if released:
        a.release(*released)
    for _ in range(3):
        group.run(HEARTBEAT_MS)
    assert {name: a.holds[name].deadline_ms for name in a.pending} == {
        name: at for name, at in asked.items() if name not in released
    }
    assert sorted(b.holds) == released


def test_letting_go_meets_the_next_asking(group: Group) -> None:
    """The first surplus is released after another member has joined: the next surplus is asked for, the rest stays."""
    a, b = waiting(group, 12)
    first = a.pending
    kept = tokens(a)
    c = group.join("c")
    a.release(*first)
    a.hear()
    assert len(a.pending) == 2
    assert not set(a.pending) & set(first)
    assert tokens(a).items() <= kept.items()
    group.drain()
    check_shared(group, a, b, c)


def test_after_letting_go_it_may_have_to_wait_itself(group: Group) -> None:
    """Its capacity was raised meanwhile: it gave its surplus to another member, and waits until that one gives some
    back.
    """
    a, b = waiting(group, 8)
    a.release(*a.pending)
    b.hear()
    held = {name: tenure.token for name, tenure in a.holds.items()}
    again = a.rejoin("a2", capacity=3)
    again.hear()
    assert {name: tenure.token for name, tenure in again.holds.items()} == held
    b.hear()
    assert len(b.pending) == 2
    again.hear()
    assert len(again.holds) == 4
    group.drain()
    assert group.loads() == {"a2": 6, "b": 2}
    assert {name: again.holds[name].token for name in held} == held


def test_what_is_its_share_again_is_not_asked_back_any_more(group: Group) -> None:
    """The list grows by what the new member needs: the revocations are cancelled under their tokens, in addition to new
    grants.
    """
    a, b = waiting(group, 4)
    held = tokens(a)
    group.set_resources(b, names(9))
    a.hear()
    b.hear()
    check_shared(group, a, b)
    assert held.items() <= tokens(a).items()
    assert {len(a.holds), len(b.holds)} == {4, 5}
    assert not group.journal("released", "forced")


def test_being_asked_back_and_removed_is_asked_once(group: Group) -> None:
    """Part is surplus, part is deleted from the list: all of it stays asked back until released, and each has its
    reason.
    """
    a, b = waiting(group, 8)
    surplus = a.pending
    kept = sorted(set(a.holds) - set(surplus))
    group.set_resources(b, tuple(sorted({*names(8)} - {kept[0], surplus[0]})))
    a.hear()
    assert {kept[0], surplus[0]} <= set(a.pending)
    a.release(surplus[0])
    a.hear()
    assert kept[0] in a.pending
    assert surplus[0] not in group.holders()
    group.drain()
    check_shared(group, a, b)
    assert sorted(group.holders()) == sorted({*names(8)} - {kept[0], surplus[0]})


# -- while waiting for others ------------------------------------------------------------------------------------------------


def test_waiting_ends_when_there_is_nothing_more_to_wait_for(group: Group) -> None:
    """The list shrinks to what all members have: the waiting one is stable with what it has."""
    a = all_of(group, 6)
    b = group.join("b")
    group.set_resources(b, names(8))
    a.hear()
    b.hear()
    held = tokens(a, b)
    group.set_resources(b, tuple(sorted({*b.holds, *(set(a.holds) - set(a.pending))} - {"r000", "r001"})))
    group.drain()
    check_shared(group, a, b)
    assert len(b.holds) == 2
    assert tokens(a, b).items() <= held.items()


def test_waiting_ends_with_the_release(group: Group) -> None:
    """What was awaited arrives with the next reply, under a higher token."""
    a, b = waiting(group, 6)
    before = {name: a.holds[name].token for name in a.pending}
    a.release(*a.pending)
    b.heartbeat()
    assert sorted(b.holds) == sorted(before)
    assert all(b.holds[name].token > token for name, token in before.items())


def test_waiting_goes_on_while_nothing_is_released(group: Group) -> None:
    """Its heartbeats bring nothing, and the store changes only in who called."""
    _, b = waiting(group, 6)
    heard = len(b.heard)
    group.run(4 * HEARTBEAT_MS)
    assert b.holds == {}
    assert len(b.heard) == heard
    assert len(group.journal("granted")) == 6


def test_one_that_waits_may_be_asked_itself(group: Group) -> None:
    """It waits for its share of another's when so many join that what it has is too much."""
    a = all_of(group, 12)
    b = group.join("b")
    group.set_resources(b, names(14))
    a.hear()
    b.hear()
    assert len(b.holds) == 2
    others = [group.join(f"n{number:02}") for number in range(12)]
    b.hear()
    assert len(b.pending) == 1
    group.drain()
    check_shared(group, a, b, *others)
    assert {len(member.holds) for member in (a, b, *others)} == {1}


def test_a_target_changed_twice_before_the_release(group: Group) -> None:
    """Asked back for b, then for c, then for d: the last one that needs it gets it, and the others never had it."""
    a = all_of(group, 2)
    for id_ in "bc":
        member = group.join(id_)
        a.hear()
        member.leave()
    d = group.join("d")
    a.hear()
    (asked,) = a.pending
    a.release(asked)
    d.hear()
    check_shared(group, a, d)
    assert {entry["member"] for entry in group.journal("granted") if entry["resource"] == asked} == {"a", "d"}


# -- timers and versions -------------------------------------------------------------------------------------------------


def session_ends(group: Group, member: str) -> float | None:
    """When a member's session ends according to the store; None if nothing will end it."""
    return group.records().zsets["timers"].get(f"s:{member}")


def test_a_session_begins_with_the_join_and_ends_with_the_leave(group: Group) -> None:
    """Armed by the join for one session timeout, and gone with the member."""
    a, _ = group.joined("ab")
    assert session_ends(group, "a") == group.backend.now_ms + SETTINGS.session_timeout_ms
    assert a.leave() == "LEFT"
    assert session_ends(group, "a") is None
    group.run(3 * SETTINGS.session_timeout_ms)
    assert not group.journal("expired_member")


def test_a_session_renewed_at_the_last_moment_goes_on_for_a_whole_timeout(group: Group) -> None:
    """A millisecond before its end is in time, again and again; its end is too late."""
    a, b = group.joined("ab")
    for _ in range(2):
        for ms in (SETTINGS.session_timeout_ms // 2, SETTINGS.session_timeout_ms // 2 - 1):
            group.backend.now_ms += ms
            b.hear()
        assert a.heartbeat().status == "OK"
    for _ in range(2):
        group.backend.now_ms += SETTINGS.session_timeout_ms // 2
        b.hear()
    assert a.heartbeat().status == "ENDED"
    assert [entry["member"] for entry in group.journal("expired_member")] == ["a"]


@pytest.mark.parametrize("end", ["released", "cancelled", "expired"])
def test_a_revocations_deadline_is_armed_when_told_and_gone_when_over(group: Group, end: str) -> None:
    """It starts with the reply that informs the holder, and no end of the revocation leaves it behind."""
    a = all_of(group, 2)
    b = group.join("b")
    assert group.records().zsets["deadlines"] == {}
    a.hear()
    (asked,) = a.pending
    assert group.records().zsets["deadlines"] == {asked: group.backend.now_ms + SETTINGS.revocation_timeout_ms}
    if end == "released":
        a.release(asked)
    elif end == "cancelled":
        b.leave()
    else:
        a.silent = True
        group.run(SETTINGS.session_timeout_ms + 1000, b)
    assert group.records().zsets["deadlines"] == {}
    group.run(2 * SETTINGS.revocation_timeout_ms)
    assert not group.journal("forced")


def test_a_leave_raises_the_version(group: Group) -> None:
    """The remaining members learn of it, and of what they get, with their next reply."""
    a, b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    version = b.heartbeat().version
    group.until_left(a)
    assert b.heartbeat().version > version
    assert len(b.holds) == 4


def test_leaving_for_a_while_moves_and_tells_nothing(group: Group) -> None:
    """A member that stays on record while it restarts: the others' heartbeats bring nothing, and it finds everything it
    had.
    """
    a = group.join("a", instance_id="pod-a")
    b = group.join("b")
    group.set_resources(a, names(4))
    group.drain()
    held, heard, had = tokens(b), len(b.heard), set(a.holds)
    assert a.leave(remain=True) == "LEFT"
    group.run(5000, b)
    assert (tokens(b), len(b.heard)) == (held, heard)
    del group.members["a"]
    back = group.join("a2", instance_id="pod-a")
    group.drain()
    assert set(back.holds) == had
    assert (tokens(b), len(b.heard)) == (held, heard)
    assert not group.journal("revoking")


def test_who_comes_back_with_its_claims_knows_everything(group: Group) -> None:
    """The answer to a join settles each claim and includes meanwhile changes: nothing is left to guess."""
    a, b = group.joined("ab")
    group.set_resources(a, names(6))
    group.drain()
    gone, *_ = sorted(a.holds)
    group.join("c")
    group.set_resources(b, tuple(sorted({*names(6)} - {gone})))
    again = a.rejoin("a2")
    assert len(again.last.results) == 3
    again.hear()
    recorded = {name: it.token for name, it in group.records().owned_by("a2").items()}
    assert {name: tenure.token for name, tenure in again.holds.items()} == recorded
    assert {name for name, it in group.records().owned_by("a2").items() if not it.is_kept} == set(again.pending)
