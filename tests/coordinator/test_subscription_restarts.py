"""What outlives those who named it, or began to."""

from __future__ import annotations

from tests.coordinator.driver import Group, Member
from tests.coordinator.test_subscriptions import DAY_MS, member


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
