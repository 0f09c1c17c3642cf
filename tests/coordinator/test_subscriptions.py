"""Members of one group that can work different things: a deployment adds, drops or swaps what is consumed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from tests.coordinator.driver import SETTINGS, Group, Member, names

from cobalance.coordinator.requests import SetResources
from cobalance.member.declaration import digest

DAY_MS = 86_400_000
ORDERS, REFUNDS = names(6, "orders-"), names(4, "refunds-")


def member(group: Group, id_: str, wanted: Iterable[str], **join: object) -> Member:
    """Joins with a list, and declares it as far as requested. Members with the same list have the same subscription."""
    wanted = tuple(sorted(wanted))
    it = group.join(id_, subscription=digest(wanted), **join)
    group.set_resources(it, wanted, version=1)
    it.hear()
    return it


def held(*members: Member) -> list[set[str]]:
    return [set(it.holds) for it in members]


def test_nobody_is_given_what_its_code_does_not_name(group: Group) -> None:
    """A group name that another program has used before."""
    a, b = member(group, "a", ORDERS), member(group, "b", REFUNDS)
    group.drain()
    assert held(a, b) == [set(ORDERS), set(REFUNDS)]


def test_a_rolling_update_that_adds_a_queue(group: Group) -> None:
    """The old processes continue with what they know; the new one has the new queue and a share of the rest."""
    old = [member(group, it, ORDERS) for it in "ab"]
    new = member(group, "c", [*ORDERS, "legacy"])
    group.drain()
    assert "legacy" in new.holds
    assert sorted(len(it.holds) for it in (*old, new)) == [2, 2, 3]
    assert {entry["resource"] for entry in group.journal("granted") if entry["member"] in "ab"} == set(ORDERS)


def test_a_rolling_update_that_drops_a_queue(group: Group) -> None:
    """As long as a member that names it is alive, it is worked; then it is dropped."""
    old = [member(group, it, [*ORDERS, "legacy"]) for it in "ab"]
    new = [member(group, it, ORDERS) for it in "cd"]
    group.drain()
    assert "legacy" in old[0].holds.keys() | old[1].holds.keys()
    group.until_left(old[0])
    group.drain()
    assert "legacy" in old[1].holds
    group.until_left(old[1])
    group.drain()
    assert set(group.holders()) == set(ORDERS)
    assert sorted(len(it.holds) for it in new) == [3, 3]


def test_a_rolling_update_that_swaps_a_topic(group: Group) -> None:
    """Each topic is worked by members that name it, from the first to the last."""
    old = [member(group, it, ORDERS) for it in "ab"]
    new = [member(group, it, REFUNDS) for it in "cd"]
    group.drain()
    assert held(*old)[0] | held(*old)[1] == set(ORDERS)
    assert held(*new)[0] | held(*new)[1] == set(REFUNDS)
    for it in old:
        group.until_left(it)
    group.drain()
    assert set(group.holders()) == set(REFUNDS)


def test_a_restart_with_one_queue_more_needs_no_version(group: Group) -> None:
    """All processes stop, and start with another list."""
    a = member(group, "a", ORDERS)
    group.until_left(a)
    b = member(group, "b", [*ORDERS, "legacy"])
    group.drain()
    assert held(b) == [{*ORDERS, "legacy"}]


def test_what_all_have_left_is_kept_for_who_comes_back(group: Group) -> None:
    """No member is there to name anything else, so nothing is dropped."""
    a = member(group, "a", ORDERS)
    group.until_left(a)
    group.run(DAY_MS)
    assert set(group.holders()) == set(ORDERS)
    b = group.join("b", subscription=digest(ORDERS))
    b.hear()
    assert held(b) == [set(ORDERS)]


def test_the_offset_of_what_is_let_go_of_outlives_it(group: Group) -> None:
    """It returns with the next member that names it."""
    a = member(group, "a", ["legacy"])
    a.commit("legacy", 7)
    b = member(group, "b", ORDERS)
    group.until_left(a)
    group.drain()
    assert set(group.holders()) == set(ORDERS)
    c = member(group, "c", ["legacy"])
    group.drain()
    assert c.holds["legacy"].committed == 7
    assert b.holds.keys() == set(ORDERS)


def test_those_who_can_share_evenly(group: Group) -> None:
    """One can work refunds only, the others everything."""
    both = [member(group, it, [*ORDERS, *REFUNDS]) for it in "ab"]
    one = member(group, "c", REFUNDS)
    group.drain()
    assert sorted(len(it.holds) for it in (*both, one)) == [3, 3, 4]
    assert one.holds.keys() < set(REFUNDS)


def test_a_newcomer_takes_no_more_than_its_share(group: Group) -> None:
    """From six and four to one more: the fewest moves that even it out, and nothing else is paused."""
    a, b = member(group, "a", ORDERS), member(group, "b", REFUNDS)
    group.drain()
    c = member(group, "c", [*ORDERS, *REFUNDS])
    group.drain()
    assert [len(it.holds) for it in (a, b, c)] == [4, 3, 3]
    assert len(group.journal("revoking")) == 3


def test_a_revocation_of_no_more_use_is_cancelled(group: Group) -> None:
    """The member it was meant for has left before it was drained."""
    a, b = member(group, "a", ORDERS), member(group, "b", REFUNDS)
    group.drain()
    c = member(group, "c", [*ORDERS, *REFUNDS])
    group.beat()
    assert a.pending
    group.until_left(c)
    group.beat()
    assert not a.pending
    assert not b.pending


def test_a_revocation_is_of_no_more_use_once_its_taker_has_something_else(group: Group) -> None:
    """What the new member was to get from one, it has from another that died meanwhile."""
    a, b = member(group, "a", ORDERS[:2]), member(group, "b", REFUNDS[:1])
    group.drain()
    c = member(group, "c", [*ORDERS[:2], REFUNDS[0]])
    group.beat()
    assert a.pending
    b.silent = True
    group.run(SETTINGS.session_timeout_ms + SETTINGS.heartbeat_interval_ms)
    assert held(a, c) == [set(ORDERS[:2]), {REFUNDS[0]}]
    assert not a.pending


def test_a_grant_that_nobody_has_heard_of_goes_to_the_newcomer_in_the_same_call(group: Group) -> None:
    """What is taken back at once is free at once, without waiting for another call."""
    a, b = member(group, "a", ["x"]), member(group, "b", ["x", "y"])
    group.drain()
    assert held(a, b) == [{"x"}, {"y"}]
    group.until_left(a)
    c = group.join("c", subscription=digest(("x",)))
    group.set_resources(c, ("x",), version=1)
    assert group.holders() == {"x": "c", "y": "b"}


def test_what_nobody_present_can_work_waits_without_keeping_others_waiting(group: Group) -> None:
    """A standby names more than the worker does: more than one call may check."""
    standby = member(group, "s", names(300), capacity=0)
    a = member(group, "a", ["zebra"])
    group.drain()
    assert held(a) == [{"zebra"}]
    b = member(group, "b", names(300))
    group.drain()
    assert len(b.holds) == 300
    assert not standby.holds


def test_a_static_member_that_restarts_with_another_list_keeps_what_both_name(group: Group) -> None:
    """What it no longer names goes to another member that does."""
    both = [*ORDERS, *REFUNDS]
    a, b = member(group, "a", both, instance_id="A"), member(group, "b", both, instance_id="B")
    group.drain()
    kept = {name: it.token for name, it in a.holds.items() if name in ORDERS}
    group.drain()
    assert a.leave(remain=True) == "LEFT"
    again = member(group, "c", ORDERS, instance_id="A")
    group.run(2 * SETTINGS.heartbeat_interval_ms)
    group.drain()
    assert set(again.holds) <= set(ORDERS)
    assert kept.keys() <= again.holds.keys()
    assert {*again.holds, *b.holds} == {*both}


def test_a_list_that_shrinks_while_another_names_it(group: Group) -> None:
    """Its holder must be able to work it: it moves, and stays in the group."""
    a = group.join("a")
    group.set_resources(a, ORDERS)
    a.hear()
    b = member(group, "b", [ORDERS[0]])
    group.drain()
    group.set_resources(a, ORDERS[1:])
    group.drain()
    assert set(group.holders()) == set(ORDERS)
    assert held(b) == [{ORDERS[0]}]
    assert held(a) == [set(ORDERS[1:])]


def test_lists_survive_a_loss(group: Group) -> None:
    """After a loss of data all members claim and declare again; each has what it had."""
    a, b = member(group, "a", ORDERS), member(group, "b", [*ORDERS, *REFUNDS])
    group.drain()
    before = held(a, b)
    group.lose_data()
    a2 = a.rejoin("a2", subscription=digest(ORDERS))
    b2 = b.rejoin("b2", subscription=digest((*ORDERS, *REFUNDS)))
    group.run(SETTINGS.session_timeout_ms + 1000)
    group.set_resources(a2, ORDERS, version=1)
    group.set_resources(b2, (*ORDERS, *REFUNDS), version=1)
    group.run(SETTINGS.session_timeout_ms)
    group.drain()
    assert held(a2, b2) == before


def test_what_was_brought_back_for_a_list_that_nobody_declared_again_is_let_go_of(group: Group) -> None:
    """Redis loses its data, and a process claims what it holds, but leaves before it has said what it names."""
    a, b = member(group, "a", ORDERS), member(group, "b", REFUNDS)
    group.drain()
    group.lose_data()
    a2 = a.rejoin("a2", subscription=digest(ORDERS))
    b2 = b.rejoin("b2", subscription=digest(REFUNDS))
    group.run(SETTINGS.session_timeout_ms + 1000)
    group.set_resources(a2, ORDERS, version=1)
    group.until_left(b2)
    group.drain()
    assert group.holders() == dict.fromkeys(ORDERS, "a2")


def test_what_was_brought_back_is_let_go_of_however_much_comes_before_it(group: Group) -> None:
    """More names than one call may check are on lists."""
    many = names(300, "orders-")
    a, b = member(group, "a", many), member(group, "b", REFUNDS)
    group.drain()
    group.lose_data()
    a2 = a.rejoin("a2", subscription=digest(many))
    b2 = b.rejoin("b2", subscription=digest(REFUNDS))
    group.run(SETTINGS.session_timeout_ms + 1000)
    group.set_resources(a2, many, version=1)
    group.until_left(b2)
    group.drain()
    assert group.holders() == dict.fromkeys(many, "a2")


def test_what_was_left_to_somebody_is_asked_back_when_it_comes_on_a_list(group: Group) -> None:
    """Redis loses its data, and a member that uses the group's own list brings back what another one names, before
    there is such a list.
    """
    a = group.join("a")
    group.set_resources(a, ("x",))
    group.drain()
    group.lose_data()
    a2 = a.rejoin("a2")
    group.run(SETTINGS.session_timeout_ms + 1000)
    b = member(group, "b", ["x", "y"])
    group.drain()
    assert held(a2, b) == [set(), {"x", "y"}]


def test_what_is_dropped_while_another_has_not_said_what_it_names(group: Group) -> None:
    """It dies before it does."""
    a = group.join("a")
    group.set_resources(a, ORDERS)
    silent = group.join("b", subscription="never-said")
    silent.silent = True
    group.set_resources(a, ORDERS[:4])
    group.run(2 * SETTINGS.session_timeout_ms)
    group.drain()
    assert group.holders() == dict.fromkeys(ORDERS[:4], "a")


def test_what_was_on_trial_is_shared_again_once_that_is_over(group: Group) -> None:
    """What one has given up stays with the next holder for a while, and may move then."""
    a, b = member(group, "a", ["x", "y"]), member(group, "b", ["x", "y", "z"])
    group.drain()
    a.release(*sorted(a.holds), reason="hung")
    group.drain()
    assert held(a, b) == [set(), {"x", "y", "z"}]
    group.run(4 * SETTINGS.session_timeout_ms)
    group.drain()
    assert sorted(len(it.holds) for it in (a, b)) == [1, 2]


def test_too_many_different_lists_are_refused(group: Group) -> None:
    """Each costs every grant an extra check."""
    for number in range(32):
        member(group, f"m{number}", [f"only-{number}"])
    late = group.join("late", subscription="one-more")
    assert late.last.status == "SUBSCRIPTIONS"
    group.until_left(group.members["m0"])
    group.tick()
    assert group.join("later", subscription="one-more").last.status == "OK"


@pytest.mark.thorough
def test_a_mixed_group_of_any_size_costs_a_call_little(group: Group) -> None:
    """No subscription is searched as a whole in one call."""
    a, b = member(group, "a", names(900)), member(group, "b", [*names(300), "x"])
    group.drain()
    assert [len(it.holds) for it in (a, b)] == [600, 301]


def test_the_groups_own_list_goes_with_the_last_who_left_it_to_the_group(group: Group) -> None:
    """Code that declared a list for the whole group is replaced by code that names its own: what that does not name is
    dropped.
    """
    a = group.join("a")
    group.set_resources(a, (*ORDERS, "legacy"), version=3)
    b = member(group, "b", ORDERS)
    group.until_left(a)
    group.drain()
    assert set(group.holders()) == set(ORDERS)
    assert held(b) == [set(ORDERS)]


def test_the_groups_own_list_removes_what_another_list_has_left(group: Group) -> None:
    """Until it is declared, what no list names belongs to members without a list; then it is on none."""
    a, b = group.join("a"), member(group, "b", ["legacy", *ORDERS])
    group.drain()
    group.until_left(b)
    group.drain()
    assert set(a.holds) == {"legacy", *ORDERS}
    group.set_resources(a, ORDERS, version=1)
    group.drain()
    assert set(group.holders()) == set(ORDERS)


def test_what_was_left_to_the_group_goes_with_the_last_who_could_work_it(group: Group) -> None:
    """On the list of members that left first, then left to members without a list; no other member gets it once those
    leave, too.
    """
    a, b, c = member(group, "a", ["legacy", *ORDERS]), group.join("b"), member(group, "c", ORDERS)
    group.drain()
    group.until_left(a)
    group.drain()
    assert set(b.holds) >= {"legacy"}
    group.until_left(b)
    group.drain()
    assert held(c) == [set(ORDERS)]
    assert set(group.holders()) == set(ORDERS)


def pages(it: Member, wanted: tuple[str, ...], cut: str) -> Iterator[str]:
    """Declares a list as version 2, in two pages."""
    for after, to in (("", cut), (cut, "")):
        page = tuple(name for name in wanted if after < name and (name <= to or not to))
        reply = it.ask(SetResources(version=2, digest=digest(wanted), after=after, to=to, names=page))
        yield reply.results[0]


def test_what_two_lists_drop_at_the_same_time_is_removed(group: Group) -> None:
    """Neither of the two knew, at the time, whether the other one names it."""
    a, b = member(group, "a", [*ORDERS, "legacy"]), member(group, "b", [*ORDERS, "legacy", "own"])
    group.drain()
    first, second = pages(a, ORDERS, "legacy"), pages(b, (*ORDERS, "own"), "legacy")
    assert [next(first), next(second), next(first), next(second)] == ["NEXT", "NEXT", "DONE", "DONE"]
    group.drain()
    assert set(group.holders()) == {*ORDERS, "own"}
    group.until_left(b)
    group.drain()
    assert set(a.holds) == set(ORDERS)


def test_an_heir_that_dies_before_its_list_is_known_leaves_what_it_was_to_have(group: Group) -> None:
    """The grace continues, and the next process with the instance id has everything."""
    a, b = member(group, "a", ORDERS, instance_id="A"), member(group, "b", ORDERS, instance_id="B")
    group.drain()
    had = {name: it.token for name, it in a.holds.items()}
    assert a.leave(remain=True) == "LEFT"
    group.run(1_000)
    group.join("heir", subscription="other", instance_id="A").silent = True
    group.run(2 * SETTINGS.session_timeout_ms)
    group.drain()
    assert len(b.holds) == 3
    again = member(group, "again", ORDERS, instance_id="A")
    group.run(2 * SETTINGS.heartbeat_interval_ms)
    group.drain()
    assert again.holds.keys() == had.keys()


def test_a_list_without_names_is_not_taken_for_a_lost_one(group: Group) -> None:
    """A repair that considered it lost would make all members rejoin."""
    a, b = member(group, "a", ORDERS), group.join("b", subscription=digest(()))
    b.ask(SetResources(version=1, digest=digest(()), after="", to="", names=()))
    group.drain()
    group.coordinator.repair()
    assert [it.heartbeat().status for it in (a, b)] == ["OK", "OK"]
