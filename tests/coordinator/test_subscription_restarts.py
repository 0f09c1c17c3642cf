"""What outlives the members that named it, or began to."""

from __future__ import annotations

import attrs
import pytest
from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, Member, names
from tests.coordinator.test_subscriptions import DAY_MS, member

from cobalance.coordinator.keys import group_keys
from cobalance.coordinator.requests import SetResources
from cobalance.member.declaration import digest


def halted_and_let_go_of(group: Group) -> Member:
    """The only member that names a poisoned resource halts it, and leaves; the other one stays."""
    a, b = member(group, "a", ["poison", "x"]), member(group, "b", ["x", "y"])
    group.drain()
    assert a.release("poison", reason="halted:poisoned") == ("OK",)
    group.until_left(a)
    group.drain()
    assert "poison" not in group.holders()
    return b


def test_what_is_let_go_of_stays_halted(group: Group) -> None:
    """The next process that names it does not get the poisoned resource again; an operator can still resume it."""
    halted_and_let_go_of(group)
    again = member(group, "again", ["poison", "x"])
    group.drain()
    assert group.holders()["poison"] is None
    assert group.journal("halted")[-1]["reason"] == "halted:poisoned"
    assert group.coordinator.resume("poison") == {"poison": "OK"}
    group.drain()
    assert "poison" in again.holds
    group.until_left(again)
    member(group, "later", ["poison", "x"])
    group.drain()
    assert group.holders()["poison"] == "later"


def test_a_reset_of_its_offset_ends_the_halt(group: Group) -> None:
    """When all members have gone, there is nothing left that could be resumed, only a word to be forgotten."""
    group.until_left(halted_and_let_go_of(group))
    assert group.coordinator.reset_offsets({"poison": 7, "x": 7}) == ["poison"]
    again = member(group, "again", ["poison", "x"])
    group.drain()
    assert again.holds["poison"].committed == 7


def test_a_halt_is_forgotten_with_the_offset(group: Group) -> None:
    """A week later."""
    b = halted_and_let_go_of(group)
    b.silent = True
    group.backend.now_ms += 8 * DAY_MS
    group.tick()
    again = member(group, "again", ["poison", "x"])
    group.drain(again)
    assert "poison" in again.holds


FORMER = names(300)
SHORTER = FORMER[:250]


def begun(group: Group) -> Member:
    """A member that has sent one page of a list with a higher version than the group's."""
    it = group.join("walker")
    page = SetResources(version=6, digest=str(hash(SHORTER)), to=FORMER[99], names=FORMER[:100])
    assert it.ask(page).results[0] == "NEXT"
    return it


def is_known(group: Group) -> bool:
    """Whether the group's own list is complete."""
    return next(row.known for row in group.coordinator.subscriptions() if row.id == "-")


def test_a_list_that_nobody_finishes_gives_way_to_the_one_before(group: Group) -> None:
    """Its sender has died, and the next members only know the previous one."""
    a = group.join("a")
    assert group.set_resources(a, FORMER, version=5) == "DONE"
    walker = begun(group)
    b = group.join("b")
    assert group.set_resources(b, FORMER, version=5) == "WAIT"
    walker.silent = True
    group.run(2 * group.settings.session_timeout_ms)
    assert not is_known(group)
    assert group.set_resources(b, FORMER[:99], version=4) == "IGNORED"
    assert group.set_resources(b, FORMER, version=5) == "DONE"
    assert is_known(group)
    group.drain()
    assert {name for it in (a, b) for name in it.holds} == set(FORMER)
    assert group.set_resources(a, FORMER[:99], version=6) == "DONE"


def test_a_list_that_was_complete_never_gives_way(group: Group) -> None:
    """Not even after a repair of lost data, when its sender dies half-way."""
    a = group.join("a")
    assert group.set_resources(a, FORMER, version=5) == "DONE"
    assert group.set_resources(a, SHORTER, version=6) == "DONE"
    group.poke("list_done", 0)  # as after a loss: it has to be declared again
    begun(group).silent = True
    group.run(2 * group.settings.session_timeout_ms)
    assert group.set_resources(a, FORMER, version=5) == "IGNORED"


