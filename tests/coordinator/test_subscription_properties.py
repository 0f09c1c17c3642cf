"""Any history of a group whose members can work different things, while lists come and go.

The same is checked as in `test_assignment_properties.py`, but with another definition of even: no member gets what its
list does not name, everything named by a member with a share is held, and no single move would reduce the difference
between two members.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import HealthCheck, assume, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test
from tests.coordinator.driver import Member
from tests.coordinator.test_assignment_properties import MOST_MEMBERS, POOL, Histories, any_member

OWN = "-"
LISTS = {"all": POOL, "first": POOL[:12], "last": POOL[9:], "one": POOL[:1], "few": POOL[4:7], "none": ()}


class Subscriptions(Histories):
    """A member has one of several subscriptions, and declares its list now or later; the group's own list changes."""

    def __init__(self) -> None:
        super().__init__()
        self.subscribed: dict[str, str] = {}

    def declare(self, member: Member) -> None:
        """It sends its list, as far as it is asked for."""
        name = self.subscribed[member.id]
        if name != OWN:
            assert self.group.set_resources(member, LISTS[name], version=1) in ("DONE", "CURRENT", "WAIT", "ENDED")

    @rule(
        capacity=st.sampled_from([1, 1, 1, 2, 3, 0]),
        subscription=st.sampled_from([*LISTS, OWN]),
        lose_reply=st.booleans(),
        at_once=st.booleans(),
    )
    def join(self, capacity: int, subscription: str, *, lose_reply: bool, at_once: bool) -> None:
        """A process of one of several deployments joins."""
        assume(len(self.members) < MOST_MEMBERS)
        self.joins += 1
        member = self.group.join(f"m{self.joins}", capacity=capacity, subscription=subscription, lose_reply=lose_reply)
        if lose_reply:
            member.repeat()
        self.capacities[member.id], self.subscribed[member.id] = capacity, subscription
        if at_once:
            self.declare(member)

    @rule(index=any_member)
    def declare_late(self, index: int) -> None:
        """A process says what it can work."""
        self.declare(self.pick(index))

    @rule(index=any_member, count=st.integers(0, len(POOL)), start=st.integers(0, len(POOL)))
    def change_list(self, index: int, count: int, start: int) -> None:
        """Another list for those that leave it to the group."""
        member = self.pick(index)
        assume(self.subscribed[member.id] == OWN)
        self.group.set_resources(member, tuple(sorted((POOL + POOL)[start : start + count])))

    # -- what always holds -------------------------------------------------------------------------------------------

    def named_by(self, subscription: str) -> set[str]:
        """What its list names; until the group has a list of its own, that is what no other list names."""
        if subscription != OWN:
            return set(LISTS[subscription])
        records = self.group.records()
        entries = [entry.split(" ") for entry in records.zsets["declared"]]
        if records.number("list_version"):
            return {name for it, name in entries if it == OWN}
        had = {it.subscription for it in records.members.values() if it.is_counted}
        return records.resources.keys() - {name for it, name in entries if it in had}

    @invariant()
    def nobody_is_given_what_it_does_not_name(self) -> None:
        """Whatever members were there before."""
        for name, record in self.group.records().resources.items():
            if record.status == "granted":
                assert name in self.named_by(self.subscribed[record.owner]), f"{name} was given to {record.owner}"

    # -- what holds once it is quiet ---------------------------------------------------------------------------------

    def go_quiet(self) -> None:
        """All members have said what they can work."""
        for member in self.members:
            self.declare(member)
        super().go_quiet()

    def check_quiet(self) -> None:
        """What any member can work is held by one that can; nothing waits; a fixed point."""
        records = self.group.records()
        note(f"quiet: {self.group.loads()} of {self.subscribed}")
        named = {member.id: self.named_by(self.subscribed[member.id]) for member in self.members}
        workers = {member: named[member] for member, capacity in self.shares().items() if capacity}
        if self.members:
            assert {name for name, it in records.resources.items() if not it.removing} == set().union(*named.values())
        for name, it in records.resources.items():
            if self.members:
                assert (it.status == "held") == any(name in names for names in workers.values()), (
                    f"{name} is {it.status}"
                )
            if it.status == "held":
                assert name in workers[it.owner], f"{it.owner} has {name}"
        if len({self.subscribed[member] for member in workers}) > 1:  # otherwise quotas say how many
            assert not list(self.better_moves(workers))
        assert all(not member.pending for member in self.members)
        self.check_fixed_point()

    def better_moves(self, workers: dict[str, set[str]]) -> Iterator[str]:
        """Those that would reduce the difference between two members."""
        kept, capacity = self.group.loads(), self.capacities
        for (name, owner), (other, names) in product(self.group.holders().items(), workers.items()):
            if owner not in workers or other == owner or name not in names:
                continue
            if Fraction(kept[owner], capacity[owner]) > Fraction(kept[other] + 1, capacity[other]):
                yield f"{name} from {owner} to {other}"

    @precondition(lambda _: False)
    @rule(change=st.just("join"), index=any_member, size=st.integers(0, 18))
    def one_change(self, change: str, index: int, size: int) -> None:
        """The fewest moves are defined by quotas."""


class OneMoveACall(Subscriptions):
    """The same with every call limited to one move."""

    moves_per_call = 1


class Gathered(Subscriptions):
    """The same with batched changes."""

    gather_ms = 400


@pytest.mark.parametrize("examples", [8, pytest.param(40, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("machine", [Subscriptions, OneMoveACall, Gathered])
def test_every_history_ends_with_each_working_its_own(machine: type[Subscriptions], examples: int) -> None:
    """Whatever is deployed in whatever order, the group comes to rest, and no member ever has what its code does not
    name.
    """
    profile = settings(
        max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
    )
    run_state_machine_as_test(machine, settings=profile)
