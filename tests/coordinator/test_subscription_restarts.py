"""What outlives those who named it, or began to."""

from __future__ import annotations

from tests.coordinator.driver import Group, Member, names
from tests.coordinator.test_subscriptions import DAY_MS, member

from cobalance.coordinator.requests import SetResources


def halted_and_let_go_of(group: Group) -> Member:
    """The only one that names a poisoned resource halts it, and leaves; the other one stays."""
    a, b = member(group, "a", ["poison", "x"]), member(group, "b", ["x", "y"])
    group.drain()
    assert a.release("poison", reason="halted:poisoned") == ("OK",)
    group.until_left(a)
    group.drain()
    assert "poison" not in group.holders()
    return b


def test_what_is_let_go_of_stays_halted(group: Group) -> None:
    """The next process that names it does not meet the poison again; an operator's word is as good as before."""
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
    """Somebody who has sent one page of a list of a higher version than the group's."""
    it = group.join("walker")
    page = SetResources(version=6, digest=str(hash(SHORTER)), to=FORMER[99], names=FORMER[:100])
    assert it.ask(page).results[0] == "NEXT"
    return it


def is_known(group: Group) -> bool:
    """Whether the group's own list is."""
    return next(row.known for row in group.coordinator.subscriptions() if row.id == "-")


def test_a_list_that_nobody_finishes_gives_way_to_the_one_before(group: Group) -> None:
    """Who began it has died, and those who come next know the former one only."""
    a = group.join("a")
    assert group.set_resources(a, FORMER, version=5) == "DONE"
    walker = begun(group)
    b = group.join("b")
    assert group.set_resources(b, FORMER, version=5) == "IGNORED"
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
    """Not after a repair of what Redis has lost either, though who sends it again dies half-way."""
    a = group.join("a")
    assert group.set_resources(a, FORMER, version=5) == "DONE"
    assert group.set_resources(a, SHORTER, version=6) == "DONE"
    group.poke("list_done", 0)  # as after a loss: it is to be declared again
    begun(group).silent = True
    group.run(2 * group.settings.session_timeout_ms)
    assert group.set_resources(a, FORMER, version=5) == "IGNORED"