def test_a_list_sent_during_a_recovery_gives_way_if_its_sender_dies(group: Group) -> None:
    """It is not known before it was sent again, and nobody else has it."""
    assert group.set_resources(group.join("a"), FORMER[:4], version=7) == "DONE"
    group.drain()
    group.lose_data()
    a = group.members["a"].rejoin("b")
    newer = group.join("c")
    assert group.set_resources(newer, FORMER[:3], version=8) == "RECOVERING"
    assert group.set_resources(a, FORMER[:4], version=7) == "WAIT"
    newer.silent = True
    group.run(3 * group.settings.session_timeout_ms)
    assert group.set_resources(a, FORMER[:4], version=7) == "DONE"
    assert is_known(group)


def test_who_names_what_was_just_let_go_of_counts_once(group: Group) -> None:
    """The last member that named it has left, and it is dropped in the very call with which the next one joins."""
    theirs, others = names(6, "s-"), names(4, "t-")
    b, a = member(group, "b", others), member(group, "a", theirs)
    group.drain()
    group.until_left(a)
    c = member(group, "c", theirs, instance_id="c")
    group.drain()
    group.until_left(b)
    group.run(SETTINGS.session_timeout_ms)
    c.leave(remain=True)
    d, e = member(group, "d", theirs), member(group, "e", theirs)
    group.drain(d, e)
    assert group.loads() == {"c": 2, "d": 2, "e": 2}
    assert group.records().scalars["subscriptions"].count("=") == 1


def test_who_comes_back_to_a_list_declares_what_another_ones_walk_has_removed(group: Group) -> None:
    """Nobody had it for a moment. The other list is long, and its first walk, half-way by then, removes what it does
    not name.
    """
    theirs, others = names(300, "s-"), tuple(sorted(names(300, "t-")))
    group.until_left(member(group, "a", theirs))
    b = group.join("b", subscription=digest(others))
    page = SetResources(version=1, digest=str(hash(others)), names=others)
    assert b.ask(page).results[0] == "NEXT"
    back = member(group, "c", theirs)
    assert group.set_resources(b, others, version=1) == "DONE"
    group.drain()
    assert set(back.holds) == set(theirs)
    assert set(b.holds) == set(others)


def test_who_comes_back_while_its_list_is_let_go_of_declares_it_again(group: Group) -> None:
    """Another list with the same names is let go of in the same calls."""
    common = names(290, "s-")
    first, last = sorted(((*common, "u-0"), (*common, "u-1")), key=lambda it: digest(tuple(sorted(it))))
    member(group, "stays", names(2, "t-"))
    leavers = member(group, "a", first), member(group, "b", last)
    group.drain()
    for leaver in leavers:
        leaver.leave()
    group.drain()
    assert [leaver.leave() for leaver in leavers] == ["LEFT", "LEFT"]
    back = member(group, "back", last)
    group.drain()
    assert set(back.holds) == set(last)


def test_what_is_left_of_the_groups_own_list_is_nobodys(backend: Backend) -> None:
    """A member that leaves the list to the group comes while the old one is being let go of: what another list names
    is not its to work.
    """
    group = Group(backend, attrs.evolve(SETTINGS, moves_per_call=5))
    theirs = names(40, "s-")
    other = member(group, "a", theirs)
    own = group.join("b")
    group.set_resources(own, theirs, version=7)
    group.drain()
    group.until_left(own)
    newcomer = group.join("c")
    group.drain()
    assert len(other.holds) == len(theirs)
    assert not newcomer.holds


def test_a_version_from_before_is_no_licence_to_take_a_lower_one(group: Group) -> None:
    """Records of an earlier release do not say which version was complete: it is the one before the next began."""
    group.join("b")
    group.set_resources(group.join("a"), FORMER, version=5)
    group.drain()
    forget(group, b"list_complete")
    walker = begun(group)
    walker.silent = True
    group.run(2 * SETTINGS.session_timeout_ms, group.members["a"], group.members["b"])
    assert group.set_resources(group.members["b"], names(3), version=2) == "IGNORED"
    assert group.set_resources(group.members["b"], FORMER, version=5) == "DONE"


def forget(group: Group, field: bytes) -> None:
    """Removes a scalar from the records, as of a release that did not know it."""
    state = group_keys(group.coordinator.group)[0].encode()
    kept = []
    for key in group.backend.dump():
        fields = list(zip(key.contents[::2], key.contents[1::2], strict=True)) if key.key == state else []
        without = tuple(it for pair in fields if pair[0] != field for it in pair)
        kept.append(attrs.evolve(key, contents=without) if key.key == state else key)
    group.restore(tuple(kept))


