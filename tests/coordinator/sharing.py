"""Defines an evenly shared group: every resource has one holder that knows it, and loads are within one."""

from __future__ import annotations

from tests.coordinator.driver import Group, Member
from tests.coordinator.oracle import fewest_moves


def check_shared(group: Group, *members: Member) -> None:
    """Everything is held by one member each that knows it and may work on it, nothing is asked back, and loads are
    within one.
    """
    held = [name for member in members for name in member.holds]
    assert sorted(held) == sorted(group.holders()), "not everything is held once"
    assert group.holders() == {name: member.id for member in members for name in member.holds}
    assert all(member.works_on(name) for member in members for name in member.holds)
    assert not any(member.pending for member in members)
    loads = [len(member.holds) for member in members]
    assert max(loads) - min(loads) <= 1, f"uneven: {loads}"


def tokens(*members: Member) -> dict[str, tuple[str, int]]:
    """Resource → its holder and token."""
    return {name: (it.id, tenure.token) for it in members for name, tenure in it.holds.items()}


def moved(before: dict[str, tuple[str, int]], after: dict[str, tuple[str, int]]) -> list[str]:
    """Tenures that ended although their resource still exists."""
    return sorted(name for name in before.keys() & after.keys() if before[name] != after[name])


def fewest(before: dict[str, tuple[str, int]], group: Group, *staying: Member) -> int:
    """How many tenures of remaining members must end to make all of `staying` even, by the oracle."""
    names = group.holders().keys()
    kept = {it.id: sum(owner == it.id for name, (owner, _) in before.items() if name in names) for it in staying}
    return fewest_moves(len(names), kept, {it.id: 1 for it in staying})
