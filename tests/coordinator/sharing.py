"""What an evenly shared group looks like, said once: every resource with one holder who knows it, loads within one."""

from __future__ import annotations

from tests.coordinator.driver import Group, Member
from tests.coordinator.oracle import fewest_moves


def check_shared(group: Group, *members: Member) -> None:
    """Everything is held, each by one member that knows it and may work on it, nothing is asked back, loads are within one."""
    held = [name for member in members for name in member.holds]
    assert sorted(held) == sorted(group.holders()), "not everything is held once"
    assert group.holders() == {name: member.id for member in members for name in member.holds}
    assert all(member.works_on(name) for member in members for name in member.holds)
    assert not any(member.pending for member in members)
    loads = [len(member.holds) for member in members]
    assert max(loads) - min(loads) <= 1, f"uneven: {loads}"


def tokens(*members: Member) -> dict[str, tuple[str, int]]:
    """Resource → who has it under which token."""
    return {name: (it.id, tenure.token) for it in members for name, tenure in it.holds.items()}


def moved(before: dict[str, tuple[str, int]], after: dict[str, tuple[str, int]]) -> list[str]:
    """Tenures that did not go on although their resource is still there."""
    return sorted(name for name in before.keys() & after.keys() if before[name] != after[name])


def fewest(before: dict[str, tuple[str, int]], group: Group, *staying: Member) -> int:
    """How many tenures of those who stay have to end for all `staying` to be even, by the oracle."""
    names = group.holders().keys()
    kept = {it.id: sum(owner == it.id for name, (owner, _) in before.items() if name in names) for it in staying}
    return fewest_moves(len(names), kept, {it.id: 1 for it in staying})