@pytest.mark.parametrize("count", [20, 300])
def test_a_lost_index_of_names_is_declared_anew(group: Group, count: int) -> None:
    """However many calls the repair takes: members are asked for the list, and everything is worked."""
    group.set_resources(group.join("a"), names(count), version=1)
    group.drain()
    declared = group_keys(group.coordinator.group)[16].encode()
    group.restore(tuple(key for key in group.backend.dump() if key.key != declared))
    group.coordinator.repair()
    again = group.members["a"].rejoin("again")
    assert group.set_resources(again, names(count), version=1) == "DONE"
    group.drain(again)
    assert len(again.holds) == count


def test_the_offset_of_what_is_resumed_and_removed_in_one_call_is_forgotten_in_time(group: Group) -> None:
    """Its pause ends with the very call that drops it from the list."""
    group.join("b")
    a = group.join("a")
    group.set_resources(a, ("poison", "x", "y"), version=1)
    group.drain()
    group.members[str(group.holders()["poison"])].commit("poison", 7)
    for _ in range(2):
        group.drain()
        group.members[str(group.holders()["poison"])].release("poison", reason="boom")
    ends_ms = int(group.records().zsets["timers"]["a:poison"])
    group.run(ends_ms - group.backend.now_ms - 1)
    group.backend.now_ms = ends_ms
    group.set_resources(a, ("x", "y"), version=2)
    group.drain()
    for _ in range(20):
        group.backend.now_ms += DAY_MS
        group.tick()
    assert not group.records().offsets


MOST = 32
"""Different lists that the members of a group may have."""


def die(group: Group, *members: Member) -> None:
    """Their sessions end, and nobody is there."""
    for it in members:
        it.silent = True
    for _ in range(3):
        group.backend.now_ms += group.settings.session_timeout_ms
        group.tick()
    assert not list(group.coordinator.members())


@pytest.mark.parametrize("declared", ["nothing", "a part", "all"])
@pytest.mark.parametrize("together", [False, True])
def test_lists_of_the_dead_are_no_reason_to_refuse_another(group: Group, declared: str, together: bool) -> None:
    """As many different ones as there may be, known or not: the next one is taken, and they are let go of."""
    for number in range(MOST):
        theirs = names(4, f"{number:02}-")
        it = group.join(f"m{number}", subscription=digest(theirs))
        if declared == "all":
            group.set_resources(it, theirs, version=1)
        elif declared == "a part":
            it.ask(SetResources(version=1, digest=str(hash(theirs)), to=theirs[1], names=theirs[:2]))
        if not together:
            die(group, it)
    if together:
        die(group, *group.members.values())
    late = member(group, "late", ["00-000", "x"])
    assert late.last.status == "OK"
    group.run(2_000, late)
    group.drain(late)
    assert set(late.holds) == {"00-000", "x"} == set(group.holders())
    assert [row.id for row in group.coordinator.subscriptions()] == [digest(("00-000", "x"))]


@pytest.mark.thorough
def test_lists_of_the_dead_do_not_grow_in_number(group: Group) -> None:
    """Process after process begins to declare a list of its own, and dies."""
    first = member(group, "first", names(6, "first-"))
    die(group, first)
    for number in range(2 * MOST):
        theirs = names(4, f"{number:02}-")
        it = group.join(f"m{number}", subscription=digest(theirs))
        assert it.ask(SetResources(version=1, digest=str(hash(theirs)), to=theirs[1], names=theirs[:2])).status == "OK"
        die(group, it)
    assert len(group.coordinator.subscriptions()) <= MOST
    again = member(group, "again", names(6, "first-"))
    group.run(2_000, again)
    group.drain(again)
    assert set(again.holds) == set(names(6, "first-")) == set(group.holders())


@pytest.mark.thorough
def test_as_many_lists_as_there_may_be_are_taken_again_after_all_have_died(group: Group) -> None:
    """Their processes are restarted at a time; what is one too many is refused, as before."""
    wanted = [names(2, f"{number:02}-") for number in range(MOST)]
    die(group, *(member(group, f"m{number}", it) for number, it in enumerate(wanted)))
    group.members.clear()
    again = [member(group, f"again{number}", it) for number, it in enumerate(wanted)]
    assert group.join("late", subscription="one-more").last.status == "SUBSCRIPTIONS"
    del group.members["late"]
    group.run(2_000)
    group.drain()
    assert [set(it.holds) for it in again] == [set(it) for it in wanted]
